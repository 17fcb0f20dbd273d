"""Metrics against hand-worked cases, and at their extremes."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from evaluators.extraction import Extraction
from evaluators.generation import div_n, perplexity, rep_n
from evaluators.memorization import Memorization
from evaluators.metrics.semantic_similarity import Embedder, row_cosine
from evaluators.prefix_stress import PrefixStress
from evaluators.sampled import Sampled
from harness.contracts import TextsShape
from harness.models.resolving import resolve_judge


def test_repetition_at_the_extremes():
    stuck = "no " * 100
    assert rep_n(stuck, 2) == pytest.approx(1 - 1 / 99)
    assert div_n(stuck, 3) == pytest.approx(1 / 98)
    for nothing in ("", "word"):  # stopping at once must not look perfect
        assert rep_n(nothing, 2) == 1.0
        assert div_n(nothing, 2) == 0.0
    assert rep_n("all words here differ", 2) == 0.0


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


def test_a_limit_of_pieces_is_one_of_bytes_where_pieces_are(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "model_max_length", 16)
    encoder = SimpleNamespace(_encoder=None, _tokenizer=tokenizer)
    assert "".join(text for text, _ in Embedder._windows(encoder, "приветмир кот")) == "приветмир кот"
    assert [pieces for _, pieces in Embedder._windows(encoder, "приветмир кот")] == [16, 9]
    assert Embedder._windows(encoder, "a plain text") == [("a plain text", 12)]


TOO_SHORT = [
    (Memorization(n=19), (4, 20), (4, 19), "set `n` to at most 18"),
    (Memorization(n=16, definition="table"), (4, 20), (4, 18), "set `n` to at most 15"),
    (Extraction(tokens=40), (30, 70), (30, 69), "set `tokens` to at most 39"),
    (Sampled(tokens=(50, 10)), (30, 80), (30, 79), "has 49 there: set `tokens` to at most 49"),
    (PrefixStress(), (22, 200), (21, 200), "set prefix_tokens to 22 or more, or `tokens` to at most 19."),
    (PrefixStress(tokens=19), (21, 200), (2, 200), "set prefix_tokens to 21 or more."),
]


@pytest.mark.parametrize(("evaluator", "fits", "too_short", "said"), TOO_SHORT)
def test_texts_none_of_which_is_long_enough_are_refused_when_a_sweep_is_planned(evaluator, fits, too_short, said):
    refused = [evaluator.refuses_texts(TextsShape(9, prefix, longest)) for prefix, longest in (fits, too_short)]
    assert refused[0] is None
    assert said in refused[1]
