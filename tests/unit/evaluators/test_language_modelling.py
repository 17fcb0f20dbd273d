"""The model's own perplexity of human text, against one token at a time."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from evaluators.language_modelling import LanguageModelling, continuation_nll
from harness.contracts import Sequences
from harness.records.items import aggregated
from harness.toolkit.scoring import own_perplexity


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(seed=5)


@torch.inference_mode()
def nll_one_by_one(model, prompt, continuation):
    row, seen = list(prompt), []
    for token in continuation:
        if row:
            seen.append(-float(model(torch.tensor([row])).logits[0, -1].log_softmax(-1)[token]))
        row.append(token)
    return seen


PROMPTS = [[3, 4, 5], [7], [], [9, 9, 9, 9], [2]]
CONTINUATIONS = [[6, 7], [8, 9, 10, 11], [12, 13, 14], [5], []]


def test_each_continuation_has_the_mean_of_its_own_tokens(model):
    means, counts = continuation_nll(model, PROMPTS, CONTINUATIONS)
    expected = [nll_one_by_one(model, *pair) for pair in zip(PROMPTS, CONTINUATIONS, strict=True)]
    assert counts.tolist() == [len(seen) for seen in expected] == [2, 4, 2, 1, 0]
    for mean, seen in zip(means, expected, strict=True):
        assert mean == pytest.approx(sum(seen) / len(seen) if seen else math.nan, rel=1e-5, nan_ok=True)


def task(tokenizer, prompts, references):
    written = SimpleNamespace(prompts=prompts, texts=[""] * len(prompts), references=references)
    return SimpleNamespace(generations=lambda definition: written, tokenizer=tokenizer)


def test_the_number_weighs_tokens_alike_and_what_has_none_does_not_count(make_model, tokenizer):
    model = make_model(seed=2, vocabulary=256)
    prompts, references = ("ab", "x", "cd"), ("cde", "y", "")
    evaluation = LanguageModelling().evaluate(model, task(tokenizer, prompts, references))
    ids = lambda text: tokenizer(text)["input_ids"]  # noqa: E731
    seen = [nll_one_by_one(model, ids(prompt), ids(text)) for prompt, text in zip(prompts, references, strict=True)]
    together = [nll for of_text in seen for nll in of_text]
    assert evaluation.numbers["own_perplexity"] == pytest.approx(math.exp(sum(together) / len(together)), rel=1e-5)
    assert evaluation.item_weights["own_perplexity"].tolist() == [3, 1, 0]
    assert math.isnan(evaluation.per_item["own_perplexity"][2])


def test_above_709_nats_it_is_infinite_for_the_table_the_search_and_the_records_alike(make_model, tokenizer):
    """No float holds e^710. Every NLL stays a number, and so does the perplexity of a model that is a little wrong."""
    sure = make_model(seed=2, vocabulary=256)
    with torch.no_grad():
        sure.transformer.ln_f.weight.mul_(1e4)
    forget = Sequences(torch.tensor([[1, 2, 3, 4, 5, 6]]), torch.tensor([6]), 2, "")
    for model, is_infinite in ((sure, True), (make_model(seed=2, vocabulary=256), False)):
        found = LanguageModelling().evaluate(model, task(tokenizer, ("ab", "cd"), ("cde", "efg")))
        number, nll_N = found.numbers["own_perplexity"], found.per_item["own_perplexity"]
        assert (min(nll_N) > 710) == is_infinite
        assert np.isfinite(nll_N).all()
        assert math.isinf(number) == is_infinite
        assert aggregated(nll_N, found.item_weights["own_perplexity"], "exp_mean") == pytest.approx(number)
        assert math.isinf(own_perplexity(model, forget)) == is_infinite
