"""Greedy continuations against the naive way: uncached, one prefix at a time."""

import pytest
import torch

from evaluators.memorization import set_overlap
from evaluators.metrics import ngrams, sampled_prefixes
from harness.toolkit.cached_models import PairModel
from harness.toolkit.decoding import CACHE_BYTES, choose, greedy_choices, greedy_continuations, sample, uniforms
from harness.toolkit.device import READ_TOKENS
from tests.unit.tasks import said_after
from tests.unit.toolkit import test_decoding_families


@pytest.fixture(scope="module")
def naive(model, sequences):
    """Return (tokens, smallest margin) for every sequence and prefix, each sequence alone."""
    found = {}
    for place, length in enumerate(sequences.lengths_N.tolist()):
        written, margins = test_decoding_families.naive(model, sequences.tokens_NT[[place], :length])
        found |= {(place, prefix): (tokens, margins[0, prefix]) for (_, prefix), tokens in written.items()}
    return found


def recited(model, start, length, slips):
    """Return a text that the model recites but for some slips: what a forget set looks like to it."""
    text = [*start, *said_after(model, start, length - len(start))]
    for slip in slips:
        text[slip] = (text[slip] + 1) % 60
    return text


@pytest.fixture(scope="module", params=["one", "pair"])
def model(request, make_model):
    one = make_model(1, layers=2)
    if request.param == "pair":
        return PairModel(one, make_model(2, layers=2), lambda z, memo: z - 0.5 * torch.relu(memo - z))
    return one


@pytest.fixture(scope="module")
def sequences(model, make_sequences):
    generator = torch.Generator().manual_seed(5)
    start = torch.randint(0, 60, (4,), generator=generator).tolist()
    rows = [recited(model, start, 22, slips) for slips in ([], [9, 10, 16])]
    rows.append(recited(model, start[::-1], 18, slips=[9]))
    rows += [torch.randint(0, 60, (length,), generator=generator).tolist() for length in (22, 13)]
    return make_sequences(rows)


def test_every_continuation_equals_the_naive_one(model, sequences, naive):
    found = greedy_continuations(model, sequences, [range(1, length) for length in sequences.lengths_N.tolist()])
    # Below this margin two batch shapes may choose differently; such places are counted as near ties.
    clear = {key: tokens for key, (tokens, margin) in naive.items() if margin >= 1e-4}
    assert len(clear) > 0.9 * len(naive)
    for (place, prefix), tokens in clear.items():
        assert found.of(place, prefix) == tokens, (place, prefix)


def test_the_choices_alone_are_those_of_the_continuations(model, sequences, naive):
    found = greedy_choices(model, sequences)
    assert found.tolist() == greedy_continuations(model, sequences, [[]] * len(sequences)).predicted_NT.tolist()
    assert found[4, 13:].tolist() == [-1] * 9
    first = {place: tokens[0] for (place, prefix), (tokens, _) in naive.items() if prefix == 5}
    assert found[:, 5].tolist() == [first[place] for place in range(len(sequences))]


@pytest.mark.parametrize("is_cached", [True, False])
def test_small_budgets_change_nothing(model, sequences, monkeypatch, is_cached):
    prefixes = [range(1, length, 4) for length in sequences.lengths_N.tolist()]
    monkeypatch.setattr("harness.toolkit.stepping.is_cache_exact", lambda *of: is_cached)
    whole = greedy_continuations(model, sequences, prefixes)
    monkeypatch.setitem(CACHE_BYTES, "cpu", 1)
    monkeypatch.setattr("harness.toolkit.decoding.MIN_ROWS", 1)
    monkeypatch.setattr("harness.toolkit.decoding.SEQUENCES_AT_ONCE", 2)
    monkeypatch.setitem(READ_TOKENS, "cpu", 1)
    cut = greedy_continuations(model, sequences, prefixes)
    assert whole.rows.keys() == cut.rows.keys()
    assert all(torch.equal(whole.rows[key], cut.rows[key]) for key in whole.rows)
    assert torch.equal(whole.predicted_NT, cut.predicted_NT)
    assert whole.near_ties == cut.near_ties


def test_prompts_that_are_read_in_parts_are_continued_alike(model, monkeypatch):
    prompts = torch.randint(0, 60, (5, 6), generator=torch.Generator().manual_seed(2))
    whole = sample(model, prompts, 8, seed=1)
    monkeypatch.setitem(READ_TOKENS, "cpu", 12)
    assert torch.equal(sample(model, prompts, 8, seed=1), whole)


def test_sampled_prefixes_are_spread_and_each_is_as_likely_as_any_other():
    generator = torch.Generator().manual_seed(0)
    drawn = [sampled_prefixes(10, 4, generator) for _ in range(20_000)]
    assert all(prefixes == sorted(prefixes) for prefixes in drawn)
    assert all(1 <= low <= 3 < 6 <= mid <= 8 <= high <= 10 for low, _, mid, high in drawn)
    shares = torch.bincount(torch.tensor(drawn).flatten(), minlength=11)[1:] / len(drawn)
    assert shares.tolist() == pytest.approx([0.4] * 10, abs=0.015)
    for count in (None, 10, 11):
        assert sampled_prefixes(10, count, generator) == list(range(1, 11))
    assert sampled_prefixes(0, 4, generator) == []


def test_the_overlap_of_sets_counts_no_repeats():
    assert set_overlap([1, 1, 1, 9], [1, 1], 2) == pytest.approx(1 / 2)
    assert set_overlap([1], [1, 2], 2) == 0.0
    with pytest.raises(ValueError, match="at least 1"):
        ngrams([1], 0)


@pytest.mark.parametrize("top_p", [0.95, 1.0])
@pytest.mark.parametrize("top_k", [None, 200])
@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_sampling_equals_a_whole_sort(spread, top_k, top_p):
    """A nucleus of 8,500 tokens, of 6,700, and within the first guess; logits in steps, so that many tie."""
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(40, 9000, generator=generator) * spread * 16).round() / 16
    draws = torch.rand(40, generator=generator)
    chosen = choose(logits, draws, top_p, top_k)
    for row, draw in enumerate(draws):
        values, tokens = logits[row].sort(descending=True, stable=True)
        p = values[:top_k].softmax(0)
        nucleus = p[: int((p.cumsum(0) < top_p).sum()) + 1]
        place = int((nucleus.cumsum(0) <= draw * nucleus.sum()).sum())
        assert chosen[row] == tokens[place]


def test_a_prompts_sample_depends_on_its_seed_and_nothing_else(model):
    prompts = torch.randint(1, 60, (5, 7), generator=torch.Generator().manual_seed(1))
    five = sample(model, prompts, 12, seed=3)
    assert torch.equal(five, sample(model, prompts, 12, seed=3))
    assert torch.equal(five[:2], sample(model, prompts[:2], 12, seed=3))
    assert not torch.equal(five, sample(model, prompts, 12, seed=4))
    assert torch.equal(uniforms(9, 4, 0)[:3], uniforms(3, 4, 0))
