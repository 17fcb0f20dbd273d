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

from harness.base.storage import writing
from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.ray import folder_removal
from harness.execution.ray.folder_removal import SESSIONS, remove_tree

_IN_USE = "in-use"
"""Locked for as long as the driver lives."""
_EMPTY_SECONDS = 60
"""After which a folder without a lock is nobody's: its driver ended before it could make one."""
_WHAT = "Ray's temporary folder; TMPDIR names another place"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder; remove it in the end, with what runs in it, and those that killed drivers left.

    A process of its own removes it where this one is killed.

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
        with _removed_after_a_kill(folder), _removed_in_the_end(folder), _opened(folder / _IN_USE) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / _IN_USE).exists():  # Another driver took it for abandoned before it was locked.
                continue
            with writing(folder, _WHAT, reads_too=True):
                (folder / SESSIONS).mkdir()
                yield folder / SESSIONS
            return


def _opened(lock: Path) -> BinaryIO:
    with writing(lock.parent, _WHAT):
        return lock.open("ab")


@contextmanager
def _removed_in_the_end(folder: Path) -> Iterator[None]:
    with INTERRUPTION.cleaning_up(partial(remove_tree, folder)):
        try:
            yield
        finally:
            with INTERRUPTION.deferred():
                remove_tree(folder)


@contextmanager
def _removed_after_a_kill(folder: Path) -> Iterator[None]:
    command = [sys.executable, "-I", "-S", folder_removal.__file__, str(os.getpid()), str(folder)]
    nothing = subprocess.DEVNULL
    # What ends a whole group of processes, a Ctrl-C say, is not for this one.
    waiting = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, cwd="/", start_new_session=True)
    try:
        yield
    finally:
        waiting.kill()
        waiting.wait()


def _remove_abandoned(base: Path) -> None:
    for folder in base.glob("lethe-*"):
        with suppress(OSError):  # Another driver's, or another user's.
            if (folder / _IN_USE).exists():
                with (folder / _IN_USE).open("ab") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(folder)
            elif time.time() - folder.stat().st_mtime > _EMPTY_SECONDS:
                folder.rmdir()  # Only if it is empty: else it was never ours.
