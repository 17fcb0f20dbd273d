"""Relearning: which texts an attacker is shown, which others are measured, and what a curve over the steps comes to."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from evaluators.metrics.means import weighted_mean


def mean_height(steps: Sequence[int], values_S: ArrayLike) -> np.ndarray:
    """Return the mean height of curves over training steps: the area by trapezoids, divided by the last step.

    Differences of it are the area between two models' curves, in the curves' own unit. NaN where a point is.

    Args:
        steps: Rising, from 0.
        values_S: What is measured after each step, in the first dimension; any others are kept.

    Example:
        A text that is not known before the first step, and known from then on to the second:

        >>> float(mean_height([0, 1, 2], [0.0, 1.0, 1.0]))
        0.75
    """
    heights = np.asarray(values_S, dtype=float)
    return np.asarray(np.trapezoid(heights, steps, axis=0) / steps[-1])


def highest_row(values_RM: ArrayLike) -> int | None:
    """Return the number of the row with the highest mean, of equal ones the first; None if no row has a mean.

    Example:
        >>> highest_row([[0.0, 0.4], [0.3, float("nan")], [float("nan"), float("nan")]])
        1
    """
    means = np.array([weighted_mean(values_M) for values_M in np.asarray(values_RM)])
    return None if np.isnan(means).all() else int(np.nanargmax(means))


def unseen(candidates: Iterable[int], shown: Iterable[int], keys: Sequence[Hashable], most: int) -> list[int]:
    """Return the first `most` candidates that share their key with none of those that are shown.

    Args:
        candidates: Numbers of texts.
        shown: Numbers of others.
        keys: Of every text, what makes two the same: its continuation.
        most: How many to return, where there are so many.

    Example:
        >>> unseen([2, 3, 4], [0, 1], keys=["a", "b", "a", "c", "d"], most=1)
        [3]
    """
    taught = {keys[row] for row in shown}
    return [row for row in candidates if keys[row] not in taught][:most]


def that_fit(lengths: Sequence[int], *, first: int, most: int, room: int) -> list[int]:
    """Return the numbers of at most `most` texts that have room together, from number `first` on and round again.

    A text for which there is no room is passed over.

    Args:
        lengths: Of all texts, in tokens.
        first: Where to begin.
        most: How many texts.
        room: How many tokens.

    Example:
        >>> that_fit([50, 90, 40], first=1, most=2, room=100), that_fit([50, 90, 40], first=2, most=2, room=100)
        ([1], [2, 0])
    """
    fitting: list[int] = []
    for turn in range(len(lengths)):
        number = (first + turn) % len(lengths)
        if len(fitting) < most and lengths[number] <= room:
            fitting.append(number)
            room -= lengths[number]
    return fitting
