"""Section with the trade-off figure: memorisation against text quality."""

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.analysis import damage, metrics
from harness.analysis.curves import Curve, better_corner, curves, panels, styles
from harness.contracts import Metric
from harness.reporting import section, style
from harness.settings import RETRAINED


class Tradeoff(section.Section):
    """Memorisation against fluency, a curve for each method."""

    title = "Trade-off"
    stems = ("tradeoff",)
    needs_points = True

    @cached_property
    def figures(self) -> dict[str, Figure]:
        analysis = self.analysis
        return {"tradeoff": tradeoff(analysis.points, analysis.info)} if analysis.results.plan.erases else {}

    def html(self, page: section.PageContext) -> Markup:
        points, caption = self.analysis.points, "Each curve is a method at rising strength."
        if (points["method"] == RETRAINED).any():
            caption += " Perfect erasure looks like the retrained model, not like zero."
        if rules := damage.describe_rules(self.analysis.info, self.analysis.results.plan.collapse):
            caption += f" A hollow red point has collapsed: {rules}."
        alt = "Trade-off curves: memorization against fluency, a curve for each method."
        return page.picture("tradeoff", alt, caption, "narrow" if points["model"].nunique() == 1 else "")


def tradeoff(table: pd.DataFrame, info: metrics.MetricInfo) -> Figure:
    """Return the paper's Figure 4: memorisation against fluency, a curve through each method's strengths.

    One model fills two rows of two panels; several get a row each. Without any point the figure contains a sentence.
    """
    planes, models = panels(info), list(table["model"].unique())
    curves_by_panel = [curves(table, model, x, y) for model in models for x, y in planes]
    if not any(curves_by_panel):
        figure = Figure(figsize=(6.0, 1.5))
        nothing = "Nothing to draw yet: no point has both a memorization and a fluency metric."
        figure.text(0.5, 0.5, nothing, ha="center")
        return figure
    is_one = len(models) == 1 and len(planes) == 4
    rows, columns = (2, 2) if is_one else (len(models), len(planes))
    figure = Figure(figsize=(8.4, 7.2) if is_one else (3.7 * columns, 3.4 * rows + 0.9), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    styles_by_variant = styles(table)
    for ax, (x, y), panel_curves in zip(axes, planes * len(models), curves_by_panel, strict=True):
        _draw_plane(ax, panel_curves, x, y, styles_by_variant)
    for ax, model in zip(axes[:: len(planes)], models, strict=True):
        style.panel_title(ax, model)
    handles = _legend_handles(list(chain.from_iterable(curves_by_panel)), styles_by_variant)
    note = "At the ends of a curve: its strengths. Bars, with several seeds: 95 % interval over them."
    style.legend_below(figure, handles, note, 3 * columns - 1)
    return figure


def _draw_plane(ax: Axes, panel_curves: Sequence[Curve], x: Metric, y: Metric, styles: style.Styles) -> None:
    ax.set(xlabel=style.axis_title(x), ylabel=style.axis_title(y))
    ax.set_title(f"better {better_corner(x, y)}", loc="right", fontsize=8.5)
    style.dress(ax)
    if math.isinf(x.high):
        style.use_log_scale(ax)
    for curve in panel_curves:
        if not curve.is_reference:
            _draw_curve(ax, curve, *styles[curve.variant])
            continue
        marker, size, colour = style.REFERENCE_STYLES[curve.method]
        (point,) = curve.points
        ax.plot(point.x, point.y, marker, markersize=size, zorder=6, color=colour, markeredgecolor="white")
        for guide, at in ((ax.axvline, point.x), (ax.axhline, point.y)):
            guide(at, color=colour, alpha=0.35, linewidth=0.8, linestyle=":", zorder=1)


def _draw_curve(ax: Axes, curve: Curve, colour: str, marker: str) -> None:
    # Two seeds give very wide ones.
    xs, ys = [point.x for point in curve.points], [point.y for point in curve.points]
    ax.plot(xs, ys, color=colour, alpha=0.75, zorder=3, linestyle="-" if curve.is_trajectory else "")
    for point in curve.points:
        for across, along in ((point.x_ends, (point.y, point.y)), ((point.x, point.x), point.y_ends)):
            if all(map(math.isfinite, (*across, *along))):
                ax.add_artist(Line2D(across, along, color=colour, alpha=0.45, linewidth=1.1, zorder=2))
        ax.plot(point.x, point.y, marker, zorder=4, **style.point_style(colour, is_collapsed=bool(point.state)))
    for point in dict.fromkeys((curve.points[0], curve.points[-1])):
        about: dict[str, Any] = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": 6.5, "color": colour}
        ax.annotate(f"{point.strength:.3g}", (point.x, point.y), zorder=5, **about)


def _legend_handles(panel_curves: Sequence[Curve], styles: style.Styles) -> list[Line2D]:
    references, variants = [], []
    for curve in {curve.variant: curve for curve in panel_curves}.values():
        if curve.is_reference:
            references.append(style.reference_handle(curve.method, curve.label))
        else:
            variants.append(style.variant_handle(curve.label, *styles[curve.variant]))
    states = sorted({point.state for curve in panel_curves for point in curve.points if point.state})
    return [*references, *variants, *([style.collapsed_handle(" or ".join(states))] if states else [])]
