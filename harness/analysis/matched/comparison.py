"""The matched comparison: what each method pays at equal erasure, and what it erases at equal utility.

A row lies where its trajectory meets the limit: between two measured neighbours, the original being strength 0, or at a
measured point. Nothing is extrapolated: a method that does not get there is 'not reached', with the best that it did.
One that was tuned is 'not reached' too where its nearest measured point is not close to the target; that is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd

from harness.analysis.cells import Cell, interval_cell, number, strength_text
from harness.analysis.evidence import Evidence
from harness.analysis.grouping import letters_of, p_of_pair
from harness.analysis.matched.limit import Limit, matching_limits
from harness.analysis.matched.matching import (
    Mixed,
    Mixture,
    Variant,
    is_at_limit,
    is_missed,
    least_cost,
    mean_aim,
    mix,
    mixed_number,
    mixtures_at,
    price,
)
from harness.analysis.metrics import Aims, costs, deviations
from harness.analysis.ranking import RankedTable
from harness.analysis.tradeoff.trajectories import trajectories
from harness.contracts import Metric
from harness.records.results import Results
from harness.records.tuned import is_over
from harness.specs import TrialSpec
from harness.statistics.bootstrap import draws
from harness.statistics.item_values import by_model

How = Literal["measured", "interpolated", "not reached", "not run"]


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
    prices: Mapping[str, Mixed]
    """By reported metric what it costs, times the original's: of those whose ratios mean something."""
    is_at_limit: bool
    """Whether it lies at the limit in every replicate, so that it may be compared with others that do."""
    reach: float
    """How likely the point that tuning chose meets its target on the reported texts; NaN where nothing was tuned."""
    collapsed: bool
    note: str
    """`best MA 0.713`, or `nearest MA 0.713`, where it was not reached; whether the learning rate was lowered."""
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
        variants = variants_of(str(model), rows, results, specs)
        if any(variant.studies or variant.has_several_points for variant in variants):
            for limit in matching_limits(rows, ranked.info, results.plan):
                tables.append(_matched_table(str(model), limit, variants, specs, ranked))
    return [table for table in tables if table.rows]


def variants_of(model: str, rows: pd.DataFrame, results: Results, specs: Mapping[str, TrialSpec]) -> list[Variant]:
    """Return what is known of each variant on a model, those that were planned and not measured last.

    Args:
        model: As the table names it.
        rows: The model's rows of the table.
        results: Of the sweep.
        specs: Of all trials, by id.
    """
    variants: dict[str, Variant] = {}
    for study in results.studies:
        trial = study.spec.trial
        if trial.table_model == model:
            variants.setdefault(trial.variant, Variant(trial.variant, trial.label)).studies.append(study)
    for one in trajectories(rows, specs):
        variants.setdefault(one.variant, Variant(one.variant, one.spec.label)).trajectories.append(one)
    for spec in results.plan.trials:
        if spec.table_model == model and not spec.is_reference:
            variants.setdefault(spec.variant, Variant(spec.variant, spec.label))
    return list(variants.values())


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
            mixed[name] = [mix(mixtures, limit.metric, ranked.evidence)]
            for metric in limit.reported:
                mixed[name].append(mix(mixtures, metric, ranked.evidence, limit))
            for one in mixed[name][1:]:
                far = deviations(np.array(one.number()), one.metric, mean_aim(mixtures, one.metric, ranked.aims))
                off[name, one.metric.name] = float(far)
    at_limit: dict[str, list[Mixed]] = {}
    for name, of_metrics in mixed.items():
        if is_at_limit(points[name]):
            at_limit[name] = of_metrics
    letters = _letters(at_limit, off, limit.reported)
    rows = []
    for variant in variants:
        mixtures = points[variant.name]
        if not mixtures:
            rows.append(_without_numbers(variant, limit, ranked.aims))
            continue
        numbers, cells, prices = [], [], {}
        for one in mixed[variant.name]:
            numbers.append(one.number_and_interval)
            key = variant.name, one.metric.name
            cells.append(interval_cell(*numbers[-1], one.metric, letters.get(key, "")))
        for metric in limit.reported:
            if of_metric := price(mixtures, metric, ranked.evidence, limit):
                prices[metric.name] = of_metric
        missed = [mixture for mixture in mixtures if is_missed(mixture, limit)]
        is_measured = all(len(mixture.weights) == 1 for mixture in mixtures)
        rows.append(
            MatchedRow(
                variant=variant.name,
                label=variant.label,
                how="not reached" if missed else "measured" if is_measured else "interpolated",
                setting=_setting(mixtures, specs),
                matched=cells[0],
                cells=tuple(cells[1:]),
                numbers=tuple(numbers),
                prices=prices,
                is_at_limit=is_at_limit(mixtures),
                reach=_reach(variant, limit, specs, ranked.evidence),
                collapsed=any(True in mixture.rows["collapsed"].tolist() for mixture in mixtures),
                note="; ".join(_notes_on_target(variant, limit, mixtures, missed, specs)),
                budget=variant.budget,
            )
        )
    first = limit.reported[0]
    rows.sort(key=lambda row: costs(np.array(off[row.variant, first.name]), first) if row.numbers else math.inf)
    return MatchedTable(model, limit, tuple(rows))


