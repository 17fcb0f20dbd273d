"""A published table beside ours: which row is which, what of it can be compared, and how far apart the figures are.

The plan alone decides what cannot be compared: the model, the definition, the texts, the judges and the training of
a sweep are compared with what the published table was measured on.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.analysis.cells import strength_text
from harness.analysis.metrics import mean_over, metrics_in, read_declarations
from harness.analysis.published.rows import condition_differences, points_of
from harness.analysis.ranking import RankedTable
from harness.contracts import Metric
from harness.errors import DataError, unknown
from harness.records.published import PUBLISHED, Conditions, PublishedRow, published_conditions, published_tolerances
from harness.records.results import PointResults, Results
from harness.specs import REFERENCE_ROWS

COLLAPSED_THERE = "the published model has collapsed: its flag is compared, not its numbers"
WIDEST = 2.0
"""Times the tolerance: where our own interval reaches further, agreement says nothing. It excuses no disagreement."""


@dataclass(frozen=True, kw_only=True)
class ComparedCell:
    """A figure of ours beside the published one."""

    title: str
    metric: Metric | None
    """None: whether the model has collapsed, 1 or 0."""
    ours: float
    published: float
    tolerance: float
    obstacles: tuple[str, ...] = ()
    """Why the two cannot be compared."""
    is_set_aside: bool = False
    """Whether nothing that is wrong with ours keeps them from being compared, but the published figure alone."""

    @property
    def difference(self) -> float:
        """Return ours less the published figure."""
        return self.ours - self.published

    @property
    def is_inside(self) -> bool | None:
        """Return whether ours lies within the tolerance, which NaN never does; None where nothing can be compared."""
        return None if self.obstacles else _is_within(self.difference, self.tolerance)


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """A row of a published table, and ours."""

    label: str
    strength: str
    """Of ours: `epochs 7`."""
    cells: tuple[ComparedCell, ...]
    collapsed: bool
    """Ours."""
    lacking: str
    """Why we have no such row; '' where we have."""


@dataclass(frozen=True, kw_only=True)
class ComparedTable:
    """One model's part of a published table, in the published order."""

    title: str
    """Where it was published."""
    model: str
    """Ours."""
    published_model: str
    rows: tuple[ComparedRow, ...]

    @property
    def cells(self) -> list[ComparedCell]:
        """Return the cells of all rows."""
        return [cell for row in self.rows for cell in row.cells]

    @property
    def notes(self) -> dict[str, str]:
        """Return each obstacle with the letter that stands for it."""
        letters: dict[str, str] = {}
        for cell in self.cells:
            for obstacle in cell.obstacles:
                letters.setdefault(obstacle, _note_letter(len(letters)))
        return letters


def _is_within(difference: float, tolerance: float) -> bool:
    return round(abs(difference), 9) <= round(tolerance, 9)


