"""A sweep's results folder: tables, figure and report, each written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from harness.analysis.blocks.selection import block_selections
from harness.analysis.blocks.shares import selection_frame
from harness.analysis.collapse_onset import onset_tables
from harness.analysis.evidence import read_evidence
from harness.analysis.layout import model_tables
from harness.analysis.matched.comparison import matched_tables
from harness.analysis.metrics import declarations, metric_info, metrics_in
from harness.analysis.published.comparison import compared_tables
from harness.analysis.ranking import RankedTable, rank, rank_names
from harness.analysis.reasoning import answers
from harness.analysis.sequences.exact_match import agreements
from harness.analysis.shown import shown_part, shown_table
from harness.analysis.table import table as make_table
from harness.analysis.tradeoff.curves import styles
from harness.base.csv_text import csv_text
from harness.base.files import write_whole
from harness.errors import LetheError
from harness.planning.studies import read_tuned
from harness.plans import Plan
from harness.records.journal import Journal
from harness.records.results import Results
from harness.reporting.figures.blocks import heat_maps
from harness.reporting.figures.colours import with_dark_colours
from harness.reporting.figures.exact_match import agreement_figure
from harness.reporting.figures.matched import matched_figure
from harness.reporting.figures.reasoning import bars
from harness.reporting.figures.style import rendered
from harness.reporting.figures.tradeoff import tradeoff
from harness.reporting.page import page
from harness.reporting.sections.collapse_onset import onset_markdown
from harness.reporting.sections.exact_match import agreement_frame
from harness.reporting.sections.matched import matched_frame, matched_markdown
from harness.reporting.sections.published import published_markdown
from harness.reporting.summary import caption
from harness.reporting.text_tables import latex, markdown, reasoning_markdown

_NAMES = (
    *("table", "table.metrics", "ranking", "report", "tradeoff", "reasoning", "exact_match_groups", "selected_blocks"),
    *("collapse", "matched", "published"),
)
"""Of the files that a sweep leaves in its folder, without their endings."""


def write(results: Results, folder: Path) -> tuple[RankedTable, list[Path]]:
    """Write everything that a sweep leaves, and return its ranked table and the files.

    table.csv comes first, so that the numbers are there even if they cannot be ranked.

    Raises:
        DataError: The table mixes definitions, or has two ranked rows of one variant and seed.
    """
    info = metric_info(results)
    evidence = read_evidence(results)
    table = make_table(results, info, evidence)
    written = [
        write_whole(folder / "table.csv", csv_text(table)),
        write_whole(folder / "table.metrics.yaml", declarations(info)),
    ]
    ranked = rank(table, info, evidence)
    part = shown_part(results, ranked)
    shown = part.ranked.table
    of_groups = agreements(part.results, part.ranked) if results.plan.erases else []
    compared = matched_tables(part.results, part.ranked)
    drawn = {
        "matched": matched_figure(compared, shown, styles(shown)),
        "tradeoff": tradeoff(shown, info) if results.plan.erases else None,
        "reasoning": bars(shown, info),
        "exact_match_groups": agreement_figure(of_groups, styles(shown)),
    }
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    for kind in ("png", "pdf"):
        written += [write_whole(folder / f"{name}.{kind}", rendered(figure, kind)) for name, figure in figures.items()]
    selections, _ = block_selections(part.results)
    maps = heat_maps(selections)
    written += [
        write_whole(folder / "figures" / f"{name}.png", rendered(figure, "png")) for name, figure in maps.items()
    ]
    if selections:
        written.append(write_whole(folder / "selected_blocks.csv", csv_text(selection_frame(selections))))
    if accuracies := answers(shown, info):
        text = reasoning_markdown(accuracies, metrics_in(info, "reasoning"))
        written.append(write_whole(folder / "reasoning.md", text))
    if onsets := onset_tables(shown, info, results.plan.compare):
        written.append(write_whole(folder / "collapse.md", onset_markdown(onsets, results.plan.question)))
    if of_groups:
        written.append(write_whole(folder / "exact_match_groups.csv", csv_text(agreement_frame(of_groups))))
    if compared:
        written += [
            write_whole(folder / "matched.md", matched_markdown(compared, results.plan.question)),
            write_whole(folder / "matched.csv", csv_text(matched_frame(compared))),
        ]
    beside = compared_tables(results, ranked)
    if beside:
        written.append(write_whole(folder / "published.md", published_markdown(beside, results.plan.question)))
    pictures = {name: with_dark_colours(rendered(figure, "svg")) for name, figure in figures.items()}
    pictures |= {name: rendered(figure, "svg") for name, figure in maps.items()}
    report = page(results, ranked, pictures, compared, beside)
    written += write_tables(ranked, results.plan.question, folder)
    return ranked, [*written, write_whole(folder / "report.html", report)]


def write_measured(plan: Plan, journal: Journal, folder: Path) -> str:
    """Write the report of what a sweep that was ended has measured; return the sentence that says where it is."""
    try:
        measured = read_tuned(plan, journal)
        if not measured.measured:
            return "Nothing is measured yet, so there is no report."
        write(measured, folder)
    except Exception as error:  # Whatever ended the sweep may have harmed what a report needs.
        reason = f": {error}" if isinstance(error, LetheError) else ""
        return f"Its report could not be written ({type(error).__name__}{reason}): lethe collate {folder} tries again."
    return f"The report of what is measured: {folder / 'report.html'}"


def written_files(folder: Path) -> list[Path]:
    """Return the files in a sweep's folder that are `write`'s, by their names."""
    ours = [path for path in folder.iterdir() if path.name.removesuffix(path.suffix) in _NAMES and path.is_file()]
    return sorted([*ours, *(folder / "figures").glob("*.png")])


def write_tables(ranked: RankedTable, question: str, folder: Path) -> list[Path]:
    """Write what a table alone can tell: ranking.csv, table.md and table.tex; return the files."""
    shown, note = shown_table(ranked)
    tables, first, words = (
        model_tables(shown),
        ranked.said_first,
        f"{caption(ranked.table)} {note}".strip(),
    )
    bounds = [name for name in ranked.ranking.columns if name.endswith(("_low", "_high"))]
    flags = ["collapsed", "collapse_class", "collapse_reason"]
    names = ["model", "method", "variant", "strength", *rank_names(ranked.info), *bounds, *flags, "recited", "unranked"]
    return [
        write_whole(folder / "ranking.csv", csv_text(ranked.ranking[names])),
        write_whole(folder / "table.md", markdown(tables, question, " ".join([*first, words]))),
        write_whole(folder / "table.tex", latex(tables, " ".join([*first, question, words]))),
    ]
