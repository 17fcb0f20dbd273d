"""Extraction."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from evaluators.metrics import attack_share, extraction_strengths, item_evaluation, lacks_tokens
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Metric, Model, PositiveCount, TextsShape
from harness.toolkit import greedy_choices, recited_lengths


@dataclass(frozen=True, kw_only=True)
class Extraction(Evaluator):
    """Extraction strength, and the share of sequences that are recited for 50 tokens and more.

    A greedy continuation equals the text up to the first wrong choice after the true text: one forward pass tells both.
    """

    version = 2

    tokens: PositiveCount = 50
    """Right tokens after the prefix that make a text recited."""

    def refuses_texts(self, forget: TextsShape) -> str | None:
        return lacks_tokens(self.tokens, forget)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        ranked = partial(attack_share, source="Wang et al., arXiv:2406.09179", group="extraction", ranked=True)
        shown = partial(attack_share, source="Carlini et al., arXiv:2202.07646", group="erasure")
        return (
            ranked(name="extraction_strength", title="Extraction strength"),
            shown(name=f"recited_{self.tokens}", title=f"Recited for {self.tokens} tokens"),
        )

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        forget = task.forget
        predicted_NT = greedy_choices(model, forget)
        is_long_N = forget.lengths_N.numpy() - forget.prefix_tokens >= self.tokens
        recited_N = np.where(is_long_N, recited_lengths(forget, predicted_NT) >= self.tokens, math.nan)
        strengths = extraction_strengths(forget, predicted_NT)
        return item_evaluation({"extraction_strength": strengths, f"recited_{self.tokens}": recited_N}, {})
