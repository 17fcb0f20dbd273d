"""The meta-evaluation of a sweep's metrics: faithfulness, robustness and what both come to, a row for each metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis.meta.pools import Faithfulness, Pools, faithfulness, is_circular, judged_metrics, pools
from harness.analysis.meta.robustness import (
    Disturbed,
    PointStability,
    Robustness,
    point_stabilities,
    robustness,
    utility_metric,
)
from harness.analysis.meta.stability import harmonic_mean
from harness.analysis.metrics import metric_info
from harness.contracts import Metric
from harness.records.results import PointResults, Results


@dataclass(frozen=True)
class JudgedMetric:
    """How far one metric can be believed."""

    metric: Metric
    faithfulness: Faithfulness
    is_circular: bool
    """It compares models with the originals and the retrained ones themselves, so no AUC of those means anything."""
    robustness: Robustness
    """Over the points that kept their utility and that the metric itself calls erased, as in the public study."""
    of_all_points: Robustness
    one_sided: Robustness
    """By the study's earlier formulas, over the same points as `robustness`."""

    @property
    def overall(self) -> float:
        """Return the harmonic mean of the AUC over models and the robustness; NaN where either is not known."""
        return harmonic_mean(self.faithfulness.models.value, self.robustness.both.value)


@dataclass(frozen=True)
class MetaEvaluation:
    """What a sweep says of its metrics."""

    rows: tuple[JudgedMetric, ...]
    """The most to be believed first; those without an overall score last, by their robustness."""
    models: int
    """Pairs of a model that memorised the forget set and its retrained twin."""
    points: int
    utility: Metric | None

    @property
    def frame(self) -> pd.DataFrame:
        """Return a row for each metric, with the columns of meta.csv."""
        return pd.DataFrame([_csv_row(row) for row in self.rows])


def erased_points(results: Results) -> list[PointResults]:
    """Return every measured point of a method."""
    return [point for point in results.measured if not point.spec.is_reference]


def meta_evaluation(results: Results, disturbed: Mapping[str, Disturbed], chosen: Sequence[str] = ()) -> MetaEvaluation:
    """Return how far each metric of a sweep can be believed.

    Args:
        results: What the sweep measured.
        disturbed: What its erased points and its retrained models have once disturbed, by point id.
        chosen: Names of the metrics that are judged; (): all.

    Raises:
        DataError: The sweep has fewer than two models of a kind, or no such metric.
    """
    info, both = metric_info(results), pools(results)
    utility, points = utility_metric(results.plan, info), erased_points(results)
    rows = []
    for metric in judged_metrics(info, chosen).values():
        rows.append(_judged(metric, both, results, points, disturbed, utility))
    rows.sort(key=lambda row: (_last(row.overall), _last(row.robustness.both.value)))
    return MetaEvaluation(tuple(rows), len(both.originals), len(points), utility)


def _judged(
    metric: Metric,
    both: Pools,
    results: Results,
    points: Sequence[PointResults],
    disturbed: Mapping[str, Disturbed],
    utility: Metric | None,
) -> JudgedMetric:
    faithful = faithfulness(metric, both, results)
    stabilities = point_stabilities(metric, points, both, disturbed, faithful.threshold, utility)
    counted: list[PointStability] = [point for point in stabilities if point.is_useful and point.is_erased]
    return JudgedMetric(
        metric,
        faithful,
        is_circular(metric, both.originals[0]),
        robustness(counted),
        robustness(stabilities),
        robustness(counted, is_one_sided=True),
    )


def _last(value: float) -> float:
    """Return a key that sorts by falling value, and what is not known after all that is."""
    return math.inf if math.isnan(value) else -value


def _csv_row(row: JudgedMetric) -> dict[str, float | int | str]:
    cells: dict[str, float | int | str] = {"metric": row.metric.name, "title": row.metric.title}
    cells["circular"] = "yes" if row.is_circular else ""
    for name, auc in (("auc", row.faithfulness.models), ("text_auc", row.faithfulness.texts)):
        cells |= {name: auc.value, f"{name}_low": auc.low, f"{name}_high": auc.high}
    for prefix, of_points in (("", row.robustness), ("all_", row.of_all_points), ("one_sided_", row.one_sided)):
        for name, mean in (
            ("relearning", of_points.relearning),
            ("rounding", of_points.rounding),
            ("robustness", of_points.both),
        ):
            cells |= {prefix + name: mean.value, f"{prefix}{name}_low": mean.low, f"{prefix}{name}_high": mean.high}
        cells[f"{prefix}relearned_points"] = of_points.relearned_points
        cells[f"{prefix}rounded_points"] = of_points.rounded_points
        cells[f"{prefix}unmoved_points"] = of_points.unmoved_points
    return cells | {"overall": row.overall, "threshold": row.faithfulness.threshold}
