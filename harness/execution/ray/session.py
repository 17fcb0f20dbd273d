"""A session of Ray: started on this machine, or joined where RAY_ADDRESS names a cluster."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.ray.faults import shut_down, starting
from harness.execution.ray.folder_removal import kill_users
from harness.execution.ray_settings import IS_LOCAL, forwarded_environment, set_ray_environment

set_ray_environment()

import ray  # noqa: E402

_OBJECT_STORE_BYTES = 200 * 1024**2


@contextmanager
def ray_session(temporary: Path) -> Iterator[dict[str, float]]:
    """Start Ray, or connect to a running one; the value is what it has to give."""
    common = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    # There is no setting that keeps Ray from printing a paragraph when a worker dies; the queue says it.
    ray._private.worker.print_to_stdstream = lambda *args, **kwargs: None
    # Its hook tells its control service of an uncaught exception, and waits for ever where that is dead.
    sys.excepthook = ray._private.worker.normal_excepthook
    if INTERRUPTION.takes_signals:
        ray._private.utils.set_sigterm_handler = lambda handler: None
    error: BaseException | None = None
    try:
        with starting():
            if IS_LOCAL:
                ray.init(
                    address="local",
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    _temp_dir=str(temporary),
                    **common,
                )
            else:
                passed = forwarded_environment(os.environ)
                ray.init(address=os.environ["RAY_ADDRESS"], runtime_env={"env_vars": passed}, **common)
        INTERRUPTION.take_signals()  # Its C++ part has a SIGTERM handler too.
        yield ray.cluster_resources()
    except BaseException as raised:
        error = raised
        raise
    finally:
        shut_down(lambda: kill_users(temporary), error)


def node_label(address: str, host: str) -> str:
    """Return what people call a node of a cluster.

    Example:
        >>> node_label("10.0.0.7", "gpu-3"), node_label("10.0.0.7", "10.0.0.7")
        ('gpu-3 (10.0.0.7)', '10.0.0.7')
    """
    return f"{host} ({address})" if host and host != address else address
