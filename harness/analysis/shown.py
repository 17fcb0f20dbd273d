"""What figures, tables and the report show of a large sweep: a part that a person can read, and a word on the rest.

table.csv and ranking.csv have everything, and ranks are among everything; only what is shown is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from harness.analysis.layout import ModelTable, model_tables
from harness.analysis.ranking import RankedTable
from harness.records.results import PointResults, Results, TrialResults
from harness.specs import REFERENCE_ROWS

VARIANTS = 40
"""Of each model, at most: every two of them are compared."""
POINTS = 2000
"""Drawn of each model."""
TRIALS = 2000
"""Whose costs are listed."""
UNFINISHED = 40
"""Trials that failed or are missing, named one by one."""


@dataclass(frozen=True)
class ShownTable:
    """The rows of a ranked table that are shown."""

    whole: RankedTable
    ranked: RankedTable
    """Those rows, with erasure as it is ranked: see `RankedTable.on_recited`."""
    note: str
    """What is left out, and where it is; '' where nothing is."""

    @cached_property
    def tables(self) -> list[ModelTable]:
        """Return the main table of every model."""
        return model_tables(self.ranked)


def shown_results(results: Results, shown: ShownTable) -> Results:
    """Return the trials of all points that are shown, and the first of those that failed or are missing.

    The same object where that is all of them.
    """
    part = shown.ranked
    if part is shown.whole.on_recited and len(results.trials) <= TRIALS:
        return results
    measured, points = set(part.table["trial_id"]), set(part.table["point_id"])
    finished: list[TrialResults] = []
    unfinished: list[TrialResults] = []
    for trial in results.trials:
        is_finished = trial.spec.trial_id in measured
        if not is_finished and (trial.status == "done" or len(unfinished) == UNFINISHED):
            continue
        kept = []
        for point in trial.points:
            if not point.measurements or trial.spec.point_id(point.strength) in points:
                kept.append(point)
        (finished if is_finished else unfinished).append(replace(trial, points=tuple(kept)))
    trials = *finished, *unfinished
    plan = replace(results.plan, trials=tuple(trial.spec for trial in trials))
    return replace(results, plan=plan, trials=trials)


def sampled_points(results: Results, table: pd.DataFrame) -> list[PointResults]:
    """Return the points whose texts are shown: the models as they are, and those that the table ranks, of one seed."""
    ranked = set(table.loc[table["ranked"], "point_id"])
    first_seed = min((point.spec.seed for point in results.measured), default=0)
    sampled = []
    for point in results.measured:
        spec = point.spec
        is_sampled = spec.is_reference or spec.point_id(point.strength) in ranked
        if is_sampled and spec.seed == first_seed and not spec.is_of_unseen:
            sampled.append(point)
    return sampled


def shown_table(whole: RankedTable) -> ShownTable:
    """Return the rows that are shown; all of them where a person can read so many."""
    ranked = whole.on_recited
    table = ranked.table
    is_reference = table["method"].isin(REFERENCE_ROWS)
    rank_order = ranked.ranking[["model", "variant"]]
    in_order = pd.concat([rank_order, table.loc[~is_reference, ["model", "variant"]]]).drop_duplicates()
    kept = pd.MultiIndex.from_frame(in_order.groupby("model", sort=False).head(VARIANTS))
    is_shown = is_reference | _of_variants(table, kept)
    ranking = ranked.ranking[_of_variants(ranked.ranking, kept)]
    if is_shown.all() and len(ranking) == len(ranked.ranking):
        return ShownTable(whole, ranked, "")
    note = (
        f"Shown are {int(is_shown.sum()):,} of {len(table):,} points, of {len(kept):,} of {len(in_order):,} rows: "
        "those that rank best on each model. table.csv and ranking.csv have all of them, and the ranks are among all."
    )
    return ShownTable(whole, replace(ranked, table=table[is_shown], ranking=ranking), note)


def _of_variants(rows: pd.DataFrame, kept: pd.MultiIndex) -> pd.Series:
    return pd.Series(pd.MultiIndex.from_frame(rows[["model", "variant"]]).isin(kept), index=rows.index)
