"""Memorisation: its standard errors, and damage to texts that nobody wants forgotten, known in closed form."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from evaluators.memorization import Memorization
from harness.toolkit.scoring import own_perplexity, score_tokens
from tests.unit.tasks import evaluation_task

ROWS = [[1, 2, 3, 4, 5, 6, 7, 8], [9, 8, 7, 6, 5, 4, 3], [1, 3, 5, 7, 9, 11, 13, 15], [2, 4, 6, 8, 10, 12]]


def make_task(forget, model, tokenizer, **given):
    """Return a task whose judge finds all texts alike."""
    judge = SimpleNamespace(digest="0", **dict.fromkeys(("embed", "encode"), lambda texts: np.ones((len(texts), 2))))
    settings = {"seed": 0, "sample_count": 4, "holdout": None, "validation": None, **given}
    lent = {"load_original": lambda: model, "judge": lambda role, load: judge}
    return evaluation_task(forget, model=model, tokenizer=tokenizer, **lent, **settings)


def test_each_is_that_of_what_single_sequences_have(make_model, make_sequences, tokenizer):
    model = make_model()
    with torch.no_grad():  # So that it says one token again and again, and is right about some.
        model.transformer.ln_f.bias.copy_(100 * model.lm_head.weight[5])
    rows = [*ROWS, [5] * 8, [1, 2, 5, 5, 5, 5, 5]]
    every = Memorization().evaluate(model, make_task(make_sequences(rows, 2), model, tokenizer))
    tasks = [make_task(make_sequences([row], 2), model, tokenizer) for row in rows]
    alone = [Memorization().evaluate(model, task).numbers for task in tasks]
    errors = every.notes["standard_errors"]
    assert set(errors) == {"el_3", "ma"}
    for name, error in errors.items():
        values = [numbers[name] for numbers in alone]
        assert every.numbers[name] == pytest.approx(np.mean(values))
        assert error == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)))
        assert error > 0


def test_under_table_each_sequence_counts_over_its_windows(make_model, make_sequences, tokenizer):
    rows = [[7] * 10, list(range(10, 20)), [7, 8] * 5]
    model = make_model()
    task = make_task(make_sequences(rows, 2), model, tokenizer)
    found = Memorization(definition="table").evaluate(model, task)
    predicted = model(task.forget.tokens_NT).logits.argmax(-1)
    hits = np.array([[int(predicted[row, at - 1] == rows[row][at]) for at in (2, 4, 6, 8)] for row in range(3)])
    assert found.numbers["ma"] == pytest.approx(hits.mean())
    assert found.notes["standard_errors"]["ma"] == pytest.approx(hits.mean(axis=1).std(ddof=1) / math.sqrt(3), abs=1e-6)


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (2, 2), (9, 3)])
def test_an_evaluator_gives_as_many_samples_as_the_report_asks_for(asked, given, make_model, make_sequences, tokenizer):
    model = make_model()
    task = make_task(make_sequences([[7] * 10, list(range(10, 20)), [7, 8] * 5], 4), model, tokenizer)
    task.sample_count = asked
    found = Memorization().evaluate(model, task)
    assert len(found.samples) == given
    task.sample_count = 4
    assert found.numbers == Memorization().evaluate(model, task).numbers


# Damage to texts that nobody wants forgotten.

LOGIT, VOCABULARY, SAID = 3.0, 60, 5
SURE = math.log(math.exp(LOGIT) + VOCABULARY - 1) - LOGIT
"""The NLL of token 5, which the model writes whatever it read; every other token's is LOGIT more."""


@pytest.fixture
def model(make_model):
    """Return a model that gives the token 5 a logit of 3, and all others 0, after any text."""
    model = make_model(vocabulary=VOCABULARY)
    with torch.no_grad():
        model.transformer.ln_f.weight.zero_()
        model.transformer.ln_f.bias.fill_(1.0)
        model.lm_head.weight.zero_()
        model.lm_head.weight[SAID] = LOGIT / model.config.hidden_size
    return model


@pytest.fixture
def task(make_sequences, model, tokenizer):
    forget, holdout = [[1, 5, 5, 5, 5, 2], [1, 2, 3, 4, 5, 6]], [[1, 2, 5, 5, 3, 5], [5, 5, 4, 4]]
    others = {"holdout": make_sequences(holdout, 2), "validation": make_sequences([[9, 5, 9], [5, 5]])}
    return make_task(make_sequences(forget, 2), model, tokenizer, **others)


@pytest.mark.parametrize("definition", ["exact", "table"])
def test_the_numbers_are_those_of_the_closed_form(model, task, definition):
    evaluation = Memorization(n=2, definition=definition).evaluate(model, task)
    items, weights, numbers = evaluation.per_item, evaluation.item_weights, evaluation.numbers
    # Of the continuations without their last tokens, 2 of 3 and 0 of 1 are the token 5.
    assert items["unseen_ma"].tolist() == pytest.approx([2 / 3, 0.0])
    assert numbers["unseen_ma"] == pytest.approx(1 / 3)
    # After the first token 3 of 5 and 1 of 3 are; 1 of 2 and 1 of 1.
    assert items["unseen_nll"].tolist() == pytest.approx([SURE + 2 / 5 * LOGIT, SURE + 2 / 3 * LOGIT], rel=1e-5)
    assert weights["unseen_nll"].tolist() == [5, 3]
    assert numbers["unseen_nll"] == pytest.approx(SURE + 4 / 8 * LOGIT, rel=1e-5)
    assert items["general_nll"].tolist() == pytest.approx([SURE + LOGIT / 2, SURE], rel=1e-5)
    assert numbers["general_nll"] == pytest.approx(SURE + LOGIT / 3, rel=1e-5)
    assert math.exp(numbers["general_nll"]) == pytest.approx(own_perplexity(model, task.validation))


def test_without_a_holdout_its_numbers_are_not_known(model, task):
    task.holdout = None
    evaluation = Memorization(n=2).evaluate(model, task)
    assert math.isnan(evaluation.numbers["unseen_ma"])
    assert math.isnan(evaluation.numbers["unseen_nll"])
    assert evaluation.numbers["general_nll"] > 0
    assert not {"unseen_ma", "unseen_nll"} & {*evaluation.per_item}


def test_first_tokens_and_padding_have_no_score(make_model, make_sequences):
    model, texts = make_model(seed=3), make_sequences([[1, 2, 3], [4, 5], *[[7, 8, 9, 10, 11]] * 40])
    predicted_NT, nll_NT = score_tokens(model, texts)
    is_scored_NT = (torch.arange(5) < texts.lengths_N[:, None]) & (torch.arange(5) > 0)
    assert (predicted_NT >= 0).equal(is_scored_NT)
    assert (~nll_NT.isnan()).equal(is_scored_NT)
    log_p_TV = model(torch.tensor([[1, 2, 3]])).logits[0].detach().log_softmax(-1)
    assert nll_NT[0, 1:3].tolist() == pytest.approx([-float(log_p_TV[0, 2]), -float(log_p_TV[1, 3])], rel=1e-4)
    assert predicted_NT[0, 1:3].tolist() == log_p_TV[:2].argmax(-1).tolist()
    np.testing.assert_allclose(nll_NT[2], nll_NT[-1], rtol=1e-5)
