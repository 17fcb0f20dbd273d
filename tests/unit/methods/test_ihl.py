"""The inverted hinge loss: its bounds, its gradient by hand, and what holds it back."""

import pytest
import torch

from harness.toolkit import token_nll
from methods.ihl import IHL, inverted_hinge

LOGITS = torch.randn(40, 5, 30, generator=torch.Generator().manual_seed(0), dtype=torch.double)
TARGETS = torch.randint(0, 30, (40, 5), generator=torch.Generator().manual_seed(1))


def test_it_is_one_more_than_the_token_is_likelier_than_its_strongest_rival():
    expected = torch.empty(40, 5, dtype=torch.double)
    for row in range(40):
        for column in range(5):
            p = LOGITS[row, column].softmax(dim=-1).tolist()
            true = p.pop(int(TARGETS[row, column]))
            expected[row, column] = max(0.0, 1 + true - max(p))
    assert torch.allclose(inverted_hinge(LOGITS, TARGETS), expected)


def test_it_is_bounded_where_ascent_is_not():
    losses = inverted_hinge(1000 * LOGITS, TARGETS)
    assert losses.min().item() >= 0
    assert losses.max().item() <= 2
    certain = torch.tensor([[[1000.0, 0.0, 0.0]]])
    assert inverted_hinge(certain, torch.tensor([[0]])).item() == 2
    assert inverted_hinge(certain, torch.tensor([[1]])).item() == 0
    assert token_nll(1000 * LOGITS, TARGETS).max() > 100


def test_gradient_by_hand():
    """In the token's logit p (1 − p + p'), in its rival's −p' (1 − p' + p), in any other's −p_v (p − p')."""
    logits = torch.tensor([[[0.5, 0.3, 0.2]]], dtype=torch.double).log().requires_grad_()
    inverted_hinge(logits, torch.tensor([[0]])).sum().backward()
    by_hand = [0.5 * (1 - 0.5 + 0.3), -0.3 * (1 - 0.3 + 0.5), -0.2 * (0.5 - 0.3)]
    assert logits.grad.flatten().tolist() == pytest.approx(by_hand)


def test_an_unlikely_token_is_let_go_of():
    """Of ascent the gradient in the token's logit is 1 − p, and grows towards 1."""
    slopes = {}
    for loss in (inverted_hinge, lambda z, y: -token_nll(z, y)):
        logits = torch.tensor([[[-9.0, 0.0, 0.0]]], requires_grad=True)
        loss(logits, torch.tensor([[0]])).sum().backward()
        slopes[loss] = logits.grad[0, 0, 0].item()
    hinge, ascent = slopes.values()
    assert 0 < hinge < 1e-3
    assert ascent > 0.99


def test_retain_texts_are_read_where_it_says_so(model, texts, batches, nll_of):
    [forget], [retain] = batches(texts(), micro_batch=5), batches(texts(seed=1), micro_batch=5)
    alone, beside = IHL(retain=False), IHL(retain_weight=0.5)
    assert (alone.reference, beside.reference) == ("none", "retain_data")
    descent = beside.loss(model, forget, retain) - alone.loss(model, forget, retain)
    assert descent.item() == pytest.approx(0.5 * torch.cat(nll_of(model, texts(seed=1))).mean().item(), rel=1e-5)
