"""GPU-hours of the paper's table 1, counted from its arithmetic: no GPU is used, and no time is measured.

    python -m benchmarks.full_size [--bf16 989] [--fp32 67] [--share 0.4] [--stepping-share 0.1]

Training is counted while each method's own code runs on tensors without contents, in the paper's three shapes; what a
point's evaluators read and write is counted in tokens, as if no token of the forget set were recited any more, which is
the most that there can be. The speed of a card is given: `--bf16` and `--fp32` are its TFLOP/s (an H100's by default,
without TF32, as torch has it), `--share` of them is reached where whole texts are read or trained on, and
`--stepping-share` where text is written token by token. Not counted: reasoning, whose texts are on the hub, the
encoders among the judges, the human texts, which are judged once, the early stop's validation, and what is loaded and
saved.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu_check import SHAPES, Bench
from benchmarks.measuring import Ratio
from evaluators.memorization import WINDOW_TOKENS, table_windows
from harness.contracts import Precision
from harness.data.sources import DEFAULT_TOKENS
from harness.execution.tasks import TABLE_NEW_TOKENS
from harness.planning.memory import rehearse
from harness.planning.sweep_file import read_sweep_file
from harness.plugins import METHODS
from harness.settings import Trial, replace

SWEEP = Path(__file__).parents[1] / "sweeps" / "paper" / "main_table.yaml"
JUDGES = {"EleutherAI/gpt-j-6b": 6.05e9, "openai-community/gpt2-large": 0.774e9}
"""Parameters of those that read what was generated; encoders are a hundred times smaller."""
_ROWS = 8


@dataclass(frozen=True)
class Speed:
    """Floating-point operations of a card in a second."""

    peaks: Mapping[Precision, float]
    share: float
    stepping_share: float

    def hours(self, flops: float, precision: Precision, *, is_stepping: bool = False) -> float:
        """Return the hours of so many operations."""
        return flops / (self.peaks[precision] * (self.stepping_share if is_stepping else self.share)) / 3600


@dataclass(frozen=True)
class PointTokens:
    """Tokens that measuring one point passes through the model and through each causal judge."""

    read: int
    stepped: int
    judged: int


def point_tokens(sequences: int, tokens: int, prefix: int, prompts: int, prompt_tokens: int) -> PointTokens:
    """Return the most tokens that `memorization` and `generation` ask for under `table`.

    Each forget sequence is read twice, for greedy choices and for those on its text tokenised again; each of four
    beginnings is read and continued for EL, and the prefix for exact match. Each utility prompt is read and continued,
    and a judge reads both.

    Example:
        >>> point_tokens(sequences=1, tokens=200, prefix=100, prompts=1, prompt_tokens=32)
        PointTokens(read=832, stepped=1094, judged=232)
    """
    windows = list(table_windows([tokens]))
    read_tokens = sequences * (2 * tokens + sum(windows)) + prompts * prompt_tokens
    # The first token that is written follows from reading.
    stepped = sequences * (len(windows) * (WINDOW_TOKENS - 1) + tokens - prefix - 1) + prompts * (TABLE_NEW_TOKENS - 1)
    return PointTokens(read_tokens, stepped, prompts * (prompt_tokens + TABLE_NEW_TOKENS))


def flops_per_text(bench: Bench, shape: str, method: str) -> float:
    """Return the operations of one pass over a forget sequence: the method's, or its reference's where that trains.

    It is the difference between two batches, one of twice as many texts: what a run does once is in neither. Layers
    are alike, so that four say what all of them take.
    """
    spec = bench.spec(shape, method)
    two, four = ((_flops(spec, 2 * _ROWS, layers) - _flops(spec, _ROWS, layers)) / _ROWS for layers in (2, 4))
    layers = int(bench.shapes[shape]().num_hidden_layers)
    return two + (four - two) * (layers - 2) / 2


def _flops(spec: Trial, rows: int, layers: int) -> int:
    training = replace(spec.training, global_batch=rows, micro_batch=_ROWS)
    memorization = replace(spec.memorization, global_batch=rows)
    with FlopCounterMode(display=False) as counter:
        spec = replace(spec, training=training, memorization=memorization)
        rehearse(spec, layers, is_memorizing=spec.reference == "memorized_model")
    return int(counter.get_total_flops())


@dataclass(frozen=True)
class Size:
    """Cost of one model's part of the table."""

    name: str
    precision: Precision
    """That it trains in."""
    trained: Mapping[str, float]
    """Operations by method, over all of its epochs; the memorised model once."""
    points: int
    token_flops: float
    """Operations of a forward pass."""

    def hours(self, tokens: PointTokens, speed: Speed, measuring: Precision, judges: Precision) -> tuple[float, float]:
        """Return the hours of training, and those of measuring all points."""
        judging = 2 * sum(JUDGES.values()) * tokens.judged
        point = speed.hours(self.token_flops * tokens.read, measuring) + speed.hours(judging, judges)
        point += speed.hours(self.token_flops * tokens.stepped, measuring, is_stepping=True)
        return speed.hours(sum(self.trained.values()), self.precision), self.points * point


