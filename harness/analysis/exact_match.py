"""Agreement with the original's continuations, for sequences that it recites wholly and for all others.

The original agrees with itself for a whole continuation. A sequence is memorised if it agrees with the text as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from harness.analysis.evidence import REPLICATE, Evidence, chosen_items
from harness.analysis.metrics import exact_matches
from harness.analysis.ranking import RankedTable
from harness.analysis.seeds import repeats_of_points
from harness.contracts import Metric
from harness.records.items import MetricItems
from harness.settings import ORIGINAL, RETRAINED, UNSEEN_ROWS, Plan
from harness.statistics.bootstrap import draws, interval
from harness.statistics.item_values import estimate

GROUPS = {"memorized": True, "other": False}
"""Columns of the two groups, and whether the original recites their sequences wholly."""
MIN_SEQUENCES = 5
"""Sequences that each group needs."""


def agreement_frame(ranked: RankedTable) -> pd.DataFrame:
    """Return the number of tokens up to the first that differs from the original's, for each model and point.

    Each model's original comes first, then the retrained one, then each variant's points by rising strength; points
    that lack a seed are left out. `memorized` and `other` are means over the groups' sequences, with 95 % intervals;
    `memorized_sequences` and `other_sequences` are the smallest counts of any replicate.

    Source: EMSO paper, section 4.4, figure 5.
    """
    metrics, frames = exact_matches(ranked.info), []
    if metrics is None:
        return pd.DataFrame()
    for model, rows in ranked.table.groupby("model", sort=False):
        model_rows = rows[~rows["method"].isin(UNSEEN_ROWS)]
        counts = _counts(memorized := _memorized_ids(model_rows, ranked.evidence, metrics))
        if min(counts, default=0) >= MIN_SEQUENCES:
            counted = dict(zip((f"{group}_sequences" for group in GROUPS), counts, strict=True))
            frames += [
                {"model": model, **counted, **row} for row in _rows(model_rows, memorized, ranked.evidence, metrics)
            ]
    return pd.DataFrame(frames)


def _memorized_ids(
    rows: pd.DataFrame, evidence: Evidence, metrics: tuple[Metric, Metric]
) -> dict[str, dict[str, bool]]:
    memorized: dict[str, dict[str, bool]] = {}
    for replicate, originals in rows[rows["method"] == ORIGINAL].groupby(REPLICATE, sort=False):
        with_text, with_itself = (evidence.items(originals.iloc[0]["point_id"], metric) for metric in metrics)
        if with_text is None or with_itself is None:
            return {}
        recited = with_text.by_id()
        memorized[str(replicate)] = {id: recited[id] >= tokens for id, tokens in with_itself.by_id().items()}
    return memorized


def _counts(memorized: Mapping[str, Mapping[str, bool]]) -> list[int]:
    counts = [
        (sum(membership.values()), len(membership) - sum(membership.values())) for membership in memorized.values()
    ]
    return [min(group_counts) for group_counts in zip(*counts, strict=True)]


def _rows(
    rows: pd.DataFrame, memorized: Mapping[str, Mapping[str, bool]], evidence: Evidence, metrics: tuple[Metric, Metric]
) -> list[dict[str, Any]]:
    by_group = {
        group: _group_evidence(is_asked, rows, memorized, evidence, metrics[1]) for group, is_asked in GROUPS.items()
    }
    items = [
        each[metrics[1].name].values_N
        for group_evidence in by_group.values()
        for each in group_evidence.by_point.values()
    ]
    bounded = replace(metrics[1], high=float(np.nanmax(np.concatenate(items))))
    records = []
    for variant, points in rows.groupby("variant", sort=False):
        first = points.iloc[0]
        count = len(points[[REPLICATE, "seed"]].drop_duplicates())
        for repeats in sorted(repeats_of_points(points), key=lambda repeats: float(repeats["strength"].iloc[0])):
            if len(repeats) < count:
                continue  # A mean over other seeds than asked for would mislead.
            row = {"variant": variant, "label": first["label"], "strength_name": first["strength_name"]}
            row |= {"strength": repeats["strength"].iloc[0], "collapsed": bool(repeats["collapsed"].eq(True).any())}
            for group, group_evidence in by_group.items():
                values = group_evidence.of(repeats, bounded)
                ends = (math.nan, math.nan)
                if values is not None and first["method"] != ORIGINAL:  # It agrees with itself by definition.
                    ends = interval(draws(values))
                row[group] = estimate(values) if values is not None else math.nan
                row[f"{group}_low"], row[f"{group}_high"] = ends
            records.append(row)
    first_rows = [ORIGINAL, RETRAINED]
    return sorted(records, key=lambda row: first_rows.index(row["variant"]) if row["variant"] in first_rows else 2)


def _group_evidence(
    is_asked: bool, rows: pd.DataFrame, memorized: Mapping[str, Mapping[str, bool]], evidence: Evidence, metric: Metric
) -> Evidence:
    """Return the items of one group, NaN in replicates whose original puts them in the other."""
    members: dict[str, set[str]] = {}
    for replicate, membership in memorized.items():
        members[replicate] = {id for id, is_recited in membership.items() if is_recited is is_asked}
    member_ids = set().union(*members.values())
    by_point: dict[str, dict[str, MetricItems]] = {}
    for point_id, replicate in zip(rows["point_id"], rows[REPLICATE], strict=True):
        items = evidence.items(point_id, metric)
        if items and replicate in memorized:
            items = chosen_items(items, member_ids)
            is_member_N = np.array([id in members[replicate] for id in items.ids], dtype=bool)
            by_point[point_id] = {metric.name: replace(items, values_N=np.where(is_member_N, items.values_N, math.nan))}
    return Evidence(by_point)


def explain_no_groups(plan: Plan) -> str:
    """Return why a sweep with a mixed forget set shows no groups; '' for any other sweep."""
    if all(spec.forget.not_memorized is None for spec in plan.trials):
        return ""
    return (
        "The forget set has texts that are not memorised. What is left of both groups is shown where memorization "
        f"measured them text by text, and the original recites {MIN_SEQUENCES} or more wholly and as many not."
    )
