"""The inverted hinge loss: its bounds, its gradient by hand, and what holds it back."""

import pytest
import torch

from methods.ihl import inverted_hinge

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


def test_gradient_by_hand():
    """In the token's logit p (1 − p + p'), in its rival's −p' (1 − p' + p), in any other's −p_v (p − p')."""
    logits = torch.tensor([[[0.5, 0.3, 0.2]]], dtype=torch.double).log().requires_grad_()
    inverted_hinge(logits, torch.tensor([[0]])).sum().backward()
    by_hand = [0.5 * (1 - 0.5 + 0.3), -0.3 * (1 - 0.3 + 0.5), -0.2 * (0.5 - 0.3)]
    assert logits.grad.flatten().tolist() == pytest.approx(by_hand)
