"""A session of Ray: started on this machine, or joined where RAY_ADDRESS names a cluster."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import ExecutorError
from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.ray.faults import CONTINUES
from harness.execution.ray.folder_removal import kill_users
from harness.execution.ray_settings import IS_LOCAL, forwarded_environment, set_ray_environment

set_ray_environment()

import ray  # noqa: E402

_OBJECT_STORE_BYTES = 200 * 1024**2


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
