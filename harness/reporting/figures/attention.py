"""The figure of a head's attention over a text: before erasing, after it, and what changed."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from numpy.typing import NDArray

from harness.reporting.figures.style import FAINT, INK, without_mathtext

_HIDDEN = "#ececec"
_LABEL_INCHES = 0.11
"""The least room of a token's label."""
_TITLE_CHARACTERS = 10
"""That are about an inch wide, in the title's font."""
_NO_GLYPH = "□"
_NAMED_SPACES = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥"})


def attention_figure(
    title: str,
    tokens: Sequence[str],
    visible_QK: NDArray[np.bool_],
    before_QK: NDArray[np.float32],
    after_QK: NDArray[np.float32] | None = None,
) -> Figure:
    """Return a heat map of query tokens × key tokens; with `after_QK` also that one's, and their difference.

    Args:
        title: What the weights are of.
        tokens: As text, one for each row and column; a space is drawn as ·, what the font lacks as □.
        visible_QK: Keys that a query may not see are drawn grey: they have no weight, which is not a weight of 0.
        before_QK: Attention weights.
        after_QK: The erased model's.
    """
    maps = 1 if after_QK is None else 3
    side = float(np.clip(0.25 * len(tokens), 2.4, 6.5 if len(tokens) < 144 else 12.0))
    figure = Figure(figsize=(maps * (side + 1.7), side + 1.5), layout="constrained")
    lines = textwrap.fill(title, int(_TITLE_CHARACTERS * figure.get_figwidth()))
    figure.suptitle(without_mathtext(lines), fontsize=11, fontweight="bold", color=INK)
    axes = list(figure.subplots(1, maps, squeeze=False).flat)
    # A long text's weights are mostly small: on a linear scale nothing but a few dark cells would be seen.
    scale, label = PowerNorm(0.5, 0.0, 1.0), "attention weight (square-root scale)"
    _draw_map(axes[0], before_QK, visible_QK, "Blues", scale, label)
    if after_QK is not None:
        axes[0].set_title("before erasing", loc="left", fontsize=10, color=INK)
        _draw_map(axes[1], after_QK, visible_QK, "Blues", scale, label)
        axes[1].set_title("after erasing", loc="left", fontsize=10, color=INK)
        change_QK = after_QK - before_QK
        most = float(np.abs(change_QK).max())
        amount = f"{most:.2g} at most" if most else "no difference"
        axes[2].set_title(f"after − before: {amount}", loc="left", fontsize=10, color=INK)
        limits = Normalize(-(most or 1.0), most or 1.0)
        _draw_map(axes[2], change_QK, visible_QK, "RdBu_r", limits, "change")
    for ax in axes:
        _label_tokens(ax, tokens, side)
    return figure


def _draw_map(
    ax: Axes, values_QK: NDArray[np.float32], visible_QK: NDArray[np.bool_], colours: str, scale: Normalize, label: str
) -> None:
    seen_QK = np.ma.masked_where(~visible_QK, values_QK)
    image = ax.imshow(seen_QK, cmap=colormaps[colours].with_extremes(bad=_HIDDEN), norm=scale, interpolation="nearest")
    ax.spines[:].set_color(FAINT)
    bar = ax.figure.get_figure(root=True).colorbar(image, ax=ax, shrink=0.7, pad=0.015)
    bar.set_label(label, fontsize=8.5, color=INK)
    bar.ax.tick_params(labelsize=8, color=FAINT, labelcolor=INK)
    bar.outline.set_visible(False)


def _label_tokens(ax: Axes, tokens: Sequence[str], side: float) -> None:
    """Write the tokens along both axes, or every second, third … of them where there is no room for all."""
    inches = side / len(tokens)
    step = math.ceil(_LABEL_INCHES / inches)
    shown: dict[str, Any] = {
        "ticks": range(0, len(tokens), step),
        "labels": [_token_text(token) for token in tokens[::step]],
        "fontsize": min(8.0, 60 * step * inches),
        "color": INK,
    }
    ax.set_xticks(**shown, rotation=90)
    ax.set_yticks(**shown)
    ax.tick_params(length=1.5, color=FAINT, pad=1.5)
    ax.set_xlabel("key token (grey: not seen by the query)", fontsize=9, color=INK)
    ax.set_ylabel("query token", fontsize=9, color=INK)


def _token_text(token: str) -> str:
    """Return a token as the font can show it: a warning would name what it lacks, and the text may be private."""
    glyphs = get_font(findfont("DejaVu Sans")).get_charmap()
    named = token.translate(_NAMED_SPACES)
    return without_mathtext("".join(character if ord(character) in glyphs else _NO_GLYPH for character in named))