def counted_size(bench: Bench, model: Mapping[str, Any], settings: Mapping[str, Any]) -> Size:
    """Return the cost of a model in a sweep; methods to their last epoch, as if no early stop ended them before."""
    shape = model["id"].rpartition("/")[2].lower()
    trained, points = {}, 1  # The original is measured too.
    for variant, row in settings["methods"].items():
        method = row.get("method", variant)
        strengths = row[METHODS.load(method).strength.field]
        points += len(strengths) if isinstance(strengths, list) else 1
        key, epochs = variant, row.get("epochs", 1)
        if METHODS.load(method).reference == "memorized_model":
            key, epochs = "memorised model", settings["memorized_model"]["epochs"]
        if key not in trained:
            passes = bench.sequences * (max(epochs) if isinstance(epochs, list) else epochs)
            trained[key] = flops_per_text(bench, shape, method) * passes
    token_flops = flops_per_text(bench, shape, "gradient_ascent") / 3 / (bench.tokens - 1)
    return Size(shape, model["training"].get("precision", "fp32"), trained, points, token_flops)


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Print a table of hours by size and precision, and return how many hours in fp32 there are for one in bf16."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("bf16", 989.0), ("fp32", 67.0), ("share", 0.4), ("stepping-share", 0.1)):
        parser.add_argument(f"--{name}", type=float, default=value)
    card = parser.parse_args(argv)
    speed = Speed({"bf16": card.bf16 * 1e12, "fp32": card.fp32 * 1e12}, card.share, card.stepping_share)
    settings = read_sweep_file(SWEEP).settings
    forget, utility = settings["data"]["forget"], settings["data"]["utility"]
    prefix, length = DEFAULT_TOKENS[0], forget["sequence_tokens"]
    tokens = point_tokens(forget["sequences"], length, prefix, utility["prompts"], utility["prompt_tokens"])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(torch.device("cpu"), "none", Path(folder), SHAPES, forget["sequences"], length)
        sizes = [counted_size(bench, model, settings) for model in settings["models"]]
    print(f"A point, in million tokens: {tokens.read / 1e6:.1f} read, {tokens.stepped / 1e6:.1f} written, ", end="")
    print(f"{tokens.judged / 1e6:.1f} judged")
    print("\n| | points | training, 10^18 operations | training, h | measuring in fp32, h | model bf16 | judges too |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    sums = [0.0] * 4
    for size in sizes:
        hours = [size.hours(tokens, speed, *of)[1] for of in (("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16"))]
        hours = [size.hours(tokens, speed, "fp32", "fp32")[0], *hours]
        sums = [total + more for total, more in zip(sums, hours, strict=True)]
        cells = " | ".join(f"{value:.1f}" for value in hours)
        print(f"| {size.name} | {size.points} | {sum(size.trained.values()) / 1e18:.2f} | {cells} |")
    print(f"| all | | | {' | '.join(f'{value:.1f}' for value in sums)} |")
    in_fp32, in_bf16 = sums[0] + sums[1], sums[0] + sums[3]
    print(f"\nThe whole table: {in_fp32:.1f} hours measured in fp32, {in_bf16:.1f} in bf16 with judges in bf16.")
    return [Ratio("table 1 measured in fp32", in_fp32 / in_bf16, f"{card.bf16 / card.fp32:.1f}: the card's peaks")]


if __name__ == "__main__":
    main()
