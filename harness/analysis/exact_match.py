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
from harness.analysis.metrics import exact_matches, metrics_in
from harness.analysis.ranking import RankedTable
from harness.analysis.seeds import ranked_rows
from harness.analysis.tradeoff.trajectories import trajectories
from harness.contracts import Metric
from harness.records.items import MetricItems
from harness.records.results import Results
from harness.specs import ORIGINAL, RETRAINED, UNSEEN_ROWS, TrialSpec
from harness.statistics.bootstrap import draws, interval
from harness.statistics.item_values import estimate

Group = Literal["memorized", "not memorized"]
GROUPS: tuple[Group, ...] = get_args(Group)
SHOWN = 24
QUANTILE = 0.95
"""A sequence survives where more is left of it than of this share of those that the model never saw."""
LEAST = 5
"""Sequences that each group needs: the mean of fewer says nothing of a group."""
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
    """Bounds of its 95 % interval; NaN where they are not known."""
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
    is_cumulative: bool
    """Whether one trial passes through its strengths (epochs)."""
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
    of_models = []
    for model, rows in ranked.table.groupby("model", sort=False):
        agreement = _agreement(str(model), rows[~rows["method"].isin(UNSEEN_ROWS)], specs, ranked.evidence, metrics)
        if agreement:
            of_models.append(agreement)
    return of_models


def memorized_ids(
    originals: pd.DataFrame, evidence: Evidence, text: Metric, original: Metric
) -> dict[str, dict[str, bool]] | None:
    """Return for each replicate which sequences its original recites wholly; None where one has no items."""
    memorized: dict[str, dict[str, bool]] = {}
    for replicate, rows in originals.groupby(REPLICATE, sort=False):
        with_text, with_itself = (evidence.items(rows.iloc[0]["point_id"], metric) for metric in (text, original))
        if with_text is None or with_itself is None:
            return None
        recited = with_text.by_id()
        memorized[str(replicate)] = {id: recited[id] >= tokens for id, tokens in with_itself.by_id().items()}
    return memorized or None


def _agreement(
    model: str,
    rows: pd.DataFrame,
    specs: Mapping[str, TrialSpec],
    evidence: Evidence,
    metrics: tuple[Metric, Metric],
) -> ModelAgreement | None:
    originals, retrained = rows[rows["method"] == ORIGINAL], rows[rows["method"] == RETRAINED]
    memorized = memorized_ids(originals, evidence, *metrics)
    for of_ids in memorized.values() if memorized else ():
        recited = sum(of_ids.values())
        if min(recited, len(of_ids) - recited) < LEAST:
            return None
    if memorized is None:
        return None
    by_group: dict[Group, Evidence] = {}
    lengths: dict[Group, Lengths] = {}
    at_start: dict[Group, Agreement] = {}
    for group in GROUPS:
        by_group[group] = _of_group(group, rows, memorized, evidence, metrics)
        lengths[group] = _group_lengths(originals, by_group[group], *metrics)
        at_start[group] = Agreement(lengths[group].tokens, math.nan, math.nan)
    longest = float(max(of_group.longest for of_group in lengths.values()))
    bounded = replace(metrics[1], high=longest)
    curves = []
    for trajectory in trajectories(rows, specs):
        points = []
        for _, repeats in trajectory.erased.groupby("strength", sort=True):
            # A mean over other replicates than asked for would mislead.
            if len(repeats) == len(trajectory.replicates):
                points.append(_agreement_point(repeats, float(repeats["strength"].iloc[0]), bounded, by_group))
        if points:
            spec, start = trajectory.spec, AgreementPoint(0.0, at_start, False)
            of_points = start, *points
            curve = AgreementCurve(spec.variant, spec.label, spec.strength_name, len(spec.strengths) > 1, of_points)
            curves.append(curve)
    of_retrained = _agreement_point(retrained, math.nan, bounded, by_group) if len(retrained) else None
    return ModelAgreement(model, lengths, of_retrained, tuple(curves))


