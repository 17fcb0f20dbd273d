"""What DeepSpeed holds of a model that it trains: by ZeRO stage, precision and number of workers.

Its buffers are made by code that needs a process group, which cannot be rehearsed; but they are all as large as the
weights or a share of them. Measured on one worker, stages 0 to 3, fp32 and bf16: each to a hundredth of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.contracts import Precision
from harness.sizing.memory_tracker import Bytes
from harness.specs import Engine
from harness.toolkit.engines.deepspeed import bucket_elements


@dataclass(frozen=True)
class Partitioned:
    """A model in training, without activations."""

    held: Bytes
    """Between two steps of an epoch."""
    backward: Bytes
    """While gradients accumulate; activations come on top."""
    step: Bytes
    """While the optimiser steps; there are no activations then."""
    offloaded: int = 0
    """Bytes of the machine's memory that take the place of a GPU's: fp32 weights, gradients, and two moments."""


def partitioned(weights: int, precision: Precision, engine: Engine, *, on_gpu: bool) -> Partitioned:
    """Return what one worker's device holds.

    On a GPU the plain fp32 model lies in the machine's memory while its copy is trained; a CPU has one memory for both.

    Args:
        weights: How many there are.
        precision: Of the forward and backward pass.
        engine: A DeepSpeed engine.
        on_gpu: Whether the optimiser steps in one fused pass, and offloading takes anything from the device.

    Example:
        Ten fp32 weights, partitioned among nobody: the plain model and its copy, two moments, and then gradients,
        once more for the reduction.

        >>> alone = partitioned(10, "fp32", Engine(name="deepspeed", zero_stage=0), on_gpu=False)
        >>> alone.held.total, alone.step.total
        (160, 240)
    """
    full, low = 4 * weights, (4 if precision == "fp32" else 2) * weights
    stage = max(engine.zero_stage, 1) if precision == "bf16" else engine.zero_stage
    plain = 0 if on_gpu else full
    if stage == 0:
        held = Bytes(weights=plain + low, optimizer=2 * full)
        return Partitioned(held, held + Bytes(gradients=low), held + Bytes(gradients=2 * low))
    share, low_share = full // engine.workers, low // engine.workers
    bucket = low // weights * bucket_elements(weights)
    kept = Bytes(gradients=low_share + bucket) if stage == 3 else Bytes()
    away = on_gpu and engine.offload
    copy = low if stage < 3 else low_share
    behind = Bytes() if away else Bytes(weights=share, optimizer=2 * share)
    held = Bytes(weights=plain + copy) + behind + kept
    gathered = Bytes(weights=low - copy)
    reduced = Bytes(gradients=(low if stage == 1 else low_share) + bucket)
    moments = 0 if on_gpu else 2 * share
    step = held if away else held + Bytes(gradients=share, optimizer=moments)
    return Partitioned(held, held + gathered + reduced, step, offloaded=4 * share if away else 0)
