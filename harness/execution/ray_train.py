"""Several workers for one trial: a Ray Train job inside it, for what its engine distributes.

Only training is distributed. Every worker runs the same code on its share of each global batch; the
first one writes what came out, as plain weights, into a folder that the trial reads. Each worker's
failure ends the job, and so the trial.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray import train
from ray.train.torch import TorchTrainer

from harness.errors import TrialError
from harness.specs import TrialSpec


def on_workers(work: str, spec: TrialSpec, data: Mapping[str, Any], folder: Path) -> None:
    """Call `work` (`module:function`) with the trial, the data and the folder on every worker of the trial's engine.

    Raises:
        TrialError: Ray does not run here, or a worker failed, with its last words.
    """
    if not ray.is_initialized():
        raise TrialError(f"{spec.engine} needs Ray to start its workers: run it without --executor inline.")
    with tempfile.TemporaryDirectory(prefix="lethe-train-") as storage:
        trainer = TorchTrainer(
            _work,
            train_loop_config={"work": work, "spec": spec.to_json(), "data": dict(data), "folder": str(folder)},
            scaling_config=train.ScalingConfig(
                num_workers=spec.engine.workers,
                use_gpu=spec.gpus > 0,
                resources_per_worker={"CPU": spec.cpus * 0.9, **({"GPU": spec.gpus} if spec.gpus else {})},
            ),
            run_config=train.RunConfig(storage_path=storage, failure_config=train.FailureConfig(max_failures=0)),
        )
        try:
            trainer.fit()
        except train.TrainingFailedError as error:
            raise TrialError(f"a worker of {spec.engine} failed: {_last_line(error)}") from error


def _work(config: dict[str, Any]) -> None:
    """Do one worker's part, in its own process."""
    import torch

    spec = TrialSpec.from_json(config["spec"])
    torch.set_num_threads(max(1, spec.cpus))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    module, _, function = config["work"].partition(":")
    getattr(importlib.import_module(module), function)(spec, config["data"], Path(config["folder"]))


def _last_line(error: BaseException) -> str:
    failures = getattr(error, "worker_failures", {})
    told = str(next(iter(failures.values()), error))
    lines = [line for line in told.splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
