"""Files that many processes share: written whole or not at all, synced, locked, and open to whom their folder is.

Every write of the harness goes through here, or through `harness.base.storage.writing` where a library writes, so that
whatever goes wrong ends in one sentence.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Literal

from harness.base.messages import printable
from harness.base.storage import reading, writing
from harness.errors import DataError

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems say that cannot sync at all, or no folders."""
_FRESH_SECONDS = 1.0
"""A temporary may be this young and not locked yet."""


def write_whole(
    path: Path, content: str | bytes, what: str = "a file of the results", *, durable: bool = False
) -> Path:
    """Put `content` where `path` says at once, so that nobody ever reads half a file, and return the path.

    Args:
        path: Replaced if it exists; its folder is made if it doesn't.
        content: Text is written as UTF-8, as far as it is `printable`.
        what: Named in the error.
        durable: Return only once it is on the disk.

    Raises:
        StorageError: It cannot be written; what was there before still is.
    """
    encoded = printable(content).encode() if isinstance(content, str) else content
    with writing(path, what, len(encoded)):
        path.parent.mkdir(parents=True, exist_ok=True)
        _refuse_device(path)
        with _temporary_beside(path) as temporary:
            temporary.touch(exist_ok=False)
            with _in_use(temporary):
                temporary.write_bytes(encoded)
                if durable:
                    sync(temporary)
                temporary.replace(path)
        if durable:
            sync(path.parent)
    return path


@contextmanager
def folder_whole(folder: Path, what: str, existing: Literal["keep", "refuse"]) -> Iterator[Path]:
    """Give an empty folder that takes its place as `folder` once the block is through: there is never half of it.

    Args:
        folder: Where it will be; the folder above it is made if it isn't there.
        what: Named in the error.
        existing: What to do if `folder` is there at the end.

    Raises:
        StorageError: It cannot be written; nothing is left of it, and what was there before still is.
    """
    with writing(folder, what):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _refuse_device(folder)
        if folder.is_file():
            raise FileExistsError(errno.EEXIST, "no folder")
    with writing(folder, what, reads_too=True), _temporary_beside(folder) as temporary:
        with writing(folder, what):
            temporary.mkdir()
        with _in_use(temporary):
            yield temporary
            with writing(folder, what):
                settle(temporary)
                if existing == "refuse" or not folder.exists():
                    temporary.rename(folder)
                sync(folder.parent)


def _refuse_device(path: Path) -> None:
    """Raise an OSError if a device, a pipe or a socket is there: to replace /dev/null would harm the whole machine."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.ESPIPE, "no regular file")


def remove_at_once(folder: Path) -> None:
    """Remove a folder, if it is there: whole or not at all to whoever looks for it."""
    with _temporary_beside(folder) as aside, suppress(FileNotFoundError):
        folder.rename(aside)


def settle(folder: Path) -> None:
    """Give everything in a folder the modes of a new file or folder there, and return once it is on the disk.

    Libraries make files that only this user can read; a results folder may be for a whole group.
    """
    usual = stat.S_IMODE(folder.stat().st_mode)
    for path in (*folder.rglob("*"), folder):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue
        mode = stat.S_IMODE(status.st_mode)
        wanted = mode | (usual & 0o777 if stat.S_ISDIR(status.st_mode) else usual & 0o666)
        if wanted != mode:
            path.chmod(wanted)
        sync(path)


def append_line(path: Path, line: bytes, what: str) -> None:
    """Write a line at the end of a file, on a line of its own, and return once it is on the disk.

    Raises:
        StorageError: It cannot be written; the file is as it was.
    """
    with writing(path, what, len(line)):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.ESPIPE, "no regular file")
            size = status.st_size
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            left = b"\n" + line if torn else line
            try:
                while left:  # One write, so that lines never mix; a second only after a short one, to raise why.
                    left = left[os.write(file, left) :]
                _fsync(file)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file, size)
                    if not size:
                        path.unlink()
                raise
        finally:
            os.close(file)
        if not size:
            sync(path.parent)


def read_regular(path: Path, what: str) -> bytes:
    """Return a file's bytes; a pipe is refused, since it would be waited for.

    Raises:
        FileNotFoundError: Nothing is there.
        DataError: It is no file, or cannot be read.
    """
    with reading(path, what):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.ESPIPE, "no regular file")
        return path.read_bytes()


def sync(path: Path) -> None:
    """Return once a file's contents, or a folder's list of names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


@contextmanager
def locked(path: Path, *, wait: float = math.inf, busy: str = "") -> Iterator[bool]:
    """Hold the lock file until the block, or the process, ends.

    The value says whether it is really held: it is not where the file system has no locks.

    Args:
        path: The lock file; it is made if it isn't there.
        wait: For how many seconds, while another process holds it.
        busy: What to tell the user if it is still held then.

    Raises:
        DataError: Another process holds it; the message is `busy`.
        StorageError: The lock file cannot be made.
    """
    with writing(path, "a lock"):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    deadline = time.monotonic() + wait
    with file:
        is_held = False
        while not is_held:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait == math.inf else fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_held = True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise DataError(busy) from None
                time.sleep(0.05)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                break
        yield is_held


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    """Yield the name of a temporary beside `path`, which is gone afterwards, and remove what killed processes left."""
    for abandoned in path.parent.glob(f".{escape(path.name)}.*.tmp"):
        with suppress(OSError), _in_use(abandoned, alone=True):
            remove(abandoned)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
    finally:
        remove(temporary)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it, as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _in_use(path: Path, *, alone: bool = False) -> Iterator[None]:
    """Hold a lock on a file or folder itself, where there are locks; `alone`, or raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if alone:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - os.fstat(descriptor).st_mtime < _FRESH_SECONDS:
                raise BlockingIOError
        else:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
