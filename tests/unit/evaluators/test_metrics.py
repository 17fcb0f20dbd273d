"""Metrics against hand-worked cases, and at their extremes."""

import math

import numpy as np
import pytest
import torch

from evaluators.generation import div_n, perplexity, rep_n
from evaluators.memorization import Memorization
from evaluators.metrics.semantic_similarity import Embedder, row_cosine
from harness.contracts import TextsShape
from harness.models.resolving import resolve_judge
from harness.toolkit.scoring import memorization_accuracy


def test_repetition_at_the_extremes():
    stuck = "no " * 100
    assert rep_n(stuck, 2) == pytest.approx(1 - 1 / 99)
    assert div_n(stuck, 3) == pytest.approx(1 / 98)
    for nothing in ("", "word"):  # stopping at once must not look perfect
        assert rep_n(nothing, 2) == 1.0
        assert div_n(nothing, 2) == 0.0
    assert rep_n("all words here differ", 2) == 0.0


def test_memorization_accuracy_drops_the_last_token_as_printed():
    text, guess = torch.tensor([1, 2, 3, 4, 5]), torch.tensor([-1, 2, 0, 4, 0])
    assert memorization_accuracy(text, guess, start=2, stop=4) == 0.5
    assert memorization_accuracy(text, guess, start=2, stop=5) == pytest.approx(1 / 3)
    assert memorization_accuracy(text, text, start=1, stop=5) == 1.0
    assert math.isnan(memorization_accuracy(text, text, start=3, stop=3))


def test_perplexity_weighs_tokens_not_texts():
    nll = [[math.log(2)] * 3, [math.log(16)]]
    assert perplexity(nll) == pytest.approx(math.exp((3 * math.log(2) + math.log(16)) / 4))
    assert perplexity(nll) != pytest.approx(math.exp((math.log(2) + math.log(16)) / 2))
    assert math.isnan(perplexity([[], []]))
    assert perplexity([[709.0]]) == math.exp(709.0)
    assert perplexity([[711.0, 709.0], [710.0]]) == math.inf


def test_a_text_without_words_is_like_another_and_unlike_any_with_words():
    """Whitespace recited verbatim is recited: SS 1. The encoder drops whitespace, so one kind is as another."""
    embed = Embedder(resolve_judge("similarity", "minilm")).embed
    first = ["    ", "\n\t", "", "", "    ", "Text", "    "]
    other = ["    ", "    ", "", " ", "Text", "    ", "."]
    assert row_cosine(embed(first), embed(other)).tolist() == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


def test_texts_that_differ_behind_the_encoders_limit_differ():
    """Windows are averaged by their pieces; `table` cuts, as the published evaluation does."""
    embedder = Embedder(resolve_judge("similarity", "minilm"))
    beginning = "the nurse went home and told the doctor about the long day " * 25
    one, other = f"{beginning} apples grow on trees" * 2, f"{beginning} the parliament voted on tax" * 2
    cut, whole = embedder.encode([one, other]), embedder.embed([one, other])
    assert row_cosine(cut[:1], cut[1:])[0] == pytest.approx(1.0, abs=1e-6)
    assert row_cosine(whole[:1], whole[1:])[0] < 0.999
    assert np.linalg.norm(whole, axis=1) == pytest.approx(np.ones(2), abs=1e-3)
    parts = [text for text, _ in embedder._windows(one)]
    assert "".join(parts) == one
    assert len(parts) == 3
    pieces = [len(embedder._encoder.tokenizer(part)["input_ids"]) for part in parts]
    assert max(pieces) <= embedder._encoder.max_seq_length
    sizes = np.array([pieces]) - 2.0
    mean = (sizes @ embedder.encode(parts)) / sizes.sum()
    assert row_cosine(mean / np.linalg.norm(mean), whole[:1])[0] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(("definition", "most"), [("exact", 19), ("table", 16)])
def test_an_n_for_which_no_text_has_room_is_refused(definition, most):
    shape = TextsShape(sequences=9, prefix_tokens=4, longest=20)
    assert Memorization(n=most, definition=definition).refuses_texts(shape) is None
    assert f"set `n` to at most {most}" in Memorization(n=most + 1, definition=definition).refuses_texts(shape)
