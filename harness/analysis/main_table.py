"""The paper's main table as a frame, what models recite as one, and reasoning before and after as another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.analysis.collapse import verdict
from harness.analysis.metrics import arrow, mean_over, metrics_in, table_metrics
from harness.analysis.ranking import CONTROL, ERASED_NOTHING, RankedTable, rank_names
from harness.analysis.seeds import ranked_rows, strengths
from harness.contracts import CloserTo, Metric
from harness.settings import HOLDOUT, ORIGINAL, REFERENCE_ROWS, RETRAINED, STAND_IN, UNSEEN_ROWS

NEEDS = {
    "memorized_model": ("w/ MM", "need a memorized model"),
    "retain_data": ("w/ RD", "need retain data"),
    "none": ("w/o REF", "need no reference"),
}
"""A method's `reference`, its group's title in the paper, and what that means."""
READ_BY = {ORIGINAL: "Forget set", RETRAINED: "Retrained model", HOLDOUT: "Unseen texts", STAND_IN: "Validation texts"}
"""What each reference row was measured on, and by whom if not by the original."""


def shown_metrics(ranked: RankedTable) -> Sequence[Metric]:
    """Return the metrics of the main table; where no other was measured the reasoning tasks."""
    return table_metrics(ranked.info) or metrics_in(ranked.info, "reasoning")


def main_frame(ranked: RankedTable) -> pd.DataFrame:
    """Return the main table: for each model its reference rows, then its variants by what they need.

    Each metric is a mean over seeds, with `NAME_low` and `NAME_high` and, where it is the better the nearer it is to
    something, `NAME_aim`. `state` is why a row takes no rank, else its collapse class. `place` is its place in the
    ranking, and `compared` says whether its numbers may be the best.
    """
    metrics, needed = shown_metrics(ranked), [*NEEDS]
    rows = []
    for model, of_model in ranked.table.groupby("model", sort=False):
        ranking = ranked.ranking[ranked.ranking["model"] == model].reset_index(drop=True)
        references = of_model[of_model["method"].isin(REFERENCE_ROWS)]
        by_method = dict(iter(references.groupby("method", sort=False)))
        for seeds in [by_method[name] for name in REFERENCE_ROWS if name in by_method]:
            rows.append(_row(ranked, seeds, metrics) | {"compared": False, "place": -1})
        erased = dict(iter(ranked_rows(of_model).groupby("variant", sort=False)))
        states = {state["variant"]: state | {"place": place} for place, state in enumerate(ranking.to_dict("records"))}
        for variant in sorted(erased, key=lambda variant: _place_of(states[variant]["reference"], needed)):
            rows.append(_row(ranked, erased[variant], metrics) | _ranks(ranked, states[variant]))
    known = {name: value for row in rows for name, value in row.items()}
    names = ["model", "needs", "label", "strength", "collapsed", "compared", "state", "place", *rank_names(ranked.info)]
    return pd.DataFrame(rows, columns=list(dict.fromkeys([*names, *(metric.name for metric in metrics), *known])))


def _place_of(reference: str, needed: Sequence[str]) -> int:
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
    """Return what the models recite where nothing was erased: a row for each metric, a column for each kind of text."""
    rows = []
    for model, of_model in ranked.table.groupby("model", sort=False):
        by_method = dict(iter(of_model.groupby("method", sort=False)))
        for metric in [metric for metric in ranked.info.values() if metric.group != "reasoning"]:
            row = {"model": model, "metric": f"{metric.title} {arrow(metric)}", "unit": metric.unit}
            for method in [method for method in READ_BY if method in by_method]:
                seeds = by_method[method]
                low, high = ranked.evidence.interval(seeds, metric)
                row |= {method: mean_over(seeds, metric), f"{method}_low": low, f"{method}_high": high}
            rows.append(row | {"source": metric.source})
    return pd.DataFrame(rows)


def reasoning_frame(ranked: RankedTable) -> pd.DataFrame:
    """Return a row for each model's references and ranked variants; no rows if the sweep measured no reasoning task.

    Each task is a mean over seeds with its 95 % interval, `NAME_low` and `NAME_high`; `NAME_change` is its difference
    from the original's mean.
    """
    tasks, rows = metrics_in(ranked.info, "reasoning"), []
    table = ranked.table[~ranked.table["method"].isin(UNSEEN_ROWS)]
    for _, of_model in table.groupby("model", sort=False) if tasks else ():
        originals = of_model[of_model["method"] == ORIGINAL]
        is_reference = of_model["method"].isin(REFERENCE_ROWS)
        shown = pd.concat([of_model[is_reference], ranked_rows(of_model[~is_reference])])
        for variant, seeds in shown.groupby("variant", sort=False):
            row = _row(ranked, seeds, tasks)
            row["strength"] = f"{seeds['strength_name'].iloc[0]} {strengths(list(seeds['strength']))}".strip()
            for task in tasks if variant != ORIGINAL else ():
                row[f"{task.name}_change"] = row[task.name] - mean_over(originals, task)
            rows.append(row)
    return pd.DataFrame(rows)
