"""A contrast of two methods on the same items and replicates: its size, how sure it is, and what may be said of it.

Differences of an `exp_mean` are of logarithms: 0.1 is a ratio of about 1.1.

Array letters: R replicates, M models, N items, C clusters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import stdtrit
from scipy.stats import nct

from harness.statistics.item_values import Floats, Integers, ItemValues, Match, by_model
from harness.statistics.significance import holm, two_part_p

Verdict = Literal["better", "worse", "equivalent", "undecided"]

LEVEL = 0.05
"""Of every test: what is false is said this often at most."""
POWER = 0.8
"""How often a difference that is there is to be found."""
_ROUNDING = 1e-12
"""Means that are equal on paper may differ by this; so may values that are all the same, relative to them."""
_MOST_REPLICATES = 1000


@dataclass(frozen=True)
class Contrast:
    """The difference of two estimates, one less the other, and its variance in two independent parts."""

    difference: float
    items_variance: float
    replicates_variance: float
    """0 with a single replicate: then the contrast says nothing of another training run."""
    clusters: int
    """Of items: those of the part that has fewest."""
    replicates: int
    """Models, or where there is one model its seeds."""

    @property
    def _freedoms(self) -> tuple[int, int]:
        return self.clusters - 1, self.replicates - 1

    @property
    def standard_error(self) -> float:
        """Return the standard deviation of the difference."""
        return math.sqrt(self.items_variance + self.replicates_variance)

    @property
    def p(self) -> float:
        """Return the two-sided p-value of no difference.

        1 where the estimates are equal. Where all items differ by the same, which is not 0, there is no variance, and p
        is that of a sign test over the clusters.
        """
        if abs(self.difference) < _ROUNDING:
            return 1.0
        if self.standard_error < _ROUNDING * abs(self.difference):
            return 2.0 ** (1 - self.clusters)
        return self._tail(abs(self.difference))

    def equivalence_p(self, margin: float) -> float:
        """Return the p-value of a difference of at least the margin: that of two one-sided tests.

        Source:
            D. J. Schuirmann, "A comparison of the two one-sided tests procedure and the power approach", 1987.

        Example:
            No difference, a margin of 2 standard errors, many items: one side has 2.3 %.

            >>> round(Contrast(0.0, 0.0025, 0.0, 100_000, 1).equivalence_p(0.1), 4)
            0.0228
        """
        inside = margin - abs(self.difference)
        if self.standard_error < _ROUNDING * margin:
            return 0.0 if inside > 0 else 1.0
        one_sided = self._tail(abs(inside)) / 2
        return one_sided if inside > 0 else 1 - one_sided

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the differences whose tests are not significant at the level: at .05 the 95 % interval.

        Example:
            Of one part alone it is Student's: with three replicates 4.303 standard errors to both sides.

            >>> low, high = Contrast(1.0, 0.0, 0.25, 100, 3).interval()
            >>> round(low, 3), round(high, 3)
            (-1.151, 3.151)
        """
        if self.standard_error < _ROUNDING:
            return self.difference, self.difference
        # Neither part alone is wider than its own Student's t says.
        widest = max(float(stdtrit(freedom, 1 - level / 2)) for freedom in self._freedoms if freedom > 0)
        far = 2 * widest * self.standard_error
        half = float(brentq(lambda aside: self._tail(aside) - level, 0.0, far))
        return self.difference - half, self.difference + half

    def _tail(self, aside: float) -> float:
        return two_part_p(aside, (self.items_variance, self.replicates_variance), self._freedoms)


