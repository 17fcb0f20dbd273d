"""Several workers for one trial: a Ray Train job inside it, for what its engine distributes.

Only training is distributed. Every worker runs the same code on its share of each global batch; the
first one writes what came out, as plain weights, into a folder that the trial reads. Each worker's
failure ends the job, and so the trial, which then tells the last lines of the workers' logs.
"""

from __future__ import annotations

import importlib
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import TrialError, WorkerDiedError
from harness.execution.guard.redaction import Policy, line_for_report, log_for_report
from harness.execution.node_inputs import NodeInputs, input_differences, inputs_of
from harness.execution.ray.placement import worker_resources
from harness.execution.ray.session import node_label
from harness.execution.ray_settings import set_ray_environment
from harness.specs import TrialSpec
from harness.toolkit.engines.loopback import loopback_variables

set_ray_environment()

import ray  # noqa: E402
from ray import train  # noqa: E402
from ray.train.torch import TorchConfig, TorchTrainer  # noqa: E402
from ray.train.torch.config import _set_torch_distributed_env_vars, _TorchBackend  # noqa: E402

WORKER_LOG_LINES = 5
"""Of each worker's log, shown when one of them fails."""
POLL_SECONDS = 1.0
"""Between two looks at what the first worker reports."""
_PROGRESS_FILE, _NODE, _UNLIKE = "progress", ".node", ".unlike"
"""Files beside the logs: what the first worker reports, where each one ran, and what its node has otherwise."""


def run_on_workers(
    work: str, spec: TrialSpec, data: Mapping[str, Any], folder: Path, progress: Callable[[str], None]
) -> tuple[str, ...]:
    """Call `work` on every worker of a trial's engine, and return where each one ran.

    Args:
        work: `module:function`; it gets the trial, the data, the folder, and where to say how far it is.
        spec: The trial.
        data: Plain data.
        folder: Where the first worker writes; on a cluster, shared by all of its machines.
        progress: Told what the first worker says.

    Raises:
        TrialError: Ray does not run here, a worker's node has other packages or code than the trial's, or a worker
            failed, with the last lines of the workers' logs.
        WorkerDiedError: A worker failed because it, or its machine, died.
    """
    if not ray.is_initialized():
        raise TrialError(f"{spec.engine} needs Ray to start its workers: run it without --executor inline.")
    session = ray._private.worker._global_node.get_session_dir_path()
    with (
        tempfile.TemporaryDirectory(prefix=".workers-", dir=folder) as name,
        # It goes with Ray's own temporary folder, where the trial is killed.
        tempfile.TemporaryDirectory(prefix="group-", dir=session) as meeting,
    ):
        logs = Path(name)
        trainer = TorchTrainer(
            _run_worker,
            train_loop_config={
                "work": work,
                "spec": spec.to_json(),
                "data": dict(data),
                "folder": str(folder),
                "logs": name,
                "inputs": None if _is_on_loopback() else inputs_of([spec]),
            },
            # Where Ray has this machine alone to itself, so have the workers.
            torch_config=_OnLoopback(store=f"{meeting}/store") if _is_on_loopback() else TorchConfig(),
            scaling_config=train.ScalingConfig(
                num_workers=spec.engine.workers,
                use_gpu=spec.gpus > 0,
                resources_per_worker=worker_resources(spec),
            ),
            run_config=train.RunConfig(storage_path=name, failure_config=train.FailureConfig(max_failures=0)),
        )
        try:
            with _progress_forwarded(logs / _PROGRESS_FILE, progress):
                trainer.fit()
        except train.TrainingFailedError as error:
            if unlike := [file.read_text(encoding="utf-8") for file in sorted(logs.glob(f"*{_UNLIKE}"))]:
                raise TrialError(f"a worker of {spec.engine} did not start: {unlike[0]}.") from error
            kind = WorkerDiedError if _is_of_a_death(error) else TrialError
            failed = kind(f"a worker of {spec.engine} failed: {_last_line(error, spec.samples)}")
            failed.log = tuple(_log_ends(logs, spec.samples))
            raise failed from error
        return tuple((logs / f"{rank}{_NODE}").read_text(encoding="utf-8") for rank in range(spec.engine.workers))


