"""Paired contrasts of two rows on the same items and replicates, Holm's correction, and verdicts on paired runs.

Differences of an `exp_mean` and of prices are of logarithms: 0.1 is a ratio of about 1.1. A run is a training seed with
its own search, or, with several replicate models, one of those with all its seeds.

Array letters: R replicates or runs, M models, N items, C clusters.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln, chdtri, expit, log_expit, ndtr, stdtr, stdtrit

from harness.statistics.bootstrap import Floats, ItemValues, average_by_model

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


Verdict = Literal["cheaper", "dearer", "equivalent", "can't tell yet"]

MIN_RUNS = 3
"""Paired runs of a verdict or interval."""
MIN_POOLED = 4
"""Methods whose median deviation adds degrees of freedom; among fewer it is too uncertain."""
POWER = 0.8
"""Probability of finding a true difference."""
MAX_RUNS = 200
QUANTILES = 400
"""Deviations that are averaged over."""


class Judgement(NamedTuple):
    """Verdict on one method against the reference."""

    difference: float
    """Mean of the paired differences; NaN without a paired run."""
    low: float
    high: float
    """Ends of the 95 % interval, not adjusted; NaN where not judged."""
    p: float
    equivalence_p: float
    """P-value, adjusted as `p` for the number of judged methods; NaN where not judged."""
    runs: int
    """Paired runs."""
    deviation: float
    """Deviation over runs, as in the standard error; NaN where not judged."""
    verdict: Verdict


def judge_methods(
    differences_by_method: Mapping[str, Floats], item_variances: Mapping[str, float], margin: float
) -> dict[str, Judgement]:
    """Return the verdict on each method's paired differences of log price to the reference.

    Three runs estimate a deviation badly, so a method's standard error uses the larger of its own deviation and the
    median of all methods'. Student's t has 2 (R - 1) degrees of freedom where the median is larger, else, and with
    fewer than four methods, R - 1. The variance over items is added, since all runs share them.

    A method is judged with at least three paired runs, finite differences and a known variance over items.

    Args:
        differences_by_method: Method less reference, a value a run; NaN is a run that is not paired.
        item_variances: Of each method's mean difference: that of its `paired_contrast`.
        margin: Smallest difference that matters: log 1.1 for 10 %.

    Source:
        D. J. Schuirmann, "A comparison of the two one-sided tests procedure and the power approach", 1987; S. Holm, "A
        Simple Sequentially Rejective Multiple Test Procedure", 1979. `studies/error_rates.py` simulates it.

    Example:
        One method, three runs: the mean is .4, the deviation .1, t = .4 / (.1 / sqrt(3)) = 6.93 of 2 degrees.

        >>> judged = judge_methods({"kl": np.array([0.3, 0.4, 0.5])}, {"kl": 0.0}, margin=0.1)
        >>> round(judged["kl"].difference, 3), round(judged["kl"].p, 4), judged["kl"].verdict
        (0.4, 0.0202, 'dearer')
    """
    paired = {name: values_R[~np.isnan(values_R)] for name, values_R in differences_by_method.items()}
    deviations: dict[str, float] = {}
    for name, values_R in paired.items():
        if len(values_R) >= MIN_RUNS and np.isfinite(values_R).all() and math.isfinite(item_variances[name]):
            deviations[name] = float(values_R.std(ddof=1))
    typical = float(np.median(list(deviations.values()))) if deviations else math.nan
    halves: dict[str, float] = {}
    sided: list[tuple[float, float]] = []
    for name, deviation in deviations.items():
        runs, mean = len(paired[name]), float(paired[name].mean())
        error = standard_error(max(deviation, typical), runs, item_variances[name])
        freedom = degrees_of_freedom(runs, len(deviations), is_loud=deviation >= typical)
        halves[name] = float(stdtrit(freedom, 1 - LEVEL / 2)) * error
        sided.append((_difference_p(mean, error, freedom, runs), _equivalence_p(mean, error, freedom, margin)))
    difference_ps, equivalence_ps = (
        dict(zip(deviations, holm([ps[side] for ps in sided]), strict=True)) for side in (0, 1)
    )
    judgements: dict[str, Judgement] = {}
    for name, values_R in paired.items():
        mean = float(values_R.mean()) if len(values_R) else math.nan
        half, p, equivalence_p = (values.get(name, math.nan) for values in (halves, difference_ps, equivalence_ps))
        verdict: Verdict = "can't tell yet"
        if equivalence_p < LEVEL:
            verdict = "equivalent"
        elif p < LEVEL:
            verdict = "cheaper" if mean < 0 else "dearer"
        deviation = max(deviations.get(name, math.nan), typical)
        low, high, runs = mean - half, mean + half, len(values_R)
        judgements[name] = Judgement(mean, low, high, p, equivalence_p, runs, deviation, verdict)
    return judgements


def degrees_of_freedom(runs: int, methods: int, *, is_loud: bool = False) -> int:
    """Return the degrees of freedom of Student's t for a method with so many paired runs, among so many methods.

    They double where the error is the methods' median. A loud method (its own deviation is the median or above) is the
    only evidence for its error.
    """
    return (1 if is_loud or methods < MIN_POOLED else 2) * (runs - 1)


def standard_error(deviation: float, runs: int, items: float) -> float:
    """Return the standard error of a mean over runs, with the variance over the items that they share."""
    return math.sqrt(deviation**2 / runs + items)


def _difference_p(mean: float, error: float, freedom: int, runs: int) -> float:
    if abs(mean) < _ROUNDING:
        return 1.0
    if error < _ROUNDING * abs(mean):  # Nothing varies, so that only signs are evidence.
        return 2.0 ** (1 - runs)
    return float(2 * stdtr(freedom, -abs(mean) / error))


def _equivalence_p(mean: float, error: float, freedom: int, margin: float) -> float:
    inside = margin - abs(mean)
    if error <= _ROUNDING * margin:
        return 0.0 if inside > 0 else 1.0
    return float(stdtr(freedom, -inside / error))


def power(difference: float, deviation: float, runs: int, methods: int = 1, items: float = 0.0) -> float:
    """Return the probability that `judge_methods` finds a difference of log prices.

    The correction is Bonferroni's, Holm's for the smallest p-value. The result is the mean over the deviations that a
    method may have by chance (quantiles of chi-square); several methods are equally noisy, with the median of those.

    `deviation` is that of the runs' differences, `items` the variance over items, which more runs do not reduce.

    Source:
        J. Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988.
    """
    error = standard_error(deviation, runs, items)
    if runs < MIN_RUNS or error == 0:
        return float(runs >= MIN_RUNS and difference != 0)
    own_Q = np.sqrt(chdtri(runs - 1, (np.arange(QUANTILES) + 0.5) / QUANTILES) / (runs - 1))
    median = math.sqrt(chdtri(runs - 1, 0.5) / (runs - 1)) if methods > 1 else 0.0
    quiet, loud = (degrees_of_freedom(runs, methods, is_loud=is_loud) for is_loud in (False, True))
    critical_Q = stdtrit(np.where(own_Q > median, loud, quiet), 1 - LEVEL / methods / 2)
    shown_Q = np.sqrt((deviation * np.maximum(own_Q, median)) ** 2 / runs + items)
    above_Q, below_Q = (ndtr((side * difference - critical_Q * shown_Q) / error) for side in (1, -1))
    return float(np.mean(above_Q + below_Q))


def runs_needed(difference: float, deviation: float, methods: int = 1, items: float = 0.0) -> int | None:
    """Return the least number of runs that find a difference in 8 of 10 tries; None where 200 do not."""
    counts = range(MIN_RUNS, MAX_RUNS + 1)
    return next((runs for runs in counts if power(difference, deviation, runs, methods, items) >= POWER), None)


def deviation_bounds(deviation: float, freedom: int) -> tuple[float, float]:
    """Return the 80 % interval of a deviation that was estimated with so many degrees of freedom, by chi-square."""
    low, high = (deviation * math.sqrt(freedom / float(chdtri(freedom, tail))) for tail in (0.1, 0.9))
    return low, high
