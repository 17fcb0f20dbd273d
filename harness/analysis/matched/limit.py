"""Where methods are compared: at equal erasure, or at equal utility."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from harness.analysis.cells import number
from harness.analysis.metrics import MetricInfo, compared_metrics
from harness.analysis.tradeoff.trajectories import Columns
from harness.contracts import CloserTo, Metric
from harness.plans import Plan
from harness.specs import ORIGINAL, RETRAINED, UNSEEN

ERASURE_LEVELS = (0.9, 0.75)
"""Of a metric between 0 and 1 the most that is left; of any other, times the original's; of one that is to be close to
something, times the original's distance from that."""
UTILITY_FACTORS = {"lower": (1.1, 1.25, 1.5), "higher": (0.9,)}
"""Times the original's: the most where lower is better, the least where higher is."""


@dataclass(frozen=True)
class Limit:
    """A value of one metric at which all methods are compared."""

    metric: Metric
    reported: tuple[Metric, ...]
    """What is compared there."""
    is_erasure: bool
    """Whether erasure is matched and utility compared, or the other way round."""
    text: str
    """`MA at most 0.9`."""
    by_replicate: Mapping[str, float]
    """What the original and the retrained model have differs between models that were pretrained alike."""
    target: str = ""
    """The target of tuning that it is, as `TrialSpec.targets` has it."""

    def of(self, rows: Columns) -> float:
        """Return the limit for the rows of one replicate."""
        return self.by_replicate[str(rows["replicate"][0])]


def matching_limits(rows: pd.DataFrame, info: MetricInfo, plan: Plan) -> list[Limit]:
    """Return the limits of one model's comparison, those of erasure first; a tuned sweep has its targets alone.

    One that the original meets already is left out: there, nothing has to be erased. So is one whose value is not
    known of every replicate.

    Args:
        rows: Of the table, with `replicate`.
        info: The metrics.
        plan: What it compares, and what it tuned for.
    """
    erasure, utility = compared_metrics(info, plan.compare)
    if not erasure or not utility:
        return []
    limits = []
    targets = {level.key: level for level in plan.until if level.at != UNSEEN}
    for name, target in targets.items():
        if target.metric in info:
            limit = _erasure_limit(rows, info[target.metric], target.at, name, utility, is_absolute=True)
            limits.append(limit)
    for metric in erasure if not targets else ():
        for level in (*ERASURE_LEVELS, RETRAINED):
            limits.append(_erasure_limit(rows, metric, level, "", utility, is_absolute=metric.high == 1.0))
    for metric in utility if not targets else ():
        # How far off is too far, a metric's distance from what it is to be close to does not say.
        factors = () if isinstance(metric.better, CloserTo) else UTILITY_FACTORS[metric.better]
        limits += [_utility_limit(rows, metric, factor, erasure) for factor in factors]
    return [limit for limit in limits if limit]


def absolute_limit(rows: pd.DataFrame, metric: Metric, level: float, reported: tuple[Metric, ...]) -> Limit | None:
    """Return the limit at a value of an erasure metric; None where the original meets it already."""
    return _erasure_limit(rows, metric, level, "", reported, is_absolute=True)


def _erasure_limit(
    rows: pd.DataFrame,
    metric: Metric,
    at_most: float | str,
    target: str,
    reported: tuple[Metric, ...],
    *,
    is_absolute: bool,
) -> Limit | None:
    original = _reference_levels(rows, ORIGINAL, metric)
    if isinstance(metric.better, CloserTo):
        return _closeness_limit(rows, metric, metric.better.aim, at_most, reported)
    if isinstance(at_most, str):
        values = _reference_levels(rows, RETRAINED, metric)
        amount = f"the retrained model's ({_mean(values, metric)})" if values else ""
    else:
        values = dict.fromkeys(original, at_most) if is_absolute else _times(at_most, original)
        amount = f"{at_most:g}" if is_absolute else f"{at_most:g} × the original's ({_mean(values, metric)})"
    is_met = any(level <= values[name] for name, level in original.items() if name in values)
    if is_met or len(values) < rows["replicate"].nunique():
        return None
    return Limit(metric, reported, True, f"{metric.title} at most {amount}", values, target)


def _closeness_limit(
    rows: pd.DataFrame, metric: Metric, aim: float | str, at_most: float | str, reported: tuple[Metric, ...]
) -> Limit | None:
    """Return the limit of a metric that is to come close to its aim, from the side on which the original is."""
    original, retrained = _reference_levels(rows, ORIGINAL, metric), _reference_levels(rows, RETRAINED, metric)
    aims = retrained if isinstance(aim, str) else dict.fromkeys(original, aim)
    values, within = {}, []
    for name in original.keys() & aims.keys():
        distance = abs(original[name] - aims[name])
        if isinstance(at_most, str):
            left = abs(retrained[name] - aims[name]) if name in retrained else math.nan
        else:
            left = at_most * distance
        if not left < distance:  # Also where there is no retrained model.
            return None
        within.append(left)
        values[name] = aims[name] + math.copysign(left, original[name] - aims[name])
    if not values or len(values) < rows["replicate"].nunique():
        return None
    of_aim = f"the retrained model's ({_mean(aims, metric)})" if isinstance(aim, str) else f"{aim:g}"
    far = f"within {number(sum(within) / len(within), metric)} of" if any(within) else "at"
    as_close = ", as the retrained model" if isinstance(at_most, str) and not isinstance(aim, str) else ""
    return Limit(metric, reported, True, f"{metric.title} {far} {of_aim}{as_close}", values)


def _utility_limit(rows: pd.DataFrame, metric: Metric, factor: float, reported: tuple[Metric, ...]) -> Limit | None:
    values = _times(factor, _reference_levels(rows, ORIGINAL, metric))
    if len(values) < rows["replicate"].nunique():
        return None
    side = "most" if metric.better == "lower" else "least"
    text = f"{metric.title} at {side} {factor:g} × the original's ({_mean(values, metric)})"
    return Limit(metric, reported, False, text, values)


def _reference_levels(rows: pd.DataFrame, method: str, metric: Metric) -> dict[str, float]:
    """Return what a reference has of a metric, by replicate: the mean of its seeds."""
    of_method = rows[rows["method"] == method]
    means = of_method.groupby("replicate", sort=False)[metric.name].mean().dropna()
    return dict(zip(means.index.astype(str), means.tolist(), strict=True))


def _times(factor: float, levels: Mapping[str, float]) -> dict[str, float]:
    return {name: factor * level for name, level in levels.items()}


def _mean(values: Mapping[str, float], metric: Metric) -> str:
    return number(sum(values.values()) / len(values), metric) if values else ""
