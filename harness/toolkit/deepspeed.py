"""The DeepSpeed engine: ZeRO 0 to 3 in one process or several.

Traps of DeepSpeed 0.19: its count of micro-batches is off. Losses outside the engine keep only the last micro-batch's
gradient under ZeRO-3. Its CPU extension must be compiled, and one process wants MPI. In bf16 the fp32 weights start
rounded. ZeRO-3 replaces `torch.nn.functional.linear`, and its cache keeps the model.
"""

import copy
import gc
import logging
import math
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch._C._distributed_c10d import HashStore

from harness import contracts, errors, settings
from harness.toolkit.device import checkpointed_layers

_LOOPBACK = ("lo", "lo0")
_SOCKET_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
BUCKET = 50_000_000
"""Gradient elements reduced at once; DeepSpeed's default takes 2 GB."""


class DeepSpeedEngine:
    """Trains a copy of the trainable weights on DeepSpeed with torch's AdamW.

    `bf16` means bf16 weights and gradients over fp32 weights, which the plain model gets.
    """

    def __init__(self, model: contracts.Model, training: contracts.Training, engine: settings.DeepSpeed) -> None:
        self._plain = model
        self._training = training
        self._has_fp32_behind = engine.zero_stage > 0 or training.precision == "bf16"
        self.precision = "bf16 weights" if training.precision == "bf16" else "fp32"
        self._undo = ExitStack()
        try:
            self._start(training, engine)
        except BaseException:
            self.close()
            raise

    def _start(self, training: contracts.Training, engine: settings.DeepSpeed) -> None:
        trained = copy.deepcopy(self._plain)
        self._weights = {name: weight for name, weight in trained.named_parameters() if weight.requires_grad}
        weights = list(self._weights.values())
        # On a GPU in one pass: step by step, its intermediate results take as much again as its state.
        is_on_gpu = self._plain.device.type == "cuda"
        rate, decay = training.learning_rate, training.weight_decay
        optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=decay, fused=is_on_gpu or None)
        # ZeRO-3 looks for it at every forward pass.
        if "LOCAL_RANK" not in os.environ:
            os.environ["LOCAL_RANK"] = "0"
            self._undo.callback(os.environ.pop, "LOCAL_RANK", None)
        config = _deepspeed_config(training, engine, sum(weight.numel() for weight in weights))
        with _as_only_worker(), warnings.catch_warnings(action="ignore", category=FutureWarning):
            self.model, *_ = _imported_deepspeed(self._undo, is_on_gpu).initialize(
                model=trained, model_parameters=weights, optimizer=optimizer, config=config
            )
            self._undo.callback(_end_engine, self.model)
            if training.precision == "bf16":  # The fp32 weights behind were made from the rounded ones.
                from deepspeed.utils import safe_set_full_fp32_param

                with torch.no_grad():
                    for name, weight in self._trained_weights():
                        safe_set_full_fp32_param(self._weights[name], weight.detach().clone())
        self.workers, self.rank = torch.distributed.get_world_size(), torch.distributed.get_rank()

    def _trained_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        return ((name, weight) for name, weight in self._plain.named_parameters() if name in self._weights)

    @property
    def skipped_steps(self) -> int:
        return int(self.model.skipped_steps)

    @contextmanager
    def forward(self) -> Iterator[None]:
        # peft looks at an adapter's type outside of its module, and ZeRO-3 gathers it for that, as torch warns of.
        with (
            warnings.catch_warnings(action="ignore", category=FutureWarning),
            checkpointed_layers(self.model) if self._training.activation_checkpointing else nullcontext(),
        ):
            yield

    def freeze(self, model: contracts.Model) -> None:
        """Convert a frozen model in place to the trained one's precision."""
        for weight in model.parameters():
            weight.requires_grad_(False)
            if self.precision == "bf16 weights" and weight.is_floating_point():
                weight.data = weight.data.to(torch.bfloat16)

    def backward(self, loss: torch.Tensor) -> float:
        """Add the gradient of this worker's share, and return the total."""
        value = self.total(loss.detach())
        if not math.isfinite(value):  # On every worker, so that none waits for another.
            raise errors.TrialError(f"the loss is {value}. Lower training.learning_rate, or train in fp32.")
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            # DeepSpeed takes the mean over the workers, whose shares are to be added.
            self.model.backward(loss * self.workers, scale_wrt_gas=False)
        return value

    def total(self, share: torch.Tensor) -> float:
        total = share.double()
        torch.distributed.all_reduce(total)
        return float(total)

    def step(self) -> None:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            self.model.step()

    def gather(self) -> None:
        from deepspeed.utils import safe_get_full_fp32_param

        with torch.no_grad(), warnings.catch_warnings(action="ignore", category=FutureWarning):
            for name, weight in self._trained_weights():
                trained = self._weights[name]
                behind = safe_get_full_fp32_param(trained) if self._has_fp32_behind else None
                weight.copy_(trained if behind is None else behind)

    def close(self) -> None:
        self._undo.close()
        self.model, self._weights = None, {}
        gc.collect()  # Engine, hooks and weights refer to one another.


