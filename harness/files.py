"""Files that many processes share: written whole or not at all, synced, and locked."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def write_whole(path: Path, content: str | bytes, *, durable: bool = False) -> Path:
    """Put `content` where `path` says at once, so that nobody ever reads half a file, and return the path.

    Args:
        path: Replaced if it exists; its folder is made if it doesn't.
        content: Text is written as UTF-8.
        durable: Return only once it is on the disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        if durable:
            sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        sync(path.parent)
    return path


def sync(path: Path) -> None:
    """Return once a file's contents, or a folder's list of names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file until the block, or the process, ends.

    The value says whether it is really held: it is not where the file system has no locks.

    Raises:
        BlockingIOError: Another process holds it, and `wait` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        is_held = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            is_held = False
        yield is_held