def _letters(
    mixed: Mapping[str, Sequence[Mixed]], off: Mapping[tuple[str, str], float], metrics: Sequence[Metric]
) -> dict[tuple[str, str], str]:
    """Return the letters of the cells of variants that are at the limit, by variant and metric.

    `off` is how far each number deviates from what it should be close to.
    """
    tests: dict[tuple[str, str, str], float] = {}
    of_cells: dict[tuple[str, str], float] = {}
    for place, metric in enumerate(metrics, start=1):
        name = metric.name
        for variant in mixed:
            of_cells[variant, name] = float(costs(np.array(off[variant, name]), metric))
        for one, other in combinations(mixed, 2):
            a, b = mixed[one][place], mixed[other][place]
            tests[name, one, other] = math.nan
            # Of one replicate nothing says how far another training run would be from it.
            if a.items and b.items and a.is_paired_with(b) and len(a.replicates) > 1:
                sides, matches = (off[one, name], off[other, name]), (a.match, b.match)
                tests[name, one, other] = p_of_pair(metric, a.items, b.items, sides, matches)
    return letters_of(tests, of_cells, metrics)


def _reach(variant: Variant, limit: Limit, specs: Mapping[str, TrialSpec], evidence: Evidence) -> float:
    """Return how likely the points that tuning chose meet the target, by the items of the reported texts."""
    chosen: list[Any] = []
    point_ids, models, levels = [], [], []
    for rows, place in chosen:
        point_ids.append(str(rows["point_id"][place]))
        models.append(str(rows["replicate"][0]))
        levels.append(limit.of(rows))
    models_R = pd.factorize(np.array(models, dtype=object))[0]
    items = evidence.of_points(point_ids, limit.metric, models_R) if chosen else None
    if items is None:
        return math.nan
    level, drawn_D = float(by_model(np.array(levels), models_R).mean()), draws(items)
    return math.nan if np.isnan(drawn_D).any() else float((drawn_D <= level).mean())


def _notes_on_target(
    variant: Variant,
    limit: Limit,
    mixtures: Sequence[Mixture],
    missed: Sequence[Mixture],
    specs: Mapping[str, TrialSpec],
) -> Iterator[str]:
    """Yield what is to be said of how a tuned variant got to a target: how near, and at which rate if it is lower."""
    if missed:
        numbers = [number(mixed_number(mixture, limit.metric), limit.metric) for mixture in missed]
        of_all = f" ({len(missed)} of {len(mixtures)} missed it)" if len(mixtures) > 1 else ""
        yield f"nearest {limit.metric.title} {', '.join(numbers)}{of_all}"
    chosen: list[Any] = []
    for (rows, place), mixture in zip(chosen, mixtures, strict=False):
        rates = [specs[id].training.learning_rate for id in (rows["trial_id"][place], mixture.rows["trial_id"][-1])]
        if rates[1] < rates[0]:
            yield f"learning rate lowered from {rates[0]:.3g} to {rates[1]:.3g} to meet the target"


def _without_numbers(variant: Variant, limit: Limit, aims: Aims) -> MatchedRow:
    """Return the row of a variant that is not at the limit in every replicate: why, and the best that it did."""
    how: How = "not run"
    best, where, reached = [], "", 0
    for study in variant.studies:
        for target in study.targets:
            if target.target.key == limit.target:
                best.append(target.nearest.probe["ma"] if target.nearest else math.nan)
                where = " of the selection texts"
                reached += target.chosen is not None
                if target.chosen is None and is_over(study.spec, study.candidates):
                    how = "not reached"
    if reached and how == "not reached":
        where += f", reached by {reached} of {len(variant.studies)} searches"
    if not best and variant.trajectories:
        how = "not reached"
        best.append(min(least_cost(one, limit.metric, aims) for one in variant.trajectories)[1])
    note = f"best {limit.metric.title} {number(float(np.mean(best)), limit.metric)}{where}" if best else ""
    return MatchedRow(
        variant=variant.name,
        label=variant.label,
        how=how,
        setting="",
        matched=Cell("", ""),
        cells=(),
        numbers=(),
        prices={},
        is_at_limit=False,
        reach=math.nan,
        collapsed=False,
        note=note,
        budget=variant.budget,
    )


def _setting(mixtures: Sequence[Mixture], specs: Mapping[str, TrialSpec]) -> str:
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
