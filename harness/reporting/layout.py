"""The paper's table as plain data: one for each model, its rows in groups, its numbers as text.

Markdown, LaTeX, HTML and the terminal print the same cells; none of them computes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from harness.contracts import Metric
from harness.reporting.facts import Facts, shown_metrics
from harness.reporting.ranking import RANKS, competition_ranks
from harness.reporting.seeds import mean_and_interval, ranked_rows, reference_rows, strengths
from harness.specs import REFERENCE_ROWS

NOTHING = "–"
ARROWS = {"lower": "↓", "higher": "↑"}
RANK_TITLES = ("Erasure", "Generation", "Average")
GROUP_TITLES = {"erasure": "Memorization", "generation": "Language generation", "reasoning": "Reasoning"}
SECTIONS = {
    "memorized_model": ("w/ MM", "need a memorized model"),
    "retain_data": ("w/ RD", "need retain data"),
    "none": ("w/o REF", "need no reference"),
}
"""A method's `reference` to its group's title in the paper, and what that means."""


@dataclass(frozen=True)
class Cell:
    """One number, as printed."""

    text: str
    mark: Literal["", "best", "second"] = ""


@dataclass(frozen=True)
class Row:
    """One variant of one model, over all its seeds."""

    variant: str
    label: str
    strength: str
    """`epochs 7`; '' for reference rows."""
    cells: tuple[Cell, ...]
    """One for each metric of the table."""
    ranks: tuple[str, ...]
    """Erasure, generation, average; `–` where not ranked."""
    collapsed: bool
    note: str
    """Why a rank is missing; '' if none is."""


@dataclass(frozen=True)
class Section:
    """The rows that need the same reference."""

    title: str
    meaning: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class ModelTable:
    """One model's part of the main table."""

    model: str
    metrics: tuple[Metric, ...]
    sections: tuple[Section, ...]
    """The first holds the reference rows and has no title."""

    def groups(self) -> list[tuple[str, int]]:
        """Return each metric group's title with the number of its columns."""
        names = [metric.group for metric in self.metrics]
        return [(GROUP_TITLES[name], names.count(name)) for name in dict.fromkeys(names)]

    def rows(self) -> list[Row]:
        """Return the rows of all sections."""
        return [row for section in self.sections for row in section.rows]


def number(value: float, metric: Metric | None = None) -> str:
    """Return a number as a table prints it: three decimals; two where the metric has no bound.

    Example:
        >>> number(0.61549), number(float("nan"))
        ('0.615', '–')
    """
    if math.isnan(value):
        return NOTHING
    bounded = metric is None or math.isfinite(metric.high)
    return f"{value:.3f}" if bounded else f"{value:.2f}" if abs(value) < 1e5 else f"{value:.1e}"


def with_interval(mean: float, half: float, metric: Metric | None = None) -> str:
    """Return `mean ± half`; the mean alone where there is no interval.

    Example:
        >>> with_interval(0.62, 0.0497), with_interval(0.62, float("nan"))
        ('0.620 ± 0.050', '0.620')
    """
    return number(mean, metric) + ("" if math.isnan(half) else f" ± {number(half, metric)}")


def split_title(title: str) -> tuple[str, str]:
    """Return a metric's title and its subscript.

    Example:
        >>> split_title("EL_3"), split_title("MAUVE"), split_title("my_score")
        (('EL', '3'), ('MAUVE', ''), ('my_score', ''))
    """
    found = re.fullmatch(r"(.+)_(\d+)", title)
    return (found[1], found[2]) if found else (title, "")


def model_tables(table: pd.DataFrame, ranking: pd.DataFrame, facts: Facts) -> list[ModelTable]:
    """Return the main table of every model: reference rows on top, then the ranked points by group."""
    metrics = [metric for metric in shown_metrics(facts) if metric.name in table.columns]
    references, ranked = reference_rows(table), ranked_rows(table)
    return [
        _model_table(
            model,
            metrics,
            references[references["model"] == model],
            ranked[ranked["model"] == model],
            ranking[ranking["model"] == model],
        )
        for model in table["model"].unique()
    ]


