"""Near-duplicates: those of a comparison of every pair, and no others; halves that none of them is in both of."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.contracts import Sequences
from harness.data.overlap import MIN_TOKENS, NGRAM, RELATED_SHARE, SHARE, near_duplicate_groups, near_duplicates
from harness.data.sequences import take_half, token_rows

TEXT = st.lists(st.integers(0, 2), max_size=40) | st.lists(st.just(1), min_size=18, max_size=24)
TEXTS = st.lists(TEXT, max_size=6)


def ngrams(row):
    if len(row) < MIN_TOKENS:
        return set()
    return {tuple(row[start : start + NGRAM]) for start in range(len(row) - NGRAM + 1)}


def are_near(one, other, share=SHARE):
    least = min(len(ngrams(one)), len(ngrams(other)))
    return least > 0 and len(ngrams(one) & ngrams(other)) >= share * least - 1e-9


def edited(letter, changes):
    """Return a letter with every n-th token another."""
    other = list(letter)
    for place in np.linspace(12, len(letter) - 12, changes).astype(int):
        other[place] += 100_000
    return other


@given(TEXTS, TEXTS, st.data())
def test_they_are_those_of_a_comparison_of_every_pair(rows, others, data):
    copied = data.draw(st.lists(st.sampled_from(rows), max_size=3)) if rows else []
    others = others + [row[2:] + [9] * 3 for row in copied]
    expected = [number for number, row in enumerate(rows) if any(are_near(row, other) for other in others)]
    assert near_duplicates(rows, others) == expected


@given(TEXTS, st.sampled_from([SHARE, RELATED_SHARE]), st.data())
def test_groups_are_what_near_duplicates_and_names_connect(rows, share, data):
    rows = rows + [[*row, 9, 8] for row in rows]
    names = [data.draw(st.sampled_from("abcdefgh")) for _ in rows]
    groups = list(range(len(rows)))
    for one in range(len(rows)):
        for other in range(one):
            if names[one] == names[other] or are_near(rows[one], rows[other], share):
                groups = [groups[other] if group == groups[one] else group for group in groups]
    found = near_duplicate_groups(rows, names, share)
    assert len(set(found)) == len(set(groups)) == len(set(zip(found, groups, strict=True)))


@pytest.mark.parametrize(("changes", "is_near"), [(0, True), (3, True), (4, False), (30, False)])
def test_a_copy_with_a_few_other_tokens_is_near_and_one_with_many_is_not(changes, is_near):
    letter = list(range(200))
    assert near_duplicates([edited(letter, changes)], [letter]) == ([0] if is_near else [])


def test_a_text_within_a_longer_one_is_near_both_ways_and_a_short_one_never():
    letter = list(range(200))
    assert near_duplicates([letter[50:90]], [letter]) == near_duplicates([letter], [letter[50:90]]) == [0]
    short, long_enough = letter[: MIN_TOKENS - 1], letter[:MIN_TOKENS]
    assert near_duplicates([short], [letter, short]) == []
    assert near_duplicates([long_enough], [letter]) == [0]
    assert near_duplicates([], [letter]) == near_duplicates([letter], []) == near_duplicate_groups([], []) == []


def test_they_are_found_among_more_texts_than_are_compared_at_once():
    rows = np.random.default_rng(0).integers(50_000, size=(3000, 30)).tolist()
    others = np.random.default_rng(1).integers(50_000, size=(3000, 30)).tolist()
    assert near_duplicates(rows, others) == []
    for number, place in ((5, 2999), (2500, 0), (2501, 1000)):
        others[place] = [7, *rows[number]]
    assert near_duplicates(rows, others) == [5, 2500, 2501]
    groups = near_duplicate_groups([*rows, *others], [str(number) for number in range(6000)])
    assert len(set(groups)) == 5997
    assert groups[5] == groups[5999]


def test_no_near_duplicate_is_in_both_halves_and_nothing_is_lost():
    letters = np.random.default_rng(0).integers(50_000, size=(8, 60)).tolist()
    rows = [*letters, *([*letter[:58], 1, number] for number, letter in enumerate(letters[:3] * 2))]
    forget = Sequences(torch.tensor(rows), torch.full((len(rows),), 60), 20, "")
    selection, report = (token_rows(take_half(forget, half)) for half in ("selection", "report"))
    assert near_duplicates(selection, report) == []
    assert sorted([*selection, *report]) == sorted(rows)
    assert min(len(selection), len(report)) >= 4, "neither is left with little"
