"""The forest plot: what each method pays, times the reference, with its interval and the margin of equivalence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.analysis.cells import number
from harness.analysis.matched.verdicts import Judged, VerdictTable
from harness.contracts import Metric
from harness.reporting.figures import style
from harness.reporting.figures.answer.panels import TINY, annotate_line, dress_lines, panel_grid

_NOTE_CHARACTERS = 46


def verdict_figure(
    tables: Sequence[VerdictTable], margin: float, of_variant: style.Styles, *, is_tall: bool = False
) -> Figure | None:
    """Return a panel for each model and limit of the first erasure metric; None where nothing was compared.

    Args:
        tables: The verdicts.
        margin: Ratios nearer to 1 than this share are equivalent: a band.
        of_variant: The colour and marker of each variant that has a point.
        is_tall: Whether each panel has a row of its own.
    """
    drawn, draws = [], []
    for table in tables:
        is_first = (table.matched.limit.metric, table.metric) == (tables[0].matched.limit.metric, tables[0].metric)
        if is_first and any(judged.contrast for judged in table.rows):
            drawn.append(table)
            draws.append(partial(_draw_limit, table=table, margin=margin, of_variant=of_variant))
    if not drawn:
        return None
    figure, columns = panel_grid([table.matched for table in drawn], draws, share_x=False, is_tall=is_tall)
    runs = "items of one training run" if drawn[0].has_one_replicate else "items and training runs"
    note = f"Bars: 95 % interval over {runs}. Band: within {margin:.0%} of the reference, {drawn[0].reference.label}."
    style.legend_below(figure, [], fill(note, columns * _NOTE_CHARACTERS), columns=1)
    return figure


def _draw_limit(ax: Axes, table: VerdictTable, margin: float, of_variant: style.Styles) -> None:
    ax.axvspan(1 / (1 + margin), 1 + margin, color=style.GRID, zorder=0)
    ax.axvline(1.0, color=style.FAINT, linewidth=0.9, zorder=1)
    rows = []
    for y, judged in enumerate(table.rows):
        rows.append(judged.row)
        if judged.contrast:
            _draw_ratio(ax, y, judged, table.metric, *of_variant.get(judged.row.variant, (style.SOFT, "o")))
        else:
            text: str = judged.row.how
            if judged.row.cells:
                text = f"at {table.matched.limit.metric.title} {judged.row.matched.text}: not compared"
            at: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": TINY}
            ax.annotate(text, (0.02, y), color=style.SOFT, **at)
    style.use_log_scale(ax)
    dress_lines(ax, rows, of_variant, style.without_mathtext(f"{table.metric.title}, times {table.reference.label}'s"))


def _draw_ratio(ax: Axes, y: int, judged: Judged, metric: Metric, colour: str, marker: str) -> None:
    ratio, low, high = judged.ratio
    if np.isfinite([low, high]).all():
        ax.plot([low, high], [y, y], color=colour, linewidth=2.2, alpha=0.45, zorder=2, solid_capstyle="butt")
    ax.plot(ratio, y, marker, markersize=6.5, zorder=4, **style.point_style(colour, is_collapsed=judged.row.collapsed))
    right = high if np.isfinite(high) else ratio
    annotate_line(ax, f"{number(ratio, metric)} {judged.verdict or ''}".strip(), right, y)
