"""A driver's temporary folder: Ray's sessions and Tune's files, and every process that writes there."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from harness.base.files import writing
from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.ray import folder_removal
from harness.execution.ray.folder_removal import SESSIONS, remove_tree

_IN_USE = "in-use"
"""Locked for as long as the driver lives."""
_EMPTY_SECONDS = 60
"""After this time a folder without a lock is abandoned: its driver ended before it made one."""
_WHAT = "Ray's temporary folder; TMPDIR names another place"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder. Remove it in the end with the processes in it, and the folders of killed drivers.

    If this process is killed, a separate process removes the folder.

    Raises:
        StorageError: It cannot be written, or it is full.
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
            if not (folder / _IN_USE).exists():  # Another driver removed it as abandoned before it was locked.
                continue
            with writing(folder, _WHAT):
                (folder / SESSIONS).mkdir()
            yield folder / SESSIONS
            return


def _opened(lock: Path) -> BinaryIO:
    with writing(lock.parent, _WHAT):
        return lock.open("ab")


@contextmanager
def _removed_in_the_end(folder: Path) -> Iterator[None]:
    """Remove the folder in the end; if this process is killed, a separate process removes it."""
    command = [sys.executable, "-I", "-S", folder_removal.__file__, str(os.getpid()), str(folder)]
    nothing = subprocess.DEVNULL
    # A session of its own: Ctrl-C ends a whole group of processes, and must not end this one.
    waiting = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, cwd="/", start_new_session=True)
    with INTERRUPTION.cleaning_up(partial(remove_tree, folder)):
        try:
            yield
        finally:
            with INTERRUPTION.deferred():
                remove_tree(folder)
                waiting.kill()
                waiting.wait()


def _remove_abandoned(base: Path) -> None:
    for folder in base.glob("lethe-*"):
        with suppress(OSError):  # It belongs to another driver or user.
            if (folder / _IN_USE).exists():
                with (folder / _IN_USE).open("ab") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(folder)
            elif time.time() - folder.stat().st_mtime > _EMPTY_SECONDS:
                folder.rmdir()  # This fails unless it is empty: another one was never ours.
