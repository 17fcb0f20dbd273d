"""Teacher-forced numbers: what each sequence has, given the model's first choice for every one of its tokens."""

from __future__ import annotations

import numpy as np
import torch

from evaluators.metrics.extraction_strength import extraction_strength
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
