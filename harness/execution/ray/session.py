"""A session of Ray: started on this machine or joined at RAY_ADDRESS, watched, and each node checked first."""

from __future__ import annotations

import gc
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from harness.base.terminal import tell
from harness.errors import ConfigError, ExecutorError, Fault
from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.job import Folders
from harness.execution.ray.folder_removal import kill_users
from harness.execution.ray.node_check import marked, node_faults, unanswered
from harness.execution.ray.temporary_folder import temporary_folder
from harness.execution.ray_settings import IS_LOCAL, forwarded_environment, set_ray_environment
from harness.specs import TrialSpec

set_ray_environment()

import ray  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

LOOK_SECONDS = 0.5
"""The time between two looks at Ray's processes."""
UNREACHABLE_LOOKS = 20
"""After this many failed looks in a row, a cluster's head counts as dead."""
PATIENCE_SECONDS = 20.0
"""How long the main thread may take to notice: it may wait for a process that will never answer."""
ANSWER_SECONDS = 300.0
"""How long a node may take to answer: it starts a process, which imports torch."""
_OBJECT_STORE_BYTES = 200 * 1024**2
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


@contextmanager
def ray_session(temporary: Path) -> Iterator[dict[str, float]]:
    """Start Ray, or connect to a running one; the value is what resources it has.

    Raises:
        ExecutorError: Ray did not start, or the cluster could not be joined.
    """
    # No setting keeps Ray from printing a paragraph when a worker dies, which the queue reports.
    ray._private.worker.print_to_stdstream = lambda *args, **kwargs: None
    # Its hook reports an uncaught exception to its control service, and waits for ever where that is dead.
    sys.excepthook = ray._private.worker.normal_excepthook
    if INTERRUPTION.takes_signals:
        ray._private.utils.set_sigterm_handler = lambda handler: None
    is_dead = False
    try:
        start(temporary)
        INTERRUPTION.take_signals()  # Its C++ part has a SIGTERM handler too.
        yield ray.cluster_resources()
    except ExecutorError:
        is_dead = True
        raise
    finally:
        if not is_dead and not (INTERRUPTION.is_signalled and IS_LOCAL):
            # A handle of an actor that is collected after the shutdown, by any thread, makes Ray end the process.
            gc.collect()
            ray.shutdown()
        else:  # Ray cannot end in good order, or nobody waits for that.
            INTERRUPTION.is_broken = True
            if IS_LOCAL:
                kill_users(temporary)


def start(temporary: Path) -> None:
    """Start Ray with its files in a folder, or join a cluster.

    Raises:
        ExecutorError: Ray did not start, or the cluster could not be joined.
    """
    options: dict[str, Any] = {"address": "local", "_temp_dir": str(temporary), "include_dashboard": False}
    options["object_store_memory"] = _OBJECT_STORE_BYTES
    if not IS_LOCAL:
        passed = forwarded_environment(os.environ)
        options = {"address": os.environ["RAY_ADDRESS"], "runtime_env": {"env_vars": passed}}
    try:
        ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except Exception as error:
        if IS_LOCAL and isinstance(error, OSError):  # A fault of its folder, which `temporary_folder` reports.
            raise
        what = "Ray did not start" if IS_LOCAL else f"the cluster at {os.environ['RAY_ADDRESS']} could not be joined"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ExecutorError(f"{what}: {reason}. {CONTINUES}") from error


def node_label(address: str, host: str) -> str:
    """Return what people call a node of a cluster.

    Example:
        >>> node_label("10.0.0.7", "gpu-3"), node_label("10.0.0.7", "10.0.0.7")
        ('gpu-3 (10.0.0.7)', '10.0.0.7')
    """
    return f"{host} ({address})" if host and host != address else address


@contextmanager
def cluster_checked(file: str, folders: Folders, specs: Sequence[TrialSpec]) -> Iterator[Folders]:
    """Check every node; the value is what nodes that join later are checked against.

    Args:
        file: The sweep file, for the message.
        folders: Those that every node must share.
        specs: What is to run there.

    Raises:
        ConfigError: A node lacks something, or has something else; nothing has started, and no file is left.
        ExecutorError: The cluster cannot be joined.
        StorageError: A folder cannot be written.
    """
    with marked(folders, specs) as checked:
        if faults := _node_faults(checked):
            raise ConfigError(file, faults)
        yield checked


def _node_faults(folders: Folders) -> list[Fault]:
    with INTERRUPTION.watched(), temporary_folder() as temporary, ray_session(temporary), ray_watched():
        asked = {}
        for node in _alive_nodes():
            on_node = NodeAffinitySchedulingStrategy(node, soft=False)
            task = ray.remote(node_faults).options(num_cpus=0, max_retries=0, scheduling_strategy=on_node)
            asked[node] = task.remote(folders, node)
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_SECONDS)
        clauses = {node: _answer(answer) or unanswered(folders, node) for node, answer in asked.items()}
        faults = []
        for node, label in _alive_nodes().items():  # A node that left meanwhile runs nothing.
            faults += [Fault(f"node {label}", f"it {clause}.") for clause in clauses.get(node, ())]
        return faults


def _alive_nodes() -> dict[str, str]:
    alive = [node for node in ray.nodes() if node["Alive"]]
    return {node["NodeID"]: node_label(node["NodeManagerAddress"], node["NodeManagerHostname"]) for node in alive}


def _answer(asked: Any) -> list[str]:
    try:
        return list(ray.get(asked, timeout=0))
    except ray.exceptions.GetTimeoutError:
        return [
            f"gave no answer within {ANSWER_SECONDS:g} s: see Ray's logs there, or take the node out of the cluster"
        ]
    except ray.exceptions.RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = (lines or [type(error).__name__])[-1].rstrip(".")
        return [f"could not be asked ({reason}): install Lethe there as it is installed here"]
