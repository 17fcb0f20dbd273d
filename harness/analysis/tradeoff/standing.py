"""Where a method stands as a whole: the share of the trade-off that it covers, and how far it is from retraining."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from harness.analysis.cells import Cell, interval_cell
from harness.analysis.evidence import Evidence
from harness.analysis.metrics import first_axes, table_metrics
from harness.analysis.ranking import RankedTable
from harness.analysis.seeds import ranked_rows, repeats_of_points
from harness.contracts import CloserTo, Metric
from harness.plans import Plan
from harness.specs import ORIGINAL, REFERENCE_ROWS, RETRAINED
from harness.statistics.bootstrap import interval
from harness.statistics.frontier import hypervolume
from harness.statistics.item_values import Floats


@dataclass(frozen=True)
class Standing:
    """One variant's standing."""

    variant: str
    label: str
    covered: Cell
    """Hypervolume: the share of the square between original and retrained model that its points beat."""
    distances: tuple[Cell, ...]
    """Its ranked point less the retrained model, metric by metric."""
    numbers: tuple[tuple[float, float, float], ...]
    """Of all these cells, unrounded: the value, and the ends of its interval."""


@dataclass(frozen=True)
class StandingTable:
    """One model's variants, those that cover most first."""

    model: str
    axes: tuple[Metric, Metric]
    """Erasure and utility of the hypervolume."""
    metrics: tuple[Metric, ...]
    rows: tuple[Standing, ...]


def standing_tables(plan: Plan, ranked: RankedTable) -> list[StandingTable]:
    """Return the standing of every variant, for each model that has a retrained one: without it there is no aim."""
    erasure, utility = first_axes(ranked.info, plan.compare)
    tables = []
    for model, rows in ranked.table.groupby("model", sort=False):
        has_aim = (rows["method"] == RETRAINED).any()
        if erasure and utility and has_aim and not isinstance(utility.better, CloserTo):
            bound = asdict(plan.collapse).get(utility.collapse or "", 1 / 0.75)
            lost_at = bound[1] if isinstance(bound, tuple | list) else bound
            metrics = tuple(table_metrics(ranked.info))
            of_model = _ModelDraws(rows, ranked.evidence)
            standings = []
            for variant in rows.loc[~rows["method"].isin(REFERENCE_ROWS), "variant"].unique():
                standings.append(_standing(of_model, str(variant), (erasure, utility), lost_at, metrics))
            standings.sort(key=lambda one: -one.numbers[0][0] if not math.isnan(one.numbers[0][0]) else math.inf)
            tables.append(StandingTable(str(model), (erasure, utility), metrics, tuple(standings)))
    return tables


class _ModelDraws:
    """The rows of a model, and draws of any metric over any of them: the same draws for all."""

    def __init__(self, rows: pd.DataFrame, evidence: Evidence) -> None:
        self.rows = rows
        self.of = evidence.mean_and_draws

    def reference(self, method: str, metric: Metric) -> tuple[float, Floats]:
        """Return the mean over a reference's rows, and draws (D,) of it."""
        return self.of(self.rows[self.rows["method"] == method], metric)


def _standing(
    of_model: _ModelDraws, variant: str, axes: tuple[Metric, Metric], lost_at: float, metrics: Sequence[Metric]
) -> Standing:
    rows = of_model.rows[of_model.rows["variant"] == variant]
    covered = _covered(of_model, rows, axes, lost_at)
    chosen = ranked_rows(rows)
    numbers, distances = [covered], []
    for metric in metrics:
        (value, drawn_D), (aim, aims_D) = of_model.of(chosen, metric), of_model.reference(RETRAINED, metric)
        with np.errstate(invalid="ignore"):  # Two infinite ones have no difference: NaN.
            numbers.append((value - aim, *interval(drawn_D - aims_D)))
        cell = interval_cell(*numbers[-1], metric)
        text = f"{'+' if value > aim else ''}{cell.text}".replace("-", "−")
        distances.append(Cell(text, "", cell.interval.replace("-", "−")))
    label = str(rows.iloc[0]["label"])
    return Standing(variant, label, interval_cell(*covered, axes[0]), tuple(distances), tuple(numbers))


def _covered(
    of_model: _ModelDraws, rows: pd.DataFrame, axes: tuple[Metric, Metric], lost_at: float
) -> tuple[float, float, float]:
    """Return the hypervolume of a variant's points that have not collapsed, and its interval; 0 if all have."""
    erasure, utility = axes
    points = repeats_of_points(rows[~rows["collapsed"].eq(True)])
    if not points:
        return 0.0, math.nan, math.nan
    erasure_of, erasure_draws = _scaled_points(of_model, points, erasure, None)
    utility_of, utility_draws = _scaled_points(of_model, points, utility, lost_at)
    number = float(hypervolume(np.stack(erasure_of, axis=-1), np.stack(utility_of, axis=-1))[0])
    drawn_D = hypervolume(np.stack(erasure_draws, axis=-1), np.stack(utility_draws, axis=-1))
    return number, *interval(drawn_D)


def _scaled_points(
    of_model: _ModelDraws, points: Sequence[pd.DataFrame], metric: Metric, lost_at: float | None
) -> tuple[list[Floats], list[Floats]]:
    """Return a metric's scaled value at each point (1,), and its draws (D,)."""
    start, aim = of_model.reference(ORIGINAL, metric), of_model.reference(RETRAINED, metric)
    numbers, drawn = [], []
    for point in points:
        number, drawn_D = of_model.of(point, metric)
        numbers.append(_scaled(np.array([number]), start[0], aim[0], metric, lost_at))
        drawn.append(_scaled(drawn_D, start[1], aim[1], metric, lost_at))
    return numbers, drawn


def _scaled(
    values_D: Floats, start: float | Floats, aim: float | Floats, metric: Metric, lost_at: float | None
) -> Floats:
    """Return values so that lower is better: erasure 1 at the original and 0 at the retrained model.

    Of an erasure that is to come close to something it is the distance from that: 1 at the original's, 0 there.
    Utility is 0 at the original and 1 at `lost_at` times its; on a logarithmic scale where the metric has no bound.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if lost_at is None and isinstance(metric.better, CloserTo):
            close = aim if isinstance(metric.better.aim, str) else metric.better.aim
            return np.asarray(np.abs(values_D - close) / np.abs(start - np.asarray(close)))
        if lost_at is None:
            return np.asarray((values_D - aim) / (start - np.asarray(aim)))
        if math.isinf(metric.high):
            return np.asarray(np.log(values_D / start) / math.log(lost_at))
        return np.asarray((values_D - start) / ((lost_at - 1) * np.asarray(start)))
