"""What the tests of methods share: texts of several lengths, their NLL one text after the other, and a task."""

import copy

import pytest
import torch

from harness.contracts import Training
from harness.toolkit import nll_loss, train
from harness.toolkit.finetune import micro_batches
from tests.unit.tasks import Task, maker, random_rows


@pytest.fixture
def model(make_model):
    return make_model(1, layers=2)


@pytest.fixture
def texts(make_sequences):
    """Return a maker of texts of several lengths."""
    return lambda seed=0: make_sequences(random_rows(12, 7, 9, 3, 12, seed=seed))


@pytest.fixture(scope="session")
def alike(make_sequences):
    """Six texts of one length."""
    return make_sequences(random_rows(*[12] * 6, seed=0, tokens=40))


@maker
def batches(texts, micro_batch=2):
    """Make the micro-batches of one global batch: all texts, cut unevenly."""
    training = Training(global_batch=len(texts), micro_batch=micro_batch)
    return micro_batches(texts, torch.arange(len(texts)), training, torch.device("cpu"))


@maker
def nll_of(model, texts):
    """Return what a model says of each text, read alone and without padding: the NLL of every token but the first."""
    by_text = []
    for tokens, length in zip(texts.tokens_NT, texts.lengths_N, strict=True):
        log_p = model(tokens[None, :length]).logits[0, :-1].log_softmax(dim=-1)
        by_text.append(-log_p[torch.arange(length - 1), tokens[1:length]])
    return by_text


@maker
def gradient(model, loss):
    """Return the gradient of a loss in all of a model's weights, as one vector."""
    model.zero_grad()
    loss.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


@pytest.fixture
def make_reciter(make_model):
    """Return a maker of what loads copies of a model that was trained on texts."""

    def make(texts, epochs, global_batch):
        model = make_model(1, layers=2)
        training = Training(learning_rate=1e-2, global_batch=global_batch, micro_batch=2, early_stop=None)
        list(train(Task(texts, training=training), model, nll_loss, epochs))
        return lambda: copy.deepcopy(model)

    return make


@pytest.fixture
def check_loss(model, batches, gradient):
    """Return a check that a loss summed over micro-batches, and its gradient, are what is expected of the texts."""

    def check(loss, expected, *texts, atol=1e-4):
        ours = sum(loss(model, *parts) for parts in zip(*map(batches, texts), strict=True))
        assert ours.item() == pytest.approx(expected.item(), rel=1e-5)
        assert torch.allclose(gradient(model, ours), gradient(model, expected), atol=atol)

    return check
