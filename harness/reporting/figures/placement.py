"""Where labels go beside their points, so that they cover neither points nor each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

Pair = tuple[float, float]
Box = tuple[float, float, float, float]
_SIDES = ((1, 1), (-1, 1), (1, -1), (-1, -1), (1.35, 0), (-1.35, 0), (0, 1.4), (0, -1.4))


def label_centres(
    anchors: Sequence[Pair], sizes: Sequence[Pair], points: Sequence[Pair], radius: float, lines: Sequence[Pair] = ()
) -> list[Pair | None]:
    """Return each label's centre, or None where there is no room for it; the first come first.

    A label lies beside its anchor and covers none of the `points`, each of size 2 `radius`; it covers
    what is on `lines` only if it has no other room.

    Example:
        The second label finds its own side free; the third, at the same point as the first, another one:

        >>> label_centres([(0, 0), (50, 0), (0, 0)], [(8, 6)] * 3, [(0, 0), (50, 0)], radius=3)
        [(7.0, 6.0), (57.0, 6.0), (-7.0, 6.0)]
    """
    taken = [_box(point, (2 * radius, 2 * radius)) for point in points]
    crossed = [_box(point, (0.0, 0.0)) for point in lines]
    chosen_centres: list[Pair | None] = []
    for (x, y), (width, height) in zip(anchors, sizes, strict=True):
        reach = (width / 2 + radius, height / 2 + radius)
        chosen = None
        for right, up in _SIDES:
            centre = x + right * reach[0], y + up * reach[1]
            box = _box(centre, (width, height))
            if not _hits(box, taken):
                chosen = chosen or centre
                if not _hits(box, crossed):
                    chosen = centre
                    break
        if chosen is not None:
            taken.append(_box(chosen, (width, height)))
        chosen_centres.append(chosen)
    return chosen_centres


def along(points: Sequence[Pair], step: float) -> list[Pair]:
    """Return points of the line through `points`, at most `step` apart.

    Example:
        >>> along([(0, 0), (4, 0)], step=2)
        [(0.0, 0.0), (2.0, 0.0), (4.0, 0.0)]
    """
    path = []
    for (x, y), (to_x, to_y) in pairwise(points):
        parts = max(1, math.ceil(math.hypot(to_x - x, to_y - y) / step))
        for part in range(parts + 1):
            path.append((x + (to_x - x) * part / parts, y + (to_y - y) * part / parts))
    return path


def _box(centre: Pair, size: Pair) -> Box:
    (x, y), (width, height) = centre, size
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _hits(one: Box, others: Sequence[Box]) -> bool:
    return any(one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3] for other in others)
