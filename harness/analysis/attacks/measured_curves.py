"""The curves that evaluators measured, one for each row of the attack table: after each step, in each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.analysis.attacks.excess import target_text
from harness.analysis.metrics import MetricInfo
from harness.analysis.seeds import points_by_target
from harness.contracts import Json, MeasuredCurve
from harness.records.results import PointResults, Results
from harness.specs import ORIGINAL, RETRAINED

_REFERENCES = (ORIGINAL, RETRAINED)


@dataclass(frozen=True)
class CurveLine:
    """One row's curve, the mean over its seeds."""

    method: str
    variant: str
    label: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]


@dataclass(frozen=True)
class CurvePanel:
    """All rows' curves of one name, on one model."""

    model: str
    title: str
    x_title: str
    y_title: str
    lines: tuple[CurveLine, ...]
    """The references first."""
    target: str
    """Of a tuned sweep: the target, in words, that the lines' points stand for; else ''."""


def curve_panels(results: Results, table: pd.DataFrame, info: MetricInfo) -> list[CurvePanel]:
    """Return a panel for each model and name of a curve; none where no evaluator measured curves.

    Args:
        results: With the curves in the notes of measurements.
        table: The shown points: lines are drawn of the references, and of the points that it ranks; in a tuned sweep of
            those that stand for the last target, since where most is erased there is most to bring back.
        info: The metrics.
    """
    model_of: dict[str, str] = {}
    target_of: dict[str, str] = {}
    for model, rows in table.groupby("model", sort=False):
        by_target = points_by_target(rows) or {"": rows[rows["ranked"]]}
        target, shown = list(by_target.items())[-1]
        target_of[str(model)] = target_text(target, info)
        ids = [*rows.loc[rows["method"].isin(_REFERENCES), "point_id"], *shown["point_id"]]
        model_of |= dict.fromkeys(ids, str(model))
    by_panel: dict[tuple[str, str], dict[str, list[tuple[PointResults, MeasuredCurve]]]] = {}
    for point in results.measured:
        point_id = point.spec.point_id(point.strength)
        if point_id not in model_of:
            continue
        for curve in _curves_of(point):
            lines = by_panel.setdefault((model_of[point_id], curve.name), {})
            lines.setdefault(point.spec.variant, []).append((point, curve))
    panels = []
    for (model, _), lines in by_panel.items():
        first = next(iter(lines.values()))[0][1]
        drawn = []
        for seeds in lines.values():
            drawn += _lines(seeds)
        drawn.sort(key=lambda line: line.method not in _REFERENCES)
        panels.append(CurvePanel(model, first.title, first.x_title, first.y_title, tuple(drawn), target_of[model]))
    return panels


def _curves_of(point: PointResults) -> list[MeasuredCurve]:
    curves = []
    for measurement in point.measurements:
        recorded: Sequence[Mapping[str, Json]] = measurement.notes.get("curves", ())
        for one in recorded:
            curves.append(MeasuredCurve(**{**one, "xs": tuple(one["xs"]), "ys": tuple(one["ys"])}))
    return curves


def _lines(seeds: Sequence[tuple[PointResults, MeasuredCurve]]) -> list[CurveLine]:
    """Return the mean over seeds, as one line; none where they were measured at different places."""
    spec, xs = seeds[0][0].spec, {curve.xs for _, curve in seeds}
    if len(xs) > 1:
        return []
    ys = np.mean([curve.ys for _, curve in seeds], axis=0)
    return [CurveLine(spec.method, spec.variant, spec.label, xs.pop(), tuple(ys.tolist()))]
