"""Frames of the paper's main table, of recitation before erasure, and of reasoning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.analysis.damage import verdict
from harness.analysis.metrics import arrow, mean_over, select_metrics, table_metrics
from harness.analysis.ranking import CONTROL, ERASED_NOTHING, RankedTable, rank_names
from harness.analysis.seeds import ranked_rows, strengths
from harness.contracts import CloserTo, Metric
from harness.settings import HOLDOUT, ORIGINAL, REFERENCE_ROWS, RETRAINED, STAND_IN, UNSEEN_ROWS

NEEDS = {
    "memorized_model": ("w/ MM", "need a memorized model"),
    "retain_data": ("w/ RD", "need retain data"),
    "none": ("w/o REF", "need no reference"),
}
"""Title in the paper and meaning of each `reference`."""
READ_BY = {ORIGINAL: "Forget set", RETRAINED: "Retrained model", HOLDOUT: "Unseen texts", STAND_IN: "Validation texts"}
"""Texts, and model if not the original, of each reference row."""


def shown_metrics(ranked: RankedTable) -> Sequence[Metric]:
    """Return the metrics of the main table; the reasoning tasks where nothing else was measured."""
    return table_metrics(ranked.info) or select_metrics(ranked.info, "reasoning")


def main_frame(ranked: RankedTable) -> pd.DataFrame:
    """Return the main table: for each model its reference rows, then its variants by what they need.

    Metrics are means over seeds, with `NAME_low`, `NAME_high` and, for metrics with an aim, `NAME_aim`. `state` is why
    a row is unranked, else its collapse class; `place` is its rank; `compared` is whether its numbers may be the best.
    """
    metrics, needed = shown_metrics(ranked), [*NEEDS]
    rows = []
    for model, model_rows in ranked.table.groupby("model", sort=False):
        ranking = ranked.ranking[ranked.ranking["model"] == model].reset_index(drop=True)
        references = model_rows[model_rows["method"].isin(REFERENCE_ROWS)]
        by_method = dict(iter(references.groupby("method", sort=False)))
        for seeds in [by_method[name] for name in REFERENCE_ROWS if name in by_method]:
            rows.append(_row(ranked, seeds, metrics) | {"compared": False, "place": -1})
        erased = dict(iter(ranked_rows(model_rows).groupby("variant", sort=False)))
        states = {state["variant"]: state | {"place": place} for place, state in enumerate(ranking.to_dict("records"))}
        for variant in sorted(erased, key=lambda variant: _sort_key(states[variant]["reference"], needed)):
            rows.append(_row(ranked, erased[variant], metrics) | _ranks(ranked, states[variant]))
    columns = {name: value for row in rows for name, value in row.items()}
    names = ["model", "needs", "label", "strength", "collapsed", "compared", "state", "place", *rank_names(ranked.info)]
    return pd.DataFrame(rows, columns=list(dict.fromkeys([*names, *(metric.name for metric in metrics), *columns])))


def _sort_key(reference: str, needed: Sequence[str]) -> int:
    return needed.index(reference) if reference in needed else len(needed)


def _row(ranked: RankedTable, seeds: pd.DataFrame, metrics: Sequence[Metric]) -> dict[str, Any]:
    first = seeds.iloc[0]
    row: dict[str, Any] = {"model": first["model"], "needs": "", "label": first["label"], "variant": first["variant"]}
    row |= {"strength": "", "state": "", "collapsed": bool(seeds["collapsed"].eq(True).any())}
    row["over_erased"] = bool(seeds["over_erased"].eq(True).any())
    for metric in metrics:
        low, high = ranked.evidence.interval(seeds, metric)
        row |= {metric.name: mean_over(seeds, metric), f"{metric.name}_low": low, f"{metric.name}_high": high}
        if isinstance(metric.better, CloserTo):
            row[f"{metric.name}_aim"] = float(ranked.aims.of(seeds, metric).mean())
    return row


def _ranks(ranked: RankedTable, state: Mapping[Any, Any]) -> dict[str, Any]:
    columns = [f"{name}{end}" for name in rank_names(ranked.info) for end in ("", "_low", "_high")]
    is_compared = state["unranked"] not in (CONTROL, ERASED_NOTHING) and state["recited"] is not False
    return {name: state[name] for name in columns} | {
        "needs": NEEDS.get(state["reference"], ("", ""))[0],
        "strength": f"{state['strength_name']} {state['strength']}".strip(),
        "state": verdict(state["collapse_class"], state["collapse_reason"])
        if state["collapsed"] is True or not state["unranked"]
        else state["unranked"],
        "compared": is_compared,
        "place": state["place"],
    }


def recited_frame(ranked: RankedTable) -> pd.DataFrame:
    """Return recitation before erasure: a row for each metric, a column for each kind of text."""
    rows = []
    for model, model_rows in ranked.table.groupby("model", sort=False):
        by_method = dict(iter(model_rows.groupby("method", sort=False)))
        for metric in [metric for metric in ranked.info.values() if metric.group != "reasoning"]:
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
            row["strength"] = f"{seeds['strength_name'].iloc[0]} {strengths(list(seeds['strength']))}".strip()
            for task in tasks if variant != ORIGINAL else ():
                row[f"{task.name}_change"] = row[task.name] - mean_over(originals, task)
            rows.append(row)
    return pd.DataFrame(rows)
