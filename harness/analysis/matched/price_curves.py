"""What each method pays at every level of erasure, with bands: the answer for who asks for another target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from harness.analysis.matched.comparison import MatchedTable, variants_of
from harness.analysis.matched.limit import Limit, absolute_limit
from harness.analysis.matched.matching import Mixed, mixtures_at, price
from harness.analysis.metrics import first_axes
from harness.analysis.ranking import RankedTable
from harness.contracts import CloserTo, Metric
from harness.metric import exponential
from harness.records.results import Results
from harness.specs import ORIGINAL, RETRAINED
from harness.statistics.contrasts import paired_contrast

LEVELS = 8
"""Between the original and the retrained model, or where there is none half of the original's."""


@dataclass(frozen=True)
class PricePoint:
    """What is paid at one level."""

    level: float
    """Of the erasure metric."""
    ratio: float
    """Of the utility, times the original's."""
    low: float
    high: float
    """The ends of the 95 % interval; NaN where it is not known."""


@dataclass(frozen=True)
class PriceCurve:
    """What one variant pays, from the least erasure to the most that it reaches."""

    model: str
    variant: str
    label: str
    erasure: Metric
    utility: Metric
    points: tuple[PricePoint, ...]
    is_whole: bool
    """Whether all lie on one trajectory; of a tuned sweep each point has settings of its own, with nothing between."""


def price_curves(results: Results, ranked: RankedTable, tables: Sequence[MatchedTable]) -> list[PriceCurve]:
    """Return a curve for every variant that anything is known of; none where the price is no ratio.

    Of a tuned sweep the points are those of its targets; of any other, levels between which trajectories were measured.
    """
    erasure, utility = first_axes(ranked.info, results.plan.compare)
    if erasure is None or utility is None or utility.aggregate != "exp_mean" or not tables:
        return []
    if isinstance(erasure.better, CloserTo):  # Levels are of what falls, not of what comes close to something.
        return []
    if results.plan.studies:
        return _of_targets(tables, erasure, utility)
    specs = {trial.spec.trial_id: trial.spec for trial in results.trials}
    curves = []
    for model in dict.fromkeys(table.model for table in tables):
        rows = ranked.table[ranked.table["model"] == model]
        limits = _limits(rows, erasure, utility)
        for variant in variants_of(model, rows, results, specs):
            points = []
            for limit in limits:
                if mixtures := mixtures_at(variant, limit, specs, ranked.aims):
                    priced = price(mixtures, utility, ranked.evidence, limit)
                    points.append(_point(float(next(iter(limit.by_replicate.values()))), priced))
            if points:
                curves.append(PriceCurve(model, variant.name, variant.label, erasure, utility, tuple(points), True))
    return curves


def _limits(rows: pd.DataFrame, erasure: Metric, utility: Metric) -> list[Limit]:
    start = float(rows.loc[rows["method"] == ORIGINAL, erasure.name].min())
    end = float(rows.loc[rows["method"] == RETRAINED, erasure.name].max())
    end = start / 2 if math.isnan(end) else end
    limits = []
    for level in np.linspace(start, end, LEVELS + 1)[1:]:
        if limit := absolute_limit(rows, erasure, float(level), (utility,)):
            limits.append(limit)
    return limits


def _of_targets(tables: Sequence[MatchedTable], erasure: Metric, utility: Metric) -> list[PriceCurve]:
    points: dict[tuple[str, str], list[PricePoint]] = {}
    labels: dict[str, str] = {}
    for table in tables:
        for row in table.rows:
            if row.is_at_limit and table.limit.metric == erasure and utility.name in row.prices:
                point = _point(row.numbers[0][0], row.prices[utility.name])
                points.setdefault((table.model, row.variant), []).append(point)
                labels[row.variant] = row.label
    curves = []
    for (model, variant), of_variant in points.items():
        rising = tuple(sorted(of_variant, key=lambda point: -point.level))
        curves.append(PriceCurve(model, variant, labels[variant], erasure, utility, rising, False))
    return curves


def _point(level: float, priced: Mixed | None) -> PricePoint:
    """Return what is paid at a level; its interval is that of Student's t, on the logarithm."""
    if priced is None or priced.items is None:
        return PricePoint(level, math.nan if priced is None else priced.number(), math.nan, math.nan)
    nothing = np.where(np.isnan(priced.items.values_RN), np.nan, 0.0)
    contrast = paired_contrast(priced.items, replace(priced.items, values_RN=nothing), priced.match)
    low, high = contrast.interval() if contrast else (math.nan, math.nan)
    return PricePoint(level, priced.number(), exponential(low), exponential(high))
