"""First section: cards, tables of prices, their figure and their limits."""

import math
from collections.abc import Mapping
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
from harness.reporting.render import Column, render
from harness.reporting.sections.main_table import recited_columns
from harness.settings import Plan
from harness.statistics.contrasts import MIN_RUNS


class TheAnswer(section.Section):
    """Prices of methods at each level."""

    title = "Who pays what"
    lead = (
        "Each method erases to the same level, and pays with the quality of its other text: ×1 is free. An interval is"
        " for one price at a time; a verdict allows for all of them."
    )
    stems = ("answer",)

    def drawn(self, width: float, across: int) -> dict[str, Figure]:
        analysis = self.analysis
        figure = answer_figure(analysis.answer, analysis.results.plan, curves.styles(analysis.points), width)
        return {"answer": figure} if figure else {}

    def frames(self) -> dict[str, pd.DataFrame]:
        frame = self.analysis.answer.frame
        return {"answer": frame.assign(points=frame["points"].map(" ".join))}

    def html(self, pictures: section.Pictures) -> Markup:
        parts, heads = Markup(""), self.analysis.answer.heads
        for model in heads:
            parts += Markup("<h3>{}</h3>\n").format(model) if len(heads) > 1 else ""
            for place, (above, frame, columns) in enumerate(summary.level_tables(model, self.analysis)):
                table = render(frame, columns, "html")
                parts += section.details(above.partition(". ")[0], table) if place else section.paragraph(above) + table
        return parts + section.picture(pictures, "answer", "What each method pays at the level, as in the table above.")


class Recited(section.Section):
    """Recitation where nothing was erased."""

    title = "What is recited"
    lead = "Nothing was erased: these are the models as they are, and each number is a mean over the texts."

    def html(self, pictures: section.Pictures) -> Markup:
        analysis = self.analysis
        if analysis.results.plan.erases or not len(analysis.points):
            return Markup("")
        frame = main_table.recited_frame(analysis.ranked)
        columns = [*recited_columns(frame), Column("unit", "Unit", "note"), Column("source", "Source", "note")]
        return section.paragraph(summary.caption(analysis.points)) + render(frame, columns, "html")


def answer_figure(answer: Answer, plan: Plan, looks: style.Styles, width: float = style.PAGE[0]) -> Figure | None:
    """Return a panel of prices at the first level for each model; None where none was reached."""
    cost = answer.cost
    frames = {model: answer.at(model, plan.until[0]) for model in answer.heads} if plan.until and cost else {}
    frames = {model: rows for model, rows in frames.items() if rows["price"].notna().any()}
    if not frames or cost is None:
        return None
    figure, panels = style.new_panels(len(frames), width, 1, 0.3 * max(map(len, frames.values())) + 0.9)
    runs = [answer.heads[model]["runs"] for model in frames]
    title = style.without_mathtext(f"{cost.title}, times the original's: lower is cheaper")
    for ax, (model, rows) in zip(panels, frames.items(), strict=True):
        _draw_prices(ax, rows, answer.heads[model], plan.compare.margin, looks)
        ax.set_xlabel(title, fontsize=8.5)
        at = summary.level_text(plan.until[0], answer.heads[model])
        style.panel_title(ax, f"{model}, {at}" if len(frames) > 1 else f"What it pays at {at}")
    bands = [f"within {plan.compare.margin:.0%}"] if max(runs) >= MIN_RUNS else []
    bands += [f"below ×{BAND:g}: may be luck"] if min(runs) < MIN_RUNS else []
    band = Patch(color=style.GRID, label=" or ".join(bands))
    handles: list[Any] = [band] if any(ax.patches for ax in panels) else []
    if any(not math.isnan(head["retrained_price"]) for head in answer.heads.values()):
        handles.append(Line2D([], [], color=style.SOFT, linestyle="--", linewidth=0.9, label="never-seen model"))
    if any(rows["broken"].eq(True).any() for rows in frames.values()):
        handles.append(style.legend_handle("broken", style.RED, "o"))
    note = "Bars: 95 % interval over runs and prompts." if max(runs) >= MIN_RUNS else f"No bars: under {MIN_RUNS} runs."
    style.legend_below(figure, handles, note, width)
    return figure


def _draw_prices(ax: Axes, rows: pd.DataFrame, head: Mapping[str, Any], margin: float, looks: style.Styles) -> None:
    sound = rows[rows["price"].notna() & ~rows["broken"].eq(True)]
    if len(sound):
        references = sound.loc[sound["is_reference"].astype(bool), "price"]
        centre = float(references.iloc[0] if len(references) else sound["price"].min())
        far = 1 + margin if head["runs"] >= MIN_RUNS else BAND
        ax.axvspan(centre / far, centre * far, color=style.GRID, zorder=0)
    ax.axvline(1.0, color=style.FAINT, linewidth=0.9, zorder=1)
    if not math.isnan(head["retrained_price"]):
        ax.axvline(head["retrained_price"], color=style.SOFT, linewidth=0.9, linestyle="--", zorder=1)
    at: dict[str, Any] = {"va": "center", "fontsize": 7.5, "color": style.SOFT}
    for y, row in enumerate(rows.to_dict("records")):
        price, low, high = row["price"], row["price_low"], row["price_high"]
        if math.isnan(price):
            words = {"no": "not there", "yes": "no price"}.get(row["gets_there"], "not run")
            ax.annotate(words, (0.02, y), xycoords=("axes fraction", "data"), **at)
            continue
        colour, marker = looks.get(row["variant"], (style.SOFT, "o"))
        if not math.isnan(low):
            ax.plot([low, high], [y, y], color=colour, linewidth=2.2, alpha=0.45, zorder=2, solid_capstyle="butt")
        look = style.point_style(colour, is_collapsed=row["broken"] is True)
        ax.plot(price, y, marker, markersize=6.5, zorder=4, label=row["label"], **look)
        right = price if math.isnan(high) else high
        ax.annotate(f"×{price:.2f} {row['verdict']}".strip(), (right, y), (7, 0), textcoords="offset points", **at)
    style.use_log_scale(ax)
    ax.set_yticks(range(len(rows)), map(style.without_mathtext, rows["label"]), fontsize=8.5)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.margins(x=0.18)
    style.dress(ax)
