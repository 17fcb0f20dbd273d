"""What may happen to Ray itself while trials run: one of its own processes dies, or a whole machine."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
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
"""Between two looks at Ray's processes."""
UNREACHABLE_LOOKS = 20
"""As many in a row that do not reach a cluster's head, and it is taken for dead."""
PATIENCE_SECONDS = 20.0
"""In which the main thread must have noticed; it may be waiting for what will never answer."""
_ESSENTIAL = {"gcs_server": "Ray's control service (gcs_server)", "raylet": "Ray's scheduler (raylet)"}
_CONTINUES = "What is measured is kept: run the same command again to continue."
_DEATH = re.compile(r"^The (actor|worker|node)\b|\b(actor|worker|node) (has )?(died|crashed)", re.IGNORECASE)


def is_death(report: list[str]) -> bool:
    """Return whether a trial's error, as Ray words it, says that its process or its machine died."""
    return any(_DEATH.search(line) for line in report[:2])


@contextmanager
def starting() -> Iterator[None]:
    """Start Ray, or join a cluster, inside.

    Raises:
        ExecutorError: It could not be done.
    """
    try:
        yield
    except Exception as error:
        if IS_LOCAL and isinstance(error, OSError):  # A fault of its folder, of which others tell.
            raise
        what = "Ray did not start" if IS_LOCAL else f"the cluster at {os.environ['RAY_ADDRESS']} could not be joined"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ExecutorError(f"{what}: {reason}. {_CONTINUES}") from error


@contextmanager
def ray_watched() -> Iterator[None]:
    """Meanwhile look whether Ray lives.

    Raises:
        ExecutorError: It died.
    """
    over, noticed = threading.Event(), threading.Event()
    find = _local_death if IS_LOCAL else _Head().death
    died: list[str] = []

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            if what := find():
                died.append(what)
                noticed.set()
                INTERRUPTION.raise_in_main(partial(ExecutorError, _sentence(what)))
                if not over.wait(PATIENCE_SECONDS) and INTERRUPTION.is_watched:
                    tell(f"\nExecutorError: {_sentence(what)}", is_error=True)
                    INTERRUPTION.end_at_once(1)
                return

    watcher = threading.Thread(target=watch, name="lethe-ray", daemon=True)
    watcher.start()
    try:
        yield
        if died:
            raise ExecutorError(_sentence(died[0]))
    except ExecutorError:
        raise
    except Exception as error:
        if not noticed.wait(3 * LOOK_SECONDS):
            raise
        raise ExecutorError(_sentence(died[0])) from error  # What Tune raises is how it noticed.
    finally:
        over.set()
        watcher.join()
        if died:
            INTERRUPTION.heard()
            INTERRUPTION.is_broken = True


def _sentence(what: str) -> str:
    return f"{what} while the sweep ran. {_CONTINUES}"


def _local_death() -> str | None:
    node = ray._private.worker._global_node
    for kind, name in _ESSENTIAL.items():
        for info in node.all_processes.get(kind, ()) if node else ():
            code = info.process.poll()
            if code is not None:
                return f"{name} ended ({f'signal {-code}' if code < 0 else f'exit code {code}'})"
    return None


class _Head:
    """A cluster's head, as seen from here."""

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
        return (
            f"the cluster's head ({self._address}) could not be reached" if self._missed > UNREACHABLE_LOOKS else None
        )


def shut_down(kill: Callable[[], None], error: BaseException | None) -> None:
    """End Ray in good order; where it is dead, or nobody waits for it, by killing what is left of it.

    Args:
        kill: Kills every process of a local Ray.
        error: What ended the sweep, if anything did.
    """
    is_signalled = INTERRUPTION.is_signalled
    if not isinstance(error, ExecutorError) and not (is_signalled and IS_LOCAL):
        ray.shutdown()
        return
    INTERRUPTION.is_broken = True
    if IS_LOCAL:
        kill()


def last_words(temporary: Path, pid: str) -> list[str]:
    """Return what a worker wrote on its standard error."""
    logs = temporary.glob(f"session_latest/logs/worker-*-{pid}.err")
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    return [line for line in lines if not line.startswith((":job_id:", ":actor_name:"))]
