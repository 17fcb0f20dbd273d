"""Near-duplicates among thousands of texts, without comparing each pair.

Two texts are near-duplicates where the one with fewer distinct n-grams of tokens shares at least `SHARE` of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NGRAM = 10
"""Tokens. No two miniature texts of different roles share 0.8 of their 10-grams (at most 0.78). In the Extraction
Challenge 8,312 of 15,000 rows have a near-duplicate, with 8-grams 8,542 and with 13-grams 8,048."""
MIN_TOKENS = 2 * NGRAM
"""In a shorter text one common phrase is 0.8 of the n-grams."""
SHARE = 0.8
"""As in PaLM and Lee et al. (2022): in 200 tokens three changed ones, far apart, stay below it."""
RELATED_SHARE = 0.5
"""Share from which texts are no independent evidence: five changed tokens in 120. No two memorised miniature texts of
one role share it."""
FIRST_TEXTS = 64
"""Texts in the first comparison; each further one has four times as many."""
ROWS_AT_ONCE = 1024
PAIRS_AT_ONCE = 1 << 15

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class _Ngrams:
    all_NG: csr_array
    rarest_NG: csr_array
    """A near-duplicate with at least as many n-grams shares one of these."""
    counts_N: Numbers
    share: float


def near_duplicates(rows: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> list[int]:
    """Return the rising indices of token rows with a near-duplicate among others.

    Texts of fewer than `MIN_TOKENS` tokens have none.
    """
    if not rows or not others:
        return []
    ngrams = _index_ngrams([*rows, *others], SHARE)
    left_N = np.arange(len(rows))
    start, size = len(rows), FIRST_TEXTS
    while start < len(rows) + len(others) and len(left_N):
        block_N = np.arange(start, min(start + size, len(rows) + len(others)))
        for near_P, _ in _near_pairs(ngrams, left_N, block_N):
            left_N = np.setdiff1d(left_N, near_P)
        start, size = start + size, 4 * size
    near: list[int] = np.setdiff1d(np.arange(len(rows)), left_N).tolist()
    return near


def near_duplicate_groups(rows: Sequence[Sequence[int]], names: Sequence[str], share: float = SHARE) -> list[int]:
    """Return each text's group: near-duplicates (at this share) and texts of equal names are in one, transitively."""
    if not rows:
        return []
    ngrams = _index_ngrams(rows, share)
    everything_N = np.arange(len(rows))
    _, first_K, name_N = np.unique(names, return_index=True, return_inverse=True)
    groups_N = _joined(everything_N, everything_N, first_K[name_N])
    start, size = 0, FIRST_TEXTS
    while start < len(rows):
        block_N = everything_N[start : start + size]
        largest = np.bincount(groups_N).argmax()
        is_in_largest_N = groups_N == largest  # What is in one group already need not be compared.
        for others_N, these_N in (
            (everything_N[~is_in_largest_N], block_N[is_in_largest_N[block_N]]),
            (everything_N, block_N[~is_in_largest_N[block_N]]),
        ):
            for pair in _near_pairs(ngrams, others_N, these_N):
                groups_N = _joined(groups_N, *pair)
        start, size = start + size, 4 * size
    groups: list[int] = groups_N.tolist()
    return groups


def _joined(groups_N: Numbers, one_P: Numbers, other_P: Numbers) -> Numbers:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    links = csr_array((np.ones(len(one_P)), (groups_N[one_P], groups_N[other_P])), shape=(len(groups_N),) * 2)
    labels_N: Numbers = connected_components(links, directed=False)[1]
    return labels_N[groups_N]


def _index_ngrams(rows: Sequence[Sequence[int]], share: float) -> _Ngrams:
    lengths_N = np.array([len(row) for row in rows])
    text_T = np.repeat(np.arange(len(rows)), lengths_N)
    hash_W = _window_hashes(np.concatenate([np.asarray(row, dtype=np.uint64) for row in rows]))
    text_W = text_T[: len(hash_W)]
    is_within_W = text_W == text_T[len(text_T) - len(hash_W) :]  # Not of two texts.
    is_within_W &= lengths_N[text_W] >= MIN_TOKENS
    _, ngram_W = np.unique(hash_W[is_within_W], return_inverse=True)
    all_NG = _incidence(text_W[is_within_W], ngram_W, (len(rows), int(ngram_W.max(initial=0)) + 1))
    counts_N = np.diff(all_NG.indptr).astype(np.int64)
    frequency_G = np.bincount(all_NG.indices, minlength=all_NG.shape[1])
    text_E = np.repeat(np.arange(len(rows)), counts_N)
    rarest_first_E = np.lexsort((frequency_G[all_NG.indices], text_E))
    rank_E = np.arange(len(text_E)) - all_NG.indptr[text_E]
    is_rare_E = rank_E <= (counts_N - _least_shared(counts_N, share))[text_E]
    rarest_NG = _incidence(text_E[is_rare_E], all_NG.indices[rarest_first_E][is_rare_E], all_NG.shape)
    return _Ngrams(all_NG, rarest_NG, counts_N, share)


def _window_hashes(ids_T: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed_T = (ids_T + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed_T = (mixed_T ^ (mixed_T >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed_T = (mixed_T ^ (mixed_T >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed_T ^= mixed_T >> np.uint64(31)
    count = max(0, len(ids_T) - NGRAM + 1)
    hash_W = np.zeros(count, dtype=np.uint64)
    for place in range(NGRAM):
        hash_W = hash_W * np.uint64(0xD6E8FEB86659FD93) + mixed_T[place : place + count]
    return hash_W


def _incidence(text_E: Numbers, ngram_E: Numbers, shape: tuple[int, int]) -> csr_array:
    from scipy.sparse import csr_array

    incidence_NG = csr_array((np.ones(len(text_E), dtype=np.int32), (text_E, ngram_E)), shape=shape)
    incidence_NG.sum_duplicates()
    incidence_NG.data[:] = 1
    return incidence_NG


def _least_shared(counts_N: Numbers, share: float) -> Numbers:
    least_N: Numbers = np.ceil(share * counts_N - 1e-9).astype(np.int64)
    return least_N


def _near_pairs(ngrams: _Ngrams, rows_N: Numbers, others_N: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the index pairs of near-duplicates, part by part.

    At most 1 - share of the smaller text's n-grams is not shared, so one of that many rarest and one more is: only
    texts that share one are compared (prefix filtering, Chaudhuri et al. 2006).
    """
    others_all_GM, others_rarest_GM = ngrams.all_NG[others_N].T.tocsr(), ngrams.rarest_NG[others_N].T.tocsr()
    for start in range(0, len(rows_N) if len(others_N) else 0, ROWS_AT_ONCE):
        part_N = rows_N[start : start + ROWS_AT_ONCE]
        alike = ngrams.rarest_NG[part_N] @ others_all_GM + ngrams.all_NG[part_N] @ others_rarest_GM
        one_C, other_C = (numbers[place] for numbers, place in zip((part_N, others_N), alike.nonzero(), strict=True))
        for first in range(0, len(one_C), PAIRS_AT_ONCE):
            one_P, other_P = one_C[first : first + PAIRS_AT_ONCE], other_C[first : first + PAIRS_AT_ONCE]
            shared_P = np.asarray(ngrams.all_NG[one_P].multiply(ngrams.all_NG[other_P]).sum(axis=1)).ravel()
            fewer_P = np.minimum(ngrams.counts_N[one_P], ngrams.counts_N[other_P])
            is_near_P = shared_P >= _least_shared(fewer_P, ngrams.share)
            yield one_P[is_near_P], other_P[is_near_P]
