"""Whether ZeRO-2 and ZeRO-3 train to the plain engine's losses and weights, and what they hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.gpu_check.memory_part import compared
from benchmarks.gpu_check.parts import Case, Part, Row, WrongError
from benchmarks.gpu_check.workload import Bench, RandomTask, Shape, estimate
from harness.plugins import METHODS
from harness.specs import Engine, TrialSpec

LOSS_TOLERANCE = 1e-4
"""Relative, of the epoch's mean loss."""
WEIGHT_TOLERANCE = 0.05
"""Of the distance that the weights moved: AdamW's first steps are as long for rounding noise as for a gradient."""


def engine_part(bench: Bench, shapes: tuple[Shape, ...]) -> Part:
    """Return the part: the plain engine, then ZeRO-2 and ZeRO-3 with one worker, on each shape."""
    cases = []
    for shape in shapes:
        for stage in (2, 3):
            specs = [
                bench.spec(shape, "gradient_ascent", bench.workload.training(), engine)
                for engine in (Engine(), Engine(name="deepspeed", zero_stage=stage))
            ]
            needs = partial(_most, specs)
            cases.append(Case(f"ZeRO-{stage} on {shape.name}", partial(_compare, bench, shape, *specs), needs))
    about = (
        "Gradient ascent, one worker, fp32, one epoch from the same weights. Apart: the distance of the two engines' "
        f"weights, by the distance that the plain engine moved them; more than {100 * WEIGHT_TOLERANCE:g} % is wrong, "
        f"and a mean loss that differs by more than {LOSS_TOLERANCE:g} of it. Memory is ZeRO's, against sizing."
    )
    columns = ("engine", "model", "mean loss", "plain", "apart", "seconds", "plain", "sizing")
    return Part(
        "ZeRO against the plain engine", about, (*columns, "measured", "difference", "within 5 %"), tuple(cases)
    )


def _most(specs: list[TrialSpec]) -> int:
    return max(estimate(spec).erasing.total for spec in specs)


@dataclass(frozen=True)
class Trained:
    """What an engine made of a model in one epoch."""

    weights: dict[str, torch.Tensor]
    """In the machine's memory."""
    loss: float
    """The epoch's mean."""
    seconds: float
    peak: int
    """Bytes."""


def _compare(bench: Bench, shape: Shape, plain: TrialSpec, zero: TrialSpec) -> Iterator[Row]:
    ours, theirs = _train(bench, shape, plain), _train(bench, shape, zero)
    moved = distance(ours.weights, dict(bench.model(shape).named_parameters()))
    share = distance(ours.weights, theirs.weights) / moved
    yield (
        str(zero.engine),
        shape.name,
        f"{theirs.loss:.6g}",
        f"{ours.loss:.6g}",
        f"{100 * share:.3g} %",
        f"{theirs.seconds:.2f}",
        f"{ours.seconds:.2f}",
        *compared(_most([zero]), theirs.peak),
    )
    check_alike(ours.loss, theirs.loss, share)


def check_alike(loss: float, their_loss: float, share: float) -> None:
    """Refuse what ZeRO trained if it is not what the plain engine trains.

    Args:
        loss: The plain engine's mean loss.
        their_loss: ZeRO's.
        share: How far their weights are apart, by how far the plain engine moved them.

    Raises:
        WrongError: With what differs by how much.
    """
    if not math.isclose(loss, their_loss, rel_tol=LOSS_TOLERANCE):
        raise WrongError(f"the mean loss is {their_loss:.7g}, and the plain engine's {loss:.7g}.")
    if not share <= WEIGHT_TOLERANCE:
        raise WrongError(f"its weights are {100 * share:.3g} % of the way moved from the plain engine's.")


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    """Return the Euclidean distance between two models' weights, by their names.

    Example:
        >>> distance({"a": torch.tensor([0.0, 3.0])}, {"a": torch.tensor([4.0, 0.0])})
        5.0
    """
    squares = 0.0
    for name, weight in left.items():
        squares += float((weight - right[name].detach().cpu()).double().square().sum())
    return math.sqrt(squares)


def _train(bench: Bench, shape: Shape, spec: TrialSpec) -> Trained:
    task = RandomTask(bench, shape, spec)
    method = METHODS.configure(spec.method, {spec.strength_name: spec.strengths[-1]})
    with bench.card.peak() as peak:
        [erased] = method.erase(task)
    weights = {name: weight.detach().cpu().clone() for name, weight in erased.model.named_parameters()}
    return Trained(weights, float(erased.notes["loss_mean"]), float(erased.notes["epoch_seconds"]), peak.bytes)
