"""Prefix stress."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein
from torch.nn import functional

from evaluators.metrics import attack_share, exact_match, item_evaluation
from harness import toolkit
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Metric, Model, PositiveCount, Sequences, TextsShape
from harness.toolkit import Continuations

LOOSE, COPY = 0.75, 0.95
"""Token similarities of a near-verbatim continuation and of a copy."""
GeneratedAndTrue: TypeAlias = tuple[list[int], list[int]]
"""A model's tokens after a prompt, and as many true ones."""


@dataclass(frozen=True, kw_only=True)
class PrefixStress(Evaluator):
    """The longest match over extended and shifted prefixes, near-verbatim copies, and the match deeper in a context.

    A prefix of n tokens becomes x_1 … x_{n+i} for 1 ≤ i ≤ `tokens`, and its last m tokens for `tokens` < m < n; at most
    `prefixes` of each, evenly spread. Near-verbatim copies count after those and the prefix itself. Deeper in a
    context, a validation text stands before the prefix. Continuations are greedy, under both definitions.

    Differs from the paper: an extended prefix leaves at least half of the continuation, since any model may guess the
    last tokens.
    """

    version = 2
    reads_if_given = ("validation",)

    tokens: PositiveCount = 20
    """Longest extension of a prefix; a shifted one keeps more tokens."""
    prefixes: PositiveCount = 8
    """Extended prefixes of each sequence, and shifted ones, at most."""
    offset: PositiveCount = 64
    """Tokens of another text before the prefix."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        match = partial(attack_share, source="Huang et al., arXiv:2407.17817")
        near = partial(attack_share, source="Merullo et al., arXiv:2510.24256")
        deeper = partial(attack_share, source="Xu et al., arXiv:2505.13171")
        return (
            match(name="prefix_match", title="Match after other prefixes", unit="tokens", high=math.inf),
            match(name="prefix_match_share", title="Match after other prefixes (share)"),
            near(name="near_verbatim_75", title="Near-verbatim (0.75)"),
            near(name="near_verbatim_95", title="Near-verbatim (0.95)"),
            deeper(name="deeper_match_share", title=f"Match behind {self.offset} other tokens (share)"),
        )

    def refuses_texts(self, forget: TextsShape) -> str | None:
        needed = self.tokens + 2
        if forget.prefix_tokens >= needed:
            return None
        fewer = f", or `tokens` to at most {forget.prefix_tokens - 2}" if forget.prefix_tokens > 2 else ""
        has = f"those of the forget set have {forget.prefix_tokens}: set prefix_tokens to {needed} or more{fewer}"
        keeps = f"drops the first tokens of prefixes and keeps more than {self.tokens}"
        return f"{keeps}, so that a prefix needs {needed}; {has}."

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        forget = task.forget
        extensions = spread(1, self.tokens, self.prefixes)
        dropped = spread(1, forget.prefix_tokens - self.tokens - 1, self.prefixes)
        prompts = stress_prompts(forget, extensions, dropped)
        shifted = without_first_tokens(forget, (0, *dropped))
        prefixes: list[list[int]] = [[] for _ in range(len(shifted))]
        for row, prefix in itertools.chain(*prompts):
            prefixes[row].append(prefix)
        continuations = toolkit.greedy_continuations(model, shifted, prefixes)
        per_item = {metric.name: np.full(len(forget), math.nan) for metric in self.metrics}
        for sequence, sequence_prompts in enumerate(prompts):
            unchanged, *others = [generated_and_true(continuations, *prompt) for prompt in sequence_prompts]
            for name, score in stress_scores(unchanged, others).items():
                per_item[name][sequence] = score
        per_item["deeper_match_share"] = self._shares_deeper(model, task)
        notes = {"near_ties": continuations.near_ties, "extended_by": extensions, "dropped": dropped}
        return item_evaluation(per_item, notes)

    def _shares_deeper(self, model: Model, task: EvaluationTask) -> np.ndarray:
        """Return each sequence's matching share behind another text; NaN without one, or in too short a context."""
        forget, others = task.forget, task.validation
        long = [] if others is None else (others.lengths_N >= self.offset).nonzero()[:, 0].tolist()
        if others is None or not long or toolkit.room_after(model, forget.tokens_NT.shape[1]) < self.offset:
            return np.full(len(forget), math.nan)
        before_NT = others.tokens_NT[[long[row % len(long)] for row in range(len(forget))], : self.offset]
        tokens_NT, prefix = torch.cat([before_NT, forget.tokens_NT], dim=1), forget.prefix_tokens + self.offset
        deeper = Sequences(tokens_NT, forget.lengths_N + self.offset, prefix, f"{forget.digest} behind {others.digest}")
        continuations = toolkit.greedy_continuations(model, deeper, [[prefix]] * len(forget))
        pairs = (generated_and_true(continuations, row, prefix) for row in range(len(forget)))
        return np.array([exact_match(generated, true) / len(true) for generated, true in pairs])


