"""How much of what the original model said is left: of the sequences that it recites wholly, and of all others.

Of a sequence the original agrees with itself as long as its continuation is; it recites it wholly (the sequence is
memorised) if it agrees as long with the text. So both follow from the original's own items, in any sweep.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import pandas as pd

from harness.analysis.evidence import REPLICATE, Evidence, chosen_items
from harness.analysis.metrics import exact_matches
from harness.analysis.ranking import RankedTable
from harness.analysis.tradeoff.trajectories import Trajectory, trajectories
from harness.contracts import Metric
from harness.records.items import MetricItems
from harness.records.results import Results
from harness.specs import ORIGINAL, RETRAINED, UNSEEN_ROWS, TrialSpec
from harness.statistics.bootstrap import draws, interval
from harness.statistics.item_values import estimate

Group = Literal["memorized", "not memorized"]
GROUPS: tuple[Group, ...] = get_args(Group)
LEAST = 5
"""Sequences that each group needs: the mean of fewer tells nothing of a group."""
GROUP_NAMES: dict[Group, str] = {"memorized": "Memorised", "not memorized": "Not memorised"}


@dataclass(frozen=True)
class Lengths:
    """How many sequences a group has, and how many tokens of continuation; of replicates, over all of them."""

    sequences: tuple[int, int]
    """The least and the most that any replicate's original has."""
    tokens: float
    """The mean length of their continuations."""
    shortest: int
    longest: int
    recited: float
    """How many tokens of the text the original recites, on average."""


@dataclass(frozen=True)
class Agreement:
    """The tokens that a model says as the original does, up to the first that differs: a group's mean."""

    tokens: float
    low: float
    """Bounds of its 95 % interval; NaN where nothing tells them."""
    high: float


@dataclass(frozen=True)
class AgreementPoint:
    """One strength of a variant, over its seeds."""

    strength: float
    """0: the original."""
    by_group: Mapping[Group, Agreement]
    collapsed: bool


@dataclass(frozen=True)
class AgreementCurve:
    """A variant at rising strength, the original first."""

    variant: str
    label: str
    strength_name: str
    is_walked: bool
    """Whether one trial walks through its strengths (epochs)."""
    points: tuple[AgreementPoint, ...]


@dataclass(frozen=True)
class ModelAgreement:
    """One model's groups, and what is left of each."""

    model: str
    lengths: Mapping[Group, Lengths]
    retrained: AgreementPoint | None
    curves: tuple[AgreementCurve, ...]


def agreements(results: Results, ranked: RankedTable) -> list[ModelAgreement]:
    """Return what is left of both groups, for each model whose original has enough of both; none without items.

    Source: EMSO paper, section 4.4, figure 5.
    """
    metrics = exact_matches(ranked.info)
    if metrics is None:
        return []
    specs = {trial.spec.trial_id: trial.spec for trial in results.trials}
    of_models = [
        _agreement(str(model), rows[~rows["method"].isin(UNSEEN_ROWS)], specs, ranked.evidence, *metrics)
        for model, rows in ranked.table.groupby("model", sort=False)
    ]
    return [agreement for agreement in of_models if agreement]


def memorized_ids(
    originals: pd.DataFrame, evidence: Evidence, text: Metric, original: Metric
) -> dict[str, dict[str, bool]] | None:
    """Return for each replicate which sequences its original recites wholly; None where one has no items."""
    memorized: dict[str, dict[str, bool]] = {}
    for replicate, rows in originals.groupby(REPLICATE, sort=False):
        items = evidence.by_point.get(rows.iloc[0]["point_id"], {})
        if text.name not in items or original.name not in items:
            return None
        recited, whole = items[text.name].by_id(), items[original.name].by_id()
        memorized[str(replicate)] = {id: recited[id] >= tokens for id, tokens in whole.items()}
    return memorized or None


