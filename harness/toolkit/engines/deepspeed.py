"""The DeepSpeed engine: ZeRO 0 to 3 in one process or several, on GPUs or, for tests and small models, on CPUs.

Five traps of DeepSpeed 0.19 are kept out here. Its own counting of micro-batches is off
(`managed_gradient_accumulation`): the last global batch of an epoch has fewer. Losses are computed through the
engine and not through the bare model, or ZeRO-3 keeps the last micro-batch's gradient only. The CPU's
shared-memory extension, which would be compiled for a minute, is not used. One process needs no MPI, if it says so in
the environment. And in bf16 the fp32 weights behind start as the rounded ones: they are set to what the model had.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from harness.contracts import Model, Training
from harness.errors import TrialError
from harness.specs import Engine
from harness.toolkit.engines.buckets import bucket_elements


class DeepSpeedEngine:
    """Trains a copy of the model on DeepSpeed, with torch's own AdamW.

    Precision `bf16` is DeepSpeed's: weights and gradients in bf16, with fp32 weights and optimiser
    state behind them; the plain model gets the fp32 ones.
    """

    def __init__(self, model: Model, training: Training, engine: Engine) -> None:
        self._plain = model
        self._has_fp32_behind = engine.zero_stage > 0 or training.precision == "bf16"
        trained = copy.deepcopy(model)
        for parameter in trained.parameters():
            parameter.requires_grad_(True)
        weights = list(trained.parameters())
        self._named = dict(trained.named_parameters())
        # On a GPU in one pass: step by step, its intermediate results take as much again as its state.
        fused = torch.cuda.is_available() or None
        optimizer = torch.optim.AdamW(
            weights, lr=training.learning_rate, weight_decay=training.weight_decay, fused=fused
        )
        # ZeRO-3 looks for it at every forward pass.
        self._says_rank = "LOCAL_RANK" not in os.environ
        os.environ.setdefault("LOCAL_RANK", "0")
        count = sum(weight.numel() for weight in weights)
        with _ranked(), warnings.catch_warnings(action="ignore", category=FutureWarning):
            self.model, *_ = _deepspeed().initialize(
                model=trained,
                model_parameters=weights,
                optimizer=optimizer,
                config=_config(training, engine, count),
            )
            if training.precision == "bf16":
                self._restore_fp32()
        self.workers, self.rank = torch.distributed.get_world_size(), torch.distributed.get_rank()

    @property
    def skipped_steps(self) -> int:
        """Return how many steps DeepSpeed left out: in bf16 those with a gradient that is not finite."""
        return int(self.model.skipped_steps)

    def _restore_fp32(self) -> None:
        """Give the fp32 weights what rounding to bf16 took: they were made from the rounded ones."""
        from deepspeed.utils import safe_set_full_fp32_param

        with torch.no_grad():
            for name, weight in self._plain.named_parameters():
                safe_set_full_fp32_param(self._named[name], weight.detach().clone())

    def precision(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: DeepSpeed has converted the model."""
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> float:
        """Add the gradient of this worker's share of the loss; return the value of all workers' shares.

        Raises:
            TrialError: The loss is NaN or infinite.
        """
        total = loss.detach().double()
        torch.distributed.all_reduce(total)
        value = float(total)
        if not math.isfinite(value):  # On every worker, so that none waits for another.
            raise TrialError(f"the loss is {value}. Lower training.learning_rate, or train in fp32.")
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            # DeepSpeed takes the mean over the workers, whose shares are to be added.
            self.model.backward(loss * self.workers, scale_wrt_gas=False)
        return value

    def step(self) -> None:
        """Apply the accumulated gradient and forget it."""
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            self.model.step()

    def gather(self) -> None:
        """Bring the fp32 weights, from wherever ZeRO keeps them, into the plain model."""
        from deepspeed.utils import safe_get_full_fp32_param

        with torch.no_grad(), warnings.catch_warnings(action="ignore", category=FutureWarning):
            for name, weight in self._plain.named_parameters():
                trained = self._named[name]
                behind = safe_get_full_fp32_param(trained) if self._has_fp32_behind else None
                weight.copy_(trained if behind is None else behind)

    def close(self) -> None:
        """Free the copy, its gradients and its optimiser state."""
        self.model.destroy()
        if self._says_rank:
            os.environ.pop("LOCAL_RANK", None)


def _config(training: Training, engine: Engine, weights: int) -> dict[str, Any]:
    # In bf16 the fp32 weights behind can be read from stage 1 on, which for one process partitions nothing either.
    stage = max(engine.zero_stage, 1) if training.precision == "bf16" else engine.zero_stage
    bucket = bucket_elements(weights)
    zero: dict[str, Any] = {"stage": stage, "overlap_comm": False, "reduce_bucket_size": bucket}
    if engine.zero_stage == 3:
        zero["stage3_prefetch_bucket_size"] = bucket
        zero["stage3_param_persistence_threshold"] = 0
    if engine.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    return {
        "train_micro_batch_size_per_gpu": training.micro_batch,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": 0.0,
        "steps_per_print": 10**9,
        "bf16": {"enabled": training.precision == "bf16"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def _deepspeed() -> Any:
    """Import DeepSpeed and join its process group, unless this was done."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
    import deepspeed.ops

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if not torch.distributed.is_initialized():
        deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo", verbose=False)
    return deepspeed


@contextmanager
def _ranked() -> Iterator[None]:
    """Say in the environment that this process is the only worker, unless a launcher has said what it is.

    Only for as long as DeepSpeed looks: a child process must not take the group for its own.
    """
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if "RANK" in os.environ:
        yield
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(zip(names, ("0", "1", "127.0.0.1", str(port)), strict=True))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
