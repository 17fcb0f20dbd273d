"""Tokens a second, against what the card's arithmetic would allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import torch

from benchmarks.gpu_check.parts import Case, Part, Row
from benchmarks.gpu_check.precision_part import measuring_bytes, to_bf16, training_bytes
from benchmarks.gpu_check.workload import Bench, RandomTask, Shape
from harness.contracts import Model, Sequences
from harness.toolkit.decoding.greedy import Continuations, greedy_choices, greedy_continuations
from harness.toolkit.finetune import train
from harness.toolkit.losses import nll_loss

FLOPS_OF_READING = 2
"""For each token and parameter: a product and a sum."""
FLOPS_OF_TRAINING = 3 * FLOPS_OF_READING
"""Forward, and backward for inputs and for weights."""
EPOCHS = 2
"""The first loads kernels; the second is timed."""


def speed_part(bench: Bench, shapes: tuple[Shape, ...]) -> Part:
    """Return the part: training, reading and stepping of each shape, in both precisions."""
    peaks = cache(bench.card.flops_per_second)
    cases = []
    for shape in shapes:
        for precision in ("fp32", "bf16"):
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            limit = partial(peaks, dtype)
            on = f"{shape.name}, {precision}"
            needs = partial(training_bytes, bench, shape, precision)
            cases.append(Case(f"training {on}", partial(_train, bench, shape, precision, limit), needs))
            held = partial(measuring_bytes, bench, shape)
            cases.append(Case(f"measuring {on}", partial(_measure, bench, shape, precision, limit), held))
    about = (
        "Training: steps with the NLL of all tokens (bf16: autocast). Reading: teacher-forced greedy choices (bf16: "
        "parameters in it). Stepping: greedy continuations from every prefix, less the time of reading. Limit: the "
        "floating-point operations a second that a large matrix product of the same precision reached in this run, by "
        f"{FLOPS_OF_READING} for each token and parameter, {FLOPS_OF_TRAINING} in training; attention's own products "
        "are not counted."
    )
    columns = ("what", "model", "precision", "tokens a second", "limit", "share", "TFLOP/s of the limit")
    return Part("Speed against arithmetic", about, columns, tuple(cases), 0.9)


def _train(bench: Bench, shape: Shape, precision: str, flops: Callable[[], float]) -> Iterator[Row]:
    task = RandomTask(bench, shape, bench.spec(shape, "gradient_ascent", bench.workload.training(precision)))
    model = task.load_original()
    seconds = [float(epoch.notes["epoch_seconds"]) for epoch in train(task, model, nll_loss, EPOCHS) if epoch.number]
    speed = task.forget.tokens_NT.numel() / seconds[-1]
    yield _row("training", shape, precision, speed, FLOPS_OF_TRAINING * _parameters(model), flops())


def _measure(bench: Bench, shape: Shape, precision: str, flops: Callable[[], float]) -> Iterator[Row]:
    model = bench.model(shape)
    if precision == "bf16":
        to_bf16(model)
    texts = bench.workload.texts(int(shape.configure().vocab_size))
    greedy_choices(model, texts)  # Loads kernels.
    reading = bench.card.seconds(lambda: greedy_choices(model, texts))
    each = FLOPS_OF_READING * _parameters(model)
    yield _row("reading", shape, precision, texts.tokens_NT.numel() / reading, each, flops())
    tokens, seconds = _stepping(bench, model, texts)
    yield _row("stepping", shape, precision, tokens / seconds, each, flops())


def _stepping(bench: Bench, model: Model, texts: Sequences) -> tuple[int, float]:
    """Return how many tokens were generated step by step, and how long the steps took."""
    none: list[range] = [range(0)] * len(texts)
    every = [range(1, bench.workload.tokens)] * len(texts)
    read = bench.card.seconds(lambda: greedy_continuations(model, texts, none))
    continued: list[Continuations] = []
    seconds = bench.card.seconds(lambda: continued.append(greedy_continuations(model, texts, every)))
    # The choice at a mismatch is known from reading; what follows it is stepped.
    tokens = sum(bench.workload.tokens - mismatch - 1 for _, mismatch in continued[0].rows)
    return tokens, max(seconds - read, 1e-9)


def _parameters(model: Model) -> int:
    return sum(weight.numel() for weight in model.parameters())


def _row(what: str, shape: Shape, precision: str, speed: float, each: int, flops: float) -> Row:
    """Return a row; `each` are the operations of one token."""
    limit = flops / each
    share = f"{100 * speed / limit:.1f} %"
    return what, shape.name, precision, f"{speed:,.0f}", f"{limit:,.0f}", share, f"{flops / 1e12:.3g}"
