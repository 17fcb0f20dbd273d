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

from harness.contracts import Metric
from harness.records.results import Results
from harness.records.studies import StudyResults
from harness.reporting.evidence import Evidence
from harness.reporting.frontier import crossing
from harness.reporting.grouping import letters_of
from harness.reporting.item_values import Floats
from harness.reporting.layout import Cell, interval_cell, number, strength_text
from harness.reporting.limit import Limit, limits
from harness.reporting.mixture import Mixed, Mixture, mix
from harness.reporting.ranking import RankedTable
from harness.reporting.significance import paired_p
from harness.reporting.trajectories import Columns, Trajectory, trajectories
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
        studies = [study for study in results.studies if (_shown_model(study.spec.trial)) == model]
        of_model = trajectories(rows, specs)
        labels = {one.variant: one.spec.label for one in of_model}
        labels = {study.spec.trial.variant: study.spec.trial.label for study in studies} | labels
        variants = [
            _Variant(
                name,
                label,
                [one for one in of_model if one.variant == name],
                [study for study in studies if study.spec.trial.variant == name],
            )
            for name, label in labels.items()
        ]
        if studies or any(len(replicate["strength"]) > 2 for one in of_model for replicate in one.replicates):
            for limit in limits(rows, ranked.info, results.plan):
                tables.append(_matched_table(str(model), limit, variants, specs, ranked.evidence))
    return [table for table in tables if table.rows]


@dataclass(frozen=True)
class _Variant:
    """What is known of one variant on one model."""

    name: str
    label: str
    trajectories: Sequence[Trajectory]
    studies: Sequence[StudyResults]
    """One for each replicate of the model, if it was tuned."""

    @property
    def budget(self) -> str:
        tried = sum(len(study.candidates) for study in self.studies)
        return f"{tried} candidates, {sum(study.optimiser_steps for study in self.studies)} steps" if tried else ""


def _shown_model(spec: TrialSpec) -> str:
    return spec.replicate_of or spec.model.id


def _mixtures(variant: _Variant, limit: Limit, specs: Mapping[str, TrialSpec]) -> list[Mixture]:
    """Return what stands for a variant at the limit, in each replicate; nothing if any does not reach it."""
    if variant.studies and limit.target:
        return _chosen(variant, limit.target, specs)
    reported = limit.reported[0]
    sign = 1 if reported.better == "lower" else -1
    reaching = [mixtures for one in variant.trajectories if (mixtures := _crossings(one, limit))]
    return min(reaching, key=lambda mixtures: sign * _mean(mixtures, reported), default=[])


def _chosen(variant: _Variant, target: str, specs: Mapping[str, TrialSpec]) -> list[Mixture]:
    """Return the points that tuning chose for the target, one for each replicate; nothing if any lacks one."""
    chosen = [
        _at(rows, place)
        for one in variant.trajectories
        for rows in one.replicates
        for place, (trial_id, strength) in enumerate(zip(rows["trial_id"], rows["strength"], strict=True))
        if specs[trial_id].targets.get(target) == strength
    ]
    if len(chosen) < sum(len(study.spec.seeds) for study in variant.studies):
        return []
    in_order = sorted(chosen, key=lambda row: (row["replicate"][0], row["replicate_seed"][0]))
    return [Mixture(row, (1.0,)) for row in in_order]


def _at(rows: Columns, *places: int) -> Columns:
    return {name: column[list(places)] for name, column in rows.items()}


def _crossings(trajectory: Trajectory, limit: Limit) -> list[Mixture]:
    """Return where a trajectory meets the limit in each replicate; nothing if in any it does not."""
    mixtures = []
    sign = 1.0 if limit.metric.better == "lower" else -1.0
    for rows in trajectory.replicates:
        by_P = sign * _mixing_scale(rows[limit.metric.name], limit.metric)
        of_P = rows[limit.reported[0].name]
        at_limit = sign * float(_mixing_scale(np.array(limit.of(rows)), limit.metric))
        at = crossing(at_limit, by_P, of_P, "down" if limit.is_erasure else "up")
        if at is None and not limit.is_erasure and (known := np.flatnonzero(~np.isnan(by_P) & ~np.isnan(of_P))).size:
            # It never costs that much: what it erases at the most is within the limit.
            mixtures.append(Mixture(_at(rows, int(known[np.argmin(of_P[known])])), (1.0,)))
        elif at is None:
            return []
        elif at.is_measured:
            mixtures.append(Mixture(_at(rows, at.right if at.weight else at.left), (1.0,)))
        else:
            mixtures.append(Mixture(_at(rows, at.left, at.right), (1 - at.weight, at.weight)))
    return mixtures


def _mixing_scale(values: Floats, metric: Metric) -> Floats:
    """Return values on the scale on which they are mixed: of an `exp_mean` the logarithm is a mean over items."""
    return np.log(values) if metric.aggregate == "exp_mean" else values


def _mean(mixtures: Sequence[Mixture], metric: Metric) -> float:
    return float(np.mean([np.dot(mixture.weights, mixture.rows[metric.name]) for mixture in mixtures]))


def _matched_table(
    model: str,
    limit: Limit,
    variants: Sequence[_Variant],
    specs: Mapping[str, TrialSpec],
    evidence: Evidence,
) -> MatchedTable:
    metrics = (limit.metric, *limit.reported)
    points = {variant.name: _mixtures(variant, limit, specs) for variant in variants}
    mixed = {
        (variant, metric.name): mix(mixtures, metric, evidence)
        for variant, mixtures in points.items()
        if mixtures
        for metric in metrics
    }
    letters = _letters(mixed, limit.reported)
    rows = []
    for variant in variants:
        mixtures = points[variant.name]
        if not mixtures:
            rows.append(_not_reached(variant, limit))
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
    sign = 1.0 if limit.reported[0].better == "lower" else -1.0
    rows.sort(key=lambda row: sign * row.numbers[1][0] if row.numbers else math.inf)
    return MatchedTable(model, limit, tuple(rows))


def _letters(mixed: Mapping[tuple[str, str], Mixed], metrics: Sequence[Metric]) -> dict[tuple[str, str], str]:
    """Return the letters of a matched table's cells, by variant and metric."""
    variants = dict.fromkeys(variant for variant, _ in mixed)
    tests: dict[tuple[str, str, str], float] = {}
    for metric in metrics:
        for one, other in combinations(variants, 2):
            a, b = mixed[one, metric.name], mixed[other, metric.name]
            tests[metric.name, one, other] = math.nan
            if a.items and b.items and (a.items.items, a.replicates) == (b.items.items, b.replicates):
                tests[metric.name, one, other] = paired_p(a.items, b.items)
    numbers = {
        (variant, metric.name): mixed[variant, metric.name].number() for variant in variants for metric in metrics
    }
    return letters_of(tests, numbers, metrics)


def _not_reached(variant: _Variant, limit: Limit) -> MatchedRow:
    """Return the row of a variant that is not at the limit in every replicate, with the best that it did."""
    name = limit.metric.name
    tuned = [target.best for study in variant.studies for target in study.targets if str(target.target) == limit.target]
    bests = tuned or [
        float(np.mean([np.fmin.reduce(rows[name][1:]) for rows in one.replicates])) for one in variant.trajectories
    ]
    best = float(np.mean(bests)) if tuned else min(bests)
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
