"""What a search may vary of a setting: declared where the setting is, as an annotation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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


def nearest(dimension: Dimension, value: Any) -> Any:
    """Return the value that may be tried for this one: itself, the nearest end of a range, the first of other choices.

    Example:
        >>> nearest(LogUniform(low=1, high=12), 20), nearest(Choice(values=(8, 2)), 3)
        (12, 8)
    """
    if isinstance(dimension, Choice):
        return value if value in dimension.values else dimension.values[0]
    return min(max(value, dimension.low), dimension.high)