def _agreement(
    model: str,
    rows: pd.DataFrame,
    specs: Mapping[str, TrialSpec],
    evidence: Evidence,
    text: Metric,
    original: Metric,
) -> ModelAgreement | None:
    originals = rows[rows["method"] == ORIGINAL]
    memorized = memorized_ids(originals, evidence, text, original)
    recited = [list(of_ids.values()) for of_ids in (memorized or {}).values()]
    if memorized is None or any(min(flags.count(True), flags.count(False)) < LEAST for flags in recited):
        return None
    by_group = {group: _of_group(group, rows, memorized, evidence, (text, original)) for group in GROUPS}
    lengths = {group: _lengths(originals, of_group, text, original) for group, of_group in by_group.items()}
    bounded = replace(original, high=float(max(of_group.longest for of_group in lengths.values())))

    def point(repeats: pd.DataFrame, strength: float) -> AgreementPoint:
        left = {group: _left(repeats, bounded, of_group) for group, of_group in by_group.items()}
        return AgreementPoint(strength, left, bool(repeats["collapsed"].eq(True).any()))

    start = AgreementPoint(
        0.0, {group: Agreement(of_group.tokens, math.nan, math.nan) for group, of_group in lengths.items()}, False
    )
    retrained = rows[rows["method"] == RETRAINED]
    curves = []
    for trajectory in trajectories(rows, specs):
        points = [point(repeats, strength) for strength, repeats in _reached_by_all(trajectory)]
        if points:
            curves.append(_curve(trajectory, (start, *points)))
    return ModelAgreement(model, lengths, point(retrained, math.nan) if len(retrained) else None, tuple(curves))


def _of_group(
    group: Group,
    rows: pd.DataFrame,
    memorized: Mapping[str, Mapping[str, bool]],
    evidence: Evidence,
    metrics: Sequence[Metric],
) -> Evidence:
    """Return the items of every row's exact matches that are of the group; of replicates, those of any of them.

    What is of the other group in a replicate is not known of it.
    """
    is_asked = group == "memorized"
    members = {
        replicate: {id for id, is_recited in of_ids.items() if is_recited is is_asked}
        for replicate, of_ids in memorized.items()
    }
    of_any = set().union(*members.values())
    by_point: dict[str, dict[str, MetricItems]] = {}
    for point_id, replicate in zip(rows["point_id"], rows[REPLICATE], strict=True):
        kept = evidence.by_point.get(point_id, {})
        for metric in metrics:
            if metric.name in kept and replicate in memorized:
                items = chosen_items(kept[metric.name], of_any)
                is_member_N = np.array([id in members[replicate] for id in items.ids], dtype=bool)
                values_N = np.where(is_member_N, items.values_N, math.nan)
                by_point.setdefault(point_id, {})[metric.name] = replace(items, values_N=values_N)
    return Evidence(by_point)


def _lengths(originals: pd.DataFrame, of_group: Evidence, text: Metric, original: Metric) -> Lengths:
    firsts = originals.groupby(REPLICATE, sort=False).head(1)
    kept = [of_group.by_point[point_id] for point_id in firsts["point_id"]]
    lengths = [items[original.name].values_N[~np.isnan(items[original.name].values_N)] for items in kept]
    recited = [float(np.nanmean(items[text.name].values_N)) for items in kept]
    counts = [len(of_replicate) for of_replicate in lengths]
    return Lengths(
        sequences=(min(counts), max(counts)),
        tokens=float(np.mean([of_replicate.mean() for of_replicate in lengths])),
        shortest=int(min(of_replicate.min() for of_replicate in lengths)),
        longest=int(max(of_replicate.max() for of_replicate in lengths)),
        recited=float(np.mean(recited)),
    )


def _left(repeats: pd.DataFrame, metric: Metric, of_group: Evidence) -> Agreement:
    values = of_group.of(repeats, metric)
    if values is None:
        return Agreement(math.nan, math.nan, math.nan)
    return Agreement(estimate(values), *interval(draws(values)))


def _reached_by_all(trajectory: Trajectory) -> list[tuple[float, pd.DataFrame]]:
    """Return the strengths that every replicate reached: a mean over others than asked for would mislead."""
    by_strength = trajectory.erased.groupby("strength", sort=True)
    at = [(float(repeats["strength"].iloc[0]), repeats) for _, repeats in by_strength]
    return [(strength, repeats) for strength, repeats in at if len(repeats) == len(trajectory.replicates)]


def _curve(trajectory: Trajectory, points: tuple[AgreementPoint, ...]) -> AgreementCurve:
    spec = trajectory.spec
    return AgreementCurve(trajectory.variant, spec.label, spec.strength_name, len(spec.strengths) > 1, points)


def group_text(lengths: Lengths) -> str:
    """Return how many sequences a group has, and how long their continuations are.

    Example:
        >>> group_text(Lengths((20, 20), 50.0, 50, 50, 50.0))
        '20 sequences of 50 tokens'
        >>> group_text(Lengths((5, 7), 37.5, 12, 50, 37.5))
        '5 to 7 sequences of 12 to 50 tokens (on average 37.5)'
    """
    least, most = lengths.sequences
    count = f"{least}" if least == most else f"{least} to {most}"
    if lengths.shortest == lengths.longest:
        return f"{count} sequences of {lengths.longest} tokens"
    return f"{count} sequences of {lengths.shortest} to {lengths.longest} tokens (on average {lengths.tokens:.1f})"
