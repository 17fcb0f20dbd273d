"""What measuring in bf16 changes: greedy choices, perplexity, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.gpu_check.parts import Case, Part, Row, WrongError
from benchmarks.gpu_check.workload import Bench, RandomTask, Shape, estimate
from harness.contracts import Model, Sequences
from harness.sizing.estimate import weights_bytes
from harness.toolkit.decoding.greedy import Continuations, greedy_continuations
from harness.toolkit.finetune import train
from harness.toolkit.losses import nll_loss
from harness.toolkit.scoring import own_perplexity


@dataclass(frozen=True)
class Measured:
    """A model in one precision."""

    continuations: Continuations
    perplexity: float
    seconds: float


def precision_part(bench: Bench, shapes: tuple[Shape, ...]) -> Part:
    """Return the part: each shape with random weights, and trained on the texts where that fits."""
    cases = []
    for shape in shapes:
        for weights, needs in (("trained", training_bytes), ("random", measuring_bytes)):
            run = partial(_compare, bench, shape, weights)
            cases.append(Case(f"{shape.name}, {weights}", run, partial(needs, bench, shape)))
    workload = bench.workload
    about = (
        "The same model, measured in fp32 and again with its parameters in bf16. Choices: teacher-forced, one for each "
        f"token but the first. Continuations: greedy, from every {workload.prefix_stride}th prefix to the text's end; "
        "one is changed if a token of it is. Trained: in "
        f"{workload.memorizing_passes} passes over the texts that are measured. The choices of random weights are "
        "nearly all near ties: their counts are an upper bound."
    )
    columns = ("model", "weights", "choices changed", "continuations changed", "perplexity fp32", "bf16", "shift")
    return Part("Measuring in bf16 against fp32", about, (*columns, "fp32 s", "bf16 s", "ratio"), tuple(cases), 0.75)


def training_bytes(bench: Bench, shape: Shape, precision: str = "fp32") -> int:
    """Return what training a whole model holds: gradient ascent trains with the NLL alone, as memorising does."""
    return estimate(bench.spec(shape, "gradient_ascent", bench.workload.training(precision))).erasing.total


def measuring_bytes(bench: Bench, shape: Shape) -> int:
    """Return about what measuring a model holds: its weights, and half as much for caches, logits and a copy's part."""
    return int(1.5 * weights_bytes(bench.checkpoint(shape)))


def _compare(bench: Bench, shape: Shape, weights: str) -> Iterator[Row]:
    task = RandomTask(bench, shape, bench.spec(shape, "gradient_ascent", bench.workload.training()))
    model = task.load_original()
    texts = task.forget
    if weights == "trained":
        task.forget = bench.workload.repeated(texts)
        for _ in train(task, model, nll_loss, 1):
            pass
    in_fp32 = _measure(bench, model, texts)
    to_bf16(model)
    in_bf16 = _measure(bench, model, texts)
    shift = in_bf16.perplexity / in_fp32.perplexity - 1
    yield (
        shape.name,
        weights,
        changed_choices(in_fp32.continuations, in_bf16.continuations),
        changed_continuations(in_fp32.continuations, in_bf16.continuations, _prefixes(bench)),
        f"{in_fp32.perplexity:.5g}",
        f"{in_bf16.perplexity:.5g}",
        f"{100 * shift:+.3f} %",
        f"{in_fp32.seconds:.2f}",
        f"{in_bf16.seconds:.2f}",
        f"{in_fp32.seconds / in_bf16.seconds:.2f} ×",
    )
    if not (math.isfinite(in_fp32.perplexity) and math.isfinite(in_bf16.perplexity)):
        raise WrongError(f"perplexity is {in_fp32.perplexity} in fp32 and {in_bf16.perplexity} in bf16.")


def to_bf16(model: Model) -> None:
    """Round a model's parameters in place; buffers, as of rotary positions, stay as they are."""
    for weight in model.parameters():
        weight.data = weight.data.to(torch.bfloat16)


def _prefixes(bench: Bench) -> range:
    return range(1, bench.workload.tokens, bench.workload.prefix_stride)


def _measure(bench: Bench, model: Model, texts: Sequences) -> Measured:
    measured: list[Continuations] = []
    perplexity = own_perplexity(model, texts)  # Once before the time is taken, so that kernels are loaded.
    prefixes = [_prefixes(bench)] * len(texts)
    seconds = bench.card.seconds(lambda: measured.append(greedy_continuations(model, texts, prefixes)))
    return Measured(measured[0], perplexity, seconds)


def changed_choices(before: Continuations, after: Continuations) -> str:
    """Return how many teacher-forced greedy choices differ, of how many."""
    differ = before.predicted_NT[:, 1:] != after.predicted_NT[:, 1:]
    return _count(int(differ.sum()), differ.numel())


def changed_continuations(before: Continuations, after: Continuations, prefixes: range) -> str:
    """Return how many greedy continuations differ anywhere, of how many."""
    changed = 0
    for sequence in range(len(before.sequences)):
        for prefix in prefixes:
            changed += before.of(sequence, prefix) != after.of(sequence, prefix)
    return _count(changed, len(before.sequences) * len(prefixes))


def _count(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.2f} %)"
