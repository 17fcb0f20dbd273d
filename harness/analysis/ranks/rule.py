"""The paper's rule: ranks of metrics, of the two groups, and of both together.

A rank is a competition rank: one more than the number of rows that are strictly better, so equal
rows share a rank and the next one is skipped. Within a group the metrics' ranks are averaged and
ranked; the two group ranks are averaged and ranked again. This gives all 33 ranks printed in the
EMSO paper's Table 1 (its caption describes a count of best and second-best results, which gives
other ranks than it prints).

Array letters: R rows (variants of one model), M metrics of one group, K kinds of ranks; leading axes are written `...`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from harness.statistics.item_values import Floats


def competition_ranks(scores_R: Floats) -> Floats:
    """Return the rank of every score along the last axis; 1 is the lowest. NaN has no rank: NaN.

    Example:
        >>> competition_ranks(np.array([0.2, 0.1, 0.2, np.nan, 0.3]))
        array([ 2.,  1.,  2., nan,  4.])
    """
    # Means that are equal on paper may differ in their last bit.
    alike_R = np.where(np.abs(scores_R) < 1e6, np.round(np.clip(scores_R, -1e6, 1e6), 12), scores_R)
    return np.asarray(rankdata(alike_R, method="min", axis=-1, nan_policy="omit"), dtype=np.float64)


def group_ranks(scores_RM: Floats) -> Floats:
    """Return the ranks of the rows' mean ranks over a group's metrics; lower scores are better.

    A row that lacks any metric is not ranked, and no other row is ranked against it; nor is any in a
    group without metrics.

    Example:
        The second row is best in one metric and second in the other; the last lacks one:

        >>> group_ranks(np.array([[3.0, 1.0], [1.0, 2.0], [2.0, 3.0], [0.0, np.nan]]))
        array([ 2.,  1.,  3., nan])
    """
    if not scores_RM.shape[-1]:
        return np.full(scores_RM.shape[:-1], np.nan)
    whole_R1 = ~np.isnan(scores_RM).any(axis=-1, keepdims=True)
    kept_RM = np.where(whole_R1, scores_RM, np.nan)
    return competition_ranks(competition_ranks(kept_RM.swapaxes(-1, -2)).mean(axis=-2))


def average_ranks(erasure_R: Floats, generation_R: Floats) -> Floats:
    """Return the ranks of the mean of both group ranks; a row that lacks one has none.

    Example:
        >>> average_ranks(np.array([4.0, 2.0, 3.0, 1.0]), np.array([4.0, 3.0, 2.0, 1.0]))
        array([4., 2., 2., 1.])
    """
    return competition_ranks((erasure_R + generation_R) / 2)


def all_ranks(scores: Sequence[Floats]) -> Floats:
    """Return the ranks (..., K, R) of rows: in erasure, in generation, of both together, and in each other group.

    Args:
        scores: Of each group (..., R, M), erasure and generation first; lower is better.
    """
    erasure, generation, *own = map(group_ranks, scores)
    return np.stack([erasure, generation, average_ranks(erasure, generation), *own], axis=-2)


def printed(ranks: Sequence[float]) -> list[str]:
    """Return the ranks as a table prints them: ties as `=2`, no rank as ''."""
    count_of = Counter(ranks)
    return ["" if np.isnan(rank) else f"{'=' if count_of[rank] > 1 else ''}{rank:.0f}" for rank in ranks]
