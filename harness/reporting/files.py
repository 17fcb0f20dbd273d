"""A sweep's results folder: tables, figures and report, each written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from harness.analysis.analysis import Analysis
from harness.analysis.metrics import declarations
from harness.analysis.ranking import RankedTable, head, rank_names
from harness.base.csv_text import csv_text
from harness.base.files import write_whole
from harness.errors import LetheError
from harness.records.journal import Journal
from harness.records.tuned import read_tuned
from harness.reporting.figures.style import rendered
from harness.reporting.page import page
from harness.reporting.sections import SECTIONS
from harness.reporting.sections.main_table import main_latex, main_markdown
from harness.reporting.summary import answer_text, caption
from harness.settings import Plan

_STEMS = ("table", "table.metrics", "ranking", "report")
"""Names, without their endings, of the files that belong to no section."""


def write(analysis: Analysis, folder: Path) -> list[Path]:
    """Write everything that a sweep leaves, and return the files.

    table.csv comes first, so that the numbers are there even if they cannot be ranked.

    Raises:
        DataError: The table mixes definitions, or has two ranked rows of one variant and seed.
    """
    written = [
        write_whole(folder / "table.csv", csv_text(analysis.table)),
        write_whole(folder / "table.metrics.yaml", declarations(analysis.info)),
    ]
    sections = [section(analysis) for section in SECTIONS]
    for section in sections:
        for name, text in section.files().items():
            written.append(write_whole(folder / name, text))
        for name, figure in section.figures.items():
            written.append(write_whole(folder / f"{name}.png", rendered(figure, "png")))
            written.append(write_whole(folder / f"{name}.pdf", rendered(figure, "pdf")))
    answer = answer_text(analysis) if analysis.results.plan.erases else ""
    written += write_tables(analysis.ranked, analysis.results.plan.question, folder, answer)
    return [*written, write_whole(folder / "report.html", page(analysis, sections=sections))]


def write_measured(plan: Plan, journal: Journal, folder: Path) -> str:
    """Write the report of what a sweep that was ended has measured; return the sentence that says where it is."""
    try:
        measured = read_tuned(plan, journal)
        if not measured.measured:
            return "Nothing is measured yet, so there is no report."
        write(Analysis(measured), folder)
    except Exception as error:  # Whatever ended the sweep may have harmed what a report needs.
        reason = f": {error}" if isinstance(error, LetheError) else ""
        return f"Its report could not be written ({type(error).__name__}{reason}): lethe collate {folder} tries again."
    return f"The report of what is measured: {folder / 'report.html'}"


def written_files(folder: Path) -> list[Path]:
    """Return the files in a sweep's folder that `write` made, sorted by name."""
    stems = set(_STEMS)
    for section in SECTIONS:
        stems.update(section.stems)
    return sorted(path for path in folder.iterdir() if path.name.removesuffix(path.suffix) in stems and path.is_file())


def write_tables(ranked: RankedTable, question: str, folder: Path, answer: str = "") -> list[Path]:
    """Write ranking.csv, table.md, which begins with the answer, and table.tex; return the files."""
    shown = head(ranked)
    words = [*ranked.said_first, caption(shown.table)]
    bounds = [f"{name}{end}" for name in rank_names(ranked.info) for end in ("_low", "_high")]
    names = ["model", "method", "variant", "strength", *rank_names(ranked.info), *bounds]
    names += ["collapsed", "collapse_class", "collapse_reason", "recited", "unranked"]
    return [
        write_whole(folder / "ranking.csv", csv_text(ranked.ranking[names])),
        write_whole(folder / "table.md", main_markdown(shown, question, " ".join(words), answer)),
        write_whole(folder / "table.tex", main_latex(shown, " ".join([*words, question]))),
    ]
