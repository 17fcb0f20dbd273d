"""Whether sizing tells what erasing and measuring hold: its estimate against the card's own count."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial

from benchmarks.gpu_check.card import gigabytes
from benchmarks.gpu_check.parts import Case, Part, Row, WrongError
from benchmarks.gpu_check.workload import Bench, RandomTask, Shape, estimate
from harness.contracts import Json
from harness.models.loading import unloaded_model
from harness.plugins import METHODS
from harness.sizing.estimate import weights_bytes
from harness.sizing.measuring_dry_run import model_passes
from harness.sizing.memory_tracker import MemoryTracker
from harness.specs import TrialSpec
from harness.toolkit.decoding.greedy import greedy_continuations

TOLERANCE = 0.05


def memory_part(bench: Bench, shapes: tuple[Shape, ...]) -> Part:
    """Return the part: each shape's methods, and reading and continuing its texts."""
    cases = []
    for shape in shapes:
        for method, precision in shape.methods:
            spec = bench.spec(shape, method, bench.workload.training(precision))
            needs = partial(_erasing_bytes, spec)
            run = partial(_erasing, bench, shape, spec)
            cases.append(Case(f"{method} on {shape.name}, {precision}", run, needs))
        measuring = f"measuring {shape.name}, fp32"
        cases.append(Case(measuring, partial(_measuring, bench, shape), partial(_measuring_bytes, bench, shape)))
    workload = bench.workload
    about = (
        "Peaks of what tensors hold, while a method takes the steps of an epoch (task arithmetic and contrastive "
        "decoding: with the memorised model's training), and while texts are read and continued greedily from every "
        f"prefix. Micro-batches of {workload.micro_batch} × {workload.tokens} tokens. What is off by more than "
        f"{100 * TOLERANCE:g} % is a fault of sizing's, and fails nothing here."
    )
    columns = ("what", "model", "precision", "sizing", "measured", "difference", "within 5 %")
    return Part("Memory against sizing", about, columns, tuple(cases), until=0.5)


def compared(estimated: int, measured: int) -> Row:
    """Return the cells of an estimate beside what was measured.

    Example:
        >>> compared(1_040_000_000, 1_000_000_000)
        ('1.0 GB', '1.0 GB', '+4.0 %', 'yes')
    """
    difference = estimated / measured - 1
    is_within = "yes" if abs(difference) <= TOLERANCE else "no"
    return gigabytes(estimated), gigabytes(measured), f"{100 * difference:+.1f} %", is_within


def _erasing_bytes(spec: TrialSpec) -> int:
    return estimate(spec).erasing.total


def _erasing(bench: Bench, shape: Shape, spec: TrialSpec) -> Iterator[Row]:
    with bench.card.peak() as peak:
        erase(RandomTask(bench, shape, spec))
    yield spec.method, shape.name, spec.training.precision, *compared(_erasing_bytes(spec), peak.bytes)


def erase(task: RandomTask) -> Mapping[str, Json]:
    """Erase at the trial's strength, and return the last notes of the method.

    Raises:
        WrongError: A number in the notes is not finite.
    """
    spec = task.spec
    if spec.reference == "memorized_model":
        task.memorize()
    method = METHODS.configure(spec.method, {spec.strength_name: spec.strengths[-1]})
    notes: Mapping[str, Json] = {}
    for erased in method.erase(task):
        notes = erased.notes
    for name, value in notes.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise WrongError(f"{name} is {value}.")
    return notes


def _measuring_bytes(bench: Bench, shape: Shape) -> int:
    checkpoint, text = bench.checkpoint(shape), bench.workload.source()
    model = MemoryTracker().loading(lambda: unloaded_model(checkpoint))
    greedy, _ = model_passes(model, text, text, bench.card.device)
    return weights_bytes(checkpoint) + greedy.total


def _measuring(bench: Bench, shape: Shape) -> Iterator[Row]:
    texts = bench.workload.texts(int(shape.configure().vocab_size))
    every_prefix = [range(1, bench.workload.tokens)] * len(texts)
    with bench.card.peak() as peak:
        greedy_continuations(bench.model(shape), texts, every_prefix)
    yield "greedy continuations", shape.name, "fp32", *compared(_measuring_bytes(bench, shape), peak.bytes)