def _model_table(
    model: str, metrics: Sequence[Metric], references: pd.DataFrame, ranked: pd.DataFrame, ranking: pd.DataFrame
) -> ModelTable:
    order = [name for name in REFERENCE_ROWS if name in set(references["method"])]
    top = [_reference_row(references[references["method"] == name], metrics) for name in order]
    marks = _marks(ranked, metrics)
    rows: dict[str, list[Row]] = {}
    for variant, seeds in ranked.groupby("variant", sort=False):
        ranks = ranking[ranking["variant"] == variant].iloc[0]
        row = _ranked_row(str(variant), seeds, ranks, metrics, marks)
        rows.setdefault(ranks["reference"], []).append(row)
    sections = [Section("", "", tuple(top))]
    for name in [*SECTIONS, *(name for name in rows if name not in SECTIONS)]:
        title, meaning = SECTIONS.get(name, ("", ""))
        sections.append(Section(title, meaning, tuple(rows.get(name, ()))))
    return ModelTable(model, tuple(metrics), tuple(section for section in sections if section.rows))


def _reference_row(seeds: pd.DataFrame, metrics: Sequence[Metric]) -> Row:
    first = seeds.iloc[0]
    cells = tuple(Cell(text) for text in _numbers(seeds, metrics))
    collapsed = bool(seeds["collapsed"].eq(True).any())
    return Row(first["variant"], first["label"], "", cells, (NOTHING,) * len(RANKS), collapsed, "")


def _ranked_row(
    variant: str,
    seeds: pd.DataFrame,
    ranks: pd.Series,
    metrics: Sequence[Metric],
    marks: Mapping[tuple[str, str], Literal["best", "second"]],
) -> Row:
    texts = _numbers(seeds, metrics)
    return Row(
        variant=variant,
        label=ranks["label"],
        strength=f"{ranks['strength_name']} {ranks['strength']}".strip(),
        cells=tuple(Cell(text, marks.get((variant, m.name), "")) for text, m in zip(texts, metrics, strict=True)),
        ranks=tuple(rank_text(ranks, name) for name in RANKS),
        collapsed=ranks["collapsed"] is True,
        note=ranks["unranked"],
    )


def rank_text(ranks: pd.Series, name: str) -> str:
    """Return a rank with its interval, where several seeds gave one: `=2 (1–3)`."""
    low, high = ranks.get(f"{name}_low", ""), ranks.get(f"{name}_high", "")
    interval = f" ({low}–{high})" if isinstance(low, str) and low else ""
    return f"{ranks[name]}{interval}" if ranks[name] else NOTHING


def _numbers(seeds: pd.DataFrame, metrics: Sequence[Metric]) -> list[str]:
    """Return the text of each metric's mean over the seeds."""
    return [with_interval(*mean_and_interval(list(seeds[metric.name])), metric) for metric in metrics]


def _marks(ranked: pd.DataFrame, metrics: Sequence[Metric]) -> dict[tuple[str, str], Literal["best", "second"]]:
    """Return (variant, metric) of the best and second-best numbers among what has not collapsed, if it is several."""
    collapsed = set(ranked.loc[ranked["collapsed"].eq(True), "variant"])
    kept = ranked[~ranked["variant"].isin(collapsed)].groupby("variant")[[metric.name for metric in metrics]]
    values = kept.mean().where(kept.count().eq(kept.size(), axis=0))
    if len(values) < 2:
        return {}
    words: dict[float, Literal["best", "second"]] = {1.0: "best", 2.0: "second"}
    marks: dict[tuple[str, str], Literal["best", "second"]] = {}
    for metric in metrics:
        sign = 1.0 if metric.better == "lower" else -1.0
        for variant, rank in zip(values.index, competition_ranks(sign * values[metric.name].to_numpy()), strict=True):
            if not np.isnan(rank) and rank in words:
                marks[str(variant), metric.name] = words[rank]
    return marks


def strength_text(name: str, value: float) -> str:
    """Return a point's strength for a table: `gamma 0.05`; '' for a reference row.

    Example:
        >>> strength_text("gamma", 0.05), strength_text("", float("nan"))
        ('gamma 0.05', '')
    """
    return f"{name} {strengths([value])}".strip()
