"""Report page, files of a sweep's results folder (each written atomically), and tags for MLflow."""

import math
import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from harness.analysis import curves, metrics, ranking
from harness.analysis.analysis import Analysis
from harness.analysis.table import csv_text
from harness.base.files import write_whole
from harness.errors import LetheError
from harness.plugins import METHODS
from harness.records.journal import Journal
from harness.records.results import read_sweep_results
from harness.reporting import render, summary
from harness.reporting.section import Picture, Section
from harness.reporting.sections import SECTIONS, main_table, repeat
from harness.reporting.style import PHONE, REFERENCE_STYLES, labelled_points, rendered
from harness.settings import Plan, replace


def write(analysis: Analysis, folder: Path) -> list[Path]:
    """Write table.csv first, in case ranking fails, then other tables, figures and the report; return the files."""
    written = [write_whole(folder / "table.csv", csv_text(analysis.table))]
    written.append(write_whole(folder / "table.metrics.yaml", metrics.declarations(analysis.info)))
    sections = [section(analysis) for section in SECTIONS]
    for section in sections:
        for name, frame in section.frames().items():
            written += [write_whole(folder / f"{name}.csv", csv_text(frame))] if len(frame) else []
        for name, figure in section.figures.items():
            written.append(write_whole(folder / f"{name}.png", rendered(figure, "png")))
            written.append(write_whole(folder / f"{name}.pdf", rendered(figure, "pdf")))
    answer = summary.answer_text(analysis) if analysis.results.plan.erases else ""
    written += write_tables(analysis.ranked, analysis.results.plan.question, folder, answer)
    return [*written, write_whole(folder / "report.html", page(analysis, sections=sections))]


def write_measured(plan: Plan, journal: Journal, folder: Path) -> str:
    """Write the report of a sweep that was ended early; return a sentence with its location."""
    try:
        measured = read_sweep_results(plan, journal)
        if not measured.measured:
            return "Nothing is measured yet, so there is no report."
        write(Analysis(measured), folder)
    except Exception as error:  # Whatever ended the sweep may have harmed what a report needs.
        reason = f": {error}" if isinstance(error, LetheError) else ""
        return f"Its report could not be written ({type(error).__name__}{reason}): lethe collate {folder} tries again."
    return f"The report of all finished measurements: {folder / 'report.html'}"


def written_files(folder: Path) -> list[Path]:
    """Return the files in a folder that `write` made, sorted by name."""
    stems = {"table", "table.metrics", "ranking", "report"}.union(*(section.stems for section in SECTIONS))
    return sorted(path for path in folder.iterdir() if path.name.removesuffix(path.suffix) in stems and path.is_file())


def write_tables(ranked: ranking.RankedTable, question: str, folder: Path, answer: str = "") -> list[Path]:
    """Write ranking.csv, table.md (the answer, then the table) and table.tex; return the files."""
    page_rows = ranked.on_recited_texts
    caption = summary.caption(page_rows.table)
    below_answer = [*(ranked.idle_warnings if answer else ranked.headline_warnings), caption]
    words = " ".join([*ranked.headline_warnings, caption, question])
    bounds = [f"{name}{end}" for name in ranking.rank_names(ranked.info) for end in ("_low", "_high")]
    names = ["model", "method", "variant", "strength", *ranking.rank_names(ranked.info), *bounds]
    names += ["collapsed", "collapse_class", "collapse_reason", "recited", "unranked"]
    texts = {"ranking.csv": csv_text(ranked.ranking[names])}
    texts["table.md"] = main_table.main_markdown(page_rows, question, " ".join(below_answer), answer)
    texts["table.tex"] = main_table.main_latex(page_rows, words)
    return [write_whole(folder / name, text) for name, text in texts.items()]


def page(analysis: Analysis, *, sections: Sequence[Section] | None = None, is_kept: bool = True) -> str:
    """Return the report of a sweep; `is_kept`: its journal stays, so that the report can be made again."""
    plan = analysis.results.plan
    has_points, page_sections = plan.erases and len(analysis.points) > 0, []
    for section in sections or [section(analysis) for section in SECTIONS]:
        if has_points or not section.needs_points:
            sizes, pictures = (section.figures, section.drawn(*PHONE)), {}
            for name in section.figures:
                pictures[name] = [draw_picture(figures[name]) for figures in sizes]
            if text := section.html(pictures):
                anchor = re.sub(r"[^a-z0-9]+", "-", section.title.lower())
                page_sections.append((anchor, section.title, section.lead, text))
    style = (Path(__file__).parent / "templates" / "report.css").read_text(encoding="utf-8")
    parts: dict[str, Any] = {"sections": page_sections, "results": analysis.results, "answer": analysis.answer}
    results = analysis.results if is_kept else replace(analysis.results, folder=None)
    parts |= {"style": Markup(style), "style_digest": b64encode(sha256(style.encode()).digest()).decode()}
    parts |= {"provenance": repeat.provenance(results), "limits": analysis.caveats}
    if plan.erases:
        parts["cards"] = summary.cards(analysis) or [("", [("Seen", "No point has been measured yet.", "")])]
        parts |= {"notes": summary.further_notes(analysis), "methods": describe_methods(plan)}
    else:
        recited = analysis.ranked.headline_warnings or ["No evaluator of this sweep measures recitation."]
        parts |= {"cards": [], "recited": recited, "notes": [], "methods": []}
    return render.fill_html("page", is_kept=is_kept, **parts)


def draw_picture(figure: Figure) -> Picture:
    """Draw a figure for a page."""
    width, height = 72 * figure.get_size_inches()
    return Picture(b64encode(rendered(figure, "svg")).decode(), width, height, list(labelled_points(figure)))


def describe_methods(plan: Plan) -> list[tuple[str, str]]:
    """Return the labels of each method's rows, and the first sentence of its docstring."""
    labels: dict[str, dict[str, None]] = {}
    for spec in plan.trials:
        if not spec.is_reference and spec.method in METHODS.names():
            labels.setdefault(spec.method, {})[spec.label] = None
    docs = {name: " ".join((METHODS.load(name).__doc__ or "").split()) for name in labels}
    return [(", ".join(rows), re.split(r"(?<=\.) ", docs[name])[0]) for name, rows in labels.items()]


def point_tags(table: pd.DataFrame, attacked: pd.DataFrame | None = None) -> dict[str, dict[str, str]]:
    """Return each point's tags by its id: its states, its colour, and attacks' excess over the retrained model."""
    words = {True: "true", False: "false"}
    colours = {variant: colour for variant, (colour, _) in curves.styles(table).items()}
    colours |= {method: colour for method, (_, _, colour) in REFERENCE_STYLES.items()}
    tags: dict[str, dict[str, str]] = {}
    for row in table.to_dict("records"):
        point = {name: words.get(row[name], "unknown") for name in ("collapsed", "over_erased")}
        point |= {name: words[bool(row[name])] for name in ("ranked", "frontier")}
        point["collapse_class"] = row["collapse_class"] or "none"
        if row["variant"] in colours:
            point["mlflow.runColor"] = colours[row["variant"]]
        tags[row["point_id"]] = point
    for row in attacked.to_dict("records") if attacked is not None else ():
        if not math.isnan(row["excess"]):
            text, interval = render.cell_texts(row, render.Column("excess", "", "change"))
            for point_id in row["point_ids"]:
                tags[point_id][f"excess.{row['metric']}"] = f"{text} ({interval})" if interval else text
    return tags
