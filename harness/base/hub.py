"""The hub and its local cache, which is used without asking the hub."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harness.errors import DataError, LetheError, ModelError

DESCRIPTION = ("*.json", "*.txt", "*.model", "*.jinja")
"""A model's configuration and tokenizer."""
WEIGHTS = ("model*.safetensors", "[0-9]_*/model*.safetensors")
"""Of a model, and of a sentence encoder's further layers."""
DATA_FILES = ("*.parquet", "*.jsonl", "*.json", "*.jsonl.gz", "*.json.gz")
CARD = "README.md"
"""Lists the files of a data set's configurations."""


class Repository(NamedTuple):
    """A model or a data set on the hub."""

    id: str
    kind: Literal["model", "dataset"]
    revision: str | None = None

    def __str__(self) -> str:
        return f"the {'data set' if self.kind == 'dataset' else 'model'} '{self.id}'"

    def failure(self, reason: str) -> LetheError:
        """Return the error of an unusable repository."""
        return (DataError if self.kind == "dataset" else ModelError)(f"{self} {reason}")


def home() -> Path:
    """Return the folder of the hub's files of this user."""
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME)


def commit(repository: Repository) -> str:
    """Return a repository's commit: the cached one, else the newest."""
    return (cached(repository, ()) or _downloaded(repository, ())).name


def cached(repository: Repository, patterns: Sequence[str]) -> Path | None:
    """Return the cached snapshot, if it has every listed file of these patterns."""
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = _snapshot(repository, patterns, is_offline=True)
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise repository.failure("is neither a folder nor an id on the hub (owner/name).") from error
    return folder if not patterns or _has_files(folder, patterns) else None


def fetch(repository: Repository, patterns: Sequence[str], optional: Sequence[str] = (), *, fill: bool = False) -> Path:
    """Return the folder of the files that match `patterns` (required) or `optional`, from the cache or the hub.

    `fill` asks the hub for what the cache lacks.
    """
    if not fill and (folder := cached(repository, patterns)):
        return folder
    folder = _downloaded(repository._replace(revision=commit(repository)), (*patterns, *optional))
    if not _has_files(folder, patterns):
        raise repository.failure(f"has no files {' or '.join(patterns)} on the hub.")
    return folder


def is_listed(repository: Repository) -> bool:
    """Return whether the cache lists the repository's files; other programs may have fetched a part."""
    from huggingface_hub import errors, get_cached_repo_tree

    try:
        return bool(get_cached_repo_tree(repository.id, repo_type=repository.kind, revision=repository.revision))
    except errors.CachedRepoTreeNotFoundError:
        return False


def file_names(repository: Repository) -> list[str]:
    """Return the names of a repository's files on the hub."""
    from huggingface_hub import HfApi

    with _reaching(repository):
        return HfApi().list_repo_files(repository.id, revision=repository.revision, repo_type=repository.kind)


def matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that match one of the patterns."""
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]


def cached_data_set(repository: Repository, configuration: str | None) -> Path | None:
    """Return the cached snapshot of a data set or of one configuration."""
    folders = (cached(repository, patterns) for patterns in _data_patterns(configuration))
    return next((folder for folder in folders if folder), None)


def fetch_data_set(repository: Repository, configuration: str | None) -> Path:
    """Return the folder of a data set's files, or of one configuration's folder."""
    if folder := cached_data_set(repository, configuration):
        return folder
    pinned = repository._replace(revision=commit(repository))
    names = file_names(pinned)
    patterns = next((patterns for patterns in _data_patterns(configuration) if matching(names, patterns)), DATA_FILES)
    return fetch(pinned, patterns, [CARD])


def _data_patterns(configuration: str | None) -> list[tuple[str, ...]]:
    own = [tuple(f"{configuration}/{pattern}" for pattern in DATA_FILES)] if configuration else []
    return [*own, DATA_FILES]


def _has_files(folder: Path, patterns: Sequence[str]) -> bool:
    return bool(matching((file.relative_to(folder).as_posix() for file in folder.rglob("*")), patterns))


def _snapshot(repository: Repository, patterns: Sequence[str], *, is_offline: bool) -> Path:
    from huggingface_hub import snapshot_download

    where: Any = {"repo_id": repository.id, "repo_type": repository.kind, "revision": repository.revision}
    return Path(snapshot_download(**where, allow_patterns=list(patterns), local_files_only=is_offline))


def _downloaded(repository: Repository, patterns: Sequence[str]) -> Path:
    with _reaching(repository):
        return _snapshot(repository, patterns, is_offline=False)


@contextmanager
def _reaching(repository: Repository) -> Iterator[None]:
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        yield
    except RepositoryNotFoundError as error:
        raise repository.failure("is not on the hub (or private or gated: set HF_TOKEN), nor a folder here.") from error
    except Exception as error:
        raise repository.failure(
            f"or a part of it is not in this machine's hub cache, and cannot be fetched ({type(error).__name__}). "
            "Run `lethe prefetch FILE` where there is a network, or give a local folder."
        ) from error
