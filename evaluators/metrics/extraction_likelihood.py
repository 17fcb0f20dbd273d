"""Extraction likelihood: how much of a text comes back, n-gram for n-gram, from each of its prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch

from harness.contracts import Sequences
from harness.toolkit import Continuations

T = TypeVar("T")


def set_overlap(generated: Sequence[int], reference: Sequence[int], n: int) -> float:
    """Return the share of `generated`'s distinct n-grams that occur in `reference`; 0 if either has none.

    Source: Jang et al., arXiv:2210.01504, OVERLAP_n; EMSO paper, section 4.1.3.

    Differs from the paper: it says lists, and the published tables were almost certainly made with sets.

    Example:
        >>> set_overlap([1, 2, 1, 2, 1], [1, 2], n=2)
        0.5
    """
    grams = set(ngrams(generated, n))
    return len(grams & set(ngrams(reference, n))) / len(grams) if grams else 0.0


def ngrams(tokens: Sequence[T], n: int) -> list[tuple[T, ...]]:
    """Return the n-grams of `tokens` (ids, or words), as a list.

    Raises:
        ValueError: n < 1.
    """
    if n < 1:
        raise ValueError(f"n is {n}, and must be at least 1.")
    return list(zip(*(tokens[shift:] for shift in range(n)), strict=False))


def sampled_prefixes(longest: int, count: int | None, generator: torch.Generator) -> list[int]:
    """Return `count` of the prefix lengths 1 … `longest`, each as likely as any other; all of them for None.

    One comes from each of `count` equal parts, so that short and long prefixes are both there; a
    length on the border of two parts may come twice. The mean over them has the mean over all as its
    expectation.

    Example:
        >>> sampled_prefixes(125, 4, torch.Generator().manual_seed(0))
        [31, 54, 77, 123]
    """
    if count is None or count >= longest:
        return list(range(1, longest + 1))
    parts = torch.arange(count) + torch.rand(count, generator=generator, dtype=torch.float64)
    return [min(int(part * longest / count) + 1, longest) for part in parts.tolist()]


def seeded_prefixes(sequences: Sequences, n: int, count: int) -> list[list[int]]:
    """Return `count` prefix lengths of each sequence that EL_n is measured after; they depend on the texts alone.

    Example:
        >>> seeded_prefixes(Sequences(torch.zeros(2, 9, dtype=torch.long), torch.tensor([9, 3]), 1, ""), n=3, count=2)
        [[3, 6], []]
    """
    generator = torch.Generator().manual_seed(int(sequences.digest[:8] or "0", 16))
    return [sampled_prefixes(length - n, count, generator) for length in sequences.lengths_N.tolist()]


def likelihoods(continuations: Continuations, n: int, prefixes: Sequence[Sequence[int]]) -> np.ndarray:
    """Return EL_n of each sequence over its own prefixes; NaN of one without."""
    values = [extraction_likelihood(continuations, row, n, lengths) for row, lengths in enumerate(prefixes)]
    return np.array(values)


def extraction_likelihood(continuations: Continuations, sequence: int, n: int, prefixes: Sequence[int]) -> float:
    """Return EL_n of one sequence: the mean overlap over these prefixes, 1 to L − n tokens each.

    1.0 means that the model recites the text from any prefix, 0.0 that it never does.

    Differs from the paper: the reference starts after the prefix (x_{i+1}), the printed x_i being an
    off-by-one.

    Args:
        continuations: Greedy continuations after each of those prefixes.
        sequence: Which one.
        n: Length of the n-grams, in tokens.
        prefixes: Their lengths; the definition has all of 1 … L − n.

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
