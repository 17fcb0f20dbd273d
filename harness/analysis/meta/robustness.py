"""How much a metric changes when models are disturbed, beyond what it should: over a sweep's erased points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from harness.analysis.meta.pools import Pools, knowledge, measured_number, number_of
from harness.analysis.meta.stability import agreement, harmonic_mean, one_sided_relearning, one_sided_rounding
from harness.contracts import Metric
from harness.plans import Plan
from harness.records.results import PointResults
from harness.statistics.auc import CONFIDENCE

LEAST_UTILITY = 0.8
"""Of the original's: a model that lost more is left out, as the public study leaves it out."""
_ROUNDING = 1e-9

Disturbed = Mapping[str, Mapping[str, float]]
"""By the disturbance (`relearned`, `rounded`), each metric's number as measured; nothing of what was not measured."""


@dataclass(frozen=True)
class Mean:
    """A mean over points, and the interval of it over pretrained models."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Robustness:
    """What disturbing leaves of a metric, over some points of a sweep."""

    relearning: Mean
    """R."""
    rounding: Mean
    """Q."""
    both: Mean
    """The harmonic mean of both."""
    relearned_points: int
    rounded_points: int
    unmoved_points: int
    """Of the relearned ones those where relearning moved the metric neither of the erased nor of the retrained model:
    R is 1 of them, of a metric that sees nothing there."""


@dataclass(frozen=True)
class PointStability:
    """R and Q of one metric on one erased point."""

    model: str
    """The digest of the pretrained model that it was erased from."""
    is_useful: bool
    """Whether enough of the original's utility is left."""
    is_erased: bool
    """Whether the metric says so, by its threshold between memorised and retrained models."""
    relearning: float
    rounding: float
    one_sided_relearning: float
    one_sided_rounding: float
    is_unmoved: bool
    """Whether relearning changes the metric neither here nor of the retrained model."""


def point_stabilities(
    metric: Metric,
    points: Sequence[PointResults],
    both: Pools,
    disturbed: Mapping[str, Disturbed],
    threshold: float,
    utility: Metric | None,
) -> list[PointStability]:
    """Return R and Q of a metric on each erased point.

    Args:
        metric: One that is judged.
        points: Erased ones.
        both: Models with and without the forget set; each point is held against the retrained model of its own.
        disturbed: Of each point and of each retrained model, by point id.
        threshold: Between models that memorised the forget set and those that never saw it.
        utility: What a method pays in; None where the sweep measures none, and all points are useful.
    """
    originals = {point.spec.model.digest: point for point in both.originals}
    twins = {point.spec.model.digest: point for point in both.retrained}
    stabilities = []
    for point in points:
        digest = point.spec.model.digest
        if digest not in twins:
            continue
        before = number_of(point, metric)
        after = {kind: _after(metric, disturbed, point, kind) for kind in ("relearned", "rounded")}
        rise = after["relearned"] - before
        rise_of_twin = _after(metric, disturbed, twins[digest], "relearned") - number_of(twins[digest], metric)
        stabilities.append(
            PointStability(
                model=digest,
                is_useful=utility is None or _share_of_utility(utility, point, originals[digest]) >= LEAST_UTILITY,
                is_erased=before <= threshold,
                relearning=agreement(rise, rise_of_twin),
                rounding=agreement(before, after["rounded"]),
                one_sided_relearning=one_sided_relearning(rise, rise_of_twin),
                one_sided_rounding=one_sided_rounding(before, after["rounded"]),
                is_unmoved=rise == rise_of_twin == 0.0,
            )
        )
    return stabilities


def _after(metric: Metric, disturbed: Mapping[str, Disturbed], point: PointResults, kind: str) -> float:
    numbers = disturbed.get(point.spec.point_id(point.strength), {}).get(kind, {})
    return knowledge(metric, numbers.get(metric.name, math.nan))


def utility_metric(plan: Plan, info: Mapping[str, Metric]) -> Metric | None:
    """Return the first of `compare.utility` that the sweep measured; None if it measured none."""
    return next((info[name] for name in plan.compare.utility if name in info), None)


def _share_of_utility(utility: Metric, point: PointResults, original: PointResults) -> float:
    """Return a point's utility as a share of its original's: of a perplexity the inverse ratio; NaN of nothing."""
    value, of_original = (measured_number(of_model, utility) for of_model in (point, original))
    share, whole = (of_original, value) if utility.better == "lower" else (value, of_original)
    return share / whole if whole else math.nan


def robustness(stabilities: Sequence[PointStability], *, is_one_sided: bool = False) -> Robustness:
    """Return the means over points, and their intervals over the models that these were erased from.

    R and Q are means over points; their harmonic mean is of the means, as in the public study. The interval is
    Student's t over the pretrained models, each with the mean of its own points: points of one model are no
    independent evidence. There is none for a single model, nor where all models have the same.

    Args:
        stabilities: Of the points that count.
        is_one_sided: Whether only what comes back counts, not what is lost: the study's earlier formulas.
    """
    relearning_by_model: dict[str, list[float]] = {}
    rounding_by_model: dict[str, list[float]] = {}
    relearned: list[float] = []
    rounded: list[float] = []
    for point in stabilities:
        relearning = point.one_sided_relearning if is_one_sided else point.relearning
        rounding = point.one_sided_rounding if is_one_sided else point.rounding
        if not math.isnan(relearning):
            relearned.append(relearning)
            relearning_by_model.setdefault(point.model, []).append(relearning)
        if not math.isnan(rounding):
            rounded.append(rounding)
            rounding_by_model.setdefault(point.model, []).append(rounding)
    harmonic = []
    for model, values in relearning_by_model.items():
        if model in rounding_by_model:
            harmonic.append(harmonic_mean(_mean(values), _mean(rounding_by_model[model])))
    return Robustness(
        _with_interval(_mean(relearned), list(map(_mean, relearning_by_model.values()))),
        _with_interval(_mean(rounded), list(map(_mean, rounding_by_model.values()))),
        _with_interval(harmonic_mean(_mean(relearned), _mean(rounded)), harmonic),
        len(relearned),
        len(rounded),
        sum(point.is_unmoved for point in stabilities),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _with_interval(value: float, of_models: Sequence[float]) -> Mean:
    """Return a mean with Student's t interval of what each model has, around it, within 0 and 1."""
    error = float(np.std(of_models, ddof=1)) / math.sqrt(len(of_models)) if len(of_models) > 1 else 0.0
    if math.isnan(value) or error < _ROUNDING:  # No variance to be seen is no certainty.
        return Mean(value, math.nan, math.nan)
    reach = float(stdtrit(len(of_models) - 1, (1 + CONFIDENCE) / 2)) * error
    return Mean(value, max(0.0, value - reach), min(1.0, value + reach))
