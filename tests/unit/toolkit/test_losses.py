"""Losses against closed forms and finite differences."""

import math

import pytest
import torch

from harness.toolkit.losses import Batch, token_distillation, token_kl, token_negative_entropy, token_nll

torch.manual_seed(0)
LOGITS = torch.randn(1, 1, 7, dtype=torch.double)
OTHERS = torch.randn(1, 1, 7, dtype=torch.double)
TARGET = torch.tensor([[3]])


def finite_differences(function, logits, step=1e-6):
    gradient = torch.zeros_like(logits)
    for place in range(logits.shape[-1]):
        nudge = torch.zeros_like(logits)
        nudge[..., place] = step
        gradient[..., place] = (function(logits + nudge) - function(logits - nudge)).sum() / (2 * step)
    return gradient


def analytic(function, logits):
    leaf = logits.clone().requires_grad_()
    function(leaf).sum().backward()
    return leaf.grad


LOSSES = {
    "nll": lambda z: token_nll(z, TARGET),
    "negative entropy": token_negative_entropy,
    "kl": lambda z: token_kl(OTHERS, z),
    "distillation": lambda z: token_distillation(OTHERS, z),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_equals_finite_differences(name):
    if name == "distillation":  # its value is cut off from the graph; the cross entropy itself is not
        numeric = finite_differences(lambda z: -(OTHERS.softmax(-1) * z.log_softmax(-1)).sum(-1), LOGITS)
    else:
        numeric = finite_differences(LOSSES[name], LOGITS)
    assert torch.allclose(analytic(LOSSES[name], LOGITS), numeric, atol=1e-8)


def test_values_against_hand_worked_cases():
    fair = torch.zeros(1, 1, 4)
    assert token_nll(fair, TARGET).item() == pytest.approx(math.log(4))
    assert token_negative_entropy(fair).item() == pytest.approx(-math.log(4))
    assert token_negative_entropy(torch.tensor([[[100.0, 0.0]]])).item() == pytest.approx(0.0, abs=1e-6)
    quarter = torch.tensor([[[math.log(0.25), math.log(0.75)]]])
    half = torch.zeros(1, 1, 2)
    by_hand = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert token_kl(quarter, half).item() == pytest.approx(by_hand)
    assert token_kl(half, quarter).item() != pytest.approx(by_hand)
    assert token_distillation(half, quarter).item() == pytest.approx(-0.5 * math.log(0.25 * 0.75))


def test_no_gradient_at_all_where_student_and_teacher_agree():
    logits = torch.randn(3, 5, 50)
    assert torch.equal(analytic(lambda z: token_distillation(logits, z), logits), torch.zeros_like(logits))
    assert analytic(lambda z: token_distillation(logits + torch.randn(50), z), logits).abs().max() > 1e-3


def test_a_sequence_of_which_nothing_counts_has_no_say():
    values = torch.tensor([[0.5, 1.5], [9.0, 9.0]], requires_grad=True)
    batch = Batch(torch.zeros(2, 3), torch.tensor([[True, True], [False, False]]), 2, 1)
    batch.sequence_mean(batch.means_per_sequence(values)).backward()
    assert values.grad.tolist() == [[0.5, 0.5], [0.0, 0.0]]


def test_values_of_the_wrong_kind_are_refused_and_not_broadcast():
    batch = Batch(torch.zeros(2, 3), torch.ones(2, 2, dtype=torch.bool), 4, 2)
    with pytest.raises(ValueError, match=r"\(2,\); give one value for each prediction, \(2, 2\)"):
        batch.mean(torch.ones(2))
    with pytest.raises(ValueError, match="each prediction"):
        batch.sums_per_sequence(torch.ones(2, 1))
    with pytest.raises(ValueError, match="each sequence"):
        batch.sequence_mean(torch.ones(2, 2))
