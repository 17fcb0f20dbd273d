"""Quantization."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import get_args

import numpy as np

from evaluators.metrics import attack_share, item_evaluation, likelihoods, recalled, refuse_repeats, seeded_prefixes
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Json, Metric, Model, PositiveCount, RoundingScheme
from harness.toolkit import experts_in_one_tensor, greedy_continuations, make_rounding, rounded_copy

STORED: Mapping[RoundingScheme, str] = {"int8": "8 bits", "int4": "4 bits", "nf4": "4 bits, NF4"}
"""Heading of each scheme."""


@dataclass(frozen=True, kw_only=True)
class Quantization(Evaluator):
    """MA, extraction strength and EL_n of the model with its linear layers rounded to 8 or 4 bits.

    Rounding may undo small changes of weights. It is simulated on a copy in fp32: evenly spaced values with a scale for
    every 128 inputs of an output channel (`int8`, `int4`), or those of NF4. Embeddings, the output head, norms and
    biases stay. Both models of a pair are rounded.
    """

    version = 1
    needs_fp32 = True

    schemes: tuple[RoundingScheme, ...] = get_args(RoundingScheme)
    """Roundings, each measured separately."""
    n: PositiveCount = 3
    """Length of EL's n-grams, in tokens."""
    el_prefixes: PositiveCount = 1
    """Prefixes of each sequence for EL."""

    def __post_init__(self) -> None:
        refuse_repeats("schemes", self.schemes)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        share = partial(attack_share, source="Zhang et al., arXiv:2410.16454")
        metrics = []
        for scheme in self.schemes:
            accuracy, strength, likelihood = self._names(scheme)
            stored = STORED[scheme]
            metrics += [
                share(name=accuracy, title=f"MA ({stored})", attack=stored if scheme == "int4" else ""),
                share(name=strength, title=f"Extraction strength ({stored})"),
                share(name=likelihood, title=f"EL_{self.n} ({stored})"),
            ]
        return tuple(metrics)

    def _names(self, scheme: RoundingScheme) -> tuple[str, str, str]:
        return f"ma_{scheme}", f"es_{scheme}", f"el_{self.n}_{scheme}"

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        return experts_in_one_tensor(config)

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        forget = task.forget
        prefixes = seeded_prefixes(forget, self.n, self.el_prefixes)
        per_item: dict[str, np.ndarray] = {}
        near_ties: dict[str, Json] = {}
        for number, scheme in enumerate(self.schemes, start=1):
            task.progress(f"rounding to {STORED[scheme]}, {number} of {len(self.schemes)}")
            rounded = rounded_copy(model, make_rounding(scheme))
            continuations = greedy_continuations(rounded, forget, prefixes)
            del rounded  # Else memory would hold it with the next one.
            accuracy, strength, likelihood = self._names(scheme)
            per_item[accuracy], per_item[strength] = recalled(forget, continuations.predicted_NT)
            per_item[likelihood] = likelihoods(continuations, self.n, prefixes)
            near_ties[scheme] = continuations.near_ties
        return item_evaluation(per_item, {"near_ties": near_ties})
