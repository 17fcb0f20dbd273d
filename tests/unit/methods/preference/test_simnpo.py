"""SimNPO against a loss that reads one text after the other, by hand, and at the ends of β and δ."""

import math

import pytest
import torch

from harness.toolkit import preference_loss
from methods.simnpo import SimNPO


def test_it_is_the_papers_loss_one_text_after_the_other(model, texts, batches, nll_of, gradient):
    forget, retain = texts(), texts(seed=1)
    beta, margin, weight = 2.5, 1.5, 3.0
    means = [nll.mean() for nll in nll_of(model, forget)]
    preferences = [-2 / beta * torch.nn.functional.logsigmoid(beta * (mean - margin)) for mean in means]
    expected = sum(preferences) / len(preferences) + weight * torch.cat(nll_of(model, retain)).mean()
    method = SimNPO(beta=beta, margin=margin, retain_weight=weight)
    loss = sum(method.loss(model, *parts) for parts in zip(batches(forget), batches(retain), strict=True))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.allclose(gradient(model, loss), gradient(model, expected), atol=1e-5)


def test_a_small_beta_is_gradient_ascent_on_the_means_of_texts(model, texts, batches, nll_of, gradient):
    parts, method = batches(texts()), SimNPO(beta=1e-5, retain=False)
    of_method = gradient(model, sum(method.loss(model, part, part) for part in parts))
    nll = nll_of(model, texts())
    by_text = gradient(model, -torch.stack([of_text.mean() for of_text in nll]).mean())
    by_token = gradient(model, -torch.cat(nll_of(model, texts())).mean())
    slack = 1e-3 * by_text.abs().max().item()
    assert torch.allclose(of_method, by_text, atol=slack)
    assert not torch.allclose(of_method, by_token, atol=slack), "long texts do not count more"


def test_preference_by_hand():
    """At 2 nats a token with β = 1: −2 log σ(2) = 2 log(1 + e^−2); a margin of 2 makes it 2 log 2."""
    at_two = torch.tensor([2.0])
    assert preference_loss(at_two, 1.0).item() == pytest.approx(2 * math.log(1 + math.exp(-2)))
    assert preference_loss(at_two - 2.0, 1.0).item() == pytest.approx(2 * math.log(2))


@pytest.mark.parametrize(("margin", "expected"), [(0.0, -0.2384), (2.0, -1.0)])
def test_a_margin_holds_on_to_what_is_not_yet_so_unlikely(margin, expected):
    """The slope is −2 σ(−β (ℓ − δ)): −2 σ(−2) and −2 σ(0)."""
    nll = torch.tensor([2.0], requires_grad=True)
    preference_loss(nll - margin, 1.0).sum().backward()
    assert nll.grad.item() == pytest.approx(expected, abs=1e-4)
