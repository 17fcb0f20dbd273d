"""The matched comparison: what each method pays at equal erasure, and what it erases at equal utility.

A row is a measured point where one was chosen for the target (tuning), or lies at the limit; else it lies between two
neighbours of one trajectory, the original being strength 0, and says so. Nothing is extrapolated: a method that
does not get there is 'not reached', with the best that it did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from harness.analysis.cells import Cell, interval_cell, number, strength_text
from harness.analysis.grouping import letters_of, p_of_pair
from harness.analysis.matched.limit import Limit, matching_limits
from harness.analysis.matched.matching import Variant, least_cost, mean_aim, mixtures_at
from harness.analysis.matched.mixture import Mixed, Mixture, mix
from harness.analysis.metrics import Aims, costs, deviations
from harness.analysis.ranking import RankedTable
from harness.analysis.tradeoff.trajectories import trajectories
from harness.contracts import Metric
from harness.records.results import Results
from harness.specs import TrialSpec

How = Literal["measured", "interpolated", "not reached"]


@dataclass(frozen=True)
class MatchedRow:
    """What one variant has at a limit."""

    variant: str
    label: str
    how: How
    setting: str
    """`epochs 5, learning rate 1.2e-05`; `epochs 1 to 2` where it lies between."""
    matched: Cell
    """What it has of the matched metric there."""
    cells: tuple[Cell, ...]
    """One for each reported metric; empty where it was not reached."""
    numbers: tuple[tuple[float, float, float], ...]
    """Of the matched metric and of the cells, unrounded: the value, and the ends of its interval."""
    collapsed: bool
    note: str
    """`best MA 0.713` where it was not reached; '' elsewhere."""
    budget: str
    """What its search was given: `12 candidates, 480 steps`; '' where nothing was tuned."""


@dataclass(frozen=True)
class MatchedTable:
    """One model's variants at one limit, those that pay least first."""

    model: str
    limit: Limit
    rows: tuple[MatchedRow, ...]


def matched_tables(results: Results, ranked: RankedTable) -> list[MatchedTable]:
    """Return the matched tables of every model: utility at equal erasure first, then erasure at equal utility.

    None where every variant has a single point and nothing was tuned: there is nothing to match.
    """
    specs = {trial.spec.trial_id: trial.spec for trial in results.trials}
    tables = []
    for model, rows in ranked.table.groupby("model", sort=False):
        studies = [study for study in results.studies if (study.spec.trial.table_model) == model]
        of_model = trajectories(rows, specs)
        labels = {one.variant: one.spec.label for one in of_model}
        labels = {study.spec.trial.variant: study.spec.trial.label for study in studies} | labels
        variants = [
            Variant(
                name,
                label,
                [one for one in of_model if one.variant == name],
                [study for study in studies if study.spec.trial.variant == name],
            )
            for name, label in labels.items()
        ]
        if studies or any(len(replicate["strength"]) > 2 for one in of_model for replicate in one.replicates):
            for limit in matching_limits(rows, ranked.info, results.plan):
                tables.append(_matched_table(str(model), limit, variants, specs, ranked))
    return [table for table in tables if table.rows]


