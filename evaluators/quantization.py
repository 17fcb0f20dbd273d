"""Quantization: what of the forget set comes back once the weights are stored in few bits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import numpy as np
import torch
from torch import nn

from evaluators.metrics.attacks.rounding import rounded_to_integers, rounded_to_normal_float
from evaluators.metrics.extraction_likelihood import likelihoods, seeded_prefixes
from evaluators.metrics.means import standard_errors, weighted_mean
from evaluators.metrics.teacher_forced import accuracies, extraction_strengths
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Json, Metric, Model, PositiveCount
from harness.errors import TrialError
from harness.toolkit import greedy_continuations

Scheme = Literal["int8", "int4", "nf4"]
ROUNDED: Mapping[Scheme, Callable[[torch.Tensor], torch.Tensor]] = {
    "int8": partial(rounded_to_integers, bits=8),
    "int4": partial(rounded_to_integers, bits=4),
    "nf4": rounded_to_normal_float,
}
STORED: Mapping[Scheme, str] = {"int8": "8 bits", "int4": "4 bits", "nf4": "4 bits, NF4"}
"""How each is headed."""
SOURCE = "Zhang et al., arXiv:2410.16454"
FUSED = (
    "keeps the matrices of several experts in one tensor, which is not rounded here, so that its experts would stay as "
    "they are. Leave this model, or this evaluator, out of the sweep."
)


@dataclass(frozen=True, kw_only=True)
class Quantization(Evaluator):
    """MA, extraction strength and EL_n of the model with its linear layers rounded to 8 or 4 bits.

    Erasing moves weights by little, and rounding may move them back. Rounding is simulated on a copy in fp32, to the
    nearest value: evenly spaced ones with a scale for every 128 inputs of an output channel (`int8`, `int4`), or those
    of NF4. Linear layers are rounded, a fused one row by row like any other; the rest keeps its precision: embeddings,
    the output head (whether or not it is tied to them), norms and biases. Of a pair of models both are rounded.
    Sampled prefixes of EL_n, and all else, are the same for every model.
    """

    version = 1

    schemes: tuple[Scheme, ...] = get_args(Scheme)
    """How the weights are rounded, each apart from the others."""
    n: PositiveCount = 3
    """Length of EL's n-grams, in tokens."""
    el_prefixes: PositiveCount = 1
    """EL is measured after this many prefixes of each sequence."""

    def __post_init__(self) -> None:
        """Refuse a list of schemes that is empty or names one twice."""
        if not self.schemes or len(set(self.schemes)) < len(self.schemes):
            raise ValueError(f"schemes is [{', '.join(self.schemes)}]: name at least one, and each only once")

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return three metrics of each scheme, shown beside what is ranked."""
        share = partial(
            Metric,
            better="lower",
            unit="fraction",
            low=0.0,
            high=1.0,
            group="robustness",
            source=SOURCE,
            ranked=False,
            items="sequence",
        )
        metrics = []
        for column, scheme in enumerate(self.schemes, start=40):
            stored = STORED[scheme]
            known, strength, likelihood = self._names(scheme)
            after = f"once the model's linear layers are rounded to {stored}"
            attack = stored if scheme == "int4" else ""
            metrics += [
                share(name=known, title=f"MA ({stored})", column=column, attack=attack, meaning=f"MA {after}"),
                share(
                    name=strength,
                    title=f"Extraction strength ({stored})",
                    column=column,
                    meaning=f"extraction strength {after}",
                ),
                share(
                    name=likelihood,
                    title=f"EL_{self.n} ({stored})",
                    column=column,
                    log_scale=True,
                    meaning=f"extraction likelihood {after}, after {self.el_prefixes} of each sequence's beginnings",
                ),
            ]
        return tuple(metrics)

    def _names(self, scheme: Scheme) -> tuple[str, str, str]:
        return f"ma_{scheme}", f"es_{scheme}", f"el_{self.n}_{scheme}"

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        """Return why a mixture of experts is not measured."""
        for name, count in config.items():
            if "experts" in name and isinstance(count, int) and count > 1:
                return f"it {FUSED}"
        return None

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        """Return the numbers of each scheme."""
        forget = task.forget
        prefixes = seeded_prefixes(forget, self.n, self.el_prefixes)
        per_item: dict[str, np.ndarray] = {}
        schemes: dict[str, Json] = {}
        for number, scheme in enumerate(self.schemes, start=1):
            task.progress(f"rounding to {STORED[scheme]}, {number} of {len(self.schemes)}")
            rounded, share = rounded_copy(model, ROUNDED[scheme])
            continuations = greedy_continuations(rounded, forget, prefixes)
            del rounded  # Else it would lie beside the next one.
            predicted_NT = continuations.predicted_NT
            known, strength, likelihood = self._names(scheme)
            per_item[known] = accuracies(forget, predicted_NT, first=forget.prefix_tokens, left_out=1)
            per_item[strength] = extraction_strengths(forget, predicted_NT)
            per_item[likelihood] = likelihoods(continuations, self.n, prefixes)
            schemes[scheme] = {
                "rounded_share_of_weights": share,
                "near_ties": continuations.near_ties,
                "near_tie_limit": continuations.near_tie_limit,
            }
        notes = {
            "schemes": schemes,
            "sequences": len(forget),
            "el_prefixes": sum(map(len, prefixes)),
            "standard_errors": standard_errors(per_item),
        }
        numbers = {name: weighted_mean(values) for name, values in per_item.items()}
        return Evaluation(numbers, (), notes, per_item)


@torch.no_grad()
def rounded_copy(model: Model, rounded: Callable[[torch.Tensor], torch.Tensor]) -> tuple[Model, float]:
    """Return a copy of a model whose linear layers are rounded, and the share of all its weights that these hold.

    Args:
        model: Left as it is.
        rounded: Of a matrix, outputs by inputs.

    Raises:
        TrialError: It has no linear layer, or keeps several matrices in one tensor.
    """
    copied = copy.deepcopy(model)
    count = 0
    for weight, is_transposed in linear_weights(copied):
        matrix_OI = weight.T if is_transposed else weight
        matrix_OI.copy_(rounded(matrix_OI))
        count += weight.numel()
    if not count:
        raise TrialError(
            f"{type(model).__name__} has no linear layer but its output head, so nothing of it is rounded. Leave this "
            "model, or this evaluator, out of the sweep."
        )
    return copied, count / sum(weight.numel() for weight in model.parameters())


def linear_weights(model: Model) -> Iterator[tuple[torch.Tensor, bool]]:
    """Yield the matrix of each linear layer but the head, once each, and whether it is inputs by outputs.

    Raises:
        TrialError: The model keeps several matrices in one tensor.
    """
    from transformers import PreTrainedModel
    from transformers.pytorch_utils import Conv1D

    left_out: set[int] = set()
    for part in model.modules():
        if isinstance(part, nn.Embedding):
            left_out.add(id(part.weight))
        elif isinstance(part, PreTrainedModel) and (head := part.get_output_embeddings()) is not None:
            left_out.add(id(head.weight))
    for part in model.modules():
        if isinstance(part, nn.Linear | Conv1D) and id(part.weight) not in left_out:
            left_out.add(id(part.weight))
            yield part.weight, isinstance(part, Conv1D)
        elif not isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            for weight in part.parameters(recurse=False):
                if weight.ndim > 2 and min(weight.shape) > 1:
                    raise TrialError(f"{type(model).__name__} {FUSED}")
