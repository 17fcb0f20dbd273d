"""The paper's table as plain data: one for each model, its rows in groups, its numbers as text.

Markdown, LaTeX, HTML and the terminal print the same cells; none of them computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from harness.analysis.cells import NOTHING, Cell, Mark, interval_cell
from harness.analysis.collapse import verdict
from harness.analysis.damage import State, is_broken, state_of_repeats
from harness.analysis.evidence import Evidence
from harness.analysis.grouping import Letters, significance_groups
from harness.analysis.metrics import Aims, group_title, mean_over, metrics_in, own_groups, table_metrics
from harness.analysis.ranking import ERASED_NOTHING, RANKS, RankedTable, rank_names
from harness.analysis.seeds import ranked_rows
from harness.contracts import Metric
from harness.specs import REFERENCE_ROWS

RANK_TITLES = ("Erasure", "Generation", "Average")
GROUP_TITLE = "Group"
"""Of the column that says which rows cannot be told apart by their average rank."""
_MARKS: tuple[Mark, ...] = ("best", "second")
SECTIONS = {
    "memorized_model": ("w/ MM", "need a memorized model"),
    "retain_data": ("w/ RD", "need retain data"),
    "none": ("w/o REF", "need no reference"),
}
"""A method's `reference` to its group's title in the paper, and what that means."""


@dataclass(frozen=True)
class TableRow:
    """One variant of one model, over all its seeds."""

    variant: str
    label: str
    strength: str
    """`epochs 7`; '' for reference rows."""
    cells: tuple[Cell, ...]
    """One for each metric of the table."""
    ranks: tuple[str, ...]
    """A text for each of the table's `rank_titles`: `1 (1–4)`, `ab`; `–` where not ranked."""
    state: State
    verdict: str
    """The worst collapse class of its seeds, with the metrics that show it; '' for reference rows."""
    note: str
    """Why a rank is missing; '' if none is."""

    @property
    def collapsed(self) -> bool:
        """Return whether it collapsed on any seed."""
        return self.state == "collapsed"


@dataclass(frozen=True)
class RowGroup:
    """The rows that need the same reference."""

    title: str
    meaning: str
    rows: tuple[TableRow, ...]


@dataclass(frozen=True)
class ModelTable:
    """One model's part of the main table."""

    model: str
    metrics: tuple[Metric, ...]
    rank_titles: tuple[str, ...]
    """Erasure, generation, average, the rows that cannot be told apart, and each group of an evaluator's own."""
    sections: tuple[RowGroup, ...]
    """The first holds the reference rows and has no title."""
    best_first: tuple[TableRow, ...]
    """The other rows, in the ranking's order."""

    def groups(self) -> list[tuple[str, int]]:
        """Return each metric group's title with the number of its columns."""
        names = [metric.group for metric in self.metrics]
        return [(group_title(name), names.count(name)) for name in dict.fromkeys(names)]

    def rows(self) -> list[TableRow]:
        """Return the rows of all sections."""
        return [row for section in self.sections for row in section.rows]


def model_tables(ranked: RankedTable) -> list[ModelTable]:
    """Return the main table of every model: reference rows on top, then the ranked points by group."""
    chosen = ranked_rows(ranked.table)
    tables = []
    for model in ranked.table["model"].unique():
        of_model, ranking = chosen[chosen["model"] == model], ranked.ranking[ranked.ranking["model"] == model]
        tables.append(_model_table(ranked, model, of_model, ranking))
    return tables


