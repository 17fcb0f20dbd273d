"""Common style of figures: colours, markers, panels, legends and file formats."""

import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from harness.analysis.metrics import split_title
from harness.contracts import Metric
from harness.settings import ORIGINAL, RETRAINED

Styles = Mapping[str, tuple[str, str]]
"""Variant to its colour and marker."""

SOFT, FAINT, RED, GRID = "#5c6470", "#8a8a8a", "#d62728", "#eeeeee"
REFERENCE_STYLES = {ORIGINAL: ("*", 15.0, "#111111"), RETRAINED: ("D", 8.0, "#6b6b6b")}
PAGE, PHONE = (11.0, 4), (4.4, 1)
"""Inches of a figure's width, and its most panels side by side."""
HOLLOW: dict[str, Any] = {"color": "white", "markeredgecolor": RED, "markeredgewidth": 1.6}


def rendered(figure: Figure, kind: Literal["png", "pdf", "svg"]) -> bytes:
    """Return the figure as a file's bytes, the same for the same figure."""
    dated = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}
    file = BytesIO()
    with rc_context({"svg.hashsalt": "lethe"}):
        figure.savefig(file, format=kind, dpi=200, metadata={dated[kind]: None}, facecolor="white")
    figure.set_layout_engine(None)  # Finding the layout takes longer than drawing in it.
    return file.getvalue()


def labelled_points(figure: Figure) -> Iterator[tuple[float, float, str]]:
    """Yield the labelled points of a rendered figure: x and y in points from its top left, and their numbers."""
    for ax in figure.axes:
        titles = [re.sub(r"[$_{}]|:.*| \(log\)", "", title) for title in (ax.get_xlabel(), ax.get_ylabel())]
        for line in ax.lines:
            if (label := str(line.get_label())).startswith("_"):  # One that matplotlib gave.
                continue
            points = np.asarray(line.get_xydata())
            for point in points[np.isfinite(points).all(axis=1)]:
                x, y = ax.transData.transform(point) * 72 / figure.dpi
                numbers = [f"{title} {value:.3g}" for title, value in zip(titles, point, strict=True) if title]
                yield x, 72 * figure.get_figheight() - y, f"{label}: {', '.join(numbers)}"


def use_log_scale(ax: Axes) -> None:
    """Make the x axis logarithmic, after drawing; the fewer decades it spans, the more numbers each has."""
    ax.set(xscale="log")
    span = np.ptp(np.log10(ax.get_xlim()))
    subs = (1,) if span > 3 else (1, 3) if span > 1.8 else (1, 2, 5) if span > 0.7 else (1, 1.2, 1.5, 2, 3, 5, 7)
    ax.xaxis.set_major_locator(LogLocator(subs=subs, numticks=8))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def without_mathtext(text: str) -> str:
    """Escape dollar signs, which start formulas."""
    return text.replace("$", r"\$")


def axis_title(metric: Metric) -> str:
    """Return a metric's title for an axis, and its meaning: `MA: lower is more erased`."""
    name, subscript = split_title(metric.title)
    title = without_mathtext(name) + f"$_{{{subscript}}}$" * bool(subscript) + " (log)" * math.isinf(metric.high)
    good = {"erasure": "more erased", "generation": "better text"}.get(metric.group, "better")
    return f"{title}: {metric.better} is {good}" if metric.better in ("lower", "higher") else title


def dress(ax: Axes) -> None:
    """Add the common grid, ticks and frame."""
    ax.grid(color=GRID)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", labelsize=8.5)
    ax.spines[["top", "right"]].set_visible(False)


def panel_title(ax: Axes, title: str) -> None:
    """Write a title above a panel."""
    ax.set_title(without_mathtext(title), loc="left", fontsize=10, fontweight="bold")


def point_style(colour: str, *, is_collapsed: bool) -> dict[str, Any]:
    """Return the style of a point: hollow and red if its model collapsed."""
    return HOLLOW if is_collapsed else {"color": colour, "markeredgecolor": "white", "markeredgewidth": 0.7}


def new_panels(count: int, width: float, across: int, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels, each `height` inches high, `across` side by side at most."""
    across = min(across, count)
    down = math.ceil(count / across)
    figure = Figure(figsize=(width, height * down + 0.9), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for ax in axes[count:]:
        ax.remove()
    return figure, axes[:count]


def legend_handle(label: str, colour: str, marker: str, size: float = 6.0, line: Literal["", "-"] = "") -> Line2D:
    """Return a legend's entry."""
    look = point_style(colour, is_collapsed=colour == RED)
    label = without_mathtext(label)
    return Line2D([], [], marker=marker, markersize=size, linestyle=line, linewidth=1.5, label=label, **look)


def legend_below(figure: Figure, handles: Sequence[Artist], note: str, width: float) -> None:
    """Put a legend below a figure's panels, under a note, as wide as the figure."""
    look: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "title_fontsize": 8, "fontsize": 9}
    note = textwrap.fill(note, int(13 * width))
    figure.legend(handles=handles, title=note, ncols=max(1, min(len(handles), int(width / 1.4))), **look)
