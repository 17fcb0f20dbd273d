"""The curves of `lethe figure losses` against torch's autograd, which knows none of their formulas."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from harness import cli
from harness.errors import DataError
from harness.reporting.figures import loss_curves as curves
from harness.reporting.figures.losses import loss_figure
from harness.toolkit.losses import token_negative_entropy, token_nll

PS = np.array([1e-4, 0.02, 0.114, 0.3, 0.5, 0.9, 0.999])


def logits(p, vocabulary):
    """The label is token 0, and the others share the rest evenly."""
    others = torch.full((vocabulary - 1,), (1 - p) / (vocabulary - 1), dtype=torch.double)
    return torch.cat([torch.tensor([p], dtype=torch.double), others]).log()[None, None]


def smoothing(logits_BSV, gamma):
    return -gamma * logits_BSV.log_softmax(-1).sum(-1)


LOSSES = {
    "nll": (lambda z: token_nll(z, torch.tensor([[0]])), lambda p, V: curves.nll(p), curves.nll_gradient_l1),
    "em": (token_negative_entropy, curves.negative_entropy, curves.negative_entropy_gradient_l1),
    "smoothing": (
        lambda z: smoothing(z, 0.7),
        lambda p, V: curves.label_smoothing(p, V, 0.7),
        lambda p, V: curves.label_smoothing_gradient_l1(p, V, 0.7),
    ),
}


@pytest.mark.parametrize("vocabulary", [2, 7, 1024, 50257])
@pytest.mark.parametrize("name", LOSSES)
def test_values_and_logit_gradients_are_autograds(name, vocabulary):
    loss, value, gradient_l1 = LOSSES[name]
    for p in PS:
        leaf = logits(p, vocabulary).requires_grad_()
        at = loss(leaf)
        at.sum().backward()
        assert value(np.array([p]), vocabulary)[0] == pytest.approx(at.item(), rel=1e-9)
        ours = gradient_l1(np.array([p])) if name == "nll" else gradient_l1(np.array([p]), vocabulary)
        assert ours[0] == pytest.approx(leaf.grad.abs().sum().item(), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("term", "derivative"), [("nll", "nll_derivative"), ("entropy_term", "entropy_term_derivative")]
)
def test_derivatives_in_p_are_autograds(term, derivative):
    p = torch.tensor(PS, requires_grad=True)
    value = -p.log() if term == "nll" else p * p.log()
    value.sum().backward()
    assert np.allclose(getattr(curves, term)(PS), value.detach().numpy())
    assert np.allclose(getattr(curves, derivative)(PS), p.grad.numpy())


def test_the_anchors_of_the_statement():
    half, nearly_one = curves.negative_entropy_gradient_l1(np.array([0.5, 0.999]), 50257)
    assert half == pytest.approx(5.4, abs=0.05)
    assert nearly_one == pytest.approx(0.035, abs=0.0005)
    assert half == pytest.approx(math.log(50256) / 2), "at p = .5, half the log of V − 1"


@pytest.mark.parametrize("vocabulary", [2, 7, 50257])
def test_each_gradient_is_the_larger_one_where_the_statement_says(vocabulary):
    curve = curves.loss_curves(vocabulary)
    p, em, nll = (curve[name] for name in ("p", "negative_entropy_gradient_l1", "nll_gradient_l1"))
    from_p = curves.entropy_exceeds_nll_from(vocabulary)
    assert 1 / vocabulary < from_p < 1
    assert (em[p > from_p + 1e-9] > nll[p > from_p + 1e-9]).all()
    assert (em[p < from_p - 1e-9] < nll[p < from_p - 1e-9]).all()
    smoothing = curve["label_smoothing_gradient_l1"]
    apart = (p * vocabulary - 1).abs() > 1e-9
    assert (smoothing[apart] > em[apart]).all()
    assert curve["label_smoothing_mean_gradient_l1"].max() <= 2
    assert nll.max() <= 2


def test_em_and_smoothing_have_their_minimum_at_uniform_and_ascent_has_none():
    uniform, beside = np.array([1 / 50]), np.array([0.8 / 50, 1.25 / 50])
    for loss in (curves.negative_entropy, curves.label_smoothing):
        assert (loss(beside, 50) > loss(uniform, 50)).all()
    assert curves.negative_entropy(uniform, 50)[0] == pytest.approx(-math.log(50))
    assert np.diff(-curves.nll(PS)).min() > 0


def test_the_statements_hold_the_numbers():
    words = " ".join(curves.statements(50257))
    for number in ("V = 50,257", "5.41 at p = 0.5", "0.035 at p = 0.999", "p > 0.11 (17.7 times", "up to 100,512"):
        assert number in words
    assert "5.41" not in " ".join(curves.statements(1024))


def test_four_panels_draw_the_curves_and_the_statements():
    curve = curves.loss_curves(1024)
    figure = loss_figure(curve, 1024, ["It holds here."])
    assert [len(ax.lines) for ax in figure.axes] == [2, 2, 4, 5], "with the line at 1/V"
    gradients = {line.get_label(): line.get_ydata() for line in figure.axes[3].lines}
    assert np.array_equal(gradients["NLL, gradient ascent: 2 (1 − p)"], curve["nll_gradient_l1"])
    assert figure.texts[0].get_text() == "It holds here."


def test_lethe_figure_losses_writes_picture_and_numbers(tmp_path, capsys):
    out = tmp_path / "new" / "losses.png"
    assert cli.main(["figure", "losses", "--out", str(out), "--vocabulary", "1024"]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    numbers = pd.read_csv(out.with_suffix(".csv"))
    pd.testing.assert_frame_equal(numbers, curves.loss_curves(1024))
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == [str(out), str(out.with_suffix(".csv"))]
    assert any("V = 1,024" in line for line in printed)


def test_what_cannot_be_drawn_is_said(tmp_path, capsys):
    with pytest.raises(DataError, match="a vocabulary of 1 leaves nothing to predict"):
        curves.loss_curves(1)
    (tmp_path / "file").write_text("")
    faults = {
        ("--vocabulary", "0", "--out", str(tmp_path / "l.png")): (2, "give --vocabulary 2 or more"),
        ("--out", str(tmp_path / "l.jpeg")): (2, "'l.jpeg': name it FILE.png, FILE.pdf or FILE.svg"),
        ("--out", str(tmp_path / "file" / "l.png")): (1, "cannot be written"),
    }
    for arguments, (code, words) in faults.items():
        assert cli.main(["figure", "losses", *arguments]) == code
        assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
