"""A deep model's memory from two shallow dry runs: it is affine in the number of layers, section by section of a run.

Not so the peak itself, which may lie at another moment in a deep model than in a shallow one; so each section's peak
and end are extended to the whole depth, and the largest is taken then. Tested against dry runs at the whole depth.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path

import torch

from harness.contracts import Checkpoint
from harness.models.loading import unloaded_model
from harness.models.resolving import ensure_local
from harness.sizing.erasing_dry_run import DryRunResult
from harness.sizing.memory_tracker import Bytes, MemoryTracker
from harness.specs import TrialSpec

SHALLOW = (2, 4)
"""Layers of the two runs: GPT-Neo's attention alternates between two kinds."""
DryRun = Callable[[TrialSpec, torch.dtype, int | None], DryRunResult]


def run_shallow(run: DryRun, spec: TrialSpec, dtype: torch.dtype = torch.float32) -> DryRunResult:
    """Return the result of `run` for a trial at its model's whole depth; only the model in it may be a shallow one.

    It is run at the whole depth after all where the model is not deep, and where its layers are not alike: their
    weights or the sections of the two runs do not add up.
    """
    depth = _layer_count(spec.model)
    if depth <= SHALLOW[-1]:
        return run(spec, dtype, None)
    low, high = (run(spec, dtype, layers) for layers in SHALLOW)
    low_weights, high_weights = (bytes_of(spec.model, layers) for layers in SHALLOW)
    times = (depth - SHALLOW[0]) / (SHALLOW[1] - SHALLOW[0])
    is_alike = low_weights + times * (high_weights - low_weights) == bytes_of(spec.model)
    if not is_alike or low.models != high.models or len(low.moments) != len(high.moments):
        return run(spec, dtype, None)
    return replace(
        high,
        moments=tuple(_extended(*pair, times) for pair in zip(low.moments, high.moments, strict=True)),
        held=_extended(low.held, high.held, times),
        trained=round(low.trained + times * (high.trained - low.trained)),
    )


@lru_cache(maxsize=64)
def bytes_of(checkpoint: Checkpoint, layers: int | None = None) -> int:
    """Return what a model's fp32 weights and its buffers weigh, if it has so many layers (None: its own)."""
    model = MemoryTracker().loading(lambda: unloaded_model(checkpoint, layers=layers))
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))


def _layer_count(checkpoint: Checkpoint) -> int:
    """Return the number of layers that the configuration names, by its architecture's name for it; 0 without."""
    config = json.loads((Path(ensure_local(checkpoint, weights=False).location) / "config.json").read_text())
    for name in ("num_hidden_layers", "num_layers", "n_layer"):
        if name in config:
            return int(config[name])
    return 0


def _extended(low: Bytes, high: Bytes, times: float) -> Bytes:
    """Return `low` with the difference between the two added so many times."""
    sums = {}
    for part in fields(Bytes):
        at_low, at_high = getattr(low, part.name), getattr(high, part.name)
        sums[part.name] = round(at_low + times * (at_high - at_low))
    return Bytes(**sums)
