"""Removes a driver's temporary folder, with every process that writes there.

As a program it waits until the driver that started it has died, and removes the folder that the driver could not remove
itself. It imports nothing of Lethe, so it is small and needs no path to it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

SESSIONS = "r"
"""Ray opens this one to all users; the outer one stays closed."""
_ROUNDS = 20
_LOOK_SECONDS = 1.0


def remove_tree(folder: Path) -> None:
    """Remove a folder; its lock goes last, so that a later driver recognises what an interrupted removal leaves."""
    kill_users(folder / SESSIONS)
    shutil.rmtree(folder / SESSIONS, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def kill_users(folder: Path) -> None:
    """Kill every process of this machine that writes into the folder, and wait until none is left."""
    for _ in range(_ROUNDS):
        users = [process for process in Path("/proc").glob("[0-9]*") if _writes_into(process, folder)]
        if not users:
            return
        for process in users:
            with suppress(OSError):
                os.kill(int(process.name), signal.SIGKILL)
        time.sleep(0.05)


def _writes_into(process: Path, folder: Path) -> bool:
    if process.name == str(os.getpid()):
        return False
    with suppress(OSError):  # The process has ended, or is another user's.
        return any(_is_written(file, folder) for file in (process / "fd").iterdir())
    return False


def _is_written(file: Path, folder: Path) -> bool:
    """Return whether a process's open file is in the folder and can be written."""
    if not file.readlink().is_relative_to(folder):
        return False
    about = (file.parents[1] / "fdinfo" / file.name).read_text()
    return int(about.partition("flags:")[2].split()[0], 8) & os.O_ACCMODE != os.O_RDONLY


def main(driver: int, folder: Path) -> None:
    """Remove the folder once the process that started this one, `driver`, has died."""
    while os.getppid() == driver:  # A parent that dies is replaced, even if its number is used again.
        time.sleep(_LOOK_SECONDS)
    remove_tree(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
