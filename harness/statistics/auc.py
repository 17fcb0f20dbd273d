"""How well values tell two groups of models apart: the AUC, of models and of texts, with intervals for few models.

Array letters: P models of the first group, N of the second, T texts that all of them have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtri, stdtrit

from harness.statistics.item_values import Floats, Integers

CONFIDENCE = 0.95
_NEXT_TO = 1e-12
"""At an estimate of 0 or 1 the estimate itself solves the equation of its bound too."""


@dataclass(frozen=True)
class AUC:
    """How often a value of the first group is above one of the second, ties counting half, and its interval."""

    value: float
    """.5 is a guess; NaN where a group has no value."""
    low: float
    high: float


UNKNOWN = AUC(math.nan, math.nan, math.nan)


def model_auc(first_P: ArrayLike, second_N: ArrayLike) -> AUC:
    """Return the AUC of two groups of models that have one value each.

    Args:
        first_P: Higher if the metric works; NaN is not known, and left out.
        second_N: The other group's.

    Example:
        Five models against five, all above: the interval says how little ten models can.

        >>> separated = model_auc([6, 7, 8, 9, 10], [1, 2, 3, 4, 5])
        >>> separated.value, round(separated.low, 3), separated.high
        (1.0, 0.643, 1.0)
    """
    known_P, known_N = _known(first_P), _known(second_N)
    if not (len(known_P) and len(known_N)):
        return UNKNOWN
    value = float(_wins(known_P[:, None], known_N[None, :]).mean())
    return AUC(value, *auc_interval(value, len(known_P), len(known_N)))


def auc_interval(value: float, first: int, second: int) -> tuple[float, float]:
    """Return the 95 % interval of an AUC of so many values in either group; it has a width at 0 and 1 too.

    All θ with |θ̂ − θ| ≤ z · √V(θ), where V(θ) = θ(1 − θ) / (mn) · (1 + N*·((1 − θ) / (2 − θ) + θ / (1 + θ))) and
    N* = (m + n) / 2 − 1: the variance of Hanley and McNeil at the bound itself, not at the estimate, and alike in both
    groups. At θ = 1/2 and m = n it is the variance of the rank sum test.

    Source: R. G. Newcombe, "Confidence intervals for an effect size measure based on the Mann–Whitney statistic. Part
    2", Statistics in Medicine 25, 2006, method 5; J. A. Hanley and B. J. McNeil, Radiology 143, 1982.

    Example:
        >>> [round(bound, 3) for bound in auc_interval(0.5, 5, 5)]
        [0.206, 0.794]
    """
    width = float(ndtri((1 + CONFIDENCE) / 2))
    more = (first + second) / 2 - 1

    def beyond(bound: float) -> float:
        shape = 1 + more * ((1 - bound) / (2 - bound) + bound / (1 + bound))
        return (value - bound) ** 2 - width**2 * bound * (1 - bound) / (first * second) * shape

    low = 0.0 if value == 0.0 else float(brentq(beyond, 0.0, value - _NEXT_TO))
    high = 1.0 if value == 1.0 else float(brentq(beyond, value + _NEXT_TO, 1.0))
    return low, high


def text_auc(first_PT: ArrayLike, second_NT: ArrayLike, clusters_T: Integers) -> AUC:
    """Return how often a text's value in a model of the first group is above the same text's in one of the second.

    It is the mean over pairs of models and over texts. Models of either group and texts are crossed, and each is a
    sample: with a_p, b_n and c_k the means of a model's and of a cluster's comparisons, the variance is
    var(a) / P + var(b) / N + var(c) / K, and the interval Student's t with Satterthwaite's degrees of freedom. A
    hundred texts of one model are so no hundred models. Where no comparison differs from another there is no variance
    to be seen, and the interval is that of as many models with one value each.

    Args:
        first_PT: Models by texts; NaN is not known, and its comparisons are left out.
        second_NT: The other group's, of the same texts.
        clusters_T: A code for each text; texts with the same continuation share one.

    Example:
        Two models against two, three texts; the second group's second model ties with the first text of both:

        >>> apart = text_auc([[3, 4, 5], [3, 5, 6]], [[1, 1, 1], [3, 1, 1]], np.arange(3))
        >>> round(apart.value, 4)
        0.9167
    """
    values_PT, values_NT = (np.asarray(values, dtype=np.float64) for values in (first_PT, second_NT))
    wins_PNT = _wins(values_PT[:, None], values_NT[None, :])
    wins_PNT[np.isnan(values_PT[:, None] + values_NT[None, :])] = np.nan
    known_T = ~np.isnan(wins_PNT).all(axis=(0, 1))
    if not known_T.any():
        return UNKNOWN
    value = float(np.nanmean(wins_PNT))
    of_clusters = [np.nanmean(wins_PNT[..., clusters_T == code]) for code in np.unique(clusters_T[known_T])]
    parts: list[tuple[float, int]] = []
    for means in (_row_means(wins_PNT), _row_means(wins_PNT.swapaxes(0, 1)), np.array(of_clusters)):
        if len(means) > 1:
            parts.append((float(means.var(ddof=1)) / len(means), len(means) - 1))
    variance = sum(part for part, _ in parts)
    if variance < 1e-18:
        return AUC(value, *auc_interval(value, len(values_PT), len(values_NT)))
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return AUC(value, max(0.0, value - reach), min(1.0, value + reach))


def _known(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.asarray(array[~np.isnan(array)])


def _wins(first: Floats, second: Floats) -> Floats:
    """Return 1 where the first is above the second, .5 where both are equal, else 0."""
    return np.asarray((first > second) + 0.5 * (first == second), dtype=np.float64)


def _row_means(values: Floats) -> Floats:
    """Return the mean of each row that has a known value."""
    rows = values.reshape(len(values), -1)
    return np.asarray(np.nanmean(rows[~np.isnan(rows).all(axis=1)], axis=1))
