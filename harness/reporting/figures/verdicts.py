"""The forest plot: what each method pays, times the reference, with its interval and the margin of equivalence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.analysis.matched.verdicts import Judged, VerdictTable
from harness.reporting.figures import style
from harness.reporting.figures.colours import text_colour

_ROW_INCHES = 0.27
_TITLE_CHARACTERS, _NOTE_CHARACTERS = 34, 46
_TINY = 7.5


def verdict_figure(tables: Sequence[VerdictTable], margin: float, of_variant: style.Styles) -> Figure | None:
    """Return a panel for each model and limit of the first erasure metric; None where nothing was compared.

    Args:
        tables: The verdicts.
        margin: Ratios nearer to 1 than this share are equivalent: a band.
        of_variant: The colour and marker of each variant that has a point.
    """
    drawn = []
    for table in tables:
        is_first = (table.matched.limit.metric, table.metric) == (tables[0].matched.limit.metric, tables[0].metric)
        if is_first and any(judged.contrast for judged in table.rows):
            drawn.append(table)
    if not drawn:
        return None
    by_model: dict[str, list[VerdictTable]] = {}
    for table in drawn:
        by_model.setdefault(table.matched.model, []).append(table)
    columns, most = max(map(len, by_model.values())), max(len(table.rows) for table in drawn)
    size = (3.1 * columns + 0.4, len(by_model) * (_ROW_INCHES * most + 1.05) + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(by_model), columns, squeeze=False)
    for row_of_axes, (model, of_model) in zip(axes, by_model.items(), strict=True):
        for ax, table in zip(row_of_axes, of_model, strict=False):
            _draw_limit(ax, table, margin, of_variant)
            text = table.matched.limit.text
            style.panel_title(
                ax, fill(f"{model}: {text}" if len(by_model) > 1 else text, _TITLE_CHARACTERS), fontsize=9
            )
        for ax in row_of_axes[len(of_model) :]:
            ax.set_axis_off()
    runs = "several training runs" if not drawn[0].has_one_replicate else "items of one training run"
    note = f"Bars: 95 % interval over {runs}. Band: within {margin:.0%} of the reference, {drawn[0].reference.label}."
    style.legend_below(figure, [], fill(note, columns * _NOTE_CHARACTERS), columns=1)
    return figure


def _draw_limit(ax: Axes, table: VerdictTable, margin: float, of_variant: style.Styles) -> None:
    ax.axvspan(1 / (1 + margin), 1 + margin, color=style.GRID, zorder=0)
    ax.axvline(1.0, color=style.FAINT, linewidth=0.9, zorder=1)
    for y, judged in enumerate(table.rows):
        colour, marker = of_variant.get(judged.row.variant, (style.SOFT, "o"))
        if judged.contrast:
            _draw_ratio(ax, y, judged, colour, marker)
        else:
            why = judged.row.how if not judged.row.cells else f"at {table.matched.limit.metric.title} "
            text = why if not judged.row.cells else f"{why}{judged.row.matched.text}: not compared"
            at: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": _TINY}
            ax.annotate(text, (0.02, y), color=style.SOFT, **at)
    style.use_log_scale(ax)
    ax.set_yticks(range(len(table.rows)), [style.without_mathtext(one.row.label) for one in table.rows], fontsize=8.5)
    for label, judged in zip(ax.get_yticklabels(), table.rows, strict=True):
        known = of_variant.get(judged.row.variant)
        label.set_color(text_colour(known[0]) if known else style.SOFT)
    ax.set_ylim(len(table.rows) - 0.5, -0.5)
    ax.margins(x=0.15)
    title = style.without_mathtext(f"{table.metric.title}, times {table.reference.label}'s")
    ax.set_xlabel(title, fontsize=9, color=style.INK)
    ax.tick_params(which="both", labelsize=8, color=style.FAINT, length=2)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(style.FAINT)


def _draw_ratio(ax: Axes, y: int, judged: Judged, colour: str, marker: str) -> None:
    ratio, low, high = judged.ratio
    ends = [end for end in (low, high) if math.isfinite(end)]
    if len(ends) == 2:
        ax.plot(ends, [y, y], color=colour, linewidth=2.2, alpha=0.45, zorder=2, solid_capstyle="butt")
    ax.plot(ratio, y, marker, markersize=6.5, zorder=4, **style.point_style(colour, is_collapsed=judged.row.collapsed))
    at: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": _TINY}
    ax.annotate(f"{ratio:.2f} {judged.verdict or ''}".strip(), (max([ratio, *ends]), y), color=style.INK, **at)
