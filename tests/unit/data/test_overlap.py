"""Near-duplicates: those of a comparison of every pair, and no others; halves that none of them is in both of."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from harness.contracts import Sequences
from harness.data.overlap import MIN_TOKENS, NGRAM, RELATED_SHARE, SHARE, near_duplicate_groups, near_duplicates
from harness.data.sequences import inseparable_groups, load_forget, take_half, token_rows
from harness.errors import DataError
from harness.models.loading import load_tokenizer, vocabulary
from harness.settings import Source, replace
from harness.testing import small_spec

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


def test_repeats_of_a_continuation_stay_together_and_nothing_is_lost(make_sequences):
    """Of five continuations of two lengths."""
    endings = [[7, 7], [8], [9, 1], [7, 7], [7], [6, 6], [8], [7, 7], [9, 1], [7], [6, 6], [8]]
    rows = [[number, *ending] for number, ending in enumerate(endings, start=20)]
    halves = [take_half(make_sequences(rows), half) for half in ("selection", "report")]
    one, other = (token_rows(half) for half in halves)
    assert not any(row[1:] in [theirs[1:] for theirs in other] for row in one)
    assert sorted([*one, *other]) == rows
    assert sorted(len(set(inseparable_groups(half))) for half in halves) == [2, 3]
    for half, of_half in zip(halves, (one, other), strict=True):
        assert of_half == [row for row in rows if row in of_half], "in the order of the whole"
        assert half.tokens_NT.shape[1] == max(map(len, of_half))


def test_a_source_that_names_a_half_is_that_half_and_held_to_its_digest():
    source, spec = Source(source="miniature", sequences=24, sequence_tokens=128, prefix_tokens=64), small_spec()
    model = load_tokenizer(spec.model), vocabulary(spec.model)
    whole = load_forget(source, *model)
    for half in ("selection", "report"):
        loaded = load_forget(replace(source, half=half), *model)
        assert torch.equal(loaded.tokens_NT, take_half(whole, half).tokens_NT)
        assert load_forget(replace(source, half=half, digest=loaded.digest), *model).digest == loaded.digest
        with pytest.raises(DataError, match="is not what it was"):
            load_forget(replace(source, half=half, digest=whole.digest), *model)
