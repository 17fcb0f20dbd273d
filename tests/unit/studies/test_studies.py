"""The studies below studies/ still run: what they make is what the papers' formulas and the shipped files say."""

import numpy as np
import pytest
import torch

from harness.models.loading import load_model
from harness.models.resolving import resolve_model
from harness.toolkit.losses import token_negative_entropy, token_nll
from studies import paper_figures


def test_the_gradients_of_the_losses_are_autograds():
    curves = paper_figures.loss_curves(7)
    for loss, column in ((token_negative_entropy, "negative_entropy_gradient_l1"), (token_nll, "nll_gradient_l1")):
        for _, row in curves.iloc[::80].iterrows():
            probabilities = torch.tensor([row.p, *[(1 - row.p) / 6] * 6], dtype=torch.double)
            leaf = probabilities.log()[None, None].requires_grad_()
            loss(leaf, *([torch.tensor([[0]])] if loss is token_nll else [])).sum().backward()
            assert row[column] == pytest.approx(leaf.grad.abs().sum().item(), rel=1e-6, abs=1e-9)


def test_figures_are_drawn_and_a_head_that_is_not_there_is_refused(world, tmp_path, capsys):
    out, text, model = tmp_path / "x.png", tmp_path / "text", str(world / "MODEL")
    assert paper_figures.main(["losses", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    text.write_text("Ring me at 5$\n")
    arguments = ["attention", "--model", model, "--text-file", str(text), "--out", str(tmp_path / "y.svg"), "--block"]
    assert paper_figures.main([*arguments, "L1.W_q.H0"]) == 0
    assert "Ring" not in capsys.readouterr().out
    assert paper_figures.main([*arguments, "L9.W_q.H0"]) == 2
    weights = paper_figures.attention_weights(load_model(resolve_model(model)), [5, 6, 7, 8], "L1.W_q.H0")
    assert np.allclose(weights.sum(axis=1), 1)
    assert (np.triu(weights, 1) == 0).all()
