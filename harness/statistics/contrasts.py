"""Paired contrasts of two rows on the same items and replicates, their p-values and Holm's correction.

Differences of an `exp_mean` are of logarithms: 0.1 is a ratio of about 1.1.

Array letters: R replicates, M models, N items, C clusters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln, expit, log_expit, stdtr, stdtrit

from harness.statistics.bootstrap import ItemValues, average_by_model

LEVEL = 0.05
"""Level of every test."""
# Relative difference below which values are equal.
_ROUNDING = 1e-12
_STEP = 0.1


@dataclass(frozen=True)
class Contrast:
    """Difference of two estimates, and its variance in two independent parts."""

    difference: float
    items_variance: float
    replicates_variance: float
    """0 with a single replicate."""
    clusters: int
    """Clusters of items in the part that has fewest."""
    replicates: int
    """Models, or seeds of a single model."""

    @property
    def standard_error(self) -> float:
        """Square root of both variances' sum."""
        return math.sqrt(self.items_variance + self.replicates_variance)

    @property
    def p(self) -> float:
        """Two-sided p-value of no difference.

        1 where the estimates are equal; without variance, that of a sign test over the clusters.
        """
        if abs(self.difference) < _ROUNDING:
            return 1.0
        if self.standard_error < _ROUNDING * abs(self.difference):
            return 2.0 ** (1 - self.clusters)
        return self._tail(abs(self.difference))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the differences that are not rejected at the level."""
        if self.standard_error < _ROUNDING:
            return self.difference, self.difference
        # Neither part by itself is wider than its own Student's t says.
        freedoms = self.clusters - 1, self.replicates - 1
        widest = max(float(stdtrit(freedom, 1 - level / 2)) for freedom in freedoms if freedom > 0)
        half = float(brentq(lambda aside: self._tail(aside) - level, 0.0, 2 * widest * self.standard_error))
        return self.difference - half, self.difference + half

    def _tail(self, aside: float) -> float:
        variances = self.items_variance, self.replicates_variance
        return two_part_p(aside, variances, (self.clusters - 1, self.replicates - 1))


def paired_contrast(a: ItemValues, b: ItemValues) -> Contrast | None:
    """Return the contrast of two estimates on the same items; None where it is not known.

    Only items that both know count, in each replicate. The variance has two parts: over items (linearised weighted
    means, summed within clusters; averaged over replicates) and, with several replicates, of the replicates'
    differences. None where a replicate has fewer than two clusters of common items, or an infinite value.

    Both have row by row the same replicates, and column by column the same items.

    Source:
        E. Miller, "Adding Error Bars to Evals", 2024, arXiv:2411.00640, equations 4 (clusters) and 7 (pairs).
    """
    ours, theirs = ((one.items, one.clusters_N.tolist(), len(one.values_RN), one.aggregate) for one in (a, b))
    if ours != theirs or not np.array_equal(np.asarray(a.models_R), np.asarray(b.models_R)):
        raise ValueError(f"'{a.items}' and '{b.items}' cannot be paired: give the same items and replicates, in order")
    known_RN = (a.known[1] > 0) & (b.known[1] > 0)
    a, b = a.only(known_RN), b.only(known_RN)
    clusters, models_R = a.known_clusters(), a.models_R
    with np.errstate(invalid="ignore"):
        difference_M = average_by_model(a.item_means() - b.item_means(), models_R)
        influences_C = average_by_model((a.influences() - b.influences()).T, models_R).mean(axis=1)
    difference, models = float(difference_M.mean()), len(difference_M)
    if not (math.isfinite(difference) and np.isfinite(influences_C).all() and clusters > 1):
        return None
    items_variance = float((influences_C**2).sum()) * clusters / (clusters - 1)
    replicates_variance = float(difference_M.var(ddof=1)) / models if models > 1 else 0.0
    return Contrast(difference, items_variance, replicates_variance, clusters=clusters, replicates=models)


def paired_p(a: ItemValues, b: ItemValues) -> float:
    """Return the p-value of the `paired_contrast`; NaN where it is not known."""
    contrast = paired_contrast(a, b)
    return math.nan if contrast is None else contrast.p


def two_part_p(difference: float, variances: tuple[float, float], freedoms: tuple[int, int]) -> float:
    """Return the two-sided p-value of a difference whose variance is the sum of two estimates.

    The reference is the sum of two Student variables, scaled by the two standard errors, as in `bootstrap`.
    Satterthwaite's single t is liberal: with two replicates up to 11 % false positives at 5 %, with three 7 %.
    The variances, over items and over replicates, are not both 0; the degrees of freedom of one that is are ignored.

    Source:
        H. Ruben, "On the distribution of the weighted difference of two independent Student variables", 1960: given
        a beta variable, the sum is one Student variable of both degrees of freedom together.
    """
    parts = [(variance, freedom) for variance, freedom in zip(variances, freedoms, strict=True) if variance > 0]
    if len(parts) == 1:
        ((variance, freedom),) = parts
        return float(2 * stdtr(freedom, -abs(difference) / math.sqrt(variance)))
    (v, m), (w, n) = parts
    # Its logit: the density falls off as an exponential on both sides, where the trapezoid rule is exact to the end.
    logits = math.log(m / n) + np.arange(-80.0, 80.0, _STEP)
    densities = np.exp(m / 2 * log_expit(logits) + n / 2 * log_expit(-logits) - betaln(m / 2, n / 2))
    scales = np.sqrt((v * m / expit(logits) + w * n / expit(-logits)) / (m + n))
    return float(min(1.0, 2 * _STEP * (densities * stdtr(m + n, -abs(difference) / scales)).sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number; NaN was not tested and does not count.

    Source:
        S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.
    """
    adjusted, largest = list(p_values), 0.0
    tested = [index for index, p in enumerate(p_values) if not math.isnan(p)]
    for rank, index in enumerate(sorted(tested, key=lambda index: p_values[index])):
        largest = adjusted[index] = max(largest, min(1.0, (len(tested) - rank) * p_values[index]))
    return adjusted
