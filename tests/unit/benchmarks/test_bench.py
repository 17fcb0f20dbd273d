"""What `make bench` shows: every benchmark's ratios, whatever one of them does."""

import pytest

from benchmarks.extraction_likelihood import RIVALS, _per_length, _per_prefix, _tokens_passed, _validation
from harness.toolkit.decoding import greedy_continuations


@pytest.mark.parametrize("way", [_per_prefix, _per_length, _validation])
def test_tokens_that_pass_through_the_model_are_counted_one_by_one(way):
    """A prefix is read whole, and each generated token but the last is read for the next one."""
    length, passed = 7, 0
    for prefix in range(1, length):
        passed += prefix + (length - prefix) - 1
        passed += prefix if way is _validation else 0
    assert RIVALS[way](length) == passed


def test_tokens_that_pass_in_lethe_are_the_texts_and_what_follows_each_mismatch(make_model, make_sequences):
    texts = make_sequences([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]])
    continuations = greedy_continuations(make_model(1), texts, [range(1, 6)] * 2)
    generated = 0
    for sequence in range(2):
        for position in range(1, 6):
            is_mismatch = continuations.predicted_NT[sequence, position] != texts.tokens_NT[sequence, position]
            generated += int(is_mismatch) * (6 - position - 1)
    assert generated > 0
    assert _tokens_passed(continuations) == 12 + generated
