"""Halves of a forget set: disjoint in their continuations, together the whole, the same every time."""

import pytest
import torch

from harness.data.sequences import inseparable_groups, load_forget, take_half
from harness.errors import DataError
from harness.models.loading import load_tokenizer, vocabulary
from harness.settings import Source, replace
from harness.testing import small_spec

FORGET = Source(source="miniature", sequences=24, sequence_tokens=128, prefix_tokens=64)


def rows(sequences):
    return [tuple(row[:length]) for row, length in zip(sequences.tokens_NT.tolist(), sequences.lengths_N, strict=True)]


def continuations(sequences):
    return {row[sequences.prefix_tokens :] for row in rows(sequences)}


@pytest.fixture
def repeating(make_sequences):
    """Return twelve sequences of five continuations, two of which are of different lengths."""
    endings = [[7, 7], [8], [9, 1], [7, 7], [7], [6, 6], [8], [7, 7], [9, 1], [7], [6, 6], [8]]
    return make_sequences([[number, *ending] for number, ending in enumerate(endings, start=20)])


def test_repeats_of_a_continuation_stay_together_and_nothing_is_lost(repeating):
    halves = [take_half(repeating, half) for half in ("selection", "report")]
    assert continuations(halves[0]).isdisjoint(continuations(halves[1]))
    assert sorted([*rows(halves[0]), *rows(halves[1])]) == sorted(rows(repeating))
    assert sorted(len(set(inseparable_groups(half))) for half in halves) == [2, 3]
    for half in halves:
        assert rows(half) == [row for row in rows(repeating) if row in set(rows(half))], "in the order of the whole"
        assert half.tokens_NT.shape[1] == int(half.lengths_N.max())


def test_a_source_that_names_a_half_is_that_half_and_held_to_its_digest():
    spec = small_spec()
    model = load_tokenizer(spec.model), vocabulary(spec.model)
    whole = load_forget(FORGET, *model)
    for half in ("selection", "report"):
        loaded = load_forget(replace(FORGET, half=half), *model)
        assert torch.equal(loaded.tokens_NT, take_half(whole, half).tokens_NT)
        assert load_forget(replace(FORGET, half=half, digest=loaded.digest), *model).digest == loaded.digest
        with pytest.raises(DataError, match="is not what it was"):
            load_forget(replace(FORGET, half=half, digest=whole.digest), *model)
