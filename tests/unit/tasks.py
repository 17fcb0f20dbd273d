"""As much of a task as methods and evaluators ask for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from harness.contracts import Training
from harness.settings import Engine
from harness.toolkit import token_negative_entropy, token_nll


@dataclass
class Task:
    """As much of an `ErasureTask` as methods ask for, which loads a new copy of its model whenever asked."""

    forget: object
    retain: object = None
    load_original: Callable[[], torch.nn.Module] = None
    training: Training = field(
        default_factory=lambda: Training(learning_rate=1e-3, global_batch=3, micro_batch=2, early_stop=None)
    )
    strengths: tuple = (1,)
    engine: Engine = field(default_factory=Engine)
    seed: int = 0

    def validation_perplexity(self, model):
        return 1.0

    def progress(self, message):
        pass


def evaluation_task(forget, **given):
    """Return a task of an evaluator that has what is given, and computes anew what trials share."""
    shared = {"cached": lambda key, make: make(), "original_digest": lambda: "o", "retrained_digest": lambda: "r"}
    return SimpleNamespace(**{"forget": forget, "is_original": False, **shared, **given})


def maker(make):
    """Return a session's fixture that is this function itself."""
    return pytest.fixture(lambda: make, scope="session", name=make.__name__)


def nll(batch, logits_BSV):
    return batch.mean(token_nll(logits_BSV, batch.targets_BS))


def negative_entropy(batch, logits_BSV):
    return batch.mean(token_negative_entropy(logits_BSV))


def weights(model):
    """Return all weights of a model as they are now, in one vector."""
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


@torch.inference_mode()
def said_after(model, tokens, count):
    """Return a model's greedy continuation of these tokens, by a pass over the whole for each."""
    row = list(tokens)
    for _ in range(count):
        row.append(int(model(input_ids=torch.tensor([row]), use_cache=False).logits[0, -1].argmax()))
    return row[len(tokens) :]


def random_rows(*lengths, seed=1, tokens=60):
    """Return texts of these lengths, of token ids from 1 on."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, tokens, (length,), generator=generator).tolist() for length in lengths]