def paired_contrast(
    a: ItemValues, b: ItemValues, match_a: Match | None = None, match_b: Match | None = None
) -> Contrast | None:
    """Return the contrast of two estimates on the same items; None where it is not known.

    Only items that both know count, in each replicate (between points: at all of them). The variance of the difference
    has two parts: over items (linearised weighted means, summed within clusters; averaged over replicates) and, with
    several replicates, that of the replicates' differences. Where estimates are those at a limit of another metric, the
    first part holds that metric's items too, times the slope of each trajectory. What is compared of an `exp_mean` are
    logarithms.

    It is not known where a replicate has fewer than two clusters of items that both know, or an infinite value.

    Args:
        a: Of one method.
        b: Of the other: row by row the same replicates, column by column the same items.
        match_a: How uncertain it is where the first meets the limit.
        match_b: The same of the other.

    Raises:
        ValueError: They are not: other items, another number of replicates, or another aggregate.

    Source:
        E. Miller, "Adding Error Bars to Evals", 2024, arXiv:2411.00640, equations 4 (clusters) and 7 (pairs); the
        matched metric's part is the delta method.

    Example:
        Differences of 1, 2, 1 and 2 have the mean 1.5 and the standard error sqrt(1/12): t = 5.196 of 3 degrees.

        >>> shared = {"weights_RN": np.ones((1, 4)), "clusters_N": np.arange(4), "items": "prompts"}
        >>> left = ItemValues(values_RN=np.array([[3.0, 7.0, 2.0, 9.0]]), **shared)
        >>> right = ItemValues(values_RN=np.array([[2.0, 5.0, 1.0, 7.0]]), **shared)
        >>> contrast = paired_contrast(left, right)
        >>> round(contrast.standard_error**2, 4), round(contrast.p, 4)
        (0.0833, 0.0138)
    """
    _refuse_unpaired(a, b)
    known_RN = a.known_in_all() & b.known_in_all()
    a, b = a.only(known_RN), b.only(known_RN)
    clusters, models_R = a.known_clusters(), a.models_R
    with np.errstate(invalid="ignore"):
        difference_M = by_model(a.item_means() - b.item_means(), models_R)
        influences_C = by_model((a.influences() - b.influences()).T, models_R).mean(axis=1)
    difference, models = float(difference_M.mean()), len(difference_M)
    if not (math.isfinite(difference) and np.isfinite(influences_C).all() and clusters > 1):
        return None
    items_variance = float((influences_C**2).sum()) * clusters / (clusters - 1)
    if match_a or match_b:
        moved_C, matched_clusters = _matched_influences(match_a, match_b, models_R)
        if matched_clusters < 2 or not np.isfinite(moved_C).all():
            return None
        items_variance += float((moved_C**2).sum()) * matched_clusters / (matched_clusters - 1)
        clusters = min(clusters, matched_clusters)
    return Contrast(
        difference=difference,
        items_variance=items_variance,
        replicates_variance=float(difference_M.var(ddof=1)) / models if models > 1 else 0.0,
        clusters=clusters,
        replicates=models,
    )


def _matched_influences(a: Match | None, b: Match | None, models_R: Integers | None) -> tuple[Floats, int]:
    """Return how much each cluster of the matched metric's items moves the difference, and how many there are.

    Raises:
        ValueError: The matched metrics are of other items.
    """
    moved, clusters = [], []
    for match, sign in ((a, 1.0), (b, -1.0)):
        if match is not None:
            moved.append(-sign * by_model(match.by.influences().T * match.slopes_R, models_R).mean(axis=1))
            clusters.append(match.by.known_clusters())
    if len(moved[0]) != len(moved[-1]):
        raise ValueError(
            f"the matched metric has {len(moved[0])} clusters of items in one and {len(moved[-1])} in the other; "
            "compare what was measured on the same texts"
        )
    return np.sum(moved, axis=0), min(clusters)


def paired_p(a: ItemValues, b: ItemValues, match_a: Match | None = None, match_b: Match | None = None) -> float:
    """Return the two-sided p-value of the `paired_contrast`; NaN where that is not known."""
    contrast = paired_contrast(a, b, match_a, match_b)
    return math.nan if contrast is None else contrast.p


