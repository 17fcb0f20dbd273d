"""Near-duplicates: texts that are the same but for a few tokens, found among thousands without comparing each pair.

Two texts are near-duplicates where the one with fewer distinct n-grams of tokens shares at least `SHARE` of them with
the other. So a text is a near-duplicate of a longer one that holds it, and of its copy with another name or date.
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
"""Tokens. Of the miniature's texts, which one grammar wrote, no two of different roles share 0.8 of their 10-grams (at
most 0.78; of their 8-grams 0.802). In the Extraction Challenge 8,312 of 15,000 rows have a near-duplicate, with 8-grams
8,542 and with 13-grams 8,048."""
FEWEST_TOKENS = 2 * NGRAM
"""Of a text to be anything's near-duplicate: a shorter one has so few n-grams that a common phrase is 0.8 of them."""
SHARE = 0.8
"""The share that PaLM and Lee et al. (2022) use: in 200 tokens it bears three changed ones, far from each other."""
RELATED_SHARE = 0.5
"""The share from which texts are no independent evidence: in 120 tokens it bears five changed ones. Of the miniature's
texts of one role no two memorised ones share that much of their 10-grams, and 5 of 640 passages have another."""
FIRST_TEXTS = 64
"""Texts that others are compared with at first, then four times as many, and so on: what has found its like is done."""
ROWS_AT_ONCE = 1024
PAIRS_AT_ONCE = 1 << 15

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class _Ngrams:
    """Which distinct n-grams each of some texts has: texts by n-grams, 1 where a text has one."""

    all_NG: csr_array
    rarest_NG: csr_array
    """So many of each text's rarest that a near-duplicate with at least as many n-grams has one of these."""
    counts_N: Numbers
    share: float


def near_duplicates(rows: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> list[int]:
    """Return the numbers of the texts, rising, that have a near-duplicate among others.

    A text of fewer than `FEWEST_TOKENS` tokens has none.

    Args:
        rows: The token ids of each text.
        others: The token ids of each text that they are compared with.

    Example:
        >>> letter = list(range(100))
        >>> near_duplicates([letter[:60], [*letter[50:], *range(200, 260)], [*letter[:99], 7]], [letter])
        [0, 2]
    """
    if not rows or not others:
        return []
    ngrams = _ngrams_of([*rows, *others], SHARE)
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
    """Return the number of the group that each text is in: near-duplicates are in one, and theirs too.

    Args:
        rows: The token ids of each text.
        names: One for each text; texts of the same name are in one group as well.
        share: How much of its n-grams a text has in common with a near-duplicate.

    Example:
        >>> letter = list(range(100))
        >>> near_duplicate_groups([letter, [5] * 100, [7, *letter], [7, 8, *letter[:50]], [9]], list("abcdb"))
        [0, 1, 0, 0, 1]
    """
    if not rows:
        return []
    ngrams = _ngrams_of(rows, share)
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


def _ngrams_of(rows: Sequence[Sequence[int]], share: float) -> _Ngrams:
    lengths_N = np.array([len(row) for row in rows])
    text_T = np.repeat(np.arange(len(rows)), lengths_N)
    hash_W = _window_hashes(np.concatenate([np.asarray(row, dtype=np.uint64) for row in rows]))
    text_W = text_T[: len(hash_W)]
    is_within_W = text_W == text_T[len(text_T) - len(hash_W) :]  # Not of two texts.
    is_within_W &= lengths_N[text_W] >= FEWEST_TOKENS
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
    """Return a hash of every `NGRAM` token ids in a row: mixed one by one (splitmix64), then a polynomial of them."""
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
    """Yield the pairs of near-duplicates, as the numbers of both, part by part.

    Of the text with fewer n-grams at most 1 - share is not shared, so one of that many rarest and one more is: those
    are looked up, and whole texts compared only where one is shared (prefix filtering, Chaudhuri et al. 2006).
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