def _model_table(whole: RankedTable, model: str, ranked: pd.DataFrame, ranking: pd.DataFrame) -> ModelTable:
    """Return one model's table of the whole one; `ranked` are its rows that stand for a variant."""
    metrics = table_metrics(whole.info) or metrics_in(whole.info, "reasoning")
    columns = list(rank_names(whole.info))
    titles = [*RANK_TITLES, *map(group_title, own_groups(whole.info))]
    if whole.ranking["rank_group"].any():
        columns.insert(len(RANKS), "rank_group")
        titles.insert(len(RANKS), GROUP_TITLE)
    row = partial(_table_row, metrics=metrics, evidence=whole.evidence, rank_columns=columns)
    references = []
    for name in REFERENCE_ROWS:
        seeds = whole.table[(whole.table["model"] == model) & (whole.table["method"] == name)]
        if len(seeds):
            references.append(row(seeds, marks={}, ranks={}, letters={}))
    is_idle = ranked["variant"].isin(ranking.loc[ranking["unranked"] == ERASED_NOTHING, "variant"])
    by_variant = {str(variant): seeds for variant, seeds in ranked.groupby("variant", sort=False)}
    letters = significance_groups(by_variant, metrics, whole.evidence, whole.aims)
    marks = {} if ranking["recited"].eq(False).any() else _marks(ranked[~is_idle], metrics, whole.aims, letters)
    rows: dict[str, TableRow] = {}
    by_reference: dict[str, list[TableRow]] = {name: [] for name in SECTIONS}
    for ranks in ranking.set_index("variant", drop=False).loc[list(by_variant)].to_dict("records"):
        variant = ranks["variant"]
        rows[variant] = row(by_variant[variant], marks=marks, ranks=ranks, letters=letters)
        by_reference.setdefault(ranks["reference"], []).append(rows[variant])
    sections = [RowGroup("", "", tuple(references))] if references else []
    for name, group in by_reference.items():
        if group:
            sections.append(RowGroup(*SECTIONS.get(name, ("", "")), tuple(group)))
    best_first = tuple(rows[variant] for variant in ranking["variant"])
    return ModelTable(model, tuple(metrics), tuple(titles), tuple(sections), best_first)


def _table_row(
    seeds: pd.DataFrame,
    *,
    metrics: Sequence[Metric],
    evidence: Evidence,
    rank_columns: Sequence[str],
    marks: Mapping[tuple[str, str], Mark],
    ranks: Mapping[Any, Any],
    letters: Letters,
) -> TableRow:
    """Return the row of a variant; `ranks` is its row of the ranking, empty for a reference row."""
    variant = seeds.iloc[0]["variant"]
    cells = []
    for metric in metrics:
        key, mean = (variant, metric.name), mean_over(seeds, metric)
        interval = evidence.interval(seeds, metric)
        cells.append(interval_cell(mean, *interval, metric, letters.get(key, ""), marks.get(key, "")))
    rank_texts = []
    for name in rank_columns:
        low, high = ranks.get(f"{name}_low", ""), ranks.get(f"{name}_high", "")
        rank_texts.append(f"{ranks[name]}{f' ({low}–{high})' if low else ''}" if ranks.get(name) else NOTHING)
    return TableRow(
        variant=variant,
        label=seeds.iloc[0]["label"],
        strength=f"{ranks.get('strength_name', '')} {ranks.get('strength', '')}".strip(),
        cells=tuple(cells),
        ranks=tuple(rank_texts),
        state=state_of_repeats(seeds),
        verdict=verdict(ranks.get("collapse_class", ""), ranks.get("collapse_reason", ())),
        note=ranks.get("unranked", ""),
    )


def _marks(
    ranked: pd.DataFrame, metrics: Sequence[Metric], aims: Aims, letters: Letters
) -> dict[tuple[str, str], Mark]:
    """Return (variant, metric) of the best and second-best numbers of methods that take a rank.

    The best is marked where it shares a letter with none of the others, the second one where the best is and it shares
    one with none of those that come after it. A number without letters was not tested and so is not told apart.
    """
    left_out = set(ranked.loc[is_broken(ranked) | ranked["control"], "variant"])
    kept = {str(name): rows for name, rows in ranked.groupby("variant") if name not in left_out}
    marks: dict[tuple[str, str], Mark] = {}
    for metric in metrics:
        costs = {name: aims.cost(rows, metric) for name, rows in kept.items()}
        best_first = sorted((name for name in costs if not math.isnan(costs[name])), key=costs.__getitem__)
        for place, name in enumerate(best_first[: len(_MARKS)] if len(best_first) > 1 else []):
            own, after = letters.get((name, metric.name), ""), best_first[place + 1 :]
            of_others = [letters.get((other, metric.name), "") for other in after]
            if not own or not all(of_others) or set(own) & set("".join(of_others)):
                break
            marks[name, metric.name] = _MARKS[place]
    return marks
