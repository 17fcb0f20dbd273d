"""A panel for each limit at which methods are compared, a row of panels for each model, a line for each method."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from textwrap import fill
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.analysis.matched.comparison import MatchedRow, MatchedTable
from harness.reporting.figures import style

PANEL_INCHES = 3.1
TINY = 7.5
"""Points of texts beside a line."""
_ROW_INCHES = 0.27
_TITLE_CHARACTERS = 34


def panel_grid(
    tables: Sequence[MatchedTable], draws: Sequence[Callable[[Axes], None]], *, share_x: bool, is_tall: bool = False
) -> tuple[Figure, int]:
    """Return a figure with all panels drawn, and how many columns it has.

    Args:
        tables: The limit of each panel, and its lines.
        draws: What draws each into its axes.
        share_x: Whether the panels of a model have one scale.
        is_tall: Whether each panel has a row of its own, as a phone needs it.
    """
    rows: dict[str | int, list[tuple[MatchedTable, Callable[[Axes], None]]]] = {}
    models: set[str] = set()
    most = 0
    for index, (table, draw) in enumerate(zip(tables, draws, strict=True)):
        rows.setdefault(index if is_tall else table.model, []).append((table, draw))
        models.add(table.model)
        most = max(most, len(table.rows))
    columns = max(map(len, rows.values()))
    size = (PANEL_INCHES * columns + 0.4, len(rows) * (_ROW_INCHES * most + 1.05) + 0.55)
    figure = Figure(figsize=size, layout="constrained")
    scaled_alike: Literal["col", "row", "none"] = "none" if not share_x else "col" if is_tall else "row"
    axes = figure.subplots(len(rows), columns, squeeze=False, sharex=scaled_alike)
    for row_of_axes, panels in zip(axes, rows.values(), strict=True):
        for ax, (table, draw) in zip(row_of_axes, panels, strict=False):
            draw(ax)
            text = f"{table.model}: {table.limit.text}" if len(models) > 1 else table.limit.text
            style.panel_title(ax, fill(text, _TITLE_CHARACTERS), fontsize=9)
            ax.tick_params(labelbottom=True)
        for ax in row_of_axes[len(panels) :]:
            ax.set_axis_off()
    return figure, columns


def annotate_line(ax: Axes, text: str, right: float, y: float) -> None:
    """Write a text beside the right end of a panel's line; of an infinite number it stands at the panel's edge."""
    look: dict[str, Any] = {"va": "center", "color": style.INK, "fontsize": TINY}
    if math.isinf(right):
        ax.annotate(text, (0.98, y), xycoords=("axes fraction", "data"), ha="right", **look)
    else:
        ax.annotate(text, (right, y), xytext=(6, 0), textcoords="offset points", **look)


def dress_lines(ax: Axes, rows: Sequence[MatchedRow], of_variant: style.Styles, x_title: str) -> None:
    """Name a panel's lines by their methods, in the methods' colours, and give it its frame."""
    ax.set_yticks(range(len(rows)), [style.without_mathtext(row.label) for row in rows], fontsize=8.5)
    for label, row in zip(ax.get_yticklabels(), rows, strict=True):
        label.set_color(of_variant[row.variant][0] if row.variant in of_variant else style.SOFT)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.margins(x=0.12)
    ax.set_xlabel(x_title, fontsize=9, color=style.INK)
    ax.tick_params(which="both", labelsize=8, color=style.FAINT, length=2)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(style.FAINT)
