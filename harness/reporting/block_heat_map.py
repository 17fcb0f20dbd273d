"""Where the selected blocks lie: layer × head for each kind, one figure for each variant and model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from harness.models.blocks import HEAD_MATRICES, LAYER_MATRICES, block_place
from harness.reporting.block_selection import BlockSelection
from harness.reporting.block_shares import layer_count, rounds_text
from harness.reporting.figures import FAINT, INK, without_mathtext

POINTS = 72
"""In an inch."""
WIDEST = 11.0 * POINTS
LARGEST_CELL, LARGEST_TEXT, LEAST_TEXT = 22.0, 9.0, 4.5
LEFT, RIGHT, TOP, BOTTOM, GAP = 42.0, 66.0, 58.0, 34.0, 14.0
"""Margins in points: for the layers' numbers, the colour bar, the titles, the heads' numbers; and between panels."""
NARROWEST = 5.2 * POINTS
COLOURS: Colormap = LinearSegmentedColormap.from_list("selections", colormaps["Blues"]([0.22, 0.5, 0.75, 1.0]))
"""Light to dark in one hue: told apart with any colour blindness, and in print without colour."""
NEVER, GRID = "#f7f7f7", "#dddddd"


def heat_map(selection: BlockSelection) -> Figure:
    """Return how often each block was selected: a panel for each kind that heads have, one for the whole matrices.

    The rows are layers, the shallowest first, the columns heads. White cells were never selected. Where it is not
    known how large the model is, the panels reach as far as it was selected, and the title says so.

    Source: EMSO paper, table 4, whose numbers it shows in their places.
    """
    layers, heads = max(1, layer_count(selection)), max(1, _head_count(selection))
    panels = [((kind,), heads) for kind in HEAD_MATRICES] + [(tuple(LAYER_MATRICES), len(LAYER_MATRICES))]
    columns, gaps = sum(width for _, width in panels), (len(panels) - 1) * GAP
    cell = min(LARGEST_CELL, (WIDEST - LEFT - RIGHT - gaps) / columns)
    shown = max(NARROWEST, LEFT + columns * cell + gaps + RIGHT)
    height = TOP + layers * cell + BOTTOM
    figure = Figure(figsize=(shown / POINTS, height / POINTS))
    norm = Normalize(vmin=0, vmax=selection.rounds)
    at, text = LEFT, min(LARGEST_TEXT, 0.78 * cell / (0.6 * len(str(max(selection.counts.values())))))
    for kinds, width in panels:
        box = (at / shown, BOTTOM / height, width * cell / shown, layers * cell / height)
        _draw_panel(figure.add_axes(box), selection.counts, kinds, (layers, width), norm, text)
        at += width * cell + GAP
    figure.axes[0].tick_params(labelleft=True)
    figure.axes[0].set_ylabel("layer", fontsize=8.5, color=INK)
    bar = figure.add_axes((at / shown, BOTTOM / height, 9 / shown, layers * cell / height))
    drawn = figure.colorbar(ScalarMappable(norm, COLOURS), cax=bar, ticks=MaxNLocator(nbins=5, integer=True))
    drawn.outline.set_visible(False)
    bar.tick_params(labelsize=7.5, color=FAINT, labelcolor=INK)
    bar.set_title("rounds", fontsize=7.5, color=INK, loc="left")
    known = "" if selection.candidates else "; as far as was selected"
    title = f"{selection.label} on {selection.model}: how often of {rounds_text(selection.rounds)}{known}"
    figure.text(6 / shown, 1 - 8 / height, _fitting(title, shown), fontsize=9.5, fontweight="bold", color=INK, va="top")
    return figure


def described(selection: BlockSelection) -> str:
    """Return the figure in words, for who cannot see it."""
    most = ", ".join(f"{name} {count}" for name, count in list(selection.counts.items())[:5])
    return (
        f"Heat maps of layer and head, one for each kind of block: how often {selection.label} selected each block of "
        f"{selection.model} in {rounds_text(selection.rounds)}. Most often: {most}."
    )


def figure_names(selections: Sequence[BlockSelection]) -> list[str]:
    """Return a file's name for each heat map, without its ending: each its own, whatever models are called.

    Example:
        >>> selection = BlockSelection("org/m", "emso(k=2)", "EMSO", (), 1, 1, (1,), {"L0.C_fc": 1}, None)
        >>> figure_names([selection, selection])
        ['selected_blocks-org-m-emso-k-2', 'selected_blocks-org-m-emso-k-2-2']
    """
    names: list[str] = []
    for selection in selections:
        words = re.sub(r"[^A-Za-z0-9._]+", "-", f"{selection.model}-{selection.variant}").strip("-.")[-80:]
        same = sum(bool(re.fullmatch(rf"selected_blocks-{re.escape(words)}(-\d+)?", name)) for name in names)
        names.append(f"selected_blocks-{words}" + (f"-{same + 1}" if same else ""))
    return names


def _head_count(selection: BlockSelection) -> int:
    if selection.candidates is not None:
        return max(max(selection.candidates[kind], default=0) for kind in HEAD_MATRICES)
    places = [place for name in selection.counts if (place := block_place(name))]
    return 1 + max((place.head for place in places if place.head is not None), default=0)


def _draw_panel(
    ax: Axes,
    counts: Mapping[str, int],
    kinds: Sequence[str],
    shape: tuple[int, int],
    norm: Normalize,
    text: float,
) -> None:
    """Draw one kind's heads, or the kinds that have none side by side; `shape` is (layers, columns)."""
    layers, columns = shape
    ax.set(xlim=(0, columns), ylim=(layers, 0), facecolor=NEVER)
    for edge in range(columns + 1):
        ax.axvline(edge, color=GRID, linewidth=0.5, zorder=1)
    for edge in range(layers + 1):
        ax.axhline(edge, color=GRID, linewidth=0.5, zorder=1)
    for name, count in counts.items():
        place = block_place(name)
        if place is not None and place.kind in kinds:
            column = kinds.index(place.kind) if place.head is None else place.head
            colour = COLOURS(norm(count))
            ax.add_patch(Rectangle((column, place.layer), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.5))
            if text >= LEAST_TEXT:
                ink = "white" if norm(count) > 0.5 else INK
                middle: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": text, "color": ink}
                ax.text(column + 0.5, place.layer + 0.5, str(count), **middle)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=7.5, labelcolor=INK, labelleft=False)
    ax.set_yticks(*_ticks(layers))
    if len(kinds) == 1:
        ax.set_xticks(*_ticks(columns))
        ax.set_xlabel("head", fontsize=8.5, color=INK, labelpad=1)
        ax.set_title(kinds[0], fontsize=9, color=INK, pad=4)
    else:
        ax.set_xticks([index + 0.5 for index in range(columns)], [""] * columns)
        for index, kind in enumerate(kinds):
            ax.text(index + 0.5, -0.15, kind, rotation=50, ha="left", va="bottom", fontsize=8, color=INK)


def _ticks(count: int) -> tuple[list[float], list[str]]:
    """Return where the numbers of layers or heads stand, in the middle of their cells: all, or every few."""
    shown = list(range(0, count, 1 if count <= 6 else 2 if count <= 16 else 4))
    return [index + 0.5 for index in shown], [str(index) for index in shown]


def _fitting(title: str, width: float) -> str:
    """Return the title on as many lines as it needs, two at most; of longer ones the middle is left out."""
    letters = int((width - 12) / 5.4)
    if len(title) > 2 * letters:
        title = f"{title[: letters - 2]} … {title[-letters + 2 :]}"
    return without_mathtext("\n".join(title[start : start + letters] for start in range(0, len(title), letters)))