def _is_on_loopback() -> bool:
    return bool(ray.util.get_node_ip_address() == "127.0.0.1")


class _LoopbackBackend(_TorchBackend):  # type: ignore[misc]
    """Lets workers of one machine meet in a file: torch's TCP store would listen on every interface."""

    def on_start(self, worker_group: Any, backend_config: _OnLoopback) -> None:
        worker_group.execute(_set_torch_distributed_env_vars)
        count = len(worker_group)
        joining = [
            worker_group.execute_single_async(rank, _join, backend_config.backend, backend_config.store, rank, count)
            for rank in range(count)
        ]
        ray.get(joining)


@dataclass
class _OnLoopback(TorchConfig):  # type: ignore[misc]
    """How workers meet that listen on 127.0.0.1 alone."""

    store: str = ""
    """The path of the file; it must not exist."""

    @property
    def backend_cls(self) -> type[_LoopbackBackend]:
        return _LoopbackBackend


def _join(backend: str, store: str, rank: int, workers: int) -> None:
    import torch

    os.environ.update(loopback_variables())
    torch.distributed.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=workers)


def _run_worker(config: dict[str, Any]) -> None:
    """Do one worker's part, in its own process."""
    import torch

    spec, logs = TrialSpec.from_json(config["spec"]), Path(config["logs"])
    rank = train.get_context().get_world_rank()
    host = socket.gethostname()
    node = host if _is_on_loopback() else node_label(ray.util.get_node_ip_address(), host)
    (logs / f"{rank}{_NODE}").write_text(node, encoding="utf-8")
    inputs: NodeInputs | None = config["inputs"]  # The node may have joined after the driver asked all of them.
    if inputs is not None and (unlike := input_differences(inputs, inputs.like())):
        (logs / f"{rank}{_UNLIKE}").write_text(f"{node} {'; it '.join(unlike)}", encoding="utf-8")
        raise TrialError("its node is unlike that of the trial.")
    (logs / f"{rank}.log").symlink_to(Path("/proc/self/fd/2").resolve())
    torch.set_num_threads(max(1, spec.cpus))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    def progress(message: str) -> None:
        if rank == 0:
            with (logs / _PROGRESS_FILE).open("a", encoding="utf-8") as stream:
                stream.write(f"{message}\n")

    module, _, function = config["work"].partition(":")
    getattr(importlib.import_module(module), function)(spec, config["data"], Path(config["folder"]), progress)


@contextmanager
def _progress_forwarded(file: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile, pass on every line that is written into the file."""
    over = threading.Event()

    def follow() -> None:
        lines = 0
        while not over.wait(POLL_SECONDS):
            written = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
            for line in written[lines:]:
                progress(line)
            lines = len(written)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def _log_ends(logs: Path, policy: Policy) -> list[str]:
    """Return the last lines of every worker's log, as far as this machine can read them and they may be recorded."""
    lines = []
    for log in sorted(logs.glob("*.log")):
        if log.is_file():
            text = [line for line in log.read_text(errors="replace").splitlines() if line and line[0] != ":"]
            ends = log_for_report(text[-WORKER_LOG_LINES:], policy)
            lines += [f"worker {log.stem}: {line}" for line in ends or ["(its log is empty)"]]
    return lines


def _is_of_a_death(error: train.TrainingFailedError) -> bool:
    failures = getattr(error, "worker_failures", {}).values()
    causes = [getattr(failure, "health_check_failure", failure) for failure in failures]
    return any(isinstance(cause, ray.exceptions.RayActorError) for cause in causes)


def _last_line(error: BaseException, policy: Policy) -> str:
    failures = getattr(error, "worker_failures", {})
    text = str(next(iter(failures.values()), error))
    if "worker process has died" in text:
        return "its process ended before its work did: killed, for want of memory perhaps, or crashed"
    lines = [line for line in text.splitlines() if line.strip()]
    return line_for_report(lines[-1].strip(), policy) if lines else type(error).__name__