def _end_engine(engine: Any) -> None:
    from deepspeed.runtime.zero import parameter_offload
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator

    engine.destroy()
    parameter_offload.FWD_MODULE_STACK.clear()
    for method in vars(PartitionedParameterCoordinator).values():
        for cell in getattr(method, "__closure__", None) or ():
            if hasattr(cell.cell_contents, "cache_clear"):
                cell.cell_contents.cache_clear()


def _deepspeed_config(training: contracts.Training, engine: settings.DeepSpeed, weights: int) -> dict[str, Any]:
    # In bf16 the fp32 weights behind can be read from stage 1 on, which for one process partitions nothing either.
    stage = max(engine.zero_stage, 1) if training.precision == "bf16" else engine.zero_stage
    bucket = min(weights, BUCKET)
    zero: dict[str, Any] = {"stage": stage, "overlap_comm": False, "reduce_bucket_size": bucket}
    if engine.zero_stage == 3:
        zero |= {"stage3_prefetch_bucket_size": bucket, "stage3_param_persistence_threshold": 0}
        zero["memory_efficient_linear"] = False
    if engine.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    return {
        "train_micro_batch_size_per_gpu": training.micro_batch,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": 0.0,
        **{"steps_per_print": 10**9, "bf16": {"enabled": training.precision == "bf16"}, "zero_optimization": zero},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def _imported_deepspeed(undo: ExitStack, is_on_gpu: bool) -> Any:
    says_accelerator = "DS_ACCELERATOR" in os.environ
    if not is_on_gpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
    import deepspeed.ops

    if not says_accelerator:  # It has been read: a child process with a GPU must not take it for its own.
        os.environ.pop("DS_ACCELERATOR", None)
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if not torch.distributed.is_initialized():
        undo.callback(setattr, sys, "excepthook", sys.excepthook)
        backend = "nccl" if is_on_gpu else "gloo"
        if int(os.environ["WORLD_SIZE"]) == 1:
            torch.distributed.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        deepspeed.init_distributed(backend, verbose=False)
        undo.callback(deepspeed.comm.destroy_process_group)
    return deepspeed


@contextmanager
def _as_only_worker() -> Iterator[None]:
    if "RANK" in os.environ:
        yield
        return
    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    variables |= {name: value for name, value in loopback_variables().items() if name not in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def loopback_variables() -> dict[str, str]:
    """Return the variables that keep gloo and NCCL on the loopback interface.

    torch's TCP store listens on every interface, so processes of one machine meet in a file.
    """
    names = [name for _, name in socket.if_nameindex() if name in _LOOPBACK]
    return dict.fromkeys(_SOCKET_VARIABLES, names[0]) if names else {}
