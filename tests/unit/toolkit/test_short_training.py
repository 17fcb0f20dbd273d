"""Short training of a copy, against AdamW by hand; and the model that is lent stays as it is."""

import copy

import pytest
import torch
from torch.nn import functional

from harness.errors import TrialError
from harness.execution.isolate import ProcessState, compared, fingerprints
from harness.toolkit import chosen_sequences, trained_briefly
from tests.unit.tasks import random_rows, weights

RATE = 1e-3


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(seed=1, layers=2)


@pytest.fixture(scope="module")
def texts(make_sequences):
    return make_sequences(random_rows(9, 12, 7, 12, 10))


def trained(model, texts, steps, rate=RATE, batch=3, seed=0):
    made = trained_briefly(model, texts, steps=steps, learning_rate=rate, batch=batch, seed=seed)
    return {step: weights(copied) for step, copied in made}


def by_hand(model, texts, batches):
    """AdamW on the mean NLL of every token of each batch."""
    copied = copy.deepcopy(model).requires_grad_(True)
    optimizer = torch.optim.AdamW(copied.parameters(), lr=RATE, weight_decay=0.0)
    for rows in batches:
        nll = []
        for row in rows:
            tokens = texts.tokens_NT[row, : texts.lengths_N[row]]
            logits = copied(tokens[None, :-1]).logits[0]
            nll.append(functional.cross_entropy(logits, tokens[1:], reduction="none"))
        optimizer.zero_grad()
        torch.cat(nll).mean().backward()
        optimizer.step()
    return weights(copied)


def test_two_steps_are_what_adamw_does_by_hand(model, texts):
    order = torch.randperm(5, generator=torch.Generator().manual_seed(7)).tolist()
    batches = [order[:3], [*order[3:], order[0]]]  # The texts come again once all have been seen.
    found = trained(model, texts, (1, 2), seed=7)
    for step in (1, 2):
        expected = by_hand(model, texts, batches[:step])
        assert torch.allclose(found[step], expected, atol=1e-6)
        assert not torch.allclose(found[step], weights(model), atol=1e-4)
    assert not torch.allclose(found[2], by_hand(model, texts, [order[:3], order[:3]]), atol=1e-5)


def test_only_the_steps_that_are_asked_for_come_and_later_ones_change_none_of_them(model, texts):
    found = trained(model, texts, (0, 2, 4))
    assert list(found) == [0, 2, 4]
    assert torch.equal(found[0], weights(model))
    assert torch.equal(found[2], trained(model, texts, (2,))[2])
    assert not torch.equal(found[2], trained(model, texts, (2,), seed=1)[2])


@pytest.mark.parametrize("surroundings", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_it_trains_wherever_it_is_called_and_leaves_the_model_and_the_process_alone(model, texts, surroundings):
    lent = copy.deepcopy(model).requires_grad_(False)
    before, expected = fingerprints("model", lent), trained(model, texts, (1, 2))
    with surroundings():
        state = ProcessState()
        found = {}
        for step, copied in trained_briefly(lent, texts, steps=(1, 2), learning_rate=RATE, batch=3, seed=0):
            assert state.changed() == []
            assert not copied.training
            found[step] = weights(copied)
        assert state.changed() == []
    assert compared(before, fingerprints("model", lent)) == []
    assert all(torch.equal(found[step], expected[step]) for step in (1, 2))


def test_a_model_in_training_mode_is_trained_without_dropout(make_model, texts):
    lent = make_model(seed=1, layers=2).train()
    for part in lent.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    [(_, copied)] = trained_briefly(lent, texts, steps=(1,), learning_rate=RATE, batch=3, seed=0)
    assert torch.equal(weights(copied), trained(lent.eval(), texts, (1,))[1])


def test_a_loss_that_is_not_finite_is_an_error(model, texts):
    with pytest.raises(TrialError, match="the loss is"):
        trained(model, texts, (9,), rate=1e30)


def test_chosen_sequences_are_named_by_what_they_hold(texts):
    some = chosen_sequences(texts, [2, 4])
    assert some.tokens_NT.tolist() == texts.tokens_NT[[2, 4], :10].tolist()
    assert some.lengths_N.tolist() == [7, 10]
    assert some.digest == chosen_sequences(chosen_sequences(texts, [4, 2]), [1, 0]).digest
    assert some.digest != chosen_sequences(texts, [4, 2]).digest
    assert len(chosen_sequences(texts, [])) == 0
