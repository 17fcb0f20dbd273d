"""What erasure costs: the points of a method that no other beats, what they cover, and values at equal erasure or cost.

Both axes are oriented so that lower is better. Array letters: P points, D draws; leading axes are written `...`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.statistics.item_values import Floats


def non_dominated(erasure_P: Floats, utility_P: Floats) -> NDArray[np.bool_]:
    """Return which points no other point beats: at least as good in both, and better in one.

    Equal points both stay. A point that lacks a number is never among them, and beats none.

    Example:
        >>> non_dominated(np.array([0.1, 0.2, 0.2, np.nan]), np.array([3.0, 2.0, 4.0, 0.0])).tolist()
        [True, True, False, False]
    """
    is_first_P = np.zeros(len(erasure_P), dtype=bool)
    known_P = ~(np.isnan(erasure_P) | np.isnan(utility_P))
    values_K, utility_K = erasure_P[known_P], utility_P[known_P]
    levels_E, level_K = np.unique(values_K, return_inverse=True)
    least_E = np.full(len(levels_E), np.inf)  # Of the utility, among points of the same erasure.
    np.minimum.at(least_E, level_K, utility_K)
    least_before_E = np.concatenate([[np.inf], np.minimum.accumulate(least_E)])[:-1]
    is_beaten_K = (least_E[level_K] < utility_K) | ((level_K > 0) & (least_before_E[level_K] <= utility_K))
    is_first_P[known_P] = ~is_beaten_K
    return is_first_P & ~np.isnan(erasure_P + utility_P)


@dataclass(frozen=True)
class Crossing:
    """Where a trajectory passes a limit: at a measured point, or between two of them."""

    value: float
    """Of the reported metric there; NaN where it is not known at a point that it is made of."""
    left: int
    """The last point on the near side of the limit."""
    right: int
    """The first one at or beyond it; `left` itself where the trajectory starts there."""
    weight: float
    """Of `right`: 1 where it lies at the limit, 0 where it is infinitely far: nothing is interpolated then."""

    @property
    def is_measured(self) -> bool:
        """Return whether the value is that of a measured point."""
        return self.weight in (0.0, 1.0)


def crossing(limit: float, by: Floats, of: Floats, passes: Literal["down", "up"] = "down") -> Crossing | None:
    """Return where ONE trajectory first passes `limit`; None if it never does, since nothing is extrapolated.

    The first crossing is where someone stops who turns the dial up until the limit is met: what comes after, though
    it may return and pass again, takes a stronger erasure than was asked for. A trajectory that starts beyond the
    limit is not interpolated: downwards its start meets the limit as it is, upwards it never keeps within it.
    A point where `by` is not known counts as not measured: its neighbours are each other's.

    Args:
        limit: A value of the matched metric.
        by: The matched metric (P,), in the order of rising strength; the first point is the original.
        of: The reported metric (P,).
        passes: `down` where erasure is matched, which falls to the limit; `up` where cost is, which rises to it.

    Example:
        MA falls from 1 to 0.8 while perplexity rises from 4 to 8: halfway it is 6.

        >>> crossing(0.9, by=np.array([1.0, 0.8, 0.5]), of=np.array([4.0, 8.0, 20.0])).value
        6.0
        >>> crossing(0.4, by=np.array([1.0, 0.8, 0.5]), of=np.array([4.0, 8.0, 20.0])) is None
        True
    """
    (known,) = np.nonzero(~np.isnan(by))
    beyond = [int(point) for point in known if (by[point] <= limit if passes == "down" else by[point] >= limit)]
    if not beyond:
        return None
    right = beyond[0]
    if right == known[0]:
        if passes == "up" and by[right] > limit:
            return None
        return Crossing(value=float(of[right]), left=right, right=right, weight=1.0)
    left = int(known[np.searchsorted(known, right) - 1])
    weight = float(crossing_weight(limit, by[left], by[right]))
    return Crossing(value=float(between(of[left], of[right], weight)), left=left, right=right, weight=weight)


def crossing_weight(limit: float, by_left: ArrayLike, by_right: ArrayLike) -> Floats:
    """Return the weight of the right one of two neighbours at which the matched metric is at `limit`, from 0 to 1.

    Of draws of both (D,) it gives a weight for each: how uncertain the match itself is. A draw in which both lie on the
    same side takes the nearer one, so that no draw is extrapolated; one in which they are equal, the right one.

    Example:
        >>> crossing_weight(0.9, np.array([1.0, 0.95, 0.88]), np.array([0.8, 0.92, 0.7])).tolist()
        [0.5, 1.0, 0.0]
    """
    left, right = np.asarray(by_left, dtype=np.float64), np.asarray(by_right, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = (limit - left) / (right - left)
    return np.clip(np.where(left == right, 1.0, weight), 0.0, 1.0)


def between(of_left: ArrayLike, of_right: ArrayLike, weight: ArrayLike) -> Floats:
    """Return the value between two neighbours, linear in `weight`; at 0 and 1 the one of them, whatever the other is.

    Example:
        >>> between([4.0, 4.0], [8.0, np.nan], [0.25, 0.0]).tolist()
        [5.0, 4.0]
    """
    left, right = np.asarray(of_left, dtype=np.float64), np.asarray(of_right, dtype=np.float64)
    share = np.asarray(weight, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        mixed = (1.0 - share) * left + share * right
    return np.where(share == 0.0, left, np.where(share == 1.0, right, mixed))
