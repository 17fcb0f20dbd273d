"""What all figures have in common: colours, markers, axis titles, and how they become files."""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from harness.analysis.cells import split_title
from harness.contracts import Metric
from harness.specs import ORIGINAL, RETRAINED

Styles = dict[str, tuple[str, str]]
"""Variant to its colour and marker."""

INK, SOFT, FAINT, RED = "#222222", "#5c6470", "#8a8a8a", "#d62728"
"""Of texts, of lesser ones, of lines that no text has, and of a collapse."""
REFERENCE_STYLES = {ORIGINAL: ("*", 15.0, "#111111"), RETRAINED: ("D", 8.0, "#6b6b6b")}
HOLLOW: dict[str, Any] = {"color": "white", "markeredgecolor": RED, "markeredgewidth": 1.6}


def rendered(figure: Figure, kind: Literal["png", "pdf", "svg"]) -> bytes:
    """Return the figure as a file's bytes: the same bytes for the same figure."""
    dated = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}
    file = BytesIO()
    with rc_context({"svg.hashsalt": "lethe"}):
        figure.savefig(file, format=kind, dpi=200, metadata={dated[kind]: None}, facecolor="white")
    return file.getvalue()


def use_log_scale(ax: Axes) -> None:
    """Make a panel's x axis logarithmic, with plain numbers at 1, 2 and 5 of each decade."""
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_formatter(NullFormatter())


def without_mathtext(text: str) -> str:
    """Return text in which a dollar sign starts no formula."""
    return text.replace("$", r"\$")


def axis_title(metric: Metric) -> str:
    """Return a metric as an axis says it."""
    name, subscript = split_title(metric.title)
    name = without_mathtext(name)
    return (f"{name}$_{{{subscript}}}$" if subscript else name) + (" (log scale)" if math.isinf(metric.high) else "")
