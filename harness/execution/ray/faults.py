"""Faults of Ray itself while trials run: one of its own processes dies, or a whole machine."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from harness.base.terminal import tell
from harness.errors import ExecutorError
from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.ray_settings import IS_LOCAL, set_ray_environment

set_ray_environment()

import ray  # noqa: E402

LOOK_SECONDS = 0.5
"""The time between two looks at Ray's processes."""
UNREACHABLE_LOOKS = 20
"""After this many failed looks in a row, a cluster's head counts as dead."""
PATIENCE_SECONDS = 20.0
"""How long the main thread may take to notice: it may wait for a process that will never answer."""
_ESSENTIAL = {"gcs_server": "Ray's control service (gcs_server)", "raylet": "Ray's scheduler (raylet)"}
CONTINUES = "What is measured is kept: run the same command again to continue."
_DEATH = re.compile(r"^The (actor|worker|node)\b|\b(actor|worker|node) (has )?(died|crashed)", re.IGNORECASE)


def is_death(report: list[str]) -> bool:
    """Return whether a trial's error, as Ray words it, says that its process or its machine died."""
    return any(_DEATH.search(line) for line in report[:2])


@contextmanager
def ray_watched() -> Iterator[None]:
    """Watch meanwhile whether Ray lives.

    Raises:
        ExecutorError: It died.
    """
    over, noticed = threading.Event(), threading.Event()
    look = _local_death if IS_LOCAL else _Head().death
    sentences: list[str] = []

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            if death := look():
                sentences.append(f"{death} while the sweep ran. {CONTINUES}")
                noticed.set()
                INTERRUPTION.raise_in_main(partial(ExecutorError, sentences[0]))
                if not over.wait(PATIENCE_SECONDS) and INTERRUPTION.is_watched:
                    tell(f"\nExecutorError: {sentences[0]}", is_error=True)
                    INTERRUPTION.end_at_once(1)
                return

    watcher = threading.Thread(target=watch, name="lethe-ray", daemon=True)
    watcher.start()
    try:
        yield
        if sentences:
            raise ExecutorError(sentences[0])
    except ExecutorError:
        raise
    except Exception as error:
        if not noticed.wait(3 * LOOK_SECONDS):
            raise
        raise ExecutorError(sentences[0]) from error  # Tune raised because Ray died.
    finally:
        over.set()
        watcher.join()
        if sentences:
            INTERRUPTION.heard()
            INTERRUPTION.is_broken = True


def _local_death() -> str | None:
    node = ray._private.worker._global_node
    for kind, name in _ESSENTIAL.items():
        for info in node.all_processes.get(kind, ()) if node else ():
            code = info.process.poll()
            if code is not None:
                return f"{name} ended ({f'signal {-code}' if code < 0 else f'exit code {code}'})"
    return None


class _Head:
    """The head of a cluster."""

    def __init__(self) -> None:
        self._address = str(ray.get_runtime_context().gcs_address)
        self._missed = 0

    def death(self) -> str | None:
        """Return what died, if the head has not been reached for a while."""
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK_SECONDS).close()
            self._missed = 0
        except OSError:
            self._missed += 1
        is_lost = self._missed > UNREACHABLE_LOOKS
        return f"the cluster's head ({self._address}) could not be reached" if is_lost else None


def last_words(temporary: Path, pid: str) -> list[str]:
    """Return what a worker wrote on its standard error."""
    logs = temporary.glob(f"session_latest/logs/worker-*-{pid}.err")
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    return [line for line in lines if not line.startswith((":job_id:", ":actor_name:"))]
