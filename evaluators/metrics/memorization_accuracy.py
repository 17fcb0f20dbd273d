"""Memorisation accuracy: how often the most likely next token is the text's own."""

from __future__ import annotations

import torch


def memorization_accuracy(tokens_T: torch.Tensor, predicted_T: torch.Tensor, start: int, stop: int) -> float:
    """Return the share of positions from `start` to before `stop` whose greedy choice is the text's token.

    1.0 means that every token is predicted from the true text before it.

    Args:
        tokens_T: The text.
        predicted_T: The greedy choice for each of its positions.
        start: The first position counted: the prefix's length, for the continuation; 1 for all.
        stop: One past the last: the length less one, since the paper's sum ends at p + q − 1.

    Returns:
        A fraction, or NaN if no position is counted.

    Source: Tirumala et al., arXiv:2205.10770; EMSO paper, section 4.1.3, MA.

    Example:
        >>> text, guess = torch.tensor([5, 6, 7, 8]), torch.tensor([-1, 6, 0, 8])
        >>> memorization_accuracy(text, guess, start=1, stop=3)
        0.5
    """
    if stop <= start:
        return float("nan")
    return float((tokens_T[start:stop] == predicted_T[start:stop]).float().mean())
