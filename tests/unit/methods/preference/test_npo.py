"""NPO against a loss that reads one text after the other, at the ends of β; where NPO+SAM takes its gradient."""

import pytest
import torch

from harness.contracts import Training
from harness.toolkit.losses import preference_loss
from methods.npo import NPO
from methods.npo_sam import NPOSAM


@pytest.fixture
def original(make_model):
    return make_model(2, layers=2)


def loss_of(method, original, model, forget, retain):
    return sum(method.loss(original, model, *parts) for parts in zip(forget, retain, strict=True))


def test_it_is_the_papers_loss_one_text_after_the_other(model, original, texts, batches, nll_of, gradient):
    forget, retain = texts(), texts(seed=1)
    beta, weight = 0.07, 3.0
    by_text = zip(nll_of(model, forget), nll_of(original, forget), strict=True)
    rises = [ours.sum() - theirs.sum().detach() for ours, theirs in by_text]
    preferences = [-2 / beta * torch.nn.functional.logsigmoid(beta * rise) for rise in rises]
    expected = sum(preferences) / len(preferences) + weight * torch.cat(nll_of(model, retain)).mean()
    method = NPO(beta=beta, retain_weight=weight)
    loss = loss_of(method, original, model, batches(forget), batches(retain))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.allclose(gradient(model, loss), gradient(model, expected), atol=1e-4)
    assert len({round(rise.item()) for rise in rises}) > 1


def test_a_small_beta_is_gradient_ascent_on_the_sums(model, original, texts, batches, nll_of, gradient):
    forget = batches(texts())
    ascent = -sum(nll.sum() for nll in nll_of(model, texts())) / len(texts())
    by_beta = {}
    for beta in (1e-6, 0.1):
        loss = loss_of(NPO(beta=beta, retain=False), original, model, forget, forget)
        by_beta[beta] = gradient(model, loss)
    expected = gradient(model, ascent)
    assert torch.allclose(by_beta[1e-6], expected, atol=1e-3 * expected.abs().max().item())
    assert not torch.allclose(by_beta[0.1], expected, atol=1e-1 * expected.abs().max().item())


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


@pytest.mark.parametrize(("beta", "is_let_go"), [(0.1, True), (0.005, False)])
def test_a_large_beta_lets_go_of_a_text_of_200_tokens_after_a_quarter_of_a_nat_each(beta, is_let_go):
    rise = torch.tensor([0.25 * 200], requires_grad=True)
    preference_loss(rise, beta).sum().backward()
    assert -1 <= rise.grad.item() < 0
    assert (-rise.grad.item() < 0.02) == is_let_go
