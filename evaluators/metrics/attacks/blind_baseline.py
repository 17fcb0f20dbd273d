"""A blind baseline: can two sets of texts be told apart by the tokens that occur in them, without any model?"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import chain

import numpy as np

from evaluators.metrics.means import weighted_mean
from harness.toolkit import auc_items

FOLDS = 5


def blind_auc_items(
    members: Sequence[Sequence[int]], others: Sequence[Sequence[int]], copies: Sequence[Hashable] = (), *, seed: int
) -> np.ndarray:
    """Return for each member and then each other text the value of which the mean is the AUC of a blind attack.

    The attack is a logistic regression on which tokens occur in a text. It sees four fifths of the texts with their
    side, and scores the last fifth, five times. Texts are compared with those of their own fifth alone: a score of
    another fifth comes from a classifier that was shown this very text. .5 is a guess; more says that the two sets
    are of different kinds, so that an attack on a model may recognise the kind and not what was trained on.

    Values are wider apart than those of a single classifier, 1.5 times for fifths: the five share most of what they
    were shown, and err together. Of sets of one kind (24 or 96 texts each, drawn 600 times) 95 % intervals without that
    hold .5 in 83 or 84 %, and with it in 95 or 96 %.

    Args:
        members: The token ids of each text.
        others: The same of the other texts.
        copies: Names the text of each, members first: those of one name stay in one fifth. By default, their tokens.
        seed: Draws the fifths.

    Returns:
        As `auc_items`; NaN where a fifth, or all, has no text of one side.

    Source:
        Das et al., "Blind Baselines Beat Membership Inference Attacks for Foundation Models", arXiv:2406.16201; C.
        Nadeau and Y. Bengio, "Inference for the Generalization Error", 2003, for the width.

    Example:
        Eight texts that all have the token 1, and eight that have the token 2 instead:

        >>> members, others = [[1, 5 + row % 3] for row in range(8)], [[2, 5 + row % 3] for row in range(8)]
        >>> float(blind_auc_items(members, others, range(16), seed=0).mean())
        1.0
    """
    # Here, not above: it takes a second, and planning a sweep needs the settings of its evaluators only.
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold

    texts = [*members, *others]
    is_member_K = np.arange(len(texts)) < len(members)
    codes: dict[Hashable, int] = {}
    groups_K = np.array([codes.setdefault(name, len(codes)) for name in (copies or map(tuple, texts))])
    of_sides = [np.unique(groups_K[is_member_K == side]) for side in (True, False)]
    folds = min(FOLDS, *map(len, of_sides))
    items_K = np.full(len(texts), np.nan)
    if folds < 2:
        return items_K
    starts = np.cumsum([0, *map(len, texts)])
    tokens = np.fromiter(chain.from_iterable(texts), dtype=np.int64)
    occurs_KV = csr_matrix((np.ones(len(tokens)), tokens, starts))
    occurs_KV.sum_duplicates()
    occurs_KV.data[:] = 1.0
    split = StratifiedGroupKFold(folds, shuffle=True, random_state=seed).split(occurs_KV, is_member_K, groups_K)
    for shown, asked in split:
        if len(np.unique(is_member_K[shown])) == 2:
            attack = LogisticRegression(solver="liblinear").fit(occurs_KV[shown], is_member_K[shown])
            scores = attack.decision_function(occurs_KV[asked])
            # Rows of a fold are in the order of the texts, so that its members come first.
            items_K[asked] = auc_items(scores[is_member_K[asked]], scores[~is_member_K[asked]])
    width = math.sqrt(1 + folds / (folds - 1))
    mean = weighted_mean(items_K)
    return mean + (items_K - mean) * width
