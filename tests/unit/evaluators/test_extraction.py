"""Extraction strength and long recitations, against generating from every prefix, one token at a time."""

import math
from types import SimpleNamespace

import pytest
import torch

from evaluators.extraction import Extraction

PREFIX, LENGTH = 3, 12


@torch.inference_mode()
def said_after(model, tokens, count):
    """Return what the model says greedily, without any cache."""
    row = list(tokens)
    for _ in range(count):
        row.append(int(model(torch.tensor([row])).logits[0, -1].argmax()))
    return row[len(tokens) :]


def strength_by_generating(model, text):
    continuation = text[PREFIX:]
    for given in range(len(continuation)):
        if said_after(model, text[: PREFIX + given], len(continuation) - given) == continuation[given:]:
            return 1 - given / len(continuation)
    return 0.0


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(seed=3)


@pytest.fixture(scope="module")
def texts(model):
    """Texts that the model says wholly, after one, four and all tokens of the continuation, and a short one."""
    texts = []
    for start, wrong in ((1, None), (2, 0), (3, 3), (4, LENGTH - PREFIX - 1)):
        text = [start, start + 1, start + 2]
        said = said_after(model, text, LENGTH - PREFIX)
        if wrong is not None:
            head = [*text, *said[:wrong], (said[wrong] + 1) % 60]
            said = [*head[PREFIX:], *said_after(model, head, LENGTH - len(head))]
        texts.append([*text, *said])
    return [*texts, texts[0][:6]]


def test_it_is_what_generating_from_every_prefix_gives(model, texts, make_sequences):
    task = SimpleNamespace(forget=make_sequences(texts, prefix_tokens=PREFIX))
    found = Extraction(tokens=4).evaluate(model, task)
    expected = [strength_by_generating(model, text) for text in texts]
    assert expected == pytest.approx([1.0, 8 / 9, 5 / 9, 0.0, 1.0]), "the texts are of every kind"
    assert found.per_item["extraction_strength"] == pytest.approx(expected)
    recited = [said_after(model, text[:PREFIX], 4) == text[PREFIX : PREFIX + 4] for text in texts[:4]]
    assert recited == [True, False, False, True]
    assert found.per_item["recited_4"] == pytest.approx([*map(float, recited), math.nan], nan_ok=True)
    assert found.numbers == pytest.approx({"extraction_strength": sum(expected) / 5, "recited_4": 0.5})


def test_continuations_that_are_all_too_short_are_no_zero(model, texts, make_sequences):
    found = Extraction(tokens=50).evaluate(model, SimpleNamespace(forget=make_sequences(texts, prefix_tokens=PREFIX)))
    assert math.isnan(found.numbers["recited_50"])
    assert [metric.name for metric in Extraction(tokens=7).metrics] == ["extraction_strength", "recited_7"]
