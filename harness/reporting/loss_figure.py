"""The figure of the erasing losses: as the paper compares them, in p, and what is true of the logits."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reporting.curves import STYLES
from harness.reporting.figures import FAINT, INK

_BLUE, _PURPLE, _ORANGE = (colour for colour, _ in STYLES[:3])
_NLL, _EM, _LS, _LS_MEAN = (_ORANGE, "-"), (_BLUE, "-"), (_PURPLE, "-"), (_PURPLE, "--")
_TEXT_WIDTH = 150


def losses(curves: pd.DataFrame, vocabulary: int, statements: Sequence[str]) -> Figure:
    """Return four panels above the statements: losses and their derivatives in p, losses and gradients in the logits.

    Args:
        curves: From `loss_curves`.
        vocabulary: The V they were made for.
        statements: One paragraph each.
    """
    figure = Figure(figsize=(11.0, 11.2))
    grid = figure.subplots(2, 2, gridspec_kw={"left": 0.075, "right": 0.98, "top": 0.94, "bottom": 0.31,
                                              "hspace": 0.36, "wspace": 0.2})
    (term, derivative), (whole, gradient) = grid
    _draw(term, curves, {"nll": ("NLL, and each term of label smoothing: −log p", *_NLL),
                         "entropy_term": ("EM, each term: p log p", *_EM)})
    _decorate(term, "As the paper compares them: a loss's term in p", "p", (-0.6, 6.0))
    _draw(derivative, curves, {"nll_derivative": ("NLL, label smoothing: −1/p", *_NLL),
                               "entropy_term_derivative": ("EM: log p + 1", *_EM)})
    _decorate(derivative, "As the paper compares them: the derivative in p", "p", (-30.0, 2.0))
    ascent = curves.assign(ascent=-curves["nll"])
    _draw(whole, ascent, {"ascent": ("gradient ascent: log p, without a minimum", *_NLL),
                          "negative_entropy": ("EM: Σ p log p", *_EM),
                          "label_smoothing_mean": ("label smoothing / V: −Σ log p / V", *_LS_MEAN)})
    _decorate(whole, "What erasing minimises, for the whole prediction", _LABEL, None)
    _draw(gradient, curves, {"label_smoothing_gradient_l1": ("label smoothing as printed: 2 |V p − 1|", *_LS),
                             "label_smoothing_mean_gradient_l1": ("label smoothing / V: 2 |p − 1/V|", *_LS_MEAN),
                             "negative_entropy_gradient_l1": ("EM: 2 p (1 − p) |log(p (V − 1) / (1 − p))|", *_EM),
                             "nll_gradient_l1": ("NLL, gradient ascent: 2 (1 − p)", *_NLL)})
    _decorate(gradient, "In logit space: L1 norm of the gradient (log scale)", _LABEL, (1e-4, 30.0 * vocabulary))
    gradient.set_yscale("log")
    for ax in (whole, gradient):
        ax.set_xscale("logit")
        ax.set_xlim(curves["p"].iloc[0], curves["p"].iloc[-1])
        ax.axvline(1 / vocabulary, color=FAINT, linewidth=0.9, linestyle=(0, (1, 2)))
        ax.annotate("uniform", (1 / vocabulary, 0), (3, 4), xycoords=("data", "axes fraction"),
                    textcoords="offset points", fontsize=8, color=FAINT)
        ax.minorticks_off()
    lines = [textwrap.fill(statement, _TEXT_WIDTH) for statement in statements]
    figure.text(0.03, 0.235, "\n".join(lines), va="top", fontsize=9, color=INK, linespacing=1.45)
    return figure
