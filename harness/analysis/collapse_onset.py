"""How far each variant goes: at which strength its model first collapses, and what it has erased by then."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from harness.analysis.cells import number, strength_text
from harness.analysis.metrics import MetricInfo, first_axes, mean_over
from harness.analysis.seeds import repeats_of_points
from harness.contracts import Metric
from harness.plans import Compare
from harness.specs import REFERENCE_ROWS


@dataclass(frozen=True)
class Stage:
    """One strength of a variant, with the mean over its seeds of each axis; as tables print them."""

    strength: str
    numbers: tuple[str, ...]


@dataclass(frozen=True)
class Onset:
    """One variant's strongest point that is healthy, and its weakest that has collapsed."""

    label: str
    strengths: str
    """All that were measured: `epochs 1 to 7`."""
    last_healthy: Stage | None
    """None where the weakest strength has collapsed already."""
    first_collapsed: Stage | None
    """None where no strength has."""
    seeds: str
    """`2 of 3 seeds` where not all seeds collapsed there: another was healthy, or had ended before."""


@dataclass(frozen=True)
class OnsetTable:
    """All variants of a model that were measured at several strengths, in the sweep's order."""

    model: str
    axes: tuple[Metric, ...]
    rows: tuple[Onset, ...]


def onset_tables(table: pd.DataFrame, info: MetricInfo, compare: Compare) -> list[OnsetTable]:
    """Return how far each variant goes, for every model on which anything collapsed; strengths rise.

    A strength has collapsed where any of its seeds' points has; it is healthy where all of them are, so one whose
    collapse is not known is neither. What tuning chose has no onset: its points differ in more than their strength.
    """
    axes = tuple(metric for metric in first_axes(info, compare) if metric)
    erased = table[~table["method"].isin(REFERENCE_ROWS) & ~table["targets"].astype(bool)]
    tables = []
    for model, rows in erased.groupby("model", sort=False):
        onsets = []
        for _, of_variant in rows.groupby("variant", sort=False):
            if of_variant["strength"].nunique() > 1:
                onsets.append(_onset(of_variant, axes))
        if any(onset.first_collapsed for onset in onsets):
            tables.append(OnsetTable(str(model), axes, tuple(onsets)))
    return tables


def _onset(rows: pd.DataFrame, axes: tuple[Metric, ...]) -> Onset:
    repeats = sorted(repeats_of_points(rows), key=lambda points: float(points["strength"].mean()))
    healthy, collapsed, count = None, None, 0
    for points in repeats:
        count = int(points["collapsed"].eq(True).sum())
        if count:
            collapsed = points
            break
        if points["collapsed"].eq(False).all():
            healthy = points
    total = rows["seed"].nunique()
    return Onset(
        label=str(rows.iloc[0]["label"]),
        strengths=f"{_stage(repeats[0], axes).strength} to {float(repeats[-1].iloc[0]['strength']):.4g}",
        last_healthy=None if healthy is None else _stage(healthy, axes),
        first_collapsed=None if collapsed is None else _stage(collapsed, axes),
        seeds=f"{count} of {total} seeds" if 0 < count < total else "",
    )


def _stage(points: pd.DataFrame, axes: tuple[Metric, ...]) -> Stage:
    first = points.iloc[0]
    return Stage(
        strength=strength_text(str(first["strength_name"]), float(first["strength"])),
        numbers=tuple(number(mean_over(points, metric), metric) for metric in axes),
    )
