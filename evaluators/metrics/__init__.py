"""Formulas of several evaluators."""

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike

from harness.contracts import Evaluation, Json, Metric, Sequences, TextsShape
from harness.toolkit import Continuations, accuracies

attack_share = partial(
    Metric, better="lower", unit="fraction", low=0.0, high=1.0, group="robustness", items="sequence", ranked=False
)
"""Declares the share of a sequence that an attack brings back."""


def item_evaluation(per_item: dict[str, np.ndarray], notes: Mapping[str, Json], **others: Any) -> Evaluation:
    """Return an evaluation of means over items, with standard errors in the notes."""
    numbers = {name: weighted_mean(values) for name, values in per_item.items()}
    notes = {**notes, "standard_errors": standard_errors(per_item)}
    return Evaluation(numbers, notes=notes, per_item=per_item, **others)


def lacks_tokens(tokens: int, forget: TextsShape) -> str | None:
    """Return why no sequence has so many tokens after its prefix, the evaluator's `tokens`, and what to do."""
    longest = forget.longest - forget.prefix_tokens
    if tokens <= longest:
        return None
    has = f"the longest sequence of the forget set has {longest} there"
    remedy = f"set `tokens` to at most {longest}, or give it longer sequences or shorter prefixes"
    return f"reads {tokens} tokens after a prefix, and {has}: {remedy}."


def refuse_repeats(setting: str, values: Sequence[Hashable]) -> None:
    """Raise a ValueError for an empty list, or one with a value twice."""
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{setting} is [{', '.join(map(str, values))}]: name at least one, and each only once")


