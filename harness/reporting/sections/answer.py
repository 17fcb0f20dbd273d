"""First section: cards, tables of prices, their figure and their limits."""

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

from harness.analysis import curves, main_table
from harness.analysis.answer import BAND, Answer
from harness.reporting import section, style, summary
from harness.reporting.render import Column, fill_html, render
from harness.reporting.sections.main_table import recited_columns
from harness.settings import Plan
from harness.statistics.protocol import MIN_RUNS


class TheAnswer(section.Section):
    """Prices of methods at each level, or recitation where nothing was erased."""

    stems = ("answer",)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        analysis = self.analysis
        figure = answer_figure(analysis.answer, analysis.results.plan, curves.styles(analysis.points))
        return {"answer": figure} if figure else {}

    def frames(self) -> dict[str, pd.DataFrame]:
        frame = self.analysis.answer.frame
        return {"answer": frame.assign(points=frame["points"].map(" ".join))}

    def html(self, page: section.PageContext) -> Markup:
        parts = self._answered(page) if self.analysis.results.plan.erases else self._recited(page)
        if limits := self.analysis.caveats:
            title = f"What limits these numbers ({len(limits)})"
            parts += section.details(title, section.bullets(limits), classes="warnings")
        return parts

    def _answered(self, page: section.PageContext) -> Markup:
        analysis = self.analysis
        cards_by_model = summary.cards(analysis) or [("", [("Seen", "No point has been measured yet.", "")])]
        has_models = len(cards_by_model) > 1
        parts = fill_html("answer", cards=cards_by_model, notes=summary.further_notes(analysis))
        for model in analysis.answer.heads:
            for place, (above, frame, columns) in enumerate(summary.level_tables(model, analysis)):
                table = render(frame, columns, "html")
                if place == 0:
                    parts += page.section_heading(f"Who pays what{f' on {model}' if has_models else ''}")
                    parts += section.paragraph(above) + table
                else:
                    parts += section.details(f"{above} Without verdicts.", table)
        alt = "What each method pays at the level; the table above has the numbers."
        return parts + page.picture("answer", alt, classes="natural")

    def _recited(self, page: section.PageContext) -> Markup:
        analysis = self.analysis
        sentences = analysis.ranked.headline_warnings or ["No evaluator of this sweep measures what is recited."]
        parts = fill_html("answer", cards=[], notes=[], recited=sentences)
        if not len(analysis.points):
            return parts
        frame = main_table.recited_frame(analysis.ranked)
        columns = [*recited_columns(frame), Column("unit", "Unit", "note"), Column("source", "Source", "note")]
        about = "Nothing was erased: these are the models as they are. Each number is a mean over the texts."
        parts += page.section_heading("What is recited") + section.paragraph(about, summary.caption(analysis.points))
        return parts + render(frame, columns, "html")


def answer_figure(answer: Answer, plan: Plan, styles_by_variant: style.Styles) -> Figure | None:
    """Return a panel of prices at the first level for each model; None where none was reached."""
    cost = answer.cost
    frames = {model: answer.at(model, plan.until[0]) for model in answer.heads} if plan.until and cost else {}
    frames = {model: rows for model, rows in frames.items() if rows["price"].notna().any()}
    if not frames or cost is None:
        return None
    inches = sum(0.3 * len(rows) + 0.9 for rows in frames.values())
    figure = Figure(figsize=(6.4, inches + 0.7), layout="constrained")
    runs = max(answer.heads[model]["runs"] for model in frames)
    panels = figure.subplots(len(frames), 1, squeeze=False).flat
    for ax, (model, rows) in zip(panels, frames.items(), strict=True):
        _draw_prices(ax, rows, answer.heads[model], plan.compare.margin, styles_by_variant)
        ax.set_xlabel(style.without_mathtext(f"{cost.title}, times the original's"), fontsize=8.5, color=style.INK)
        style.panel_title(ax, f"{model}, {plan.until[0]}" if len(frames) > 1 else f"What it pays at {plan.until[0]}")
    band = f"within {plan.compare.margin:.0%}" if runs >= MIN_RUNS else f"below ×{BAND:g}: may be luck"
    handles: list[Any] = [Patch(color=style.GRID, label=band)]
    if any(not math.isnan(head["retrained_price"]) for head in answer.heads.values()):
        handles.append(Line2D([], [], color=style.SOFT, linestyle="--", linewidth=0.9, label="never-seen model"))
    if any(rows["broken"].eq(True).any() for rows in frames.values()):
        handles.append(style.collapsed_handle("broken"))
    note = "Bars: 95 % interval over runs." if runs >= MIN_RUNS else f"{runs} of the {MIN_RUNS} runs that bars need."
    style.legend_below(figure, handles, note, columns=3)
    return figure


def _draw_prices(
    ax: Axes, rows: pd.DataFrame, head: Mapping[str, Any], margin: float, styles_by_variant: style.Styles
) -> None:
    references = rows.loc[rows["is_reference"].astype(bool) & rows["price"].notna(), "price"]
    centre = float(references.iloc[0] if len(references) else rows["price"].min())
    far = 1 + margin if head["runs"] >= MIN_RUNS else BAND
    ax.axvspan(centre / far, centre * far, color=style.GRID, zorder=0)
    ax.axvline(1.0, color=style.FAINT, linewidth=0.9, zorder=1)
    if not math.isnan(head["retrained_price"]):
        ax.axvline(head["retrained_price"], color=style.SOFT, linewidth=0.9, linestyle="--", zorder=1)
    at: dict[str, Any] = {"va": "center", "fontsize": 7.5, "color": style.SOFT}
    for y, row in enumerate(rows.to_dict("records")):
        price, low, high = row["price"], row["price_low"], row["price_high"]
        if math.isnan(price):
            words = "not there" if row["gets_there"] == "no" else "not run"
            ax.annotate(words, (0.02, y), xycoords=("axes fraction", "data"), **at)
            continue
        colour, marker = styles_by_variant.get(row["variant"], (style.SOFT, "o"))
        if not math.isnan(low):
            ax.plot([low, high], [y, y], color=colour, linewidth=2.2, alpha=0.45, zorder=2, solid_capstyle="butt")
        look = style.point_style(colour, is_collapsed=row["broken"] is True)
        ax.plot(price, y, marker, markersize=6.5, zorder=4, **look)
        right = price if math.isnan(high) else high
        text = f"×{price:.2f} {row['verdict']}".strip()
        ax.annotate(text, (right, y), xytext=(7, 0), textcoords="offset points", **at)
    style.use_log_scale(ax)
    ax.set_yticks(range(len(rows)), map(style.without_mathtext, rows["label"]), fontsize=8.5)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.margins(x=0.18)
    style.dress(ax)
