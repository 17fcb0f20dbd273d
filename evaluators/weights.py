"""Weights."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch

from evaluators.metrics import weighted_mean
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Json, Metric, Model

_LAYER = re.compile(r"\.(\d+)\.")
"""First number in a parameter's name: its layer."""

Parameters = Mapping[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Weights(Evaluator):
    """The relative change of a model's matrices, and its stable rank, against the original.

    A large change is no merit: a collapsed model has moved as well. All parameters of two dimensions or more count,
    embeddings included; tied ones once.
    """

    version = 1
    needs_fp32 = True
    reads = ("original",)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        moved = (
            "how far the weights moved: the norm of the change of all matrices, as a share of the "
            "original's own; what moved little is easily moved back"
        )
        spread = (
            "over how many directions the change of a layer's matrices spreads, on average over those that "
            "changed: 1 is a single one"
        )
        diagnostic = partial(Metric, better="lower", high=math.inf, group="robustness", ranked=False)
        change = partial(diagnostic, unit="fraction", low=0.0, source="arXiv:2505.22310", meaning=moved)
        rank = partial(diagnostic, unit="directions", low=1.0, source="Rudelson and Vershynin 2007")
        return (
            change(name="weight_change", title="Weight change"),
            rank(name="stable_rank", title="Stable rank of the change", meaning=spread),
        )

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        # Here, not above: it imports all of transformers, and planning needs the settings only.
        from harness.toolkit import PairModel

        is_pair = isinstance(model, PairModel)
        erased = dict((model.first if is_pair else model).named_parameters())
        original = dict(task.load_original().named_parameters())
        unknown = dict.fromkeys(("weight_change", "stable_rank"), math.nan)
        if _shapes(erased) != _shapes(original):
            warning = "the change of the weights is not known: the model's parameters are others than the original's"
            return Evaluation(unknown, notes={"warnings": [warning]})
        change_by_layer = matrix_changes(original, erased)
        ranks = [rank for change in change_by_layer.values() for rank in change.stable_ranks]
        numbers = {"weight_change": relative_change(change_by_layer.values()), "stable_rank": weighted_mean(ranks)}
        layers = [change for layer, change in sorted(change_by_layer.items()) if layer >= 0]
        notes: dict[str, Json] = {
            "layers": {
                "change": [relative_change([change]) for change in layers],
                "stable_rank": [weighted_mean(change.stable_ranks) for change in layers],
            }
        }
        if all(torch.equal(erased[name], weight) for name, weight in original.items()):
            reason = ": what it erases, it erases while decoding" if is_pair else ", so this erased nothing"
            notes["erasure_warnings"] = [f"no weight differs from the original's{reason}"]
        elif math.isnan(numbers["weight_change"]):
            notes["warnings"] = ["the change of the weights is not known: some weights are not numbers"]
        elif math.isnan(numbers["stable_rank"]):
            warning = "no matrix of a layer differs from the original's: only embeddings, biases or norms do"
            notes["erasure_warnings"] = [warning]
        return Evaluation(numbers, notes=notes)


@dataclass
class Change:
    """Change of one layer's matrices, or of all others."""

    moved: float = 0.0
    """Sum of squared differences."""
    size: float = 0.0
    """Sum of squares of the original's weights."""
    stable_ranks: list[float] = field(default_factory=list)
    """Of each changed matrix in a layer."""


@torch.inference_mode()
def matrix_changes(original: Parameters, erased: Parameters) -> dict[int, Change]:
    """Return the change by layer; -1 is outside the layers."""
    by_layer: dict[int, Change] = {}
    for name, weight in original.items():
        if weight.ndim < 2:
            continue
        numbered = _LAYER.search(name)
        change = by_layer.setdefault(int(numbered[1]) if numbered else -1, Change())
        difference = erased[name].double() - weight.double()
        moved = float(difference.square().sum())
        change.moved += moved
        change.size += float(weight.double().square().sum())
        if numbered and moved != 0:
            # Experts of one layer may stand in one parameter, one matrix after the other.
            ranks = map(stable_rank, difference.flatten(0, -3) if difference.ndim > 2 else [difference])
            change.stable_ranks += ranks
    return by_layer


def relative_change(parts: Iterable[Change]) -> float:
    """Return ‖ΔW‖ / ‖W‖ of several parts together, by Frobenius' norm; NaN where W is 0.

    Example:
        >>> relative_change([Change(moved=9.0, size=100.0), Change(moved=0.0, size=125.0)])
        0.2
    """
    changes = list(parts)
    size = sum(change.size for change in changes)
    return math.sqrt(sum(change.moved for change in changes) / size) if size else math.nan


def _shapes(parameters: Parameters) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in parameters.items()}


def stable_rank(matrix: torch.Tensor) -> float:
    """Return ‖A‖_F² / ‖A‖_2², at most the rank; NaN for zeros and values that are not finite.

    Source: M. Rudelson and R. Vershynin, "Sampling from large matrices", 2007.

    Example:
        >>> stable_rank(torch.tensor([[1.0, 2.0], [2.0, 4.0]])), stable_rank(torch.diag(torch.tensor([2.0, 1.0, 1.0])))
        (1.0, 1.5)
    """
    wide = matrix.double() if matrix.shape[0] <= matrix.shape[1] else matrix.double().T
    # Of about size 1, so that squares neither vanish nor overflow.
    largest = wide.abs().max()
    if not 0 < largest < math.inf:
        return math.nan
    products = (wide / largest) @ (wide / largest).T
    return float(products.trace() / torch.linalg.eigvalsh(products)[-1])
