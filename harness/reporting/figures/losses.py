"""The figure of the erasing losses: as the paper compares them, in p, and what is true of the logits."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.analysis.tradeoff.curves import STYLES
from harness.reporting.figures.style import DOTTED, FAINT, INK, SOFT, dress, panel_title

_EM, _LS, _NLL = ((colour, "-") for colour, _ in STYLES[:3])
_LS_MEAN = (_LS[0], "--")
_PANEL_LINES: tuple[tuple[tuple[str, str, tuple[str, str]], ...], ...] = (
    (
        ("nll", "NLL, and each term of label smoothing: −log p", _NLL),
        ("entropy_term", "EM, each term: p log p", _EM),
    ),
    (
        ("nll_derivative", "NLL, and each term of label smoothing: −1/p", _NLL),
        ("entropy_term_derivative", "EM: log p + 1", _EM),
    ),
    (
        ("label_smoothing_mean", "label smoothing / V: −(1/V) Σ log p", _LS_MEAN),
        ("log_p", "gradient ascent: log p, without a minimum", _NLL),
        ("negative_entropy", "EM: Σ p log p", _EM),
    ),
    (
        ("label_smoothing_gradient_l1", "label smoothing as printed: 2 |V p − 1|", _LS),
        ("label_smoothing_mean_gradient_l1", "label smoothing / V: 2 |p − 1/V|", _LS_MEAN),
        ("nll_gradient_l1", "NLL, gradient ascent: 2 (1 − p)", _NLL),
        ("negative_entropy_gradient_l1", "EM: 2 p (1 − p) |log(p (V − 1) / (1 − p))|", _EM),
    ),
)
"""Column, label and style of each panel's curves."""
_PANEL_TITLES = (
    "As the paper compares them: a loss's term in p",
    "As the paper compares them: the derivative in p",
    "What erasing minimises, of a whole prediction",
    "In the logits: L1 norm of the gradient",
)
_MARGINS = {"left": 0.07, "right": 0.98, "top": 0.965, "bottom": 0.31, "hspace": 0.28, "wspace": 0.17}
_TEXT_WIDTH = 155


def loss_figure(curves: pd.DataFrame, vocabulary: int, statements: Sequence[str]) -> Figure:
    """Return four panels above the statements: losses and derivatives in p, then whole losses and gradients in logits.

    Args:
        curves: From `loss_curves`.
        vocabulary: The V that they are for.
        statements: One paragraph each.
    """
    figure = Figure(figsize=(11.0, 10.8))
    axes = list(figure.subplots(2, 2, gridspec_kw=_MARGINS).flat)
    drawn = curves.assign(log_p=-curves["nll"])
    for ax, lines, title in zip(axes, _PANEL_LINES, _PANEL_TITLES, strict=True):
        for column, label, (colour, dashes) in lines:
            ax.plot(drawn["p"], drawn[column], color=colour, linestyle=dashes, linewidth=1.8, label=label)
        panel_title(ax, title)
        dress(ax)
    for ax, corner in zip(axes, ("upper right", "lower right", "center right", "upper left"), strict=True):
        ax.legend(loc=corner, frameon=False, fontsize=8.5, labelcolor=INK)
    for ax, limits in zip(axes[:2], ((-0.7, 6.0), (-30.0, 3.0)), strict=True):
        ax.set_xlim(0, 1)
        ax.set_ylim(*limits)
        ax.set_xlabel("p", fontsize=10, color=INK)
    for ax in axes[2:]:
        _use_log_odds(ax, drawn["p"], vocabulary)
    axes[3].set_yscale("log")
    axes[3].set_ylim(1e-4, 1e5 * vocabulary)
    paragraphs = []
    for statement in statements:
        unbroken = re.sub(" ([=>]) ", "\u00a0\\1\u00a0", statement)
        paragraphs.append(textwrap.fill(unbroken, _TEXT_WIDTH))
    figure.text(0.03, 0.25, "\n".join(paragraphs), va="top", fontsize=9, color=INK, linespacing=1.5)
    return figure


def _use_log_odds(ax: Axes, p: pd.Series[float], vocabulary: int) -> None:
    ax.set_xscale("logit")
    ax.set_xlim(p.iloc[0], p.iloc[-1])
    small = [10.0**-power for power in range(2, 12, 2) if 10.0**-power > p.iloc[0]]
    ax.set_xticks([*small, 0.5, *(1 - tick for tick in small)], minor=False)
    ax.minorticks_off()
    ax.set_xlabel("p of the label token, the others share the rest evenly (log-odds scale)", fontsize=10, color=INK)
    ax.axvline(1 / vocabulary, color=FAINT, linewidth=0.9, linestyle=DOTTED)
    at: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "right"}
    ax.annotate("p = 1/V", (1 / vocabulary, 0), (-4, 5), fontsize=8, color=SOFT, **at)