def weighted_mean(values: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return the weighted mean of the values that are not NaN.

    Example:
        >>> weighted_mean([1.0, 4.0, float("nan")]), weighted_mean([1.0, 4.0], weights=[2, 1])
        (2.5, 2.0)
    """
    valid = ~np.isnan(values)
    if not valid.any():
        return math.nan
    return float(np.average(np.asarray(values)[valid], weights=None if weights is None else np.asarray(weights)[valid]))


def standard_error(values: ArrayLike) -> float:
    """Return the standard error of the mean; NaN for fewer than two known values.

    Example:
        >>> round(standard_error([0.0, 1.0, 0.0, 1.0, float("nan")]), 4)
        0.2887
    """
    numbers = np.asarray(values)[~np.isnan(values)]
    return float(np.std(numbers, ddof=1) / math.sqrt(len(numbers))) if len(numbers) > 1 else math.nan


def standard_errors(per_item: Mapping[str, ArrayLike]) -> dict[str, float]:
    """Return the standard error of each metric that has one."""
    errors = {name: standard_error(values) for name, values in per_item.items()}
    return {name: error for name, error in errors.items() if not math.isnan(error)}


def exact_match(generated: Sequence[int], reference: Sequence[int]) -> int:
    """Return the number of tokens before the first difference.

    Source: EMSO paper, section 4.4 (EMatch); Nasr et al., arXiv:2311.17035.

    Example:
        >>> exact_match([4, 5, 6, 7], [4, 5, 0, 7]), exact_match([4, 5], [4, 5])
        (2, 2)
    """
    pairs = zip(generated, reference, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def extraction_strengths(sequences: Sequences, predicted_NT: torch.Tensor) -> np.ndarray:
    """Return the extraction strength of each sequence's continuation."""
    is_right_NT = (predicted_NT == sequences.tokens_NT)[:, sequences.prefix_tokens :]
    counts = (sequences.lengths_N - sequences.prefix_tokens).clamp(min=0).tolist()
    return np.array([extraction_strength(row[:count].tolist()) for row, count in zip(is_right_NT, counts, strict=True)])


def recalled(sequences: Sequences, predicted_NT: torch.Tensor) -> np.ndarray:
    """Return MA and extraction strength of each sequence's continuation, 2 by N, from each token's first choice."""
    ma = accuracies(sequences, predicted_NT, first=sequences.prefix_tokens, left_out=1)
    return np.stack([ma, extraction_strengths(sequences, predicted_NT)])


def extraction_strength(is_right: Sequence[bool]) -> float:
    """Return 1 − k/q for q tokens, k being the fewest to give so that all others are greedy choices; NaN of no token.

    Source: Wang et al., arXiv:2406.09179, appendix B, after Carlini et al., arXiv:2012.07805.

    Example:
        >>> extraction_strength([True, False, False, True, True]), extraction_strength([True, False])
        (0.4, 0.0)
    """
    if not is_right:
        return math.nan
    recited = next((count for count, right in enumerate(reversed(is_right)) if not right), len(is_right))
    return recited / len(is_right)


T = TypeVar("T")


def ngrams(tokens: Sequence[T], n: int) -> list[tuple[T, ...]]:
    """Return the n-grams of ids or words."""
    if n < 1:
        raise ValueError(f"n is {n}, and must be at least 1.")
    return list(zip(*(tokens[shift:] for shift in range(n)), strict=False))


def sampled_prefixes(longest: int, count: int | None, generator: torch.Generator) -> list[int]:
    """Return `count` of the prefix lengths 1 … `longest`, one from each of `count` equal parts; None: all.

    Their mean is an unbiased estimate. A length on a border may come twice.

    Example:
        >>> sampled_prefixes(125, 4, torch.Generator().manual_seed(0))
        [31, 54, 77, 123]
    """
    if count is None or count >= longest:
        return list(range(1, longest + 1))
    parts = torch.arange(count) + torch.rand(count, generator=generator, dtype=torch.float64)
    return [min(int(part * longest / count) + 1, longest) for part in parts.tolist()]


def seeded_prefixes(sequences: Sequences, n: int, count: int) -> list[list[int]]:
    """Return `count` prefix lengths of each sequence for EL_n, which depend only on the texts."""
    generator = torch.Generator().manual_seed(int(sequences.digest[:8] or "0", 16))
    return [sampled_prefixes(length - n, count, generator) for length in sequences.lengths_N.tolist()]


def likelihoods(continuations: Continuations, n: int, prefixes: Sequence[Sequence[int]]) -> np.ndarray:
    """Return EL_n of each sequence over its prefixes; NaN without any."""
    return np.array([extraction_likelihood(continuations, row, n, each) for row, each in enumerate(prefixes)])


def extraction_likelihood(continuations: Continuations, sequence: int, n: int, prefixes: Sequence[int]) -> float:
    """Return EL_n of one sequence: the mean overlap over these prefixes, by definition all of 1 … L − n tokens.

    Differs from the paper: the reference starts at x_{i+1}, after the prefix; the printed x_i is an off-by-one.

    Source: EMSO paper, section 4.1.3, EL_n; Jang et al., arXiv:2210.01504, section 3.2.
    """
    length = int(continuations.sequences.lengths_N[sequence])
    text = continuations.sequences.tokens_NT[sequence, :length].tolist()
    if length <= n or not prefixes:
        return float("nan")
    last_in_text = {gram: start for start, gram in enumerate(ngrams(text, n))}
    by_mismatch: dict[int | None, np.ndarray] = {}
    total = 0.0
    for prefix in prefixes:
        mismatch = continuations.mismatch(sequence, prefix)
        if mismatch is None:
            total += 1.0
            continue
        if mismatch not in by_mismatch:
            row = continuations.rows[sequence, mismatch][:length].tolist()
            by_mismatch[mismatch] = np.array([last_in_text.get(gram, -1) for gram in ngrams(row, n)])
        # An n-gram of the generation counts if the text after the prefix holds it, that is, if it
        # last occurs in the text not before the prefix's end.
        total += float((by_mismatch[mismatch][prefix:] >= prefix).mean())
    return total / len(prefixes)
