"""The trade-off figure: what each method forgets, against what its model can still write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from harness.analysis.metrics import MetricInfo
from harness.analysis.seeds import seed_count
from harness.analysis.tradeoff.curves import Curve, CurvePoint, better_corner, curves, panels, styles
from harness.contracts import Metric
from harness.reporting.figures import style
from harness.reporting.figures.colours import text_colour
from harness.reporting.figures.placement import along, label_centres
from harness.specs import UNSEEN_ROWS

_LABEL_POINTS = 6.5


def tradeoff(table: pd.DataFrame, info: MetricInfo) -> Figure:
    """Return the paper's Figure 4: memorisation against fluency, a curve through each method's strengths.

    One model fills two rows of two panels; several get a row of panels each. A table without any
    point that can be drawn gives a figure that says so.
    """
    planes, models = panels(info), list(table["model"].unique())
    drawn = [curves(table, model, x, y) for model in models for x, y in planes]
    if not any(drawn):
        figure = Figure(figsize=(6.0, 1.5))
        nothing = "Nothing to draw yet: no point has both a memorization and a fluency metric."
        figure.text(0.5, 0.5, nothing, ha="center")
        return figure
    one = len(models) == 1 and len(planes) == 4
    rows, columns = (2, 2) if one else (len(models), len(planes))
    figure = Figure(figsize=(8.4, 7.2) if one else (3.7 * columns, 3.4 * rows + 0.9), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    of_variant = styles(table)
    for ax, (x, y), of_plane in zip(axes, planes * len(models), drawn, strict=True):
        _draw_plane(ax, of_plane, x, y, of_variant)
    for ax, model in zip(axes[:: len(planes)], models, strict=True):
        style.panel_title(ax, model)
    references = " and ".join(name for name in style.REFERENCE_STYLES if name in set(table["method"]))
    note = "Beside a point: its strength."
    note += f" Dotted: the {references} model." if references else ""
    note += " Bars: 95 % interval over the seeds." if seed_count(table) > 1 else ""
    handles = _legend_handles(list(chain.from_iterable(drawn)), of_variant)
    style.legend_below(figure, handles, note, 3 * columns - 1, handlelength=1.8, columnspacing=1.4)
    figure.draw_without_rendering()  # Lays the panels out, so that labels know where points will be.
    for ax, of_plane in zip(axes, drawn, strict=True):
        _label_points(ax, of_plane, of_variant)
    return figure


def draw_tradeoff(ax: Axes, table: pd.DataFrame, info: MetricInfo, model: str, x: str, y: str) -> None:
    """Draw one panel of `tradeoff` on axes of anybody's, with a legend of its own.

    Rows of unseen texts are left out, between two erasure metrics too: they are no model's place in the trade-off.
    """
    of_variant = styles(table)
    drawn = [curve for curve in curves(table, model, info[x], info[y]) if curve.method not in UNSEEN_ROWS]
    _draw_plane(ax, drawn, info[x], info[y], of_variant)
    ax.legend(handles=_legend_handles(drawn, of_variant), frameon=False, fontsize=8, labelcolor=style.INK)
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]  # Labels need to know where points will be.
    _label_points(ax, drawn, of_variant)


def _draw_plane(ax: Axes, of_plane: Sequence[Curve], x: Metric, y: Metric, styles: style.Styles) -> None:
    ax.set_xlabel(style.axis_title(x), fontsize=10, color=style.INK)
    ax.set_ylabel(style.axis_title(y), fontsize=10, color=style.INK)
    ax.set_title(f"better {better_corner(x, y)}", loc="right", fontsize=8.5, color=style.SOFT)
    style.dress(ax)
    ax.margins(0.08)
    if math.isinf(x.high):
        style.use_log_scale(ax)
    for curve in sorted(of_plane, key=lambda curve: curve.is_reference):
        if not curve.is_reference:
            _draw_curve(ax, curve, *styles[curve.variant])
            continue
        marker, size, colour = style.REFERENCE_STYLES[curve.method]
        (point,) = curve.points
        look: dict[str, Any] = {"color": colour, "markeredgecolor": "white", "markeredgewidth": 0.9}
        ax.plot(point.x, point.y, marker, markersize=size, zorder=6, **look)
        for guide, at in ((ax.axvline, point.x), (ax.axhline, point.y)):
            guide(at, color=colour, alpha=0.35, linewidth=0.8, linestyle=style.DOTTED, zorder=1)


def _draw_curve(ax: Axes, curve: Curve, colour: str, marker: str) -> None:
    """Draw a curve and its 95 % intervals, which do not stretch the axes: two seeds give very wide ones."""
    xs, ys = [point.x for point in curve.points], [point.y for point in curve.points]
    dashes = "-" if curve.is_trajectory else ""
    ax.plot(xs, ys, color=colour, linewidth=1.5, alpha=0.75, zorder=3, linestyle=dashes)
    for point in curve.points:
        for across, along_y in ((point.x_ends, (point.y, point.y)), ((point.x, point.x), point.y_ends)):
            if all(map(math.isfinite, (*across, *along_y))):
                ax.add_artist(Line2D(across, along_y, color=colour, alpha=0.45, linewidth=1.1, zorder=2))
        look = style.point_style(colour, is_collapsed=bool(point.state))
        ax.plot(point.x, point.y, marker, markersize=6.5, zorder=4, **look)


def _legend_handles(drawn: Sequence[Curve], styles: style.Styles) -> list[Line2D]:
    references, variants = [], []
    for curve in {curve.variant: curve for curve in drawn}.values():
        if curve.is_reference:
            references.append(style.reference_handle(curve.method, curve.label))
        else:
            variants.append(style.variant_handle(curve.label, *styles[curve.variant]))
    states = sorted({point.state for curve in drawn for point in curve.points if point.state})
    return [*references, *variants, *([style.collapsed_handle(" or ".join(states))] if states else [])]


def _label_points(ax: Axes, of_plane: Sequence[Curve], styles: style.Styles) -> None:
    """Write each point's strength beside it where there is room; the ends of a curve come first.

    The only point of a variant gets the variant's name instead.
    """
    pixels = ax.figure.dpi / 72
    at: dict[CurvePoint, tuple[float, float]] = {}
    lines, labelled = [], []
    for curve in of_plane:
        for point in curve.points:
            at[point] = tuple(ax.transData.transform((point.x, point.y)))
            if not curve.is_reference:
                labelled.append((curve, point))
        lines += along([at[point] for point in curve.points], step=2 * pixels)
    labelled.sort(key=lambda pair: pair[1] not in (pair[0].points[0], pair[0].points[-1]))
    texts, sizes, anchors = [], [], []
    for curve, point in labelled:
        text = f"{point.strength:.3g}" if len(curve.points) > 1 else style.without_mathtext(curve.label[:14])
        texts.append(text)
        sizes.append((0.66 * _LABEL_POINTS * len(text) * pixels, _LABEL_POINTS * pixels))
        anchors.append(at[point])
    centres = label_centres(anchors, sizes, list(at.values()), 3.5 * pixels, lines)
    for (curve, _), text, centre in zip(labelled, texts, centres, strict=True):
        if centre is not None:
            x, y = ax.transData.inverted().transform(centre)
            colour = text_colour(styles[curve.variant][0])
            written = ax.text(x, y, text, ha="center", va="center", fontsize=_LABEL_POINTS, color=colour, zorder=5)
            written.set_path_effects([withStroke(linewidth=1.6, foreground="white")])
