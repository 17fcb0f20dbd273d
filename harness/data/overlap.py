"""Near-duplicates among thousands of texts, without comparing each pair.

Two texts are near-duplicates where the one with fewer distinct n-grams of tokens shares at least `SHARE` of them.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

NGRAM = 10
"""Tokens. No two miniature texts of different roles share 0.8 of their 10-grams."""
MIN_TOKENS = 2 * NGRAM
"""In a shorter text one common phrase is 0.8 of the n-grams."""
SHARE = 0.8
"""As in PaLM and Lee et al. (2022)."""
RELATED_SHARE = 0.5
"""Share from which texts are no independent evidence: five changed tokens in 120."""
ROWS_AT_ONCE = 256

Numbers = NDArray[np.int64]


def near_duplicates(rows: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> list[int]:
    """Return the rising indices of token rows with a near-duplicate among others.

    Texts of fewer than `MIN_TOKENS` tokens have none.
    """
    if not rows or not others:
        return []
    ngrams_NG = _index_ngrams([*rows, *others])
    near = [one_P for one_P, _ in _near_pairs(ngrams_NG[: len(rows)], ngrams_NG[len(rows) :], SHARE)]
    return [int(row) for row in np.unique(np.concatenate(near))]


def near_duplicate_groups(rows: Sequence[Sequence[int]], names: Sequence[str], share: float = SHARE) -> list[int]:
    """Return each text's group: near-duplicates (at this share) and texts of equal names are in one, transitively."""
    if not rows:
        return []
    ngrams_NG = _index_ngrams(rows)
    _, first_K, name_N = np.unique(names, return_index=True, return_inverse=True)
    groups_N = _joined(np.arange(len(rows)), np.arange(len(rows)), first_K[name_N])
    for one_P, other_P in _near_pairs(ngrams_NG, ngrams_NG, share):
        groups_N = _joined(groups_N, one_P, other_P)
    return [int(group) for group in groups_N]


def _joined(groups_N: Numbers, one_P: Numbers, other_P: Numbers) -> Numbers:
    links = csr_array((np.ones(len(one_P)), (groups_N[one_P], groups_N[other_P])), shape=(len(groups_N),) * 2)
    labels_N: Numbers = connected_components(links, directed=False)[1]
    return labels_N[groups_N]


def _index_ngrams(rows: Sequence[Sequence[int]]) -> csr_array:
    numbers_by_ngram: dict[bytes, int] = {}
    texts, ngrams = list[int](), list[int]()
    for text, row in enumerate(rows):
        ids, starts = np.asarray(row, dtype=np.int32).tobytes(), range(len(row) - NGRAM + 1)
        distinct = {ids[4 * start : 4 * (start + NGRAM)] for start in starts} if len(row) >= MIN_TOKENS else set()
        ngrams += (numbers_by_ngram.setdefault(ngram, len(numbers_by_ngram)) for ngram in distinct)
        texts += [text] * len(distinct)
    ones_W = np.ones(len(texts), dtype=np.int32)
    return csr_array((ones_W, (texts, ngrams)), shape=(len(rows), max(1, len(numbers_by_ngram))))


def _near_pairs(one_NG: csr_array, other_MG: csr_array, share: float) -> Iterator[tuple[Numbers, Numbers]]:
    other_GM, other_counts_M = other_MG.T.tocsr(), np.diff(other_MG.indptr)
    for start in range(0, one_NG.shape[0], ROWS_AT_ONCE):
        part_NG = one_NG[start : start + ROWS_AT_ONCE]
        shared = (part_NG @ other_GM).tocoo()
        fewer_C = np.minimum(np.diff(part_NG.indptr)[shared.row], other_counts_M[shared.col])
        is_near_C = shared.data >= np.ceil(share * fewer_C - 1e-9)
        yield shared.row[is_near_C].astype(np.int64) + start, shared.col[is_near_C].astype(np.int64)
