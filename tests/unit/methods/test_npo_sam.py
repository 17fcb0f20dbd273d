"""NPO+SAM: where its gradient is taken, and what it is without a move."""

import pytest
import torch

from harness.contracts import Training
from methods.npo import NPO
from methods.npo_sam import NPOSAM


@pytest.fixture
def task(make_task, make_model, texts):
    training = Training(learning_rate=1e-3, global_batch=3, micro_batch=3, early_stop=None)
    return make_task(texts(), texts(seed=1), lambda: make_model(1, layers=2), training, strengths=(2,))


def weights(erased):
    return torch.cat([weight.detach().flatten() for weight in erased.model.parameters()])


def test_without_a_move_it_is_npo(task):
    [ours], [theirs] = NPOSAM(radius=0.0).erase(task), NPO().erase(task)
    # One backward pass for each term, and the sum of two: rounding alone, of which AdamW makes 1e-6 of a weight.
    assert torch.allclose(weights(ours), weights(theirs), atol=2e-5)
    assert not torch.allclose(weights(ours), weights(next(NPOSAM(radius=0.5).erase(task))), atol=1e-4)


def test_the_forget_gradient_is_taken_up_the_slope_and_the_retain_gradient_where_it_is():
    """The forget term is w³ and the retain term w² at w = (3, 4): the gradients are 3 w² and 2 w."""
    start = torch.tensor([3.0, 4.0])

    class Step:
        def __init__(self):
            self.weights = {"w": start}

        def gradient(self, term):
            weight = self.weights["w"]
            return {"w": 3 * weight**2 if term == "forget" else 2 * weight}

        def moved(self, by):
            step = self

            class Moved:
                def __enter__(self):
                    step.weights = {"w": start + by["w"]}

                def __exit__(self, *failure):
                    step.weights = {"w": start}

            return Moved()

    slope = torch.tensor([27.0, 48.0])
    there = start + 0.5 * slope / slope.norm()
    ours = NPOSAM(radius=0.5, retain_weight=2.0).gradient(Step())["w"]
    assert torch.allclose(ours, 3 * there**2 + 2.0 * 2 * start)
    assert torch.allclose(NPOSAM(radius=0.0, retain_weight=2.0).gradient(Step())["w"], slope + 4 * start)
