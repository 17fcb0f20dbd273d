"""Means over sequences, and how certain they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def mean_of_known(values: list[float]) -> float:
    """Return the mean of the values that are not NaN; NaN if all are."""
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of what each sequence has; NaN for fewer than two that are known.

    Example:
        >>> round(standard_error([0.0, 1.0, 0.0, 1.0, float("nan")]), 4)
        0.2887
    """
    known = np.asarray(values)[~np.isnan(values)]
    return float(np.std(known, ddof=1) / math.sqrt(len(known))) if len(known) > 1 else math.nan


def means_by_row(rows: Sequence[int], values: Sequence[float]) -> list[float]:
    """Return the mean of each row's values, in the rows' order.

    Example:
        >>> means_by_row([1, 0, 1], [0.0, 0.5, 1.0])
        [0.5, 0.5]
    """
    by_row: dict[int, list[float]] = {}
    for row, value in zip(rows, values, strict=True):
        by_row.setdefault(row, []).append(value)
    return [float(np.mean(by_row[row])) for row in sorted(by_row)]
