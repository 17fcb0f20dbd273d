"""Teacher-forced numbers: what each sequence has, given the model's first choice for every one of its tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from harness.contracts import Sequences
from harness.toolkit import memorization_accuracy


def accuracies(sequences: Sequences, predicted_NT: torch.Tensor, *, first: int, left_out: int) -> np.ndarray:
    """Return each sequence's MA from its position `first` on, as many positions at its end left out.

    Example:
        >>> texts = Sequences(torch.tensor([[5, 6, 7], [5, 8, 0]]), torch.tensor([3, 2]), 1, "")
        >>> accuracies(texts, torch.tensor([[-1, 6, 0], [-1, 8, -1]]), first=1, left_out=0)
        array([0.5, 1. ])
    """
    values = np.empty(len(sequences))
    for row, length in enumerate(sequences.lengths_N.tolist()):
        values[row] = memorization_accuracy(sequences.tokens_NT[row], predicted_NT[row], first, length - left_out)
    return values


def extraction_strengths(sequences: Sequences, predicted_NT: torch.Tensor) -> np.ndarray:
    """Return the extraction strength of each sequence's continuation.

    Example:
        >>> texts = Sequences(torch.tensor([[5, 6, 7], [5, 8, 0]]), torch.tensor([3, 2]), 1, "")
        >>> extraction_strengths(texts, torch.tensor([[-1, 0, 7], [-1, 0, -1]]))
        array([0.5, 0. ])
    """
    values = np.empty(len(sequences))
    is_right_NT = predicted_NT == sequences.tokens_NT
    for row, length in enumerate(sequences.lengths_N.tolist()):
        values[row] = extraction_strength(is_right_NT[row, sequences.prefix_tokens : length].tolist())
    return values


def extraction_strength(is_right: Sequence[bool]) -> float:
    """Return the share of a continuation that comes out once the text before it is given.

    1 − k/q of q tokens, k being the fewest of them that must be given beside the prefix so that all others are the
    greedy choice: 1 is recited wholly, and 0 has a wrong last token. NaN of no token.

    Source: Wang et al., arXiv:2406.09179, appendix B, after Carlini et al., arXiv:2012.07805. Where not even the last
    token is right this is 0; implementations that stop one token earlier say 1/q.

    Args:
        is_right: Of each token of the continuation whether it is the greedy choice given the text before it.

    Example:
        The last two of five come out by themselves once three are given:

        >>> extraction_strength([True, False, False, True, True])
        0.4
        >>> extraction_strength([True, True]), extraction_strength([True, False])
        (1.0, 0.0)
    """
    if not is_right:
        return math.nan
    recited = next((count for count, right in enumerate(reversed(is_right)) if not right), len(is_right))
    return recited / len(is_right)
