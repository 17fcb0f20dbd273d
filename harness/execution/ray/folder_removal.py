"""Removes a driver's temporary folder, with every process that writes there.

As a program it waits until the driver that started it has died, one that could not remove its folder itself: killed,
or out of memory. It imports nothing of Lethe, so it is small and needs no path to it.
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
    """Remove a folder; its lock goes last, so that what is left of an interrupted removal is found again."""
    kill_users(folder / SESSIONS)
    shutil.rmtree(folder / SESSIONS, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


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


def main(driver: int, folder: Path) -> None:
    """Remove the folder once the process that started this one, `driver`, has died."""
    while os.getppid() == driver:  # No other process can become it, whatever number it has.
        time.sleep(_LOOK_SECONDS)
    remove_tree(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
