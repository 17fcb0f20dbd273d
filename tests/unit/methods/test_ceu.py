"""CE-U and the inverted hinge: each gradient by hand, and the limit of deliberate imagination; SatImp's weights."""

import pytest
import torch

from harness.toolkit import token_distillation
from methods.ceu import CEU, without_target
from methods.deliberate_imagination import imagine
from methods.ihl import inverted_hinge
from methods.satimp import SatImp

LOGITS = torch.randn(4, 3, 12, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(0, 12, (4, 3), generator=torch.Generator().manual_seed(1))


def loss_and_gradient(make_teacher, logits, targets):
    student = logits.clone().requires_grad_()
    loss = token_distillation(make_teacher(logits, targets), student)
    loss.sum().backward()
    return loss.detach(), student.grad


def test_gradient_by_hand():
    """p in the token's logit, −p p_v / (1 − p) in any other's."""
    loss, gradient = loss_and_gradient(without_target, torch.tensor([[[0.5, 0.3, 0.2]]]).log(), torch.tensor([[0]]))
    assert gradient.flatten().tolist() == pytest.approx([0.5, -0.3, -0.2])
    assert loss.item() == pytest.approx(-(torch.tensor([0.6, 0.4]) * torch.tensor([0.3, 0.2]).log()).sum().item())


def test_certain_and_impossible_tokens_are_finite():
    """A teacher of −∞ has a probability of 0, and 0 · −∞ would be NaN."""
    logits = torch.tensor([[[200.0, 0.0, -200.0], [-200.0, 0.0, 200.0]]])
    loss, gradient = loss_and_gradient(without_target, logits, torch.tensor([[0, 0]]))
    assert loss.isfinite().all()
    assert gradient[0, 0].tolist() == pytest.approx([1.0, -1.0, 0.0]), "of a certain token the whole of it"
    assert gradient[0, 1].tolist() == [0.0, 0.0, 0.0], "what is gone already is let go of"


def test_the_model_is_its_own_teacher_and_the_teacher_has_no_gradient(model, texts, batches, gradient):
    ours = gradient(model, sum(CEU().loss(model, part, part) for part in batches(texts())))
    total = 0.0
    for tokens, length in zip(texts().tokens_NT, texts().lengths_N, strict=True):
        logits, targets = model(tokens[None, : length - 1]).logits[0], tokens[1:length]
        target = logits.detach().clone()
        target[torch.arange(length - 1), targets] = -torch.inf
        total = total - (target.softmax(-1) * logits.log_softmax(-1)).sum()
    expected = gradient(model, total / sum(length - 1 for length in texts().lengths_N.tolist()))
    assert torch.allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize(("gamma", "is_limit"), [(60.0, True), (3.0, False)])
def test_it_is_deliberate_imagination_of_itself_in_the_limit(gamma, is_limit):
    ours = loss_and_gradient(without_target, LOGITS, TARGETS)
    imagined = loss_and_gradient(lambda z, y: imagine(z, y, gamma), LOGITS, TARGETS)
    assert torch.allclose(ours[0], imagined[0], atol=1e-6) == is_limit
    assert torch.allclose(ours[1], imagined[1], atol=1e-6) == is_limit


# The inverted hinge.


def test_it_is_one_more_than_the_token_is_likelier_than_its_strongest_rival():
    logits = torch.randn(40, 5, 30, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    targets = torch.randint(0, 30, (40, 5), generator=torch.Generator().manual_seed(1))
    expected = torch.empty(40, 5, dtype=torch.double)
    for row in range(40):
        for column in range(5):
            p = logits[row, column].softmax(dim=-1).tolist()
            true = p.pop(int(targets[row, column]))
            expected[row, column] = max(0.0, 1 + true - max(p))
    assert torch.allclose(inverted_hinge(logits, targets), expected)


def test_gradient_of_the_inverted_hinge_by_hand():
    """In the token's logit p (1 − p + p'), in its rival's −p' (1 − p' + p), in any other's −p_v (p − p')."""
    logits = torch.tensor([[[0.5, 0.3, 0.2]]], dtype=torch.double).log().requires_grad_()
    inverted_hinge(logits, torch.tensor([[0]])).sum().backward()
    by_hand = [0.5 * (1 - 0.5 + 0.3), -0.3 * (1 - 0.3 + 0.5), -0.2 * (0.5 - 0.3)]
    assert logits.grad.flatten().tolist() == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("betas", "p", "weight"),
    [((1, 0), 0.25, 0.25), ((2, 1), 0.5, 0.125), ((5, 1), 0.9, 0.9**5 * 0.1), ((0, 2), 0.9, 0.01), ((0, 0), 1.0, 1.0)],
)
def test_weights_by_hand(betas, p, weight):
    nll = -torch.tensor(p, dtype=torch.double).log()
    assert SatImp(beta1=float(betas[0]), beta2=float(betas[1])).weight(nll).item() == pytest.approx(weight)


def test_a_certain_token_has_a_weight_and_no_nan():
    """1 − p is taken from the NLL: from p, which rounds to 1 in fp32, it would be 0."""
    nll = torch.tensor([0.0, 1e-9, 200.0])
    assert SatImp(beta1=1.0, beta2=1.0).weight(nll).tolist() == pytest.approx([0.0, 1e-9, 0.0], abs=1e-15)


def test_it_is_the_papers_loss_and_its_weights_have_no_gradient(model, texts, batches, nll_of, gradient):
    forget, retain = texts(), texts(seed=1)
    method = SatImp(beta1=0.5, beta2=2.0, retain_weight=3.0)
    by_kind = {}
    for kind, freeze in (("fixed", torch.Tensor.detach), ("moving", torch.Tensor.clone)):
        nll = torch.cat(nll_of(model, forget))
        p = freeze((-nll).exp())
        loss = -(p**0.5 * (1 - p) ** 2 * nll).mean() + 3.0 * torch.cat(nll_of(model, retain)).mean()
        by_kind[kind] = gradient(model, loss)
    parts = zip(batches(forget), batches(retain), strict=True)
    ours = gradient(model, sum(method.loss(model, *of_both) for of_both in parts))
    assert torch.allclose(ours, by_kind["fixed"], atol=1e-5)
    assert not torch.allclose(ours, by_kind["moving"], atol=1e-3)
