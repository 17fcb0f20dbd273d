"""First section: cards, tables of prices, their figure and their limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.analysis.answer import BAND, Answer
from harness.analysis.curves import styles
from harness.analysis.main_table import recited_frame
from harness.base.csv_text import csv_text
from harness.contracts import Metric
from harness.reporting import style
from harness.reporting.render import Column, render
from harness.reporting.section import PageContext, Section, paragraph
from harness.reporting.sections.main_table import recited_columns
from harness.reporting.summary import WORDS, caption, cards, further_notes, head_text, level_tables
from harness.settings import Plan
from harness.statistics.protocol import MIN_RUNS

_FIGURE = Markup(
    '<figure class="natural"><picture><source media="(max-width: 40rem)" '
    'srcset="data:image/svg+xml;base64,{}"><img src="data:image/svg+xml;base64,{}" alt="What each method pays at the '
    'level, and how near to the level each is; the table above has the numbers."></picture></figure>\n'
)


class TheAnswer(Section):
    """Prices of methods at each level, or recitation where nothing was erased."""

    stems = ("answer",)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        return self._drawn(is_tall=False)

    @cached_property
    def tall_figures(self) -> dict[str, Figure]:
        return self._drawn(is_tall=True)

    def _drawn(self, *, is_tall: bool) -> dict[str, Figure]:
        analysis = self.analysis
        figure = answer_figure(analysis.answer, analysis.results.plan, styles(analysis.points), is_tall=is_tall)
        return {"answer": figure} if figure else {}

    def files(self) -> dict[str, str]:
        frame = self.analysis.answer.frame
        return {"answer.csv": csv_text(frame.assign(points=frame["points"].map(" ".join)))} if len(frame) else {}

    def html(self, page: PageContext) -> Markup:
        parts = self._answered(page) if self.analysis.results.plan.erases else self._recited(page)
        if limits := self.analysis.caveats:
            items = Markup("\n").join(Markup("<li>{}</li>").format(sentence) for sentence in limits)
            summary = f"What limits these numbers ({len(limits)})"
            parts += Markup('<details class="warnings"><summary>{}</summary>\n<ul>{}</ul></details>\n').format(
                summary, items
            )
        return parts

    def _answered(self, page: PageContext) -> Markup:
        analysis, parts = self.analysis, Markup("")
        cards_by_model = cards(analysis)
        for model, card in cards_by_model or [("", [("Seen", "No point has been measured yet.", "")])]:
            lines = Markup("")
            for heading, text, command in card:
                code = Markup(" <code>{}</code>").format(command) if command else ""
                lines += Markup("<dt>{}</dt><dd>{}{}</dd>\n").format(heading, text, code)
            name = paragraph(model) if len(cards_by_model) > 1 else ""
            parts += Markup('<section class="outcome card" aria-label="Answer">{}<dl>\n{}</dl></section>\n').format(
                name, lines
            )
        parts += Markup("").join(map(paragraph, further_notes(analysis)))
        for model, _ in cards_by_model:
            tables = level_tables(model, analysis)
            for place, (level, frame, columns) in enumerate(tables):
                table = render(frame, columns, "html")
                if place == 0:
                    parts += page.section_heading(f"Who pays what{f' on {model}' if len(cards_by_model) > 1 else ''}")
                    parts += paragraph(f"{level}. {head_text(model, analysis)}") + table
                else:
                    parts += Markup("<details><summary>{}, without verdicts</summary>\n{}</details>\n").format(
                        level, table
                    )
        if "answer" in page.pictures:
            parts += _FIGURE.format(page.pictures["answer_tall"], page.pictures["answer"])
        if any(level_tables(model, analysis) for model, _ in cards_by_model):
            words = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>\n").format(*word) for word in WORDS.items())
            parts += Markup('<dl class="glossary">\n{}</dl>\n').format(words)
        return parts

    def _recited(self, page: PageContext) -> Markup:
        analysis = self.analysis
        sentences = analysis.ranked.headline_warnings or ["No evaluator of this sweep measures what is recited."]
        items = Markup("\n").join(Markup("<li>{}</li>").format(sentence) for sentence in sentences)
        parts = Markup(
            '<section class="outcome" aria-label="Answer">\n<p><strong>Does it recite the forget set?</strong></p>\n'
            "<ul>{}</ul></section>\n"
        ).format(items)
        if not len(analysis.points):
            return parts
        frame = recited_frame(analysis.ranked)
        columns = [*recited_columns(frame), Column("unit", "Unit", "note"), Column("source", "Source", "note")]
        about = "Nothing was erased: these are the models as they are. Each number is a mean over the texts."
        heading = page.section_heading("What is recited")
        return parts + heading + paragraph(about, caption(analysis.points)) + render(frame, columns, "html")


TOLERANCE = 0.02
"""Distance from the level within which a walk ends."""
_ROW_INCHES = 0.3
_SMALL = 7.5


def answer_figure(
    answer: Answer, plan: Plan, styles_by_variant: style.Styles, *, is_tall: bool = False
) -> Figure | None:
    """Return two panels for each model: prices at the first level, and levels reached; None where none was reached.

    Args:
        answer: Of the sweep.
        plan: With the levels and the margin.
        styles_by_variant: The colour and marker of each variant that has a point.
        is_tall: Whether to stack the panels, for narrow screens.
    """
    cost = answer.cost
    frames = {model: answer.at(model, plan.until[0]) for model in answer.heads} if plan.until and cost else {}
    frames = {model: rows for model, rows in frames.items() if rows["price"].notna().any()}
    if not frames or cost is None:
        return None
    count = len(frames)
    shape, width = ((2 * count, 1), 4.2) if is_tall else ((count, 2), 7.6)
    inches = sum(_ROW_INCHES * len(rows) + 0.9 for rows in frames.values())
    figure = Figure(figsize=(width, inches * (2 if is_tall else 1) + 0.7), layout="constrained")
    panels = list(figure.subplots(*shape, squeeze=False).flat)
    runs = 0
    for place, (model, rows) in enumerate(frames.items()):
        head = answer.heads[model]
        runs = max(runs, head["runs"])
        _draw_prices(panels[2 * place], rows, head, plan.compare.margin, cost, styles_by_variant)
        _draw_levels(panels[2 * place + 1], rows, head["levels"][plan.until[0].key], styles_by_variant)
        style.panel_title(panels[2 * place], model if count > 1 else "What it pays")
        style.panel_title(panels[2 * place + 1], f"Where it was compared ({plan.until[0]})")
    band = f"within {plan.compare.margin:.0%}" if runs >= MIN_RUNS else f"below ×{BAND:g}: may be luck"
    handles: list[Any] = [Patch(color=style.GRID, label=band)]
    if any(not math.isnan(head["retrained_price"]) for head in answer.heads.values()):
        handles.append(Line2D([], [], color=style.SOFT, linestyle="--", linewidth=0.9, label="never-seen model"))
    if any(rows["broken"].eq(True).any() for rows in frames.values()):
        handles.append(Line2D([], [], marker="o", linestyle="", markersize=6, label="broken", **style.HOLLOW))
    note = "Bars: 95 % interval over runs." if runs >= MIN_RUNS else f"{runs} of the {MIN_RUNS} runs that bars need."
    style.legend_below(figure, handles, note, columns=1 if is_tall else 3, fontsize=8.5)
    return figure


def _draw_prices(
    ax: Axes, rows: pd.DataFrame, head: Mapping[str, Any], margin: float, cost: Metric, styles_by_variant: style.Styles
) -> None:
    references = rows.loc[rows["is_reference"].astype(bool) & rows["price"].notna(), "price"]
    centre = float(references.iloc[0] if len(references) else rows["price"].min())
    far = 1 + margin if head["runs"] >= MIN_RUNS else BAND
    ax.axvspan(centre / far, centre * far, color=style.GRID, zorder=0)
    ax.axvline(1.0, color=style.FAINT, linewidth=0.9, zorder=1)
    if not math.isnan(head["retrained_price"]):
        ax.axvline(head["retrained_price"], color=style.SOFT, linewidth=0.9, linestyle="--", zorder=1)
    for y, row in enumerate(rows.to_dict("records")):
        at: dict[str, Any] = {"va": "center", "fontsize": _SMALL, "color": style.SOFT}
        if math.isnan(row["price"]):
            ax.annotate("not there" if row["gets_there"] == "no" else "not run", (0.02, y), xycoords=_ACROSS, **at)
            continue
        _draw_point(ax, y, (row["price"], row["price_low"], row["price_high"]), row, styles_by_variant)
        text = f"×{row['price']:.2f} {row['verdict']}".strip()
        right = row["price"] if math.isnan(row["price_high"]) else row["price_high"]
        ax.annotate(text, (right, y), xytext=(7, 0), textcoords="offset points", **at)
    style.use_log_scale(ax)
    _dress(ax, rows, styles_by_variant, style.without_mathtext(f"{cost.title}, times the original's"))


def _draw_levels(
    ax: Axes, rows: pd.DataFrame, level: tuple[float, float, float], styles_by_variant: style.Styles
) -> None:
    at, low, high = level
    ends = (at - TOLERANCE, at + TOLERANCE) if math.isnan(low) else (low, high)
    if not math.isnan(at):
        ax.axvspan(*ends, color=style.GRID, zorder=0)
        ax.axvline(at, color=style.FAINT, linewidth=0.9, zorder=1)
    for y, row in enumerate(rows.to_dict("records")):
        if row["reached"]:
            _draw_point(ax, y, (row["ma"], math.nan, math.nan), row, styles_by_variant)
        elif not math.isnan(row["nearest"]):
            ax.plot(row["nearest"], y, "x", color=style.FAINT, markersize=5.5, zorder=3)
    _dress(ax, rows, styles_by_variant, "MA (band: the level's noise; ×: the nearest that it came)")


_ACROSS = ("axes fraction", "data")


def _draw_point(
    ax: Axes, y: int, number: tuple[float, float, float], row: Mapping[Any, Any], styles_by_variant: style.Styles
) -> None:
    value, low, high = number
    colour, marker = styles_by_variant.get(row["variant"], (style.SOFT, "o"))
    if not math.isnan(low):
        ax.plot([low, high], [y, y], color=colour, linewidth=2.2, alpha=0.45, zorder=2, solid_capstyle="butt")
    ax.plot(value, y, marker, markersize=6.5, zorder=4, **style.point_style(colour, is_collapsed=row["broken"] is True))


def _dress(ax: Axes, rows: pd.DataFrame, styles_by_variant: style.Styles, title: str) -> None:
    labels = [style.without_mathtext(label) for label in rows["label"]]
    ax.set_yticks(range(len(rows)), labels, fontsize=8.5)
    for label, variant in zip(ax.get_yticklabels(), rows["variant"], strict=True):
        label.set_color(styles_by_variant[variant][0] if variant in styles_by_variant else style.SOFT)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.margins(x=0.18)
    ax.set_xlabel(title, fontsize=8.5, color=style.INK)
    ax.tick_params(which="both", labelsize=8, color=style.FAINT, length=2)
    ax.grid(axis="x", color=style.GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(style.FAINT)
