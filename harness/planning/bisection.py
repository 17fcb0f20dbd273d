"""Bisection on a strength that erases more the higher it is: where a study has nothing else to search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from harness.contracts import Number
from harness.search_space import LogUniform

NARROW = 1.02
"""A bracket whose ends differ by less than 2 % is not halved any more."""


def next_strength(dimension: LogUniform, default: Number, reached: Mapping[Number, Sequence[bool]]) -> Number | None:
    """Return the strength to try next: default, both ends, then the widest bracket's geometric middle.

    A target's bracket lies between the least strength that reached it and the greatest below that did not. A target
    that no strength reaches, up to the upper end, has none, and neither has one that the lower end reaches.

    Args:
        dimension: Where to search.
        default: The method's own strength, which is tried first.
        reached: Of each strength tried, whether it reached each of the targets.

    Returns:
        A strength that was not tried; None if there is nothing left to learn.

    Example:
        >>> next_strength(LogUniform(low=1.0, high=16.0), 2.0, {2.0: [False], 16.0: [True], 1.0: [False]})
        5.656854249492381
    """
    for strength in (default, dimension.high, dimension.low):
        if strength not in reached:
            return strength
    brackets = []
    for answers in zip(*(reached[strength] for strength in sorted(reached)), strict=True):
        by_strength = dict(zip(sorted(reached), answers, strict=True))
        upper = min((strength for strength, is_reached in by_strength.items() if is_reached), default=None)
        lower = max((strength for strength in by_strength if upper is not None and strength < upper), default=None)
        if upper is not None and lower is not None and upper / lower > NARROW:
            brackets.append((upper / lower, lower, upper))
    for _, lower, upper in sorted(brackets, reverse=True):
        middle = math.sqrt(lower * upper)
        if isinstance(dimension.low, int):
            middle = round(middle)
        if middle not in reached:
            return middle
    return None
