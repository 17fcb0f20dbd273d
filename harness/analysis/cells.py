"""Formats of numbers in text."""

from __future__ import annotations

import math
import re

from harness.analysis.seeds import strengths
from harness.contracts import Metric

NOTHING = "–"


def number(value: float, metric: Metric | None = None) -> str:
    """Return a number with three decimals, or two where the metric has no bound.

    Example:
        >>> number(0.61549), number(float("nan")), number(float("inf"))
        ('0.615', '–', '∞')
    """
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    bounded = metric is None or math.isfinite(metric.high)
    return f"{value:.3f}" if bounded else f"{value:.2f}" if abs(value) < 1e5 else f"{value:.1e}"


def split_title(title: str) -> tuple[str, str]:
    """Return a metric's title and its subscript: ("EL", "3") for "EL_3"."""
    parts = re.fullmatch(r"(.+)_(\d+)", title)
    return (parts[1], parts[2]) if parts else (title, "")


def strength_text(name: str, value: float) -> str:
    """Return a point's strength: `gamma 0.05`; '' for a reference row."""
    return f"{name} {strengths([value])}".strip()


def duration_text(seconds: float | None) -> str:
    """Return a duration in two units.

    Example:
        >>> duration_text(3.52), duration_text(130), duration_text(3700), duration_text(None)
        ('3.5 s', '2 min 10 s', '1 h 1 min', '–')
    """
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = round(seconds) // 60, round(seconds) // 3600
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {round(seconds) % 60} s"
