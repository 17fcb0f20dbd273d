"""A sweep's results folder: tables, figure and report, each written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from harness.reporting.facts import Facts, Records, metric_facts, ranked_metrics
from harness.reporting.figures import rendered, tradeoff
from harness.reporting.layout import model_tables
from harness.reporting.ranking import RANKS, rank
from harness.reporting.reasoning import answers, bars
from harness.reporting.recitation import said_first
from harness.reporting.report import page
from harness.reporting.summary import caption
from harness.reporting.table import table as make_table
from harness.reporting.texts import latex, markdown, reasoning_markdown
from harness.specs import Plan


def write(plan: Plan, records: Records, folder: Path) -> list[Path]:
    """Write everything that a sweep leaves, from its journal alone, and return the files.

    table.csv comes first, so that the numbers are there even if they cannot be ranked.

    Raises:
        DataError: The table mixes definitions, or has two ranked rows of one variant and seed.
    """
    facts, table = metric_facts(plan, records), make_table(plan, records)
    written = [_replace(folder / "table.csv", table_csv(table))]
    ranking = rank(table, facts)
    drawn = {"tradeoff": tradeoff(table, facts), "reasoning": bars(table, facts)}
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    for kind in ("png", "pdf"):
        written += [_replace(folder / f"{name}.{kind}", rendered(figure, kind)) for name, figure in figures.items()]
    accuracies = answers(table, facts)
    if accuracies:
        text = reasoning_markdown(accuracies, ranked_metrics(facts, "reasoning"))
        written.append(_replace(folder / "reasoning.md", text))
    pictures = {name: rendered(figure, "svg") for name, figure in figures.items()}
    report = page(plan, records, table, ranking, facts, pictures)
    written += write_tables(table, ranking, facts, plan.question, folder)
    return [*written, _replace(folder / "report.html", report)]


def write_tables(table: pd.DataFrame, ranking: pd.DataFrame, facts: Facts, question: str, folder: Path) -> list[Path]:
    """Write what a table alone can tell: ranking.csv, table.md and table.tex; return the files."""
    tables = model_tables(table, ranking, facts)
    first, words = said_first(table, facts), caption(table)
    bounds = [name for name in ranking.columns if name.endswith(("_low", "_high"))]
    flags = ["collapsed", "collapse_class", "collapse_reason"]
    names = ["model", "method", "variant", "strength", *RANKS, *bounds, *flags, "recited", "unranked"]
    return [
        _replace(folder / "ranking.csv", table_csv(ranking[names])),
        _replace(folder / "table.md", markdown(tables, question, " ".join([*first, words]))),
        _replace(folder / "table.tex", latex(tables, " ".join([*first, question, words]))),
    ]


def table_csv(table: pd.DataFrame) -> str:
    """Return a table as CSV: full precision, `true` and `false`, an empty cell for what is missing."""
    truths = [name for name in ("collapsed", "ranked", "recited") if name in table.columns]
    words = {name: [{True: "true", False: "false"}.get(each, "") for each in table[name]] for name in truths}
    return table.assign(**words).to_csv(index=False, lineterminator="\n")


def _replace(path: Path, content: str | bytes) -> Path:
    """Put `content` where `path` says at once, so that nobody ever reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    temporary.replace(path)
    return path
