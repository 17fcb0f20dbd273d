"""What a search may vary of a setting: declared where the setting is, as an annotation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class LogUniform:
    """A range that is searched on a logarithmic scale: of whole numbers if both of its ends are.

    Of a cumulative strength only `high` counts: a candidate is erased that far and probed at each step.
    """

    low: float | int
    high: float | int
    """Both ends are included; `low` is above 0 and below `high`."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A few values without an order."""

    values: tuple[Any, ...]


Dimension = LogUniform | Choice
_AT_EDGE = 0.02
OF_TRAINING = "training."
"""What the name of a dimension begins with that is a setting of the training: `training.learning_rate`."""


def end_of(dimension: Dimension) -> Any:
    """Return the largest value that may be tried; of choices that cannot be compared, the last.

    Example:
        >>> end_of(LogUniform(low=1, high=12)), end_of(Choice(values=(8, 2))), end_of(Choice(values=("em", "nll")))
        (12, 8, 'nll')
    """
    if isinstance(dimension, LogUniform):
        return dimension.high
    are_numbers = all(type(value) in (int, float) for value in dimension.values)
    return max(dimension.values) if are_numbers else dimension.values[-1]


def edge_of(dimension: LogUniform, value: float) -> Literal["low", "high"] | None:
    """Return the end of a range that a value lies at: within 2 % of its length, in logarithms, or beyond.

    Example:
        >>> dimension = LogUniform(low=1e-6, high=1e-3)
        >>> edge_of(dimension, 1.1e-6), edge_of(dimension, 1e-5), edge_of(dimension, 5e-3)
        ('low', None, 'high')
    """
    place = math.log(value / dimension.low) / math.log(dimension.high / dimension.low)
    if place <= _AT_EDGE:
        return "low"
    return "high" if place >= 1 - _AT_EDGE else None


def nearest(dimension: Dimension, value: Any) -> Any:
    """Return the value that may be tried for this one: itself, the nearest end of a range, the first of other choices.

    Null, which is no number and means no limit, becomes the upper end.

    Example:
        >>> nearest(LogUniform(low=1, high=12), 20), nearest(Choice(values=(8, 2)), 3)
        (12, 8)
    """
    if isinstance(dimension, LogUniform) and value is None:
        return dimension.high
    if isinstance(dimension, Choice):
        return value if value in dimension.values else dimension.values[0]
    return min(max(value, dimension.low), dimension.high)
