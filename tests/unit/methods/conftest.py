"""What the tests of methods share: texts of several lengths, their NLL one text after the other, and a task."""

import pytest
import torch

from harness.contracts import Training
from harness.toolkit.finetune import micro_batches
from tests.unit.tasks import Task

LENGTHS = (12, 7, 9, 3, 12)


@pytest.fixture
def model(make_model):
    return make_model(1, layers=2)


@pytest.fixture
def texts(make_sequences):
    """Return a maker of texts of several lengths."""

    def make(seed=0):
        generator = torch.Generator().manual_seed(seed)
        return make_sequences([torch.randint(1, 60, (length,), generator=generator).tolist() for length in LENGTHS])

    return make


@pytest.fixture
def batches():
    """Return a maker of the micro-batches of one global batch: all texts, cut unevenly."""

    def make(texts, micro_batch=2):
        training = Training(global_batch=len(texts), micro_batch=micro_batch)
        return micro_batches(texts, torch.arange(len(texts)), training, torch.device("cpu"))

    return make


@pytest.fixture
def nll_of():
    """Return what a model says of each text, read alone and without padding: the NLL of every token but the first."""

    def nll(model, texts):
        by_text = []
        for tokens, length in zip(texts.tokens_NT, texts.lengths_N, strict=True):
            log_p = model(tokens[None, :length]).logits[0, :-1].log_softmax(dim=-1)
            by_text.append(-log_p[torch.arange(length - 1), tokens[1:length]])
        return by_text

    return nll


@pytest.fixture
def gradient():
    """Return the gradient of a loss in all of a model's weights, as one vector."""

    def of(model, loss):
        model.zero_grad()
        loss.backward()
        return torch.cat([weight.grad.flatten() for weight in model.parameters()])

    return of


@pytest.fixture
def make_task():
    """Return the maker of tasks."""
    return Task


@pytest.fixture
def copies_of():
    """Return a maker of what loads copies of a model as it is now."""

    def loader(make, model):
        states = {name: value.clone() for name, value in model.state_dict().items()}

        def load():
            fresh = make()
            fresh.load_state_dict(states)
            return fresh

        return load

    return loader
