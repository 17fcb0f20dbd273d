"""Several workers for one trial, in a Ray Train job.

Only training is distributed: each worker trains on its share of a global batch, and the first writes plain weights into
a folder that the trial reads. One worker's failure fails the trial.
"""

import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch

from harness.errors import TrialError, WorkerDiedError
from harness.execution import isolate
from harness.execution.ray.session import is_on_loopback, node_name, worker_resources
from harness.planning import machine
from harness.settings import Trial
from harness.toolkit.deepspeed import loopback_variables

import ray  # isort: skip
from ray import train  # isort: skip
from ray.train.torch import TorchConfig, TorchTrainer  # isort: skip
from ray.train.torch.config import _set_torch_distributed_env_vars, _TorchBackend  # isort: skip

POLL_SECONDS = 1.0


def run_on_workers(
    work: str, spec: Trial, data: Mapping[str, Any], folder: Path, progress: Callable[[str], None]
) -> tuple[str, ...]:
    """Call `work`, a `module:function`, on every worker of a trial's engine, and return their nodes.

    Raises:
        TrialError: Ray does not run, a node differs from the trial's, or a worker failed.
        WorkerDiedError: A worker, or its machine, died.
    """
    if not ray.is_initialized():
        raise TrialError(f"{spec.engine} needs Ray to start its workers: run it without --executor inline.")
    session = ray._private.worker._global_node.get_session_dir_path()
    backend = "nccl" if spec.gpus else "gloo"  # By itself torch takes NCCL where a GPU is visible, also for CPUs.
    with (
        tempfile.TemporaryDirectory(prefix=".workers-", dir=folder) as name,
        # If the trial is killed, it goes with Ray's own temporary folder.
        tempfile.TemporaryDirectory(prefix="group-", dir=session) as store_folder,
    ):
        logs = Path(name)
        inputs = None if is_on_loopback() else machine.node_inputs([spec])
        config: dict[str, Any] = {"work": work, "spec": spec.model_dump_json(), "data": dict(data)}
        config |= {"folder": str(folder), "logs": name, "inputs": inputs}
        loopback = _OnLoopback(backend, store=f"{store_folder}/store")
        trainer = TorchTrainer(
            _run_worker,
            train_loop_config=config,
            # If Ray runs on this machine only, so do the workers.
            torch_config=loopback if is_on_loopback() else TorchConfig(backend),
            scaling_config=train.ScalingConfig(
                num_workers=spec.engine.workers, use_gpu=spec.gpus > 0, resources_per_worker=worker_resources(spec)
            ),
            run_config=train.RunConfig(storage_path=name, failure_config=train.FailureConfig(max_failures=0)),
        )
        try:
            with _progress_forwarded(logs / "progress", progress):
                trainer.fit()
        except train.TrainingFailedError as error:
            raise _failure(error, spec, logs) from error
        return tuple((logs / f"{rank}.node").read_text() for rank in range(spec.engine.workers))


class _LoopbackBackend(_TorchBackend):  # type: ignore[misc]
    """Lets workers of one machine meet in a file: torch's TCP store would listen on every interface."""

    def on_start(self, worker_group: Any, backend_config: "_OnLoopback") -> None:
        worker_group.execute(_set_torch_distributed_env_vars)
        arguments = backend_config.backend, backend_config.store, len(worker_group)
        ray.get([worker_group.execute_single_async(rank, _join, *arguments, rank) for rank in range(len(worker_group))])


@dataclass
class _OnLoopback(TorchConfig):  # type: ignore[misc]
    store: str = ""

    @property
    def backend_cls(self) -> type[_LoopbackBackend]:
        return _LoopbackBackend


def _join(backend: str, store: str, workers: int, rank: int) -> None:
    os.environ.update(loopback_variables())
    torch.distributed.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=workers)


def _run_worker(config: dict[str, Any]) -> None:
    spec, logs = Trial.model_validate_json(config["spec"]), Path(config["logs"])
    rank = train.get_context().get_world_rank()
    (logs / f"{rank}.node").write_text(node_name())
    torch.set_num_threads(max(1, spec.cpus))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    def progress(message: str) -> None:
        if rank == 0:
            with (logs / "progress").open("a", encoding="utf-8") as stream:
                stream.write(f"{message}\n")

    try:
        inputs = config["inputs"]
        if inputs and (clause := machine.input_differences(inputs, machine.node_inputs([spec]))):
            raise TrialError(f"its node {node_name()} {clause}.")
        resolve_name(config["work"])(spec, config["data"], Path(config["folder"]), progress)
    except Exception as error:
        failure = json.dumps(isolate.failure_for_report(error, spec.samples))
        (logs / f"{rank}.failure").write_text(failure, encoding="utf-8")
        raise


@contextmanager
def _progress_forwarded(file: Path, progress: Callable[[str], None]) -> Iterator[None]:
    over = threading.Event()

    def follow() -> None:
        lines = 0
        while not over.wait(POLL_SECONDS):
            all_lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
            for line in all_lines[lines:]:
                progress(line)
            lines = len(all_lines)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def _failure(error: train.TrainingFailedError, spec: Trial, logs: Path) -> TrialError:
    failures = [getattr(each, "health_check_failure", each) for each in getattr(error, "worker_failures", {}).values()]
    if any(isinstance(failure, ray.exceptions.RayActorError) for failure in failures):
        reason = "its process ended before its work did: it crashed, or it was killed, perhaps because memory ran short"
        return WorkerDiedError(f"a worker of {spec.engine} failed: {reason}")
    failed, files = TrialError(f"a worker of {spec.engine} failed: {type(error).__name__}"), logs.glob("*.failure")
    for file in sorted(files, key=lambda file: file.stat().st_mtime)[:1]:
        sentence, log = json.loads(file.read_text(encoding="utf-8"))
        failed = TrialError(f"a worker of {spec.engine} failed: {sentence}")
        failed.log = tuple(f"worker {file.stem}: {line}" for line in log)
    return failed