def _matched_table(
    model: str,
    limit: Limit,
    variants: Sequence[Variant],
    specs: Mapping[str, TrialSpec],
    ranked: RankedTable,
) -> MatchedTable:
    metrics, aims = (limit.metric, *limit.reported), ranked.aims
    points = {variant.name: mixtures_at(variant, limit, specs, aims) for variant in variants}
    mixed = {
        (variant, metric.name): mix(mixtures, metric, ranked.evidence)
        for variant, mixtures in points.items()
        if mixtures
        for metric in metrics
    }
    off = {
        (variant, metric.name): float(
            deviations(np.array(mixed[variant, metric.name].number()), metric, mean_aim(mixtures, metric, aims))
        )
        for variant, mixtures in points.items()
        if mixtures
        for metric in limit.reported
    }
    letters = _letters(mixed, off, limit.reported)
    rows = []
    for variant in variants:
        mixtures = points[variant.name]
        if not mixtures:
            rows.append(_not_reached(variant, limit, aims))
            continue
        numbers = [mixed[variant.name, metric.name].number_and_interval() for metric in metrics]
        matched, *cells = (
            interval_cell(*of_metric, metric, letters.get((variant.name, metric.name), ""))
            for of_metric, metric in zip(numbers, metrics, strict=True)
        )
        rows.append(
            MatchedRow(
                variant=variant.name,
                label=variant.label,
                how="interpolated" if any(len(mixture.weights) > 1 for mixture in mixtures) else "measured",
                setting=_setting(mixtures, specs),
                matched=matched,
                cells=tuple(cells),
                numbers=tuple(numbers),
                collapsed=any(True in mixture.rows["collapsed"].tolist() for mixture in mixtures),
                note="",
                budget=variant.budget,
            )
        )
    first = limit.reported[0]
    rows.sort(key=lambda row: costs(np.array(off[row.variant, first.name]), first) if row.numbers else math.inf)
    return MatchedTable(model, limit, tuple(rows))


def _letters(
    mixed: Mapping[tuple[str, str], Mixed], off: Mapping[tuple[str, str], float], metrics: Sequence[Metric]
) -> dict[tuple[str, str], str]:
    """Return the letters of a matched table's cells, by variant and metric; `off` is how far each number deviates."""
    variants = dict.fromkeys(variant for variant, _ in mixed)
    tests: dict[tuple[str, str, str], float] = {}
    for metric in metrics:
        for one, other in combinations(variants, 2):
            a, b = mixed[one, metric.name], mixed[other, metric.name]
            tests[metric.name, one, other] = math.nan
            if a.items and b.items and (a.items.items, a.replicates) == (b.items.items, b.replicates):
                sides = off[one, metric.name], off[other, metric.name]
                tests[metric.name, one, other] = p_of_pair(metric, a.items, b.items, sides)
    by_name = {metric.name: metric for metric in metrics}
    of_cells = {(variant, name): float(costs(np.array(far), by_name[name])) for (variant, name), far in off.items()}
    return letters_of(tests, of_cells, metrics)


def _not_reached(variant: Variant, limit: Limit, aims: Aims) -> MatchedRow:
    """Return the row of a variant that is not at the limit in every replicate, with the best that it did."""
    tuned = [target.best for study in variant.studies for target in study.targets if str(target.target) == limit.target]
    reached = [least_cost(one, limit.metric, aims) for one in variant.trajectories]
    best = float(np.mean(tuned)) if tuned else min(reached)[1]
    where = " of the selection texts" if tuned else ""
    note = f"best {limit.metric.title} {number(best, limit.metric)}{where}"
    return MatchedRow(variant.name, variant.label, "not reached", "", Cell("", ""), (), (), False, note, variant.budget)


def _setting(mixtures: Sequence[Mixture], specs: Mapping[str, TrialSpec]) -> str:
    """Return the strength, or between which it lies, and whatever tuning chose besides."""
    texts = []
    for mixture in mixtures:
        spec, strengths = specs[mixture.rows["trial_id"][-1]], mixture.rows["strength"]
        strength = strength_text(spec.strength_name, float(strengths[-1]))
        if len(mixture.weights) > 1:
            start = "0" if math.isnan(strengths[0]) else f"{strengths[0]:.4g}"
            strength = f"{spec.strength_name} {start} to {strengths[-1]:.4g}"
        texts.append(", ".join([strength, *chosen_settings(spec)]))
    return "; ".join(dict.fromkeys(texts))


def chosen_settings(spec: TrialSpec) -> list[str]:
    """Return what tuning chose for a trial besides its strength: `learning rate 1.2e-05`."""
    return [
        f"{name.rpartition('.')[2].replace('_', ' ')} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in spec.searched.items()
    ]
