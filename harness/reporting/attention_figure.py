"""The figure of a head's attention over a text: before erasing, after it, and what changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from numpy.typing import NDArray

from harness.reporting.figures import FAINT, INK, without_mathtext

_HIDDEN = "#ececec"
_LABELLED_INCHES = 0.11
"""The least room of a token's label."""
_NO_GLYPH = "□"
_NAMED_SPACES = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥"})


def attention(
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
    cell = float(np.clip(6.5 / len(tokens), 0.045, 0.25))
    side = max(cell * len(tokens), 2.4)
    figure = Figure(figsize=(maps * (side + 1.5) + 0.3, side + 1.7), layout="constrained")
    figure.suptitle(without_mathtext(title), fontsize=11, fontweight="bold", color=INK)
    axes = list(figure.subplots(1, maps, squeeze=False).flat)
    weights, labels = PowerNorm(0.5, 0.0, 1.0), _labels(tokens)
    of_weights = colormaps["Blues"].with_extremes(bad=_HIDDEN)
    name = "" if after_QK is None else "before erasing"
    _draw_map(axes[0], name, np.where(visible_QK, before_QK, np.nan), labels, of_weights, weights)
    if after_QK is None:
        return figure
    _draw_map(axes[1], "after erasing", np.where(visible_QK, after_QK, np.nan), labels, of_weights, weights)
    changed_QK = np.where(visible_QK, after_QK - before_QK, np.nan)
    most = float(np.nanmax(np.abs(changed_QK)))
    of_change = colormaps["RdBu_r"].with_extremes(bad=_HIDDEN)
    name = f"after − before: at most {most:.2g}" if most else "after − before: no difference"
    _draw_map(axes[2], name, changed_QK, labels, of_change, Normalize(-(most or 1.0), most or 1.0))
    return figure


def _draw_map(
    ax: Axes, name: str, values_QK: NDArray[np.float32], labels: Sequence[str], colours: Colormap, scale: Normalize
) -> None:
    image = ax.imshow(values_QK, cmap=colours, norm=scale, interpolation="nearest")
    ax.set_title(name, loc="left", fontsize=10, color=INK)
    inches = ax.figure.get_figure(root=True).get_size_inches()[1] - 1.7
    step = int(np.ceil(_LABELLED_INCHES / (inches / len(labels))))
    places = range(0, len(labels), step)
    size = min(8.0, 0.85 * 72 * step * inches / len(labels))
    ax.set_xticks(places, labels=labels[::step], rotation=90, fontsize=size, color=INK)
    ax.set_yticks(places, labels=labels[::step], fontsize=size, color=INK)
    ax.tick_params(length=1.5, color=FAINT, pad=1.5)
    ax.spines[:].set_color(FAINT)
    ax.set_xlabel("key token (grey: not seen by the query)", fontsize=9, color=INK)
    ax.set_ylabel("query token", fontsize=9, color=INK)
    bar = ax.figure.get_figure(root=True).colorbar(image, ax=ax, shrink=0.7, pad=0.015)
    bar.ax.tick_params(labelsize=8, color=FAINT, labelcolor=INK)
    bar.outline.set_visible(False)


def _labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens as the font can show them: what it lacks would else be named in a warning."""
    glyphs = get_font(findfont("DejaVu Sans")).get_charmap()
    named = (token.translate(_NAMED_SPACES) for token in tokens)
    return [without_mathtext("".join(each if ord(each) in glyphs else _NO_GLYPH for each in token)) for token in named]
