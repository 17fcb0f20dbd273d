"""What a file system says against a write or a read, as one sentence: which path, what for, why, and what to do."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import DataError, StorageError

_AGAIN = "run the same command again"
_ELSEWHERE = f"Make it writable for this user, or name another folder, and {_AGAIN}."
_FULL = f"Free space there and {_AGAIN}."
_FORBIDDEN = ("this user may not write there", _ELSEWHERE)
_FILE_IN_THE_WAY = ("a file stands where one of its folders should be", f"Move that file away and {_AGAIN}.")
_FOLDER_IN_THE_WAY = ("a folder has its name", f"Move that folder away and {_AGAIN}.")
_IRREGULAR = "it is no regular file but a pipe, a socket or a device"
_TOO_LARGE = "it is larger than a file may be there (ulimit -f, or the file system's own limit)"
_UNREADABLE = ("this user may not read it", "Ask its owner to make it readable (chmod g+r, and g+rx on folders).")
_WRITE_FAULTS = {
    errno.EDQUOT: ("this user's quota there is used up", _FULL),
    errno.EFBIG: (_TOO_LARGE, f"Raise that limit, or name another folder, and {_AGAIN}."),
    errno.EROFS: ("its file system is read-only", _ELSEWHERE),
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.ENOTDIR: _FILE_IN_THE_WAY,
    errno.EEXIST: _FILE_IN_THE_WAY,
    errno.EISDIR: _FOLDER_IN_THE_WAY,
    errno.ENOTEMPTY: _FOLDER_IN_THE_WAY,
    errno.ELOOP: ("its links lead in a circle", f"Remove the link and {_AGAIN}."),
    errno.ENAMETOOLONG: ("a name in it is longer than the file system allows", "Give it a shorter name."),
    errno.EIO: ("the disk, or the connection to it, failed", f"Check the disk and {_AGAIN}."),
    errno.ENOENT: ("its folder was removed meanwhile", "Run the same command again."),
    errno.ESPIPE: (_IRREGULAR, "Name another path."),
    errno.EMFILE: ("this process has too many files open", f"Raise that limit (ulimit -n) and {_AGAIN}."),
}
_READ_FAULTS = _WRITE_FAULTS | {
    errno.EACCES: _UNREADABLE,
    errno.EPERM: _UNREADABLE,
    errno.EISDIR: ("it is a folder, and a file is expected", f"Move it away and {_AGAIN}."),
    errno.ESPIPE: (_IRREGULAR, f"Move it away and {_AGAIN}."),
}
_WRITES_ALONE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
"""What no read ever ends with."""
_TEMPORARY_NAME = re.compile(r"(^|/)\.(?:building-)?([^/]+)\.[0-9a-f]{8}(?:\.tmp)?(?=/|$)")


@contextmanager
def writing(path: Path, what: str, size: int | None = None, *, reads_too: bool = False) -> Iterator[None]:
    """Turn what the file system says against the block's writes into one sentence.

    Args:
        path: The file or folder that is being written.
        what: What is written, for the sentence: `the plan`.
        size: In bytes, as far as it is known.
        reads_too: The block does more than write: pass on whatever a read may also end with.

    Raises:
        StorageError: It could not be written.
    """
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        number = error_number(error)
        if number is None or (reads_too and number not in _WRITES_ALONE):
            raise
        raise unwritable(path, what, number, size) from error


def unwritable(path: Path, what: str, number: int, size: int | None = None) -> StorageError:
    """Return the error for a write that ended with this error number of the operating system."""
    if number == errno.ENOSPC:
        reason, remedy = _full(path, size)
    else:
        unknown = (os.strerror(number)[:1].lower() + os.strerror(number)[1:], f"Correct that and {_AGAIN}.")
        reason, remedy = _WRITE_FAULTS.get(number, unknown)
    final = _TEMPORARY_NAME.sub(r"\1\2", str(path))
    return StorageError(f"{final} cannot be written ({what}): {reason}. {remedy}")


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn what the file system says against the block's reads into one sentence; a missing file is none.

    Raises:
        FileNotFoundError: Nothing is there.
        DataError: It could not be read.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        unknown = ((error.strerror or str(error)).lower(), f"Correct that and {_AGAIN}.")
        reason, remedy = _READ_FAULTS.get(error.errno or 0, unknown)
        raise DataError(f"{path} cannot be read ({what}): {reason}. {remedy}") from error


def error_number(error: BaseException) -> int | None:
    """Return the operating system's number behind an error, whichever language it was raised in; None if there is none.

    Example:
        >>> error_number(OSError(28, "No space left on device"))
        28
        >>> error_number(RuntimeError("I/O error: No space left on device (os error 28)"))
        28
        >>> error_number(ValueError("not finite")) is None
        True
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    numbered = re.search(r"\(os error (\d+)\)|\[Errno (\d+)\]", str(error)[-2000:])
    return int(numbered[1] or numbered[2]) if numbered else None


def is_of_writing(error: BaseException) -> bool:
    """Return whether only a write can have ended so: a full or read-only disk."""
    return error_number(error) in _WRITES_ALONE


def _full(path: Path, size: int | None) -> tuple[str, str]:
    """Return why nothing more fits, and what to do, after a look at what is free now."""
    folder = next((parent for parent in path.absolute().parents if parent.is_dir()), Path("/"))
    try:
        status = os.statvfs(folder)
    except OSError:
        return "its disk is full", _FULL
    if status.f_files and not status.f_favail:
        return "its file system has no inode left, so no file can be added", f"Remove files there and {_AGAIN}."
    needs = f"it needs {size:,} bytes, and " if size is not None else ""
    return f"its disk is full ({needs}{status.f_bavail * status.f_frsize:,} bytes are free)", _FULL
