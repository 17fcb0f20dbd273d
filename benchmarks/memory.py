"""The peak of erasing as `--plan` tells it, against a run on a CPU whose tensors are counted one by one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu_check import SHAPES, Bench, gpt_neo, task_of
from benchmarks.measuring import Ratio
from harness.planning.memory import MemoryTracker, bytes_on_engine, rehearse_deep
from harness.plugins import METHODS
from harness.settings import LoRA, replace


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Return told by held bytes of methods on two shapes, and with adapters."""
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        shapes = {**SHAPES, "miniature-m": partial(gpt_neo, 128, 4, 4)}
        bench = Bench(torch.device("cpu"), "CPU", Path(folder), shapes, sequences=16, tokens=64)
        for shape in ("miniature-m", "gpt-neo-125m"):
            for method, lora in (("emso", None), ("kl_divergence", None), ("gradient_ascent", LoRA(rank=8))):
                spec = bench.spec(shape, method)
                spec = replace(spec, training=replace(spec.training, lora=lora))
                erasing = METHODS.configure(method, {spec.strength_name: 1})
                with MemoryTracker() as tracker:
                    list(erasing.erase(task_of(bench, shape, spec)))
                value = bytes_on_engine(spec, rehearse_deep(spec)) / tracker.peak
                ratios.append(Ratio(f"{method} on {shape}{', LoRA' if lora else ''}", value, "0.75 to 1.25"))
                print(f"{ratios[-1].what}: {value:.3f} of {tracker.peak / 1e6:.0f} MB")
    return ratios


if __name__ == "__main__":
    main()
