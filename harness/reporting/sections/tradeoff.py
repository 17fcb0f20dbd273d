"""Section with the trade-off figure: memorisation against text quality."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.analysis import damage, seeds
from harness.analysis.analysis import Analysis
from harness.analysis.curves import Curve, curves, panels, styles
from harness.contracts import Metric
from harness.reporting import section, style
from harness.reporting.render import Column, render
from harness.settings import RETRAINED

MAX_POINTS = 2000
"""Most listed points of a model."""
Plane = tuple[Metric, Metric]


class Tradeoff(section.Section):
    """Memorisation against fluency, a curve for each method."""

    title = "Trade-off"
    lead = "Each point is a method at one strength: how much it erases, against how well it still writes."
    stems = ("tradeoff",)
    needs_points = True

    def drawn(self, width: float, across: int) -> dict[str, Figure]:
        points, plan, planes = self.analysis.points, self.analysis.results.plan, panels(self.analysis.info)
        line = "" if plan.studies else "-"  # Tuned points differ in more than their strength.
        return tradeoff("tradeoff", points, planes, styles(points), width, across, line) if plan.erases else {}

    def html(self, pictures: section.Pictures) -> Markup:
        points, caption = self.analysis.points, ""
        if (points["method"] == RETRAINED).any():
            caption = "Perfect erasure looks like the retrained model, not like zero."
        if rules := damage.describe_rules(self.analysis.info, self.analysis.results.plan.collapse):
            caption += f" A hollow red point is over-erased or has collapsed: {rules}."
        alt = "Trade-off: memorisation against fluency, by method."
        numbers = section.details("The numbers of every point", point_table(self.analysis))
        return section.picture(pictures, "tradeoff", alt, caption) + numbers


def point_table(analysis: Analysis) -> Markup:
    """Return the table of every point."""
    points = analysis.points.groupby("model", sort=False).head(MAX_POINTS)
    points = points.drop(columns=[name for name in points.columns if str(name).endswith(("_low", "_high"))])
    points = points.assign(at=[*map(seeds.strength_text, points["strength_name"], points["strength"])])
    is_over_erased = points["over_erased"].eq(True) & ~points["collapsed"].eq(True)
    points["state"] = points["collapse_class"].mask(is_over_erased, "over-erased")
    columns = [Column("model", "Model", "heading"), Column("label", "Method"), Column("at", "Strength")]
    columns += [Column("until", "Until"), Column("seed", "Seed", "count"), Column("ranked", "Ranked", "number")]
    columns += [Column(metric.name, metric.title, "number", metric) for metric in analysis.info.values()]
    columns += [Column("state", "State"), Column("stop_reason", "Stopped because", "note")]
    return render(points, columns, "html")


def tradeoff(
    name: str, table: pd.DataFrame, planes: Sequence[Plane], looks: style.Styles, width: float, across: int, line: str
) -> dict[str, Figure]:
    """Return a panel for each model and plane, a curve for each method: the paper's Figure 4."""
    models = list(table["model"].unique())
    curves_by_panel = [curves(table, model, x, y) for model in models for x, y in planes]
    if not any(curves_by_panel):
        figure = Figure(figsize=(width, 1.0))
        figure.text(0.5, 0.5, "Nothing to draw yet: no point has both numbers.", ha="center")
        return {name: figure}
    figure, axes = style.new_panels(len(curves_by_panel), width, min(across, len(planes)), height=3.2)
    for ax, (x, y), panel_curves in zip(axes, [*planes] * len(models), curves_by_panel, strict=True):
        ax.set_xlabel(style.axis_title(x), fontsize=8.5)
        ax.set_ylabel(style.axis_title(y), fontsize=8.5)
        style.dress(ax)
        for curve in panel_curves:
            _draw_curve(ax, curve, looks, line)
        if math.isinf(x.high):
            style.use_log_scale(ax)
    for ax, model in zip(axes[:: len(planes)], models, strict=True):
        style.panel_title(ax, model)
    handles = _legend_handles(list(chain.from_iterable(curves_by_panel)), looks)
    note = "At the ends of a curve: its strengths. Bars, with several seeds: 95 % interval over them."
    style.legend_below(figure, handles, note, width)
    return {name: figure}


def _draw_curve(ax: Axes, curve: Curve, styles: style.Styles, line: str) -> None:
    if curve.is_reference:
        marker, size, colour = style.REFERENCE_STYLES[curve.method]
        (point,) = curve.points
        look: dict[str, Any] = {"color": colour, "markeredgecolor": "white", "label": curve.label}
        ax.plot(point.x, point.y, marker, markersize=size, zorder=6, **look)
        for guide, at in ((ax.axvline, point.x), (ax.axhline, point.y)):
            guide(at, color=colour, alpha=0.35, linewidth=0.8, linestyle=":", zorder=1)
        return
    colour, marker = styles[curve.variant]
    xs, ys = [point.x for point in curve.points], [point.y for point in curve.points]
    ax.plot(xs, ys, color=colour, alpha=0.75, zorder=3, linestyle=line)
    for point in curve.points:
        for across, along in ((point.x_ends, (point.y, point.y)), ((point.x, point.x), point.y_ends)):
            if all(map(math.isfinite, (*across, *along))):  # A line would stretch the axes: two seeds give wide ends.
                ax.add_artist(Line2D(across, along, color=colour, alpha=0.45, linewidth=1.1, zorder=2))
        look = style.point_style(colour, is_collapsed=bool(point.state))
        words = ", ".join(filter(None, (curve.label, f"strength {point.strength_range}", point.state)))
        ax.plot(point.x, point.y, marker, zorder=4, label=words, **look)
    for point in dict.fromkeys((curve.points[0], curve.points[-1])):
        about: dict[str, Any] = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": 6.5, "color": colour}
        ax.annotate(point.strength_range, (point.x, point.y), zorder=5, **about)


def _legend_handles(panel_curves: Sequence[Curve], styles: style.Styles) -> list[Line2D]:
    references, variants = [], []
    for curve in {curve.variant: curve for curve in panel_curves}.values():
        if curve.is_reference:
            marker, size, colour = style.REFERENCE_STYLES[curve.method]
            references.append(style.legend_handle(curve.label, colour, marker, size * 0.75))
        else:
            variants.append(style.legend_handle(curve.label, *styles[curve.variant], line="-"))
    states = sorted({point.state for curve in panel_curves for point in curve.points if point.state})
    return [*references, *variants, *[style.legend_handle(" or ".join(states), style.RED, "o")] * bool(states)]
