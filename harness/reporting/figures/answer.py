"""The figure of the answer: what each method pays at the level, and how near to the level it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.analysis.answer import BAND, Answer
from harness.contracts import Metric
from harness.reporting.figures import style
from harness.settings import Plan
from harness.statistics.protocol import MIN_RUNS

TOLERANCE = 0.02
"""How near to a level MA is there: a walk ends within it."""
_ROW_INCHES = 0.3
_SMALL = 7.5


def answer_figure(answer: Answer, plan: Plan, of_variant: style.Styles, *, is_tall: bool = False) -> Figure | None:
    """Return two panels for each model, at the first level: prices, and levels reached; None where nothing got there.

    Args:
        answer: Of the sweep.
        plan: With the levels and the margin.
        of_variant: The colour and marker of each variant that has a point.
        is_tall: Whether the panels are below one another, as a phone needs it.
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
        _draw_prices(panels[2 * place], rows, head, plan.compare.margin, cost, of_variant)
        _draw_levels(panels[2 * place + 1], rows, head["levels"][plan.until[0].key], of_variant)
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
    ax: Axes, rows: pd.DataFrame, head: Mapping[str, Any], margin: float, cost: Metric, of_variant: style.Styles
) -> None:
    """Draw each price with its interval, around the reference's (or else the least) the band, and the two ideals."""
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
        _draw_point(ax, y, (row["price"], row["price_low"], row["price_high"]), row, of_variant)
        text = f"×{row['price']:.2f} {row['verdict']}".strip()
        right = row["price"] if math.isnan(row["price_high"]) else row["price_high"]
        ax.annotate(text, (right, y), xytext=(7, 0), textcoords="offset points", **at)
    style.use_log_scale(ax)
    _dress(ax, rows, of_variant, style.without_mathtext(f"{cost.title}, times the original's"))


def _draw_levels(ax: Axes, rows: pd.DataFrame, level: tuple[float, float, float], of_variant: style.Styles) -> None:
    """Draw the MA at which each method was compared, the level and the level's own noise; misses are grey."""
    at, low, high = level
    ends = (at - TOLERANCE, at + TOLERANCE) if math.isnan(low) else (low, high)
    if not math.isnan(at):
        ax.axvspan(*ends, color=style.GRID, zorder=0)
        ax.axvline(at, color=style.FAINT, linewidth=0.9, zorder=1)
    for y, row in enumerate(rows.to_dict("records")):
        if row["reached"]:
            _draw_point(ax, y, (row["ma"], math.nan, math.nan), row, of_variant)
        elif not math.isnan(row["nearest"]):
            ax.plot(row["nearest"], y, "x", color=style.FAINT, markersize=5.5, zorder=3)
    _dress(ax, rows, of_variant, "MA (band: the level's noise; ×: the nearest that it came)")


_ACROSS = ("axes fraction", "data")


def _draw_point(
    ax: Axes, y: int, number: tuple[float, float, float], row: Mapping[Any, Any], of_variant: style.Styles
) -> None:
    value, low, high = number
    colour, marker = of_variant.get(row["variant"], (style.SOFT, "o"))
    if not math.isnan(low):
        ax.plot([low, high], [y, y], color=colour, linewidth=2.2, alpha=0.45, zorder=2, solid_capstyle="butt")
    ax.plot(value, y, marker, markersize=6.5, zorder=4, **style.point_style(colour, is_collapsed=row["broken"] is True))


def _dress(ax: Axes, rows: pd.DataFrame, of_variant: style.Styles, title: str) -> None:
    labels = [style.without_mathtext(label) for label in rows["label"]]
    ax.set_yticks(range(len(rows)), labels, fontsize=8.5)
    for label, variant in zip(ax.get_yticklabels(), rows["variant"], strict=True):
        label.set_color(of_variant[variant][0] if variant in of_variant else style.SOFT)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.margins(x=0.18)
    ax.set_xlabel(title, fontsize=8.5, color=style.INK)
    ax.tick_params(which="both", labelsize=8, color=style.FAINT, length=2)
    ax.grid(axis="x", color=style.GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(style.FAINT)
