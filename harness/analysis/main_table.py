"""Frames of the paper's main table, of recitation before erasure, of reasoning, and of exact match."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from harness.analysis.damage import are_over_erased, verdict
from harness.analysis.evidence import REPLICATE, Evidence, chosen_items
from harness.analysis.metrics import arrow, exact_matches, mean_over, select_metrics, table_metrics
from harness.analysis.ranking import CONTROL, ERASED_NOTHING, RankedTable, rank_names
from harness.analysis.seeds import match_originals, ranked_rows, repeats_of_points, strength_text
from harness.contracts import CloserTo, Metric
from harness.records.items import MetricItems
from harness.settings import HOLDOUT, ORIGINAL, REFERENCE_ROWS, RETRAINED, UNSEEN_ROWS, VALIDATION_ROW
from harness.statistics import bootstrap

NEEDS = {"memorized_model": "w/ MM", "retain_data": "w/ RD", "none": "w/o REF"}
"""Title in the paper of each `reference`."""
READ_BY = {ORIGINAL: "Forget set", RETRAINED: "Retrained model"}
READ_BY |= {HOLDOUT: "Unseen texts", VALIDATION_ROW: "Validation texts"}
"""Texts, and model if not the original, of each reference row."""


def shown_metrics(ranked: RankedTable) -> Sequence[Metric]:
    """Return the metrics of the main table; the reasoning tasks where nothing else was measured."""
    return table_metrics(ranked.info) or select_metrics(ranked.info, "reasoning")


def main_frame(ranked: RankedTable) -> pd.DataFrame:
    """Return the main table: for each model its reference rows, then its variants by their needs.

    Metrics are means over seeds, with `NAME_low`, `NAME_high` and, for metrics with an aim, `NAME_aim`. `state` is why
    a row is unranked, else its collapse class; `place` is its rank; `compared` is whether its numbers may be the best.
    """
    metrics, rows, places = shown_metrics(ranked), [], {needs: place for place, needs in enumerate(NEEDS)}
    for model, model_rows in ranked.table.groupby("model", sort=False):
        ranking = ranked.ranking[ranked.ranking["model"] == model].to_dict("records")
        by_variant = dict(iter(ranked_rows(model_rows).groupby("variant", sort=False)))
        by_method = dict(iter(model_rows.groupby("method", sort=False)))
        for name in [name for name in REFERENCE_ROWS if name in by_method]:
            rows.append(_row(ranked, by_method[name], metrics) | {"compared": False, "place": -1})
        states = {state["variant"]: state | {"place": place} for place, state in enumerate(ranking)}
        for variant in sorted(by_variant, key=lambda variant: places.get(states[variant]["reference"], len(NEEDS))):
            rows.append(_row(ranked, by_variant[variant], metrics) | _ranks(ranked, states[variant]))
    columns = {name: value for row in rows for name, value in row.items()}
    names = ["model", "needs", "label", "strength", "collapsed", "compared", "state", "place", *rank_names(ranked.info)]
    return pd.DataFrame(rows, columns=list(dict.fromkeys([*names, *(metric.name for metric in metrics), *columns])))


def _row(ranked: RankedTable, seeds: pd.DataFrame, metrics: Sequence[Metric]) -> dict[str, Any]:
    first = seeds.iloc[0]
    row: dict[str, Any] = {"model": first["model"], "needs": "", "label": first["label"], "variant": first["variant"]}
    row |= {"strength": "", "state": "", "over_erased": are_over_erased(seeds) is True}
    row["collapsed"] = bool(seeds["collapsed"].eq(True).any())
    for metric in metrics:
        low, high = ranked.evidence.interval(seeds, metric)
        row |= {metric.name: mean_over(seeds, metric), f"{metric.name}_low": low, f"{metric.name}_high": high}
        if isinstance(metric.better, CloserTo):
            row[f"{metric.name}_aim"] = float(ranked.aims.of(seeds, metric).mean())
    return row


def _ranks(ranked: RankedTable, state: Mapping[Any, Any]) -> dict[str, Any]:
    row = {f"{name}{end}": state[f"{name}{end}"] for name in rank_names(ranked.info) for end in ("", "_low", "_high")}
    has_class = not state["unranked"] or (state["collapsed"] is True and state["seeds"] == 1)
    row |= {"needs": NEEDS.get(state["reference"], ""), "place": state["place"]}
    row["strength"] = f"{state['strength_name']} {state['strength']}".strip()
    row["state"] = verdict(state["collapse_class"], state["collapse_reason"]) if has_class else state["unranked"]
    row["compared"] = state["unranked"] not in (CONTROL, ERASED_NOTHING) and state["recited"] is not False
    return row


def recited_frame(ranked: RankedTable) -> pd.DataFrame:
    """Return recitation before erasure: a row for each metric, a column for each kind of text."""
    rows = []
    for model, model_rows in ranked.table.groupby("model", sort=False):
        by_method = dict(iter(model_rows.groupby("method", sort=False)))
        for metric in [metric for metric in ranked.info.values() if metric.group not in ("reasoning", "damage")]:
            row = {"model": model, "metric": f"{metric.title} {arrow(metric)}", "unit": metric.unit}
            for method in [method for method in READ_BY if method in by_method]:
                seeds = by_method[method]
                low, high = ranked.evidence.interval(seeds, metric)
                row |= {method: mean_over(seeds, metric), f"{method}_low": low, f"{method}_high": high}
            rows.append(row | {"source": metric.source})
    return pd.DataFrame(rows)


def reasoning_frame(ranked: RankedTable) -> pd.DataFrame:
    """Return a row for each model's references and ranked variants; empty without reasoning tasks.

    Each task is a mean over seeds with `NAME_low`, `NAME_high` and `NAME_change`, the difference from the original's.
    """
    tasks, rows = select_metrics(ranked.info, "reasoning"), []
    table = ranked.table[~ranked.table["method"].isin(UNSEEN_ROWS)]
    for _, model_rows in table.groupby("model", sort=False) if tasks else ():
        originals = model_rows[model_rows["method"] == ORIGINAL]
        is_reference = model_rows["method"].isin(REFERENCE_ROWS)
        table_rows = pd.concat([model_rows[is_reference], ranked_rows(model_rows[~is_reference])])
        for variant, seeds in table_rows.groupby("variant", sort=False):
            row = _row(ranked, seeds, tasks)
            row["strength"] = strength_text(seeds["strength_name"].iloc[0], *seeds["strength"])
            starts = match_originals(seeds, originals)
            if variant != ORIGINAL and starts is not None:
                row |= {f"{task.name}_change": row[task.name] - mean_over(starts, task) for task in tasks}
            rows.append(row)
    return pd.DataFrame(rows)


GROUPS = {"memorized": True, "other": False}
"""Columns of the two groups, and whether the original recites their sequences wholly."""
MIN_SEQUENCES = 5
"""Sequences that each group needs."""
Membership = Mapping[str, Mapping[str, bool]]
"""Whether each item is memorised, by replicate."""


def agreement_frame(ranked: RankedTable) -> pd.DataFrame:
    """Return the number of tokens up to the first that differs from the original's, for each model and point.

    Each model's original comes first, then the retrained one, then each variant's points by rising strength; points
    that lack a seed are left out. `memorized` and `other` are means over the groups' sequences, with 95 % intervals;
    `memorized_sequences` and `other_sequences` are the smallest counts of any replicate.

    Source: EMSO paper, section 4.4, figure 5.
    """
    metrics, records = exact_matches(ranked.info), []
    for model, rows in ranked.table.groupby("model", sort=False) if metrics else ():
        assert metrics is not None
        model_rows = rows[~rows["method"].isin(UNSEEN_ROWS)]
        memorized = _memorized_ids(model_rows, ranked.evidence, metrics)
        counts: dict[str, int] = {}
        for group, is_asked in GROUPS.items():
            by_replicate = [list(membership.values()).count(is_asked) for membership in memorized.values()]
            counts[f"{group}_sequences"] = min(by_replicate, default=0)
        if min(counts.values()) >= MIN_SEQUENCES:
            about = {"model": model, **counts}
            records += [about | row for row in _rows(model_rows, memorized, ranked.evidence, metrics[1])]
    return pd.DataFrame(records)


def _memorized_ids(rows: pd.DataFrame, evidence: Evidence, metrics: tuple[Metric, Metric]) -> Membership:
    memorized: dict[str, dict[str, bool]] = {}
    for replicate, originals in rows[rows["method"] == ORIGINAL].groupby(REPLICATE, sort=False):
        with_text, with_itself = (evidence.items(originals.iloc[0]["point_id"], metric) for metric in metrics)
        if with_text is None or with_itself is None:
            return {}
        recited = with_text.by_id()
        memorized[str(replicate)] = {id: recited[id] >= tokens for id, tokens in with_itself.by_id().items()}
    return memorized


def _rows(rows: pd.DataFrame, memorized: Membership, evidence: Evidence, metric: Metric) -> Iterator[dict[str, Any]]:
    by_group = {group: _group_evidence(flag, rows, memorized, evidence, metric) for group, flag in GROUPS.items()}
    points = [items for group_evidence in by_group.values() for items in group_evidence.by_point.values()]
    bounded = replace(metric, high=float(np.nanmax(np.concatenate([items[metric.name].values_N for items in points]))))
    by_variant = dict(iter(rows.groupby("variant", sort=False)))
    for variant in sorted(by_variant, key=lambda name: (name != ORIGINAL, name != RETRAINED)):
        first, count = by_variant[variant].iloc[0], len(by_variant[variant][[REPLICATE, "seed"]].drop_duplicates())
        for repeats in sorted(repeats_of_points(by_variant[variant]), key=lambda rows: float(rows["strength"].iloc[0])):
            if len(repeats) < count:
                continue  # A mean over other seeds than asked for would mislead.
            row = {"variant": variant, "label": first["label"], "strength_name": first["strength_name"]}
            row |= {"strength": repeats["strength"].iloc[0], "collapsed": bool(repeats["collapsed"].eq(True).any())}
            for group, group_evidence in by_group.items():
                values, ends = group_evidence.of(repeats, bounded), (math.nan, math.nan)
                if values is not None and first["method"] != ORIGINAL:  # It agrees with itself by definition.
                    ends = bootstrap.interval(bootstrap.draws(values))
                row[group] = bootstrap.estimate(values) if values is not None else math.nan
                row[f"{group}_low"], row[f"{group}_high"] = ends
            yield row


def _group_evidence(
    is_asked: bool, rows: pd.DataFrame, memorized: Membership, evidence: Evidence, metric: Metric
) -> Evidence:
    ids = {id for membership in memorized.values() for id, is_recited in membership.items() if is_recited is is_asked}
    by_point: dict[str, dict[str, MetricItems]] = {}
    for point_id, replicate in zip(rows["point_id"], rows[REPLICATE], strict=True):
        items = evidence.items(point_id, metric)
        if items and replicate in memorized:
            items = chosen_items(items, ids)
            is_member_N = np.array([memorized[replicate].get(id) is is_asked for id in items.ids], dtype=bool)
            by_point[point_id] = {metric.name: replace(items, values_N=np.where(is_member_N, items.values_N, math.nan))}
    return Evidence(by_point)
