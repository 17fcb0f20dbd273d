"""Files of the results: written whole or not at all, appended durably, locked; digests of files and values."""

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from harness.base.messages import printable
from harness.errors import DataError, StorageError

_SHOWN_CHARACTERS = 80


def parse_path(text: str | os.PathLike[str], error: type[Exception] = DataError) -> Path:
    """Return the path of a text, `~` expanded; it need not exist."""
    path_text = os.fspath(text)
    try:
        path = Path(path_text).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, RuntimeError, ValueError) as problem:  # The latter two: an unknown user's home, a NUL character.
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error(f"the path {quote_text(path_text)} can name no file ({reason}). Name another.") from problem
    if not path_text:
        raise error("the path '' is empty. Name another.")
    return path


def quote_text(text: str) -> str:
    r"""Return a text in quotes, escaped and cut.

    Example:
        >>> print(quote_text("a\0b"), quote_text("long" * 99)[-8:])
        'a\x00b' nglong…'
    """
    return f"'{printable(text[:_SHOWN_CHARACTERS])}{'…' if len(text) > _SHOWN_CHARACTERS else ''}'"


def usable_name(text: str) -> str:
    """Return the name of a sweep made from a text.

    Example:
        >>> usable_name("my letters.v2"), usable_name("...")
        ('my-letters-v2', 'sweep')
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_") or "sweep"


@contextmanager
def writing(path: Path, what: str) -> Iterator[None]:
    """Turn the block's OSErrors into one sentence with path and purpose."""
    try:
        yield
    except Exception as error:
        is_of_system = isinstance(error, OSError) or "(os error " in str(error)  # Rust's, in safetensors.
        if isinstance(error, StorageError) or not is_of_system:
            raise
        again = "Correct that and run the same command again."
        raise StorageError(f"{path} cannot be written ({what}): {error}. {again}") from error


def write_whole(
    path: Path, content: str | bytes, what: str = "a file of the results", *, durable: bool = False
) -> Path:
    """Replace a file atomically and return its path; make its folder; `durable` waits for the disk.

    Text is written as UTF-8, as far as it is `printable`.
    """
    encoded = printable(content).encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with writing(path, what):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(encoded)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return path


def name_aside(folder: Path) -> Path:
    """Return a new name next to a folder, and remove what killed processes left there."""
    for left in folder.parent.glob(f".{escape(folder.name)}.*.tmp"):
        remove(left)
    return folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")


@contextmanager
def folder_whole(folder: Path, what: str) -> Iterator[Path]:
    """Yield an empty folder that becomes `folder` after the block, or is removed on an error."""
    with writing(folder, what):
        folder.parent.mkdir(parents=True, exist_ok=True)
        (temporary := name_aside(folder)).mkdir()
    try:
        yield temporary
        with writing(folder, what):
            temporary.rename(folder)
    finally:
        remove(temporary)


def append_line(path: Path, line: bytes, what: str) -> None:
    """Append a line to a file, and return once it is on the disk.

    A line that an earlier process left unfinished stays, on its own.
    """
    with writing(path, what):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            is_torn = file.read(1) not in (b"", b"\n")
            file.write(b"\n" * is_torn + line)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def locked(path: Path, *, wait: float = -1, busy: str = "") -> Iterator[None]:
    """Hold a lock file until the block, or the process, ends; wait so many seconds, without limit for -1.

    Raises:
        DataError: Another process has it; the message is `busy`.
        StorageError: The lock file cannot be made.
    """
    lock = FileLock(path, timeout=wait)
    with writing(path, "a lock"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            raise DataError(busy) from None
    try:
        yield
    finally:
        lock.release()


def remove(path: Path) -> None:
    """Remove a file or folder as far as possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


SETTLED_NS = 2_000_000_000
"""A file younger than this may change without changing its times: it is read each time."""
_READ_BEFORE: dict[Path, tuple[tuple[int, ...], str]] = {}


def digest_of(value: Any) -> str:
    """Return 16 hex digits that name `value`, in any order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(file: Path) -> str:
    """Return the sha256 of a file, 64 hex digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def known_digest(file: Path) -> str:
    """Return the sha256 of a file, cached while its times and size do not change."""
    status = file.stat()
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    known_state, digest = _READ_BEFORE.get(file, ((), ""))
    if known_state != state:
        digest = file_digest(file)
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLED_NS:
            _READ_BEFORE[file] = state, digest
    return digest


def folder_digests(folder: Path, ignored: str = "") -> dict[str, str]:
    """Return the sha256 of every file below a folder by relative name, without `ignored`."""
    files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.is_file()}
    return {name: file_digest(file) for name, file in files.items() if name != ignored}


def difference(folder: Path, digests: Mapping[str, str], ignored: str = "") -> str:
    """Describe how a folder's files differ from these sha256s by relative name; '' if they do not."""
    present = folder_digests(folder, ignored)
    clauses = [f"{name} is missing" for name in sorted(digests.keys() - present.keys())]
    clauses += [f"{name} was added" for name in sorted(present.keys() - digests.keys())]
    changed = [name for name, digest in digests.items() if present.get(name, digest) != digest]
    return ", ".join([*clauses, *(f"{name} is not what was written" for name in changed)])