def _agreement_point(
    repeats: pd.DataFrame, strength: float, metric: Metric, by_group: Mapping[Group, Evidence]
) -> AgreementPoint:
    left = {}
    for group, of_group in by_group.items():
        left[group] = Agreement(math.nan, math.nan, math.nan)
        if (values := of_group.of(repeats, metric)) is not None:
            left[group] = Agreement(estimate(values), *interval(draws(values)))
    return AgreementPoint(strength, left, bool(repeats["collapsed"].eq(True).any()))


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
    members: dict[str, set[str]] = {}
    for replicate, of_ids in memorized.items():
        members[replicate] = {id for id, is_recited in of_ids.items() if is_recited is is_asked}
    of_any = set().union(*members.values())
    by_point: dict[str, dict[str, MetricItems]] = {}
    for point_id, replicate in zip(rows["point_id"], rows[REPLICATE], strict=True):
        for metric in metrics:
            kept = evidence.items(point_id, metric)
            if kept and replicate in memorized:
                items = chosen_items(kept, of_any)
                is_member_N = np.array([id in members[replicate] for id in items.ids], dtype=bool)
                values_N = np.where(is_member_N, items.values_N, math.nan)
                by_point.setdefault(point_id, {})[metric.name] = replace(items, values_N=values_N)
    return Evidence(by_point)


def _group_lengths(originals: pd.DataFrame, of_group: Evidence, text: Metric, original: Metric) -> Lengths:
    of_replicates, recited = [], []
    for point_id in originals.groupby(REPLICATE, sort=False).head(1)["point_id"]:
        items = of_group.by_point[point_id]
        lengths_N = items[original.name].values_N
        of_replicates.append(lengths_N[~np.isnan(lengths_N)])
        recited.append(float(np.nanmean(items[text.name].values_N)))
    counts, all_lengths = list(map(len, of_replicates)), np.concatenate(of_replicates)
    return Lengths(
        sequences=(min(counts), max(counts)),
        tokens=float(np.mean(list(map(np.mean, of_replicates)))),
        shortest=int(all_lengths.min()),
        longest=int(all_lengths.max()),
        recited=float(np.mean(recited)),
    )


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


@dataclass(frozen=True)
class Survivors:
    """What each method leaves of each sequence, on one model and seed."""

    model: str
    metric: Metric
    level: float
    """Above it a sequence survives; NaN where no unseen text shows it."""
    unseen: str
    """Whose sequences show it: the retrained model's, or unseen texts."""
    columns: tuple[str, ...]
    """The original and the ranked methods."""
    counts: tuple[int, ...]
    """Of each column, how many sequences survive; nothing where that is not known."""
    total: int
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    """The sequences of which most is left on average over the methods: id, and a value for each column."""

    @property
    def is_even(self) -> bool:
        """Return whether nearly all of these values are on one side of the level: then marking them tells nothing."""
        values_RM = np.array([values[1:] for _, values in self.rows])
        return not 0.1 < float((values_RM > self.level).mean()) < 0.9


def survivors(ranked: RankedTable) -> list[Survivors]:
    """Return for each model what is left of the sequences, by the headline metric of erasure; none without items."""
    headlines = [
        metric for metric in metrics_in(ranked.info, "erasure") if metric.headline and metric.items == "sequence"
    ]
    tables = []
    for model, rows in ranked.table.groupby("model", sort=False) if headlines else ():
        table = _model_survivors(str(model), rows, headlines[0], ranked.evidence)
        if table:
            tables.append(table)
    return tables


def _model_survivors(model: str, rows: pd.DataFrame, metric: Metric, evidence: Evidence) -> Survivors | None:
    first_rows = rows.drop_duplicates("method").set_index("method")["point_id"]
    by_method: dict[str, Mapping[str, float]] = {}
    for method in (ORIGINAL, RETRAINED, *UNSEEN_ROWS):
        items = evidence.items(first_rows.get(method, ""), metric)
        by_method[method] = items.by_id() if items else {}
    columns = {"Original": by_method[ORIGINAL]}
    for _, seeds in ranked_rows(rows).groupby("variant", sort=False):
        items = evidence.items(seeds["point_id"].iloc[0], metric)
        if items and items.ids:
            columns[str(seeds["label"].iloc[0])] = items.by_id()
    ids = list(by_method[ORIGINAL])
    if not ids or len(columns) == 1:
        return None
    unseen = next((method for method in (RETRAINED, *UNSEEN_ROWS) if by_method[method]), "")
    level = float(np.nanquantile(list(by_method[unseen].values()), QUANTILE)) if unseen else math.nan
    values_NC = pd.DataFrame(columns, index=ids).to_numpy(dtype=float)
    left_N = np.nan_to_num(values_NC[:, 1:], nan=-math.inf).mean(axis=1)
    order = np.argsort(-left_N, kind="stable")[:SHOWN]
    return Survivors(
        model=model,
        metric=metric,
        level=level,
        unseen=unseen,
        columns=tuple(columns),
        counts=tuple((values_NC > level).sum(axis=0).tolist()) if unseen else (),
        total=len(ids),
        rows=tuple((ids[row], tuple(values_NC[row].tolist())) for row in order),
    )
