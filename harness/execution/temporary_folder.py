"""A driver's temporary folder: Ray's sessions and Tune's files, and every process that writes there."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from harness.execution.interruption import INTERRUPTION
from harness.storage import writing

_IN_USE = "in-use"
"""Locked for as long as the driver lives."""
_SESSIONS = "r"
"""Ray opens this one to all users; the outer one stays closed."""
_EMPTY_SECONDS = 60
"""After which a folder without a lock is nobody's: its driver ended before it could make one."""
_ROUNDS = 20
_WHAT = "Ray's temporary folder; TMPDIR names another place"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder; remove it in the end, with what runs in it, and those that killed drivers left.

    Raises:
        StorageError: It cannot be written, or what is done inside finds it full.
    """
    # Ray puts sockets below it, and a socket's path has at most 107 bytes.
    base = Path(tempfile.gettempdir())
    base = Path("/tmp") if len(str(base)) > 20 and Path("/tmp").is_dir() else base
    _remove_abandoned(base)
    while True:
        with writing(base, _WHAT):
            folder = Path(tempfile.mkdtemp(prefix="lethe-", dir=base)).resolve()
        with _removed_in_the_end(folder), _opened(folder / _IN_USE) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / _IN_USE).exists():  # Another driver took it for abandoned before it was locked.
                continue
            with writing(folder, _WHAT, reads_too=True):
                (folder / _SESSIONS).mkdir()
                yield folder / _SESSIONS
            return


def _opened(lock: Path) -> BinaryIO:
    with writing(lock.parent, _WHAT):
        return lock.open("ab")


@contextmanager
def _removed_in_the_end(folder: Path) -> Iterator[None]:
    with INTERRUPTION.cleaning_up(partial(_remove, folder)):
        try:
            yield
        finally:
            with INTERRUPTION.deferred():
                _remove(folder)


def kill_users(folder: Path) -> None:
    """Kill every process of this machine that writes into the folder, and wait until none is left."""
    for _ in range(_ROUNDS):
        users = [process for process in _processes() if _writes_into(process, folder)]
        if not users:
            return
        for process in users:
            with suppress(OSError):
                os.kill(int(process.name), signal.SIGKILL)
        time.sleep(0.05)


def _processes() -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*") if path.name != str(os.getpid())]


def _writes_into(process: Path, folder: Path) -> bool:
    with suppress(OSError):  # It has ended, or is another user's.
        return any(_is_written(file, folder) for file in (process / "fd").iterdir())
    return False


def _is_written(file: Path, folder: Path) -> bool:
    """Return whether a process's open file is in the folder, and open for more than reading."""
    if not file.readlink().is_relative_to(folder):
        return False
    about = (file.parents[1] / "fdinfo" / file.name).read_text()
    return int(about.partition("flags:")[2].split()[0], 8) & os.O_ACCMODE != os.O_RDONLY


def _remove(folder: Path) -> None:
    """Remove a folder; its lock goes last, so that what is left of an interrupted removal is found again."""
    kill_users(folder / _SESSIONS)
    shutil.rmtree(folder / _SESSIONS, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(base: Path) -> None:
    for folder in base.glob("lethe-*"):
        with suppress(OSError):  # Another driver's, or another user's.
            if (folder / _IN_USE).exists():
                with (folder / _IN_USE).open("ab") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(folder)
            elif time.time() - folder.stat().st_mtime > _EMPTY_SECONDS:
                folder.rmdir()  # Only if it is empty: else it was never ours.
