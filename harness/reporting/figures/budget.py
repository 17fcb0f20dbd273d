"""The figure of a search's worth: the expected price of each method against candidates, and against seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from harness.analysis.tradeoff.budget import BudgetCurve, BudgetPanel
from harness.reporting.figures import style

_NOTE = (
    "Expected price of the best of so many candidates; nothing where under half of all draws get there and are healthy."
)
_CONTROL = " Dashed: the same searches at random."
_BAND = " Bands: all {searches} searches; lines: their median."


def budget_figure(panels: Sequence[BudgetPanel], of_variant: style.Styles) -> Figure | None:
    """Return two panels for each model and target, by candidates and by seconds; None without any.

    Args:
        panels: What is drawn.
        of_variant: The colour and marker of each variant that has a point.
    """
    if not panels:
        return None
    figure = Figure(figsize=(7.2, 2.5 * len(panels) + 0.7), layout="constrained")
    axes = figure.subplots(len(panels), 2, squeeze=False, sharey="row")
    handles = {}
    for (left, right), panel in zip(axes, panels, strict=True):
        for ax, curves in ((left, panel.by_candidates), (right, panel.by_seconds)):
            _draw(ax, curves, of_variant)
        left.xaxis.set_major_locator(MaxNLocator(integer=True))
        left.set_ylabel("perplexity / original's", fontsize=9, color=style.INK)
        style.use_log_scale(right)
        style.panel_title(left, f"{panel.model}: {panel.target}", fontsize=9)
        for curve in panel.by_candidates:
            handles[curve.variant] = style.variant_handle(curve.label, *_style_of(curve, of_variant))
    for ax, name in zip(axes[-1], ("candidates", "seconds"), strict=True):
        ax.set_xlabel(name, fontsize=9, color=style.INK)
    searches = max(curve.searches for panel in panels for curve in panel.by_candidates)
    note = _NOTE + (_BAND.format(searches=searches) if searches > 1 else "")
    if len({curve.search for panel in panels for curve in panel.by_candidates}) > 1:
        note += _CONTROL
    style.legend_below(figure, list(handles.values()), note, columns=4, fontsize=8.5)
    return figure


def _draw(ax: Axes, curves: Sequence[BudgetCurve], of_variant: style.Styles) -> None:
    for curve in curves:
        colour, marker = _style_of(curve, of_variant)
        known = [index for index, price in enumerate(curve.prices) if math.isfinite(price)]
        budgets, prices = [curve.budgets[index] for index in known], [curve.prices[index] for index in known]
        is_control = curve.search == "random" and len({curve.search for curve in curves}) > 1
        line = "--" if is_control else "-"
        ax.plot(budgets, prices, line, color=colour, marker=marker, markersize=3.5, linewidth=1.3)
        if curve.searches > 1 and not is_control:  # NaN, where a search does not get there, leaves a gap.
            ax.fill_between(curve.budgets, curve.least, curve.most, color=colour, alpha=0.15, linewidth=0)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0), numticks=8))
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.yaxis.set_minor_formatter(NullFormatter())
    style.dress(ax)


def _style_of(curve: BudgetCurve, of_variant: style.Styles) -> tuple[str, str]:
    return of_variant.get(curve.variant, (style.SOFT, "o"))
