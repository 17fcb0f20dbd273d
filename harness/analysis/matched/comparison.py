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
from harness.analysis.matched.matching import Mixed, Mixture, Variant, least_cost, mean_aim, mix, mixtures_at
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
        variants: dict[str, Variant] = {}
        has_several_points = False
        for study in results.studies:
            trial = study.spec.trial
            if trial.table_model == model:
                variants.setdefault(trial.variant, Variant(trial.variant, trial.label)).studies.append(study)
        for one in trajectories(rows, specs):
            variants.setdefault(one.variant, Variant(one.variant, one.spec.label)).trajectories.append(one)
            has_several_points |= any(len(replicate["strength"]) > 2 for replicate in one.replicates)
        if has_several_points or any(variant.studies for variant in variants.values()):
            for limit in matching_limits(rows, ranked.info, results.plan):
                tables.append(_matched_table(str(model), limit, list(variants.values()), specs, ranked))
    return [table for table in tables if table.rows]


def _matched_table(
    model: str, limit: Limit, variants: Sequence[Variant], specs: Mapping[str, TrialSpec], ranked: RankedTable
) -> MatchedTable:
    points: dict[str, list[Mixture]] = {}
    mixed: dict[str, list[Mixed]] = {}
    off: dict[tuple[str, str], float] = {}
    for variant in variants:
        name, mixtures = variant.name, mixtures_at(variant, limit, specs, ranked.aims)
        points[name] = mixtures
        if mixtures:
            mixed[name] = [mix(mixtures, metric, ranked.evidence) for metric in (limit.metric, *limit.reported)]
            for one in mixed[name][1:]:
                far = deviations(np.array(one.number()), one.metric, mean_aim(mixtures, one.metric, ranked.aims))
                off[name, one.metric.name] = float(far)
    letters = _letters(mixed, off, limit.reported)
    rows = []
    for variant in variants:
        mixtures = points[variant.name]
        if not mixtures:
            rows.append(_not_reached(variant, limit, ranked.aims))
            continue
        numbers, cells = [], []
        for one in mixed[variant.name]:
            numbers.append(one.number_and_interval())
            key = variant.name, one.metric.name
            cells.append(interval_cell(*numbers[-1], one.metric, letters.get(key, "")))
        rows.append(
            MatchedRow(
                variant=variant.name,
                label=variant.label,
                how="measured" if all(len(mixture.weights) == 1 for mixture in mixtures) else "interpolated",
                setting=_setting(mixtures, specs),
                matched=cells[0],
                cells=tuple(cells[1:]),
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
    mixed: Mapping[str, Sequence[Mixed]], off: Mapping[tuple[str, str], float], metrics: Sequence[Metric]
) -> dict[tuple[str, str], str]:
    """Return the letters of a matched table's cells, by variant and metric; `off` is how far each number deviates."""
    tests: dict[tuple[str, str, str], float] = {}
    of_cells: dict[tuple[str, str], float] = {}
    for place, metric in enumerate(metrics, start=1):
        name = metric.name
        for variant in mixed:
            of_cells[variant, name] = float(costs(np.array(off[variant, name]), metric))
        for one, other in combinations(mixed, 2):
            a, b = mixed[one][place], mixed[other][place]
            tests[name, one, other] = math.nan
            if a.items and b.items and (a.items.items, a.replicates) == (b.items.items, b.replicates):
                tests[name, one, other] = p_of_pair(metric, a.items, b.items, (off[one, name], off[other, name]))
    return letters_of(tests, of_cells, metrics)


def _not_reached(variant: Variant, limit: Limit, aims: Aims) -> MatchedRow:
    """Return the row of a variant that is not at the limit in every replicate, with the best that it did."""
    tuned = []
    for study in variant.studies:
        tuned += [target.best for target in study.targets if str(target.target) == limit.target]
    if tuned:
        best = float(np.mean(tuned))
    else:
        _, best = min(least_cost(one, limit.metric, aims) for one in variant.trajectories)
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
    chosen = []
    for name, value in spec.searched.items():
        words = name.rpartition(".")[2].replace("_", " ")
        chosen.append(f"{words} {value:.3g}" if isinstance(value, float) else f"{name} {value}")
    return chosen