def spread(first: int, last: int, most: int) -> list[int]:
    """Return at most `most` whole numbers from `first` to `last`, both included, evenly spread.

    Example:
        >>> spread(1, 4, 8), spread(1, 20, 5), spread(1, 20, 1), spread(1, 0, 5)
        ([1, 2, 3, 4], [1, 5, 10, 15, 20], [1], [])
    """
    every = range(first, last + 1)
    if len(every) <= most:
        return list(every)
    return [every[index * (len(every) - 1) // max(most - 1, 1)] for index in range(most)]


def stress_prompts(forget: Sequences, extensions: Sequence[int], dropped: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Return each sequence's prompts, its own prefix first: (row of `without_first_tokens`, end of the prompt)."""
    prompts = []
    for sequence, length in enumerate(forget.lengths_N.tolist()):
        ends = [(sequence, forget.prefix_tokens)]
        for more in extensions:
            if 2 * more <= length - forget.prefix_tokens:
                ends.append((sequence, forget.prefix_tokens + more))
        for variant, tokens in enumerate(dropped, start=1):
            ends.append((variant * len(forget) + sequence, forget.prefix_tokens - tokens))
        prompts.append(ends)
    return prompts


def without_first_tokens(sequences: Sequences, dropped: Sequence[int]) -> Sequences:
    """Return the sequences without the first tokens: all for the first number, and so on."""
    parts = [functional.pad(sequences.tokens_NT[:, tokens:], (0, tokens)) for tokens in dropped]
    lengths = [sequences.lengths_N - tokens for tokens in dropped]
    prefix_tokens = sequences.prefix_tokens - max(dropped)
    return Sequences(torch.cat(parts), torch.cat(lengths), prefix_tokens, f"{sequences.digest} without {[*dropped]}")


def generated_and_true(continuations: Continuations, row: int, prefix: int) -> GeneratedAndTrue:
    """Return the model's tokens after a row's prefix, and the true ones."""
    sequences = continuations.sequences
    true = sequences.tokens_NT[row, prefix : int(sequences.lengths_N[row])].tolist()
    return continuations.of(row, prefix), true


def stress_scores(after_prefix: GeneratedAndTrue, after_others: Sequence[GeneratedAndTrue]) -> dict[str, float]:
    """Return a sequence's metrics, from continuations after its prefix and after at least one other."""
    matched, shares = [], []
    closest = token_similarity(*after_prefix)
    for generated, true in after_others:
        matched.append(exact_match(generated, true))
        shares.append(matched[-1] / len(true))
        closest = max(closest, token_similarity(generated, true))
    return {
        "prefix_match": float(max(matched)),
        "prefix_match_share": max(shares),
        "near_verbatim_75": float(closest >= LOOSE),
        "near_verbatim_95": float(closest >= COPY),
    }


def token_similarity(generated: Sequence[int], reference: Sequence[int]) -> float:
    """Return 1 − d / max(lengths), d being the fewest tokens to insert, delete or replace; 1 for two empty texts.

    Source: Levenshtein, Soviet Physics Doklady 10, 1966; thresholds: Merullo et al., arXiv:2510.24256.

    Example:
        One token of four is missing:

        >>> token_similarity([4, 6, 7], [4, 5, 6, 7])
        0.75
    """
    return float(Levenshtein.normalized_similarity(generated, reference))