def _note_letter(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else f"{_note_letter(number // 26 - 1)}{_note_letter(number % 26)}"


def compared_tables(results: Results, ranked: RankedTable) -> list[ComparedTable]:
    """Return the published table that a sweep reproduces beside ours, one for each model; [] if it reproduces none.

    A model of ours stands beside the published one of its own id, or else beside the one at its place in the list.

    Raises:
        DataError: There is no such published table.
    """
    name = results.plan.reproduces
    if name is None:
        return []
    if name not in published_conditions():
        raise DataError(unknown("published table", name, published_conditions()))
    conditions, metrics = published_conditions()[name], read_declarations(PUBLISHED / f"{name}.csv")
    only_row, by_id = next(iter(conditions.rows)), {id.lower(): theirs for theirs, id in conditions.models.items()}
    theirs_in_order = list(conditions.models)
    figures: dict[tuple[str, str], dict[Hashable, Any]] = {}
    for record in pd.read_csv(PUBLISHED / f"{name}.csv").to_dict("records"):
        row_name = str(record.get(conditions.row_column or "", only_row))
        figures[record.get("model", theirs_in_order[0]), row_name] = record
    tables = []
    for number, model in enumerate(dict.fromkeys(spec.table_model for spec in results.plan.trials)):
        theirs = by_id.get(model.lower(), theirs_in_order[min(number, len(theirs_in_order) - 1)])
        rows = []
        for key, row in conditions.rows.items():
            points, lacking = points_of(results, model, row)
            ids = [point.spec.point_id(point.strength) for point in points]
            ours = ranked.table[ranked.table["point_id"].isin(ids)]
            comparison = _RowComparison(points, lacking, ours, ranked, row, conditions, conditions.models[theirs])
            rows.append(comparison.row(figures[theirs, key], metrics))
        tables.append(ComparedTable(title=conditions.title, model=model, published_model=theirs, rows=tuple(rows)))
    return tables


@dataclass(frozen=True)
class _RowComparison:
    """A row of ours and the published one, with what decides whether the two can be compared."""

    points: Sequence[PointResults]
    """Of every seed."""
    lacking: str
    rows: pd.DataFrame
    """Of the table, one for each point."""
    ranked: RankedTable
    published: PublishedRow
    conditions: Conditions
    model_id: str
    """Of the published model."""

    def row(self, figures: Mapping[Hashable, Any], metrics: Mapping[str, Metric]) -> ComparedRow:
        """Return the row with its cells; a method's has its collapse flag last, if that is published."""
        has_collapsed = figures.get("collapsed") is True
        cells = []
        for name, metric in metrics.items():
            ours = self.conditions.measured_as.get(name, name)
            cells.append(self.cell(ours, metric, float(figures[name]), has_collapsed))
        is_method = self.published.method not in REFERENCE_ROWS
        if "collapsed" in figures and is_method:
            cells.append(self.flag(has_collapsed))
        first = self.points[0] if self.points and is_method else None
        return ComparedRow(
            label=self.published.label,
            strength=strength_text(first.spec.strength_name, float(first.strength or 0)) if first else "",
            cells=tuple(cells),
            collapsed=bool(self.rows["collapsed"].eq(True).any()),
            lacking=self.lacking,
        )

    def cell(self, name: str, declared: Metric, published: float, has_collapsed: bool) -> ComparedCell:
        """Return a metric's cell."""
        metric = self.ranked.info.get(name)
        about: dict[str, Any] = {"title": declared.title, "metric": declared, "published": published}
        if self.lacking or metric is None:
            why = self.lacking or f"this sweep does not measure {name}"
            return ComparedCell(**about, ours=math.nan, tolerance=math.nan, obstacles=(why,))
        ours = mean_over(self.rows, metric)
        low, high = self.ranked.evidence.interval(self.rows, metric)
        tolerance = published_tolerances()[name].at(published) if name in published_tolerances() else math.nan
        obstacles = self._obstacles(metric)
        if max(high - ours, ours - low) > WIDEST * tolerance and _is_within(ours - published, tolerance):
            obstacles.append(
                f"our own figure of {declared.title} is too uncertain to compare: its 95 % interval is too wide"
            )
        theirs = [COLLAPSED_THERE] if has_collapsed else []
        if math.isnan(tolerance):
            theirs.append(f"no tolerance is stated for {declared.title}")
        return ComparedCell(
            **about,
            ours=ours,
            tolerance=tolerance,
            obstacles=(*obstacles, *theirs),
            is_set_aside=bool(theirs) and not obstacles,
        )

    def flag(self, published: bool) -> ComparedCell:
        """Return the cell that says whether the model has collapsed."""
        judges = [metric for metric in metrics_in(self.ranked.info, "generation") if metric.collapse]
        obstacles = self._obstacles(*judges)
        if self.lacking or not judges:
            obstacles = [self.lacking or "this sweep measures nothing that shows a collapse"]
        flags = self.rows["collapsed"].astype(float)
        ours = 1.0 if flags.eq(1.0).any() else float(flags.sum(skipna=False)) if len(flags) else math.nan
        return ComparedCell(
            title="Collapsed",
            metric=None,
            ours=ours,
            published=float(published),
            tolerance=0.0,
            obstacles=tuple(obstacles),
        )

    def _obstacles(self, *metrics: Metric) -> list[str]:
        """Return why metrics of ours are not the published ones, of all seeds together."""
        obstacles: dict[str, None] = {}
        for metric in metrics:
            for point in self.points:
                differences = condition_differences(point, metric, self.published, self.conditions, self.model_id)
                obstacles |= dict.fromkeys(differences)
        return list(obstacles)
