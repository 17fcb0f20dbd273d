"""The hub and its local cache: which commit a repository is pinned to, what of it is cached, how the rest is fetched.

What is in the cache is used as it is, without asking the hub; `lethe prefetch` fills it.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from harness.errors import DataError, LetheError, ModelError, StorageError

TIMEOUT_SECONDS = 3.0
"""How long the hub may take to say what it has; a mistyped name must not cost half a minute of retries."""
DESCRIPTION = ("*.json", "*.txt", "*.model", "*.jinja")
"""A model's configuration and tokenizer."""
WEIGHTS = ("model*.safetensors",)
PICKLED = ("pytorch_model*.bin",)
DATA_FILES = ("*.parquet", "*.jsonl", "*.json", "*.jsonl.gz", "*.json.gz")
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

    @property
    def error(self) -> type[LetheError]:
        """Return what is raised where it cannot be used."""
        return DataError if self.kind == "dataset" else ModelError


def cached(repository: Repository, patterns: Sequence[str]) -> Path | None:
    """Return the snapshot in the local cache, if it has files of these patterns and none of them is missing."""
    folder = _cached_snapshot(repository, patterns)
    if folder is None:
        return None
    # What was fetched with other patterns may lack shards: they number themselves.
    names = matching(_file_names(folder), patterns)
    return folder if names and not _missing_shards(names) else None


def _cached_snapshot(repository: Repository, patterns: Sequence[str]) -> Path | None:
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return _snapshot(repository, patterns, is_offline=True)
    except LocalEntryNotFoundError:
        return None
    except (HFValidationError, OSError, ValueError) as error:
        raise repository.error(f"{repository} is neither a folder nor an id on the hub (owner/name).") from error


def _snapshot(repository: Repository, patterns: Sequence[str], *, is_offline: bool = False) -> Path:
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            repository.id,
            repo_type=repository.kind,
            revision=repository.revision,
            allow_patterns=list(patterns),
            local_files_only=is_offline,
        )
    )


def _file_names(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def _missing_shards(names: Sequence[str]) -> list[str]:
    """Return the names that the others promise: `model-00002-of-00002` beside `model-00001-of-00002`.

    Example:
        >>> _missing_shards(["model-00001-of-00002.safetensors"])
        ['model-00002-of-00002.safetensors']
    """
    missing: set[str] = set()
    for name in names:
        if shard := re.search(r"-\d{5}-of-(\d{5})", name):
            # Weights are numbered from 1, rows from 0.
            first = 1 if name.endswith((".safetensors", ".bin")) else 0
            for number in range(first, first + int(shard[1])):
                missing.add(f"{name[: shard.start()]}-{number:05d}-of-{shard[1]}{name[shard.end() :]}")
    return sorted(missing.difference(names))


def commit(repository: Repository) -> str:
    """Return the commit that a repository is pinned to: the one in the cache, else the hub's newest.

    Raises:
        ModelError, DataError: It is neither in the cache nor on the hub, or the hub does not answer.
    """
    if folder := _cached_snapshot(repository, []):
        return folder.name
    try:
        _repository_info(repository)
        # Fetches no file, but leaves in the cache which commit the name stands for: offline that is known from there.
        return _snapshot(repository, []).name
    except Exception as error:
        raise _unreachable(repository, error) from error


def _repository_info(repository: Repository) -> Any:
    from huggingface_hub import HfApi

    return HfApi().repo_info(
        repository.id, repo_type=repository.kind, revision=repository.revision, timeout=TIMEOUT_SECONDS
    )


def files_on_hub(repository: Repository) -> list[str]:
    """Return the names of all files that the hub has of a repository.

    Raises:
        ModelError, DataError: The hub does not say.
    """
    try:
        info = _repository_info(repository)
    except Exception as error:
        raise _unreachable(repository, error) from error
    return [file.rfilename for file in getattr(info, "siblings", None) or ()]


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
        ModelError, DataError: They are neither in the cache nor on the hub.
    """
    if folder := cached(repository, patterns):
        return folder
    pinned = replace(repository, revision=commit(repository))
    try:
        folder = _snapshot(pinned, [*patterns, *besides])
    except Exception as error:
        raise _unreachable(repository, error) from error
    if not matching(_file_names(folder), patterns):
        raise repository.error(f"{repository} has no files {' or '.join(patterns)} on the hub.")
    return folder


def cached_data_set(repository: Repository, configuration: str | None) -> Path | None:
    """Return the snapshot in the cache that has a data set's files, or those of one of its configurations."""
    folders = (cached(repository, patterns) for patterns in _data_patterns(configuration))
    return next((folder for folder in folders if folder), None)


def fetch_data_set(repository: Repository, configuration: str | None) -> Path:
    """Return the folder of a data set's files: of one configuration only, where that has a folder of its own.

    Raises:
        DataError: They are neither in the cache nor on the hub.
    """
    if folder := cached_data_set(repository, configuration):
        return folder
    pinned = replace(repository, revision=commit(repository))
    names = files_on_hub(pinned)
    patterns = next((patterns for patterns in _data_patterns(configuration) if matching(names, patterns)), DATA_FILES)
    return fetch(pinned, patterns, [CARD])


def _data_patterns(configuration: str | None) -> list[tuple[str, ...]]:
    """Return the patterns of a data set's files, those in the configuration's own folder first."""
    own = [tuple(f"{configuration}/{pattern}" for pattern in DATA_FILES)] if configuration else []
    return [*own, DATA_FILES]


def conversion_folder(repository: Repository) -> Path:
    """Return where the weights of a pinned model are, or would be, that the hub has only as a pickle."""
    from huggingface_hub import constants

    home = Path(constants.HF_HUB_CACHE).with_name("lethe-converted")
    return home / repository.id.replace("/", "--") / str(repository.revision)


def _unreachable(repository: Repository, error: Exception) -> LetheError:
    from huggingface_hub import constants
    from huggingface_hub.errors import RepositoryNotFoundError

    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return StorageError(f"{constants.HF_HUB_CACHE} cannot be written ({repository}): {error.strerror}.")
    if isinstance(error, RepositoryNotFoundError):
        return repository.error(f"the hub has no {str(repository)[4:]} (or it is private), nor is it a folder here.")
    return repository.error(
        f"this machine's hub cache lacks {repository} or a part of it, and the hub cannot be reached "
        f"({type(error).__name__}). Run `lethe prefetch FILE` where there is a network, or give a local folder."
    )
