"""Where an axis begins and ends, and its ticks: round numbers, linear or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.contracts import Metric

_MARGIN = 0.06
"""Of the values' range, on both sides: a marker on the edge would be cut."""
_TICKS = 6
"""About as many as an axis has."""
_SMALLEST = 1e-100
"""What is nearer to 0 is drawn as 0."""


@dataclass(frozen=True)
class AxisScale:
    """An axis that shows all values of a metric."""

    low: float
    """Of a logarithmic one, its decimal logarithm."""
    high: float
    is_log: bool
    ticks: tuple[tuple[float, str], ...]
    """Where each is, as a share of the axis's length, and what stands there."""


def axis_scale(values: Sequence[float], metric: Metric) -> AxisScale:
    """Return the axis on which a metric's finite values are drawn: at least one.

    It is logarithmic where the metric has no upper bound and its values span more than a factor of 10.

    Example:
        >>> about = dict(name="", title="", better="lower", unit="", group="generation", source="")
        >>> [label for _, label in axis_scale([0.07, 0.98], Metric(low=0.0, high=1.0, **about)).ticks]
        ['0.2', '0.4', '0.6', '0.8', '1.0']
        >>> [label for _, label in axis_scale([4.6, 81.0], Metric(low=1.0, high=math.inf, **about)).ticks]
        ['5', '10', '20', '50']
    """
    least, most = min(values), max(values)
    if math.isinf(metric.high) and 0 < least < most / 10:
        low, high = _widened(math.log10(least), math.log10(most))
        ticks, is_log = _log_ticks(low, high), True
    else:
        low, high = _widened(least, most)
        ticks, is_log = _linear_ticks(low, high, metric), False
    shown = []
    for at, label in ticks:
        if low <= at <= high:
            shown.append((round((at - low) / (high - low), 4), label))
    return AxisScale(low, high, is_log, tuple(shown))


def _widened(least: float, most: float) -> tuple[float, float]:
    """Return the ends of an axis from `least` to `most`; values that are alike stand in its middle."""
    size = max(abs(least), abs(most))
    alike = 0.1 * size if size > _SMALLEST else 0.5
    margin = _MARGIN * (most - least) if most - least > 1e-9 * max(size, _SMALLEST) else alike
    return least - margin, most + margin


def _linear_ticks(low: float, high: float, metric: Metric) -> list[tuple[float, str]]:
    """Return multiples of 1, 2 or 5 times a power of 10, none outside of what the metric can be."""
    step_wanted = (high - low) / _TICKS
    exponent = math.floor(math.log10(step_wanted))
    mantissa = next(mantissa for mantissa in (1, 2, 5, 10) if mantissa * 10.0**exponent >= 0.8 * step_wanted)
    if mantissa == 10:
        mantissa, exponent = 1, exponent + 1
    step = mantissa * 10.0**exponent
    is_short = -5 <= exponent <= 5
    ticks = []
    for count in range(math.ceil(low / step), math.floor(high / step) + 1):
        at, digits = count * step, count * mantissa
        if metric.low - step / 1e6 <= at <= metric.high + step / 1e6:
            label = f"{at:.{max(0, -exponent)}f}" if is_short or not digits else f"{digits}e{exponent}"
            ticks.append((at, label))
    return ticks


def _log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return ticks between two decimal logarithms: at 1, 2 and 5 of each decade; at 1 alone on a long axis."""
    decades = range(math.floor(low), math.ceil(high) + 1)
    stride = math.ceil(len(decades) / (_TICKS + 2))
    mantissas = (1, 2, 5) if high - low <= _TICKS / 2 else (1,)
    ticks = []
    for exponent in decades:
        for mantissa in mantissas if exponent % stride == 0 else ():
            label = f"{mantissa * 10.0**exponent:g}" if -5 < exponent < 6 else f"{mantissa}e{exponent}"
            ticks.append((math.log10(mantissa) + exponent, label))
    return ticks
