"""The figure of what evaluators measured step by step, or layer by layer: a panel for each curve and model."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.analysis.attacks.measured_curves import CurvePanel
from harness.reporting.figures import style
from harness.specs import ORIGINAL

COLUMNS = 3
_NOTE = "Black: the original. Grey, dashed: the retrained model, which never saw the texts. Means over seeds."


def curves_figure(panels: Sequence[CurvePanel], of_variant: style.Styles, columns: int = COLUMNS) -> Figure | None:
    """Return the panels, row by row; None without any.

    Args:
        panels: What is drawn.
        of_variant: The colour and marker of each variant.
        columns: Panels beside each other, at most.
    """
    if not panels:
        return None
    across = min(columns, len(panels))
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(3.7 * across + 0.4, 2.8 * down + 1.0), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    handles: dict[str, Line2D] = {}
    is_of_several = len({panel.model for panel in panels}) > 1
    for ax, panel in zip(axes, panels, strict=False):
        for line in panel.lines:
            if line.variant in of_variant:
                colour, marker = of_variant[line.variant]
                ax.plot(line.xs, line.ys, color=colour, marker=marker, markersize=4, linewidth=1.4)
                handles[line.variant] = style.variant_handle(line.label, colour, marker)
            else:
                is_original = line.method == ORIGINAL
                look = {"color": style.INK} if is_original else {"color": style.FAINT, "linestyle": "--"}
                ax.plot(line.xs, line.ys, linewidth=1.6, zorder=1, **look)
        style.panel_title(ax, f"{panel.model}: {panel.title}" if is_of_several else panel.title, fontsize=9)
        ax.set_xlabel(panel.x_title, fontsize=9, color=style.INK)
        ax.set_ylabel(panel.y_title, fontsize=9, color=style.INK)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        style.dress(ax)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    note = f"{_NOTE} Methods at {panels[0].target}." if panels[0].target else _NOTE
    style.legend_below(figure, list(handles.values()), style.without_mathtext(note), columns=6, fontsize=8.5)
    return figure
