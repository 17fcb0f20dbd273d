"""What each method pays at every level of erasure, times the original, with a band for its 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.analysis.matched.price_curves import PriceCurve
from harness.reporting.figures import style


def price_figure(curves: Sequence[PriceCurve], of_variant: style.Styles) -> Figure | None:
    """Return a panel for each model; None without any curve.

    Args:
        curves: What each variant pays.
        of_variant: The colour and marker of each variant that has a point.
    """
    if not curves:
        return None
    models = list(dict.fromkeys(curve.model for curve in curves))
    figure = Figure(figsize=(5.4 * len(models), 4.0), layout="constrained")
    for ax, model in zip(figure.subplots(1, len(models), squeeze=False)[0], models, strict=True):
        of_model = [curve for curve in curves if curve.model == model]
        for curve in of_model:
            _draw_curve(ax, curve, *of_variant[curve.variant])
        style.dress(ax)
        ax.axhline(1.0, color=style.FAINT, linewidth=0.9, zorder=1)
        style.use_log_scale(ax, "y")
        ax.invert_xaxis()
        ax.set_xlabel(f"{style.axis_title(curves[0].erasure)}, less is erased more", fontsize=9, color=style.INK)
        ax.set_ylabel(f"{curves[0].utility.title}, times the original's", fontsize=9, color=style.INK)
        style.panel_title(ax, model)
    handles = []
    for name, label in {curve.variant: curve.label for curve in curves}.items():
        handles.append(style.variant_handle(label, *of_variant[name]))
    note = "Bands: 95 % interval." if curves[0].is_whole else "Points: where each method meets a target; bars: 95 %."
    style.legend_below(figure, handles, note, columns=4 * len(models), fontsize=8.5)
    return figure


def _draw_curve(ax: Axes, curve: PriceCurve, colour: str, marker: str) -> None:
    numbers_P4 = np.array([(point.level, point.ratio, point.low, point.high) for point in curve.points])
    levels, ratios, lows, highs = numbers_P4.T
    if curve.is_whole:
        ax.plot(levels, ratios, color=colour, marker=marker, markersize=4.5, linewidth=1.5, zorder=3)
        ax.fill_between(levels, lows, highs, color=colour, alpha=0.15, linewidth=0, zorder=2)
    else:
        known = np.nan_to_num([ratios - lows, highs - ratios])
        ax.errorbar(levels, ratios, yerr=known, color=colour, marker=marker, markersize=5, linewidth=0, elinewidth=1.6)
