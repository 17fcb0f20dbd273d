"""The hub and its local cache: which commit a repository is pinned to, what of it is here, how the rest comes.

What is in the cache is used as it is, without asking the hub; `lethe prefetch` fills it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from harness.errors import DataError, LetheError, ModelError

SECONDS = 3.0
"""How long the hub may take to say what it has; a mistyped name must not cost half a minute of retries."""
DESCRIPTION = ("*.json", "*.txt", "*.model", "*.jinja")
"""A model's configuration and tokenizer."""
WEIGHTS = ("model*.safetensors",)
PICKLED = ("pytorch_model*.bin",)
ROWS = ("*.parquet", "*.jsonl", "*.json", "*.jsonl.gz", "*.json.gz")
CARD = "README.md"
"""Says which files make up a data set's configurations."""


@dataclass(frozen=True)
class Repository:
    """A model or a data set on the hub."""

    id: str
    kind: Literal["model", "dataset"]
    revision: str | None = None

    def __str__(self) -> str:
        """Return what messages call it.

        Example:
            >>> str(Repository("Salesforce/wikitext", "dataset"))
            "the data set 'Salesforce/wikitext'"
        """
        return f"the {'data set' if self.kind == 'dataset' else 'model'} '{self.id}'"


def cached(repository: Repository, patterns: Sequence[str]) -> Path | None:
    """Return the snapshot in the local cache, if it has files of these patterns and none of them is missing."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = snapshot_download(
            repository.id,
            repo_type=repository.kind,
            revision=repository.revision,
            allow_patterns=list(patterns),
            local_files_only=True,
        )
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise _error(repository)(f"{repository} is neither a folder nor an id on the hub (owner/name).") from error
    # A cache that an older version filled has no list of what belongs to it: shards number themselves.
    inside = matching(_names(Path(found)), patterns)
    return Path(found) if inside and not _missing_shards(inside) else None


def _names(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def _missing_shards(names: Sequence[str]) -> list[str]:
    """Return the names that the others promise: `model-00002-of-00002` beside `model-00001-of-00002`.

    Example:
        >>> _missing_shards(["model-00001-of-00002.safetensors"])
        ['model-00002-of-00002.safetensors']
    """
    missing = []
    for name in names:
        found = re.search(r"-(\d{5})-of-(\d{5})", name)
        for number in range(int(found[2])) if found else ():
            # Weights are numbered from 1, rows from 0.
            first = 1 if fnmatch(name, "*.safetensors") or fnmatch(name, "*.bin") else 0
            assert found is not None
            missing.append(f"{name[: found.start()]}-{number + first:05d}-of-{found[2]}{name[found.end() :]}")
    return sorted(set(missing) - set(names))


def commit(repository: Repository) -> str:
    """Return the commit that a repository is pinned to: the one in the cache, else the hub's newest.

    Raises:
        ModelError, DataError: It is neither in the cache nor on the hub, or the hub does not answer.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        at = {"repo_type": repository.kind, "revision": repository.revision}
        # No patterns: whatever is there of it, since the commit is all that is asked for.
        return Path(snapshot_download(repository.id, **at, allow_patterns=[], local_files_only=True)).name
    except LocalEntryNotFoundError:
        pass
    try:
        HfApi().repo_info(repository.id, **at, timeout=SECONDS)
        # Fetches no file, but leaves in the cache which commit the name stands for: offline that is known from there.
        return Path(snapshot_download(repository.id, **at, allow_patterns=[])).name
    except Exception as error:
        raise _unreachable(repository, error) from error


def listed(repository: Repository) -> list[str]:
    """Return the names of all files that the hub has of a repository.

    Raises:
        ModelError, DataError: The hub does not say.
    """
    from huggingface_hub import HfApi

    try:
        info = HfApi().repo_info(
            repository.id, repo_type=repository.kind, revision=repository.revision, timeout=SECONDS
        )
    except Exception as error:
        raise _unreachable(repository, error) from error
    return [file.rfilename for file in info.siblings or ()]


def matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that fit one of the patterns.

    Example:
        >>> matching(["config.json", "pytorch_model.bin"], PICKLED)
        ['pytorch_model.bin']
    """
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]


def fetch(repository: Repository, patterns: Sequence[str], besides: Sequence[str] = ()) -> Path:
    """Return the folder of a repository's files, from the cache or, where it lacks them, from the hub.

    Args:
        repository: Which.
        patterns: Of the files that must be there.
        besides: Of files that are fetched with them, if there are any.

    Raises:
        ModelError, DataError: They are neither here nor there.
    """
    from huggingface_hub import snapshot_download

    here = cached(repository, patterns)
    if here is not None:
        return here
    at = commit(repository)
    try:
        found = snapshot_download(
            repository.id, repo_type=repository.kind, revision=at, allow_patterns=[*patterns, *besides]
        )
    except Exception as error:
        raise _unreachable(repository, error) from error
    if not matching(_names(Path(found)), patterns):
        raise _error(repository)(f"{repository} has no files {' or '.join(patterns)} on the hub.")
    return Path(found)


def cached_rows(repository: Repository, configuration: str | None) -> Path | None:
    """Return the snapshot in the cache that has a data set's files, or those of one of its configurations."""
    return next((at for patterns in _rows(configuration) if (at := cached(repository, patterns))), None)


def fetch_rows(repository: Repository, configuration: str | None) -> Path:
    """Return the folder of a data set's files: of one configuration only, where that has a folder of its own.

    Raises:
        DataError: They are neither here nor on the hub.
    """
    here = cached_rows(repository, configuration)
    if here is not None:
        return here
    pinned = replace(repository, revision=commit(repository))
    names = listed(pinned)
    patterns = next((each for each in _rows(configuration) if matching(names, each)), ROWS)
    return fetch(pinned, patterns, [CARD])


def _rows(configuration: str | None) -> list[tuple[str, ...]]:
    return [tuple(f"{configuration}/{pattern}" for pattern in ROWS), ROWS] if configuration else [ROWS]


def converted(repository: Repository) -> Path:
    """Return where the weights of a pinned model are, or would be, that the hub has only as a pickle."""
    from huggingface_hub import constants

    home = Path(constants.HF_HUB_CACHE).with_name("lethe-converted")
    return home / repository.id.replace("/", "--") / str(repository.revision)


def _error(repository: Repository) -> type[LetheError]:
    return DataError if repository.kind == "dataset" else ModelError


def _unreachable(repository: Repository, error: Exception) -> LetheError:
    from huggingface_hub.errors import RepositoryNotFoundError

    if isinstance(error, RepositoryNotFoundError):
        return _error(repository)(f"the hub has no {str(repository)[4:]} (or it is private), nor is it a folder here.")
    return _error(repository)(
        f"{repository} is not whole in this machine's hub cache, and the hub cannot be reached "
        f"({type(error).__name__}). Run `lethe prefetch FILE` where there is a network, or give a local folder."
    )
