"""Means over sequences, and how certain they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike


def weighted_mean(values: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return the mean of the values that are not NaN, each of the same weight unless said; NaN if all are.

    Example:
        >>> weighted_mean([1.0, 4.0, float("nan")]), weighted_mean([1.0, 4.0], weights=[2, 1])
        (2.5, 2.0)
    """
    known = ~np.isnan(values)
    if not known.any():
        return math.nan
    return float(np.average(np.asarray(values)[known], weights=None if weights is None else np.asarray(weights)[known]))


def standard_error(values: ArrayLike) -> float:
    """Return the standard error of the mean of what each sequence has; NaN for fewer than two that are known.

    Example:
        >>> round(standard_error([0.0, 1.0, 0.0, 1.0, float("nan")]), 4)
        0.2887
    """
    known = np.asarray(values)[~np.isnan(values)]
    return float(np.std(known, ddof=1) / math.sqrt(len(known))) if len(known) > 1 else math.nan


def standard_errors(per_item: Mapping[str, ArrayLike]) -> dict[str, float]:
    """Return the standard error of each metric that has one.

    Example:
        >>> standard_errors({"ma": [0.0, 1.0], "el_3": [0.5, float("nan")]})
        {'ma': 0.5}
    """
    errors = {name: standard_error(values) for name, values in per_item.items()}
    return {name: error for name, error in errors.items() if not math.isnan(error)}


def means_by_row(rows: Sequence[int], values: ArrayLike, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each row's values, NaN for a row without one, and how many it has.

    Args:
        rows: Of each value, the row that it belongs to.
        values: In any order.
        count: How many rows there are.

    Example:
        >>> means_by_row([1, 0, 1], [0.0, 0.5, 1.0], 3)
        (array([0.5, 0.5, nan]), array([1., 2., 0.]))
    """
    counts = np.bincount(rows, minlength=count).astype(float)
    sums = np.bincount(rows, weights=values, minlength=count)
    means = np.divide(sums, counts, out=np.full(count, math.nan), where=counts > 0)
    return means, counts
