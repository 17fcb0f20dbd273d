"""A Ray session, started on the loopback interface or joined at RAY_ADDRESS, and the resources of trials."""

import gc
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import errors, settings

IS_LOCAL = "RAY_ADDRESS" not in os.environ
_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}
_LOCAL_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Despite its name, it binds everything to 127.0.0.1.
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # Otherwise Ray writes one to ~/.ray.
}
_FORWARDED = (
    *("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_ENDPOINT", "HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_TELEMETRY"),
    *("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DOWNLOAD_TIMEOUT"),
    *("HF_HUB_ETAG_TIMEOUT", "TOKENIZERS_PARALLELISM", "DS_ACCELERATOR"),
)
"""Variables of a cluster's workers. Ray logs them in clear: no secret is here."""
PASSED_BY_TUNE = frozenset(_SETTINGS)
"""Tune passes AWS's keys too by default."""
if "ray" not in sys.modules:  # Its import reads them.
    for _name, _value in (_SETTINGS | _LOCAL_SETTINGS if IS_LOCAL else _SETTINGS).items():
        os.environ.setdefault(_name, _value)

import ray  # noqa: E402

_PREFIX = "lethe-"


@contextmanager
def ray_session() -> Iterator[Path]:
    """Start Ray or join a cluster; yield the session's temporary folder, and remove it with those of killed drivers."""
    # No setting keeps Ray from printing a paragraph when a worker dies, which the executor reports.
    ray._private.worker.print_to_stdstream = lambda *args, **kwargs: None
    # Ray puts sockets below its folder, and a socket's path has at most 107 bytes.
    base = Path(tempfile.gettempdir())
    base = Path("/tmp") if len(str(base)) > 20 and Path("/tmp").is_dir() else base
    for abandoned in base.glob(f"{_PREFIX}[0-9]*-*"):
        pid = abandoned.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():  # Its driver was killed.
            shutil.rmtree(abandoned, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base)).resolve()
    try:
        start(folder)
        yield folder
    finally:
        stop()
        for _ in range(50):  # Processes of Ray that are ending may still write there.
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.1)


def stop() -> None:
    """End the session."""
    gc.collect()  # An actor's handle that is collected after the shutdown makes Ray end the process.
    ray.shutdown()


def forwarded_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a cluster's workers, without addresses that contain credentials.

    Example:
        >>> forwarded_environment({"HF_HUB_OFFLINE": "1", "HF_TOKEN": "hf_secret", "PATH": "/bin"})
        {'HF_HUB_OFFLINE': '1'}
    """
    passed = {name: environment[name] for name in _FORWARDED if name in environment}
    return {name: value for name, value in passed.items() if not re.search("[@?]", value.partition("://")[2])}


def start(folder: Path) -> None:
    """Start Ray below a folder, or join the cluster."""
    on_sigterm = signal.getsignal(signal.SIGTERM)
    options: dict[str, Any] = {"address": "local", "_temp_dir": str(folder), "include_dashboard": False}
    options["object_store_memory"] = 200 * 1024**2  # Bytes.
    if not IS_LOCAL:
        passed = forwarded_environment(os.environ)
        options = {"address": os.environ["RAY_ADDRESS"], "runtime_env": {"env_vars": passed}}
    try:
        ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except Exception as error:
        what = "Ray did not start" if IS_LOCAL else f"the cluster at {os.environ['RAY_ADDRESS']} could not be joined"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise errors.ExecutorError(f"{what}: {reason}. Run the same command again to continue.") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray has replaced it, and would abort.


def node_name() -> str:
    """Return this node's name: `gpu-3 (10.0.0.7)`, or the host name on one machine."""
    address, host = str(ray.util.get_node_ip_address()), socket.gethostname()
    return host if is_on_loopback() else f"{host} ({address})" if host and host != address else address


def is_on_loopback() -> bool:
    """Return whether Ray runs only on this machine."""
    return bool(ray.util.get_node_ip_address() == "127.0.0.1")


# For a trial that waits for its workers, then measures. Ray may place ten trials' own processes on one GPU.
_OWN_SHARE, _WORKERS_GPU = 0.01, 0.9
_WORKERS_CPUS = 0.9
_ROUNDING = 1e-9


def trial_resources(spec: settings.Trial) -> dict[str, float]:
    """Return the resources of a trial's own process.

    With workers it gets a small share of a GPU to measure on.

    Example:
        >>> from harness.settings import DeepSpeed, Engine, replace
        >>> from harness.testing import small_spec
        >>> trial_resources(replace(small_spec(), cpus=2, gpus=1.0))
        {'CPU': 2, 'GPU': 1.0}
        >>> trial_resources(replace(small_spec(), gpus=1.0, engine=Engine(deepspeed=DeepSpeed(workers=2))))
        {'CPU': 0.01, 'GPU': 0.01}
    """
    if spec.engine.workers == 1:
        return _resources(spec.cpus, spec.gpus)
    return _resources(_OWN_SHARE, _OWN_SHARE if spec.gpus else 0)


def worker_resources(spec: settings.Trial) -> dict[str, float]:
    """Return the resources of each worker.

    Example:
        >>> from harness.settings import replace
        >>> from harness.testing import small_spec
        >>> worker_resources(replace(small_spec(), gpus=1.0))
        {'CPU': 0.9, 'GPU': 0.9}
    """
    return _resources(spec.cpus * _WORKERS_CPUS, spec.gpus * _WORKERS_GPU)


def trials_at_once(specs: Sequence[settings.Trial], has: Mapping[str, float]) -> float:
    """Return the number of such trials that may run at once."""
    # Tune does not know of a trial's own workers, so only trials with equally many run at the same time.
    [workers, *others] = {spec.engine.workers for spec in specs}
    if others or workers == 1:
        return 1 if others else float("inf")
    cpus, gpus = max(spec.cpus for spec in specs), max(spec.gpus for spec in specs)
    room = [has.get("CPU", 1) / (workers * cpus)]
    room += [has.get("GPU", 0) / (workers * gpus)] if gpus else []
    return max(1, int(min(room) + _ROUNDING))


def _resources(cpus: float, gpus: float) -> dict[str, float]:
    return {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}
