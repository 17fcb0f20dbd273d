"""SatImp: its weights by hand, without a gradient."""

import pytest
import torch

from methods.satimp import SatImp


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