def _refuse_unpaired(a: ItemValues, b: ItemValues) -> None:
    """Raise if two do not have the same items and replicates in the same places."""
    faults = {
        "items": a.items != b.items or not np.array_equal(a.clusters_N, b.clusters_N),
        "replicates": a.replicates != b.replicates or _codes(a.models_R) != _codes(b.models_R),
        "aggregate": a.aggregate != b.aggregate,
    }
    if any(faults.values()):
        named = " and ".join(name for name, differs in faults.items() if differs)
        raise ValueError(
            f"'{a.items}' {a.values_RN.shape} and '{b.items}' {b.values_RN.shape} cannot be paired: their {named} "
            "differ. Keep the rows of the replicates that both have, in one order, and the columns of the same items."
        )


def _codes(models_R: Integers | None) -> list[int]:
    return [] if models_R is None else models_R.tolist()


def verdicts(contrasts: Sequence[Contrast], margin: float) -> list[Verdict]:
    """Return what may be said of each planned contrast, of costs: lower is better.

    `equivalent` where both one-sided tests place it within the margin; else `better` or `worse` where the difference is
    significant; else `undecided`. Both kinds of p-values are Holm's over all contrasts: without it, six methods that
    are 10 % apart would be called equivalent on 8 to 18 % of pages.

    Args:
        contrasts: All that a page plans, before any number is seen.
        margin: Differences below it do not matter: log 1.1 for 10 %.

    Example:
        With standard errors of .01, .01 and .5 and many items:

        >>> planned = [Contrast(difference, error**2, 0.0, 10_000, 1) for difference, error in
        ...            ((-0.5, 0.01), (0.02, 0.01), (0.3, 0.5))]
        >>> verdicts(planned, math.log(1.1))
        ['better', 'equivalent', 'undecided']
    """
    said: list[Verdict] = []
    of_difference = holm([contrast.p for contrast in contrasts])
    of_equivalence = holm([contrast.equivalence_p(margin) for contrast in contrasts])
    for contrast, p, equivalence_p in zip(contrasts, of_difference, of_equivalence, strict=True):
        if equivalence_p < LEVEL:
            said.append("equivalent")
        elif p < LEVEL:
            said.append("better" if contrast.difference < 0 else "worse")
        else:
            said.append("undecided")
    return said


def power(difference: float, deviation: float, replicates: int, tests: int = 1) -> float:
    """Return how often a difference of paired replicates is found by Student's t with Bonferroni's correction.

    Args:
        difference: That is there, of logarithms.
        deviation: Standard deviation of the replicates' differences, above 0.
        replicates: Models, or seeds of one model.
        tests: How many contrasts are planned.

    Source:
        J. Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988: the noncentral t distribution.

    Example:
        EMSO against KL, .42 apart with a deviation of .13: five models tell them apart, among six contrasts in 9 of 10
        tries.

        >>> [round(power(0.42, 0.13, models, 6), 2) for models in (3, 5, 6)]
        [0.24, 0.91, 0.99]
    """
    if replicates < 2:
        return 0.0
    freedom, noncentrality = replicates - 1, abs(difference) / deviation * math.sqrt(replicates)
    critical = float(stdtrit(freedom, 1 - LEVEL / tests / 2))
    return float(nct.sf(critical, freedom, noncentrality) + nct.sf(critical, freedom, -noncentrality))


def replicates_needed(difference: float, deviation: float, tests: int = 1) -> int | None:
    """Return the least number of replicates that find a difference in 8 of 10 tries; None if 1,000 do not.

    Example:
        >>> replicates_needed(0.42, 0.13), replicates_needed(0.42, 0.13, tests=6), replicates_needed(0.0, 0.13)
        (4, 5, None)
    """
    low, high = 1, _MOST_REPLICATES
    if power(difference, deviation, high, tests) < POWER:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(difference, deviation, middle, tests) >= POWER else (middle, high)
    return high
