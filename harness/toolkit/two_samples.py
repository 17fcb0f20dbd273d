"""What compares two sets of texts, as values of single texts: then its intervals and tests are those of a mean."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray


def auc_items(
    members_N: ArrayLike, others_M: ArrayLike, members_are: Literal["higher", "lower"] = "higher"
) -> NDArray[np.float64]:
    """Return a value for each member and then for each other text, whose mean is the AUC of telling them apart.

    The AUC A is the share of pairs of a member and another text in which the member scores higher (or lower); ties
    count half. A text's placement is its share of the pairs that it is in: V_i of member i, W_j of another j. Of N
    members and M others, member i has A + (V_i − A)·(N + M) / N, and another A + (W_j − A)·(N + M) / M. They are
    pseudo-values: one alone may lie below 0 or above 1. Declare `items="sequence_and_holdout"` for a metric of them.

    The variance of their mean is that of DeLong, with N and M where he has N − 1 and M − 1; differences of two attacks,
    or of two models, on the same texts have his covariance, since each text has one value in both. So intervals, paired
    tests and letters hold for an AUC as for any mean of items.

    Args:
        members_N: The score of each text that was trained on, such as a forget sequence; NaN is not known.
        others_M: The same of texts that were not.
        members_are: Which side a member's score is on if the attack works.

    Returns:
        N + M values; NaN for a text whose score is not known, and for all where one side has no known score.

    Source:
        E. R. DeLong et al., "Comparing the Areas under Two or More Correlated Receiver Operating Characteristic
        Curves", Biometrics 44, 1988.

    Example:
        Of four pairs the member is higher in two, and one is a tie: A is 2.5 / 4. The member at 3 wins both of its
        pairs, and the one at 1 half of one: V is 1 and .25. The other at 1 loses 1.5 of 2 pairs, the one at 2 one: W is
        .75 and .5.

        >>> auc_items([3.0, 1.0], [1.0, 2.0]).tolist()
        [1.375, -0.125, 0.875, 0.375]
        >>> float(auc_items([3.0, 1.0], [1.0, 2.0]).mean())
        0.625
        >>> float(auc_items([3.0, 1.0], [1.0, 2.0], members_are="lower").mean())
        0.375
    """
    sign = 1.0 if members_are == "higher" else -1.0
    scores_N, scores_M = (sign * np.asarray(scores, dtype=np.float64) for scores in (members_N, others_M))
    items_N, items_M = np.full(len(scores_N), np.nan), np.full(len(scores_M), np.nan)
    known_N, known_M = ~np.isnan(scores_N), ~np.isnan(scores_M)
    if known_N.any() and known_M.any():
        above_N = _shares_below(scores_N[known_N], scores_M[known_M])
        above_M = 1.0 - _shares_below(scores_M[known_M], scores_N[known_N])
        auc, texts = above_N.mean(), len(above_N) + len(above_M)
        items_N[known_N] = auc + (above_N - auc) * (texts / len(above_N))
        items_M[known_M] = auc + (above_M - auc) * (texts / len(above_M))
    return np.concatenate([items_N, items_M])


def _shares_below(scores: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each score the share of others that are lower; equal ones count half."""
    ordered = np.sort(others)
    lower, not_higher = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
    return np.asarray((lower + not_higher) / (2 * len(ordered)), dtype=np.float64)
