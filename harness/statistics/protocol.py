"""Verdicts on prices at one level against a reference, over paired runs; and their power.

A run is a training seed with its own search, or, with several replicate models, one of those with all its seeds.
Differences are of log prices in the same run, so 0.1 is a ratio of about 1.1.

Array letters: R runs.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import chdtri, ndtr, stdtr, stdtrit

from harness.statistics import bootstrap, contrasts

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
_ROUNDING = 1e-12


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
    differences_by_method: Mapping[str, bootstrap.Floats], item_variances: Mapping[str, float], margin: float
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
        halves[name] = float(stdtrit(freedom, 1 - contrasts.LEVEL / 2)) * error
        sided.append((_difference_p(mean, error, freedom, runs), _equivalence_p(mean, error, freedom, margin)))
    difference_ps, equivalence_ps = (
        dict(zip(deviations, contrasts.holm([ps[side] for ps in sided]), strict=True)) for side in (0, 1)
    )
    judgements: dict[str, Judgement] = {}
    for name, values_R in paired.items():
        mean = float(values_R.mean()) if len(values_R) else math.nan
        half, p, equivalence_p = (values.get(name, math.nan) for values in (halves, difference_ps, equivalence_ps))
        verdict: Verdict = "can't tell yet"
        if equivalence_p < contrasts.LEVEL:
            verdict = "equivalent"
        elif p < contrasts.LEVEL:
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
    critical_Q = stdtrit(np.where(own_Q > median, loud, quiet), 1 - contrasts.LEVEL / methods / 2)
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
