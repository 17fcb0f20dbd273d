"""Weights."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from evaluators.metrics import weighted_mean
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Json, Metric, Model

# First number in a parameter's name: its layer.
_LAYER = re.compile(r"\.(\d+)\.")

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
        diagnostic = partial(Metric, better="lower", high=math.inf, group="robustness", ranked=False)
        change = partial(diagnostic, unit="fraction", low=0.0, source="arXiv:2505.22310")
        rank = partial(diagnostic, unit="directions", low=1.0, source="Rudelson and Vershynin 2007")
        return (
            change(name="weight_change", title="Weight change"),
            rank(name="stable_rank", title="Stable rank of the change"),
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
        weight_change, ranks = matrix_changes(original, erased)
        numbers = {"weight_change": weight_change, "stable_rank": weighted_mean(ranks)}
        notes: dict[str, Json] = {}
        if all(torch.equal(erased[name], weight) for name, weight in original.items()):
            reason = ": what it erases, it erases while decoding" if is_pair else ", so this erased nothing"
            notes["erasure_warnings"] = [f"no weight differs from the original's{reason}"]
        elif math.isnan(weight_change):
            notes["warnings"] = ["the change of the weights is not known: some weights are not numbers"]
        elif math.isnan(numbers["stable_rank"]):
            warning = "no matrix of a layer differs from the original's: only embeddings, biases or norms do"
            notes["erasure_warnings"] = [warning]
        return Evaluation(numbers, notes=notes)


@torch.inference_mode()
def matrix_changes(original: Parameters, erased: Parameters) -> tuple[float, list[float]]:
    """Return ‖ΔW‖ / ‖W‖ of all matrices, by Frobenius' norm, and the stable rank of each changed one in a layer."""
    moved: defaultdict[str, float] = defaultdict(float)
    size: defaultdict[str, float] = defaultdict(float)
    ranks: list[float] = []
    for name, weight in original.items():
        if weight.ndim < 2:
            continue
        numbered = _LAYER.search(name)
        layer = numbered[1] if numbered else ""
        difference = erased[name].double() - weight.double()
        square = float(difference.square().sum())
        moved[layer] += square
        size[layer] += float(weight.double().square().sum())
        if numbered and square != 0:
            # Experts of one layer may stand in one parameter, one matrix after the other.
            ranks += map(stable_rank, difference.flatten(0, -3) if difference.ndim > 2 else [difference])
    total = sum(size.values())
    return math.sqrt(sum(moved.values()) / total) if total else math.nan, ranks


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
