"""Where the selected blocks lie: layer × head for each kind, one figure for each variant and model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from harness.analysis.blocks.selection import BlockSelection, layer_count
from harness.base.messages import amount
from harness.models.blocks import GROUPED_KINDS, HEAD_KINDS, block_place
from harness.reporting.figures.colours import BLACK, WHITE, contrast
from harness.reporting.figures.style import FAINT, INK, without_mathtext

POINTS = 72
"""Points in an inch."""
WIDEST, TALLEST = 11.0 * POINTS, 9.0 * POINTS
LARGEST_CELL, LARGEST_TEXT, LEAST_TEXT = 22.0, 9.0, 4.5
LEFT, RIGHT, TOP, BOTTOM, GAP = 42.0, 60.0, 62.0, 34.0, 14.0
"""Margins in points: for the layers' numbers, the colour bar, the titles, the heads' numbers; and between panels."""
NARROWEST = 5.9 * POINTS
COLOURS: Colormap = LinearSegmentedColormap.from_list("selections", colormaps["Blues"]([0.22, 0.5, 0.75, 1.0]))
"""Light to dark in one hue: distinct with any colour blindness, and in print without colour."""
NEVER, CELL_EDGE = "#f7f7f7", "#dddddd"


def heat_map(selection: BlockSelection) -> Figure:
    """Return how often each block was selected: a panel for each kind that heads have, one for the whole matrices.

    The rows are layers, the shallowest first, the columns heads, or groups of heads that share their W_k and W_v.
    Empty cells were never selected. Where it is not known how large the model is, the panels reach as far as it was
    selected, and the title says so.

    Source: EMSO paper, table 4, whose numbers it shows in their places.
    """
    layers, columns = max(1, layer_count(selection)), _columns(selection)
    whole = tuple(kind for kind in selection.kinds if kind not in HEAD_KINDS)
    fixed = LEFT + RIGHT + len(columns) * GAP + len(whole) * LARGEST_CELL
    cell = min(LARGEST_CELL, (WIDEST - fixed) / sum(columns.values()), TALLEST / layers)
    width = max(NARROWEST, fixed + sum(columns.values()) * cell)
    height = TOP + layers * cell + BOTTOM
    figure = Figure(figsize=(width / POINTS, height / POINTS))

    def panel(at: float, across: float) -> Axes:
        return figure.add_axes((at / width, BOTTOM / height, across / width, layers * cell / height))

    norm, at = Normalize(vmin=0, vmax=selection.rounds), LEFT
    text = min(LARGEST_TEXT, 0.78 * cell / (0.6 * len(str(max(selection.counts.values())))))
    for kind, count in columns.items():
        ax = panel(at, count * cell)
        _draw_panel(ax, selection.counts, (kind,), (layers, count), norm, text)
        shared = selection.is_grouped and kind in GROUPED_KINDS
        ax.set_xlabel("group" if shared else "head", fontsize=8.5, color=INK, labelpad=1)
        at += count * cell + GAP
    across = len(whole) * LARGEST_CELL
    _draw_panel(panel(at, across), selection.counts, whole, (layers, len(whole)), norm, text)
    figure.axes[0].tick_params(labelleft=True)
    figure.axes[0].set_ylabel("layer", fontsize=8.5, color=INK)
    if selection.rounds > 1:
        _draw_bar(figure, panel(at + across + GAP, 9), norm)
    title, letters = f"{selection.label} on {selection.model}", int(width / 6.4)
    if len(title) > letters:  # Without its middle it fits on one line.
        title = f"{title[: letters // 3]} … {title[-(letters * 2 // 3 - 3) :]}"
    title = without_mathtext(title)
    known = "" if selection.candidates else "; drawn as far as blocks were selected"
    counted = f"in how many of {amount(selection.rounds, 'round')} each block was selected{known}"
    figure.text(6 / width, 1 - 7 / height, title, fontsize=9.5, fontweight="bold", color=INK, va="top")
    figure.text(6 / width, 1 - 21 / height, counted, fontsize=8, color=INK, va="top")
    return figure


def heat_maps(selections: Sequence[BlockSelection]) -> dict[str, Figure]:
    """Return the heat maps by their names: one for each selection that has a block to be drawn."""
    maps = {}
    for name, selection in zip(figure_names(selections), selections, strict=True):
        if len(selection.unplaced) < len(selection.counts):
            maps[name] = heat_map(selection)
    return maps


def described(selection: BlockSelection) -> str:
    """Return the figure in words, for readers who cannot see it."""
    most = ", ".join(f"{name} {count}" for name, count in list(selection.counts.items())[:5])
    return (
        f"Heat maps of layer and head, one for each kind of block: how often {selection.label} selected each block of "
        f"{selection.model} in {amount(selection.rounds, 'round')}. Most often: {most}."
    )


def figure_names(selections: Sequence[BlockSelection]) -> list[str]:
    """Return a file's name for each heat map, without its ending: each its own, whatever models are called.

    Example:
        >>> selection = BlockSelection("org/m", "emso(k=2)", "EMSO", (), 1, (1,), {"L0.C_fc": 1}, None)
        >>> figure_names([selection, selection])
        ['selected_blocks-org-m-emso-k-2', 'selected_blocks-org-m-emso-k-2-2']
    """
    names: list[str] = []
    for selection in selections:
        words = re.sub(r"[^A-Za-z0-9._]+", "-", f"{selection.model}-{selection.variant}").strip("-.")[-80:]
        same = sum(bool(re.fullmatch(rf"selected_blocks-{re.escape(words)}(-\d+)?", name)) for name in names)
        names.append(f"selected_blocks-{words}" + (f"-{same + 1}" if same else ""))
    return names


def _columns(selection: BlockSelection) -> dict[str, int]:
    """Return how many heads, or groups of heads, each kind's panel has room for.

    Where it is not known how many there are, they are as many as lead to the last that was selected.
    """
    most = dict.fromkeys(HEAD_KINDS, 1)
    for kind, counts in (selection.candidates or {}).items():
        most[kind] = max(1, *counts)
    for name in selection.counts if selection.candidates is None else ():
        place = block_place(name)
        if place is not None and place.head is not None:
            most[place.kind] = max(most[place.kind], place.head + 1)
    grouped = set(GROUPED_KINDS) if selection.is_grouped else set()
    columns = {}
    for kind in HEAD_KINDS:
        alike = grouped if kind in grouped else set(HEAD_KINDS) - grouped
        columns[kind] = max(most[other] for other in alike)
    return columns


def _draw_bar(figure: Figure, ax: Axes, norm: Normalize) -> None:
    """Say which colour means how many rounds, from one on: a block that was never selected has none."""
    bar = figure.colorbar(ScalarMappable(norm, COLOURS), cax=ax, ticks=MaxNLocator(nbins=5, integer=True))
    bar.outline.set_visible(False)
    ax.set_ylim(1, norm.vmax)
    ax.tick_params(labelsize=7.5, color=FAINT, labelcolor=INK)
    ax.set_title("rounds", fontsize=7.5, color=INK, loc="left")


def _draw_panel(
    ax: Axes, counts: Mapping[str, int], kinds: Sequence[str], shape: tuple[int, int], norm: Normalize, text: float
) -> None:
    """Draw one kind's heads, or the kinds that have none side by side; `shape` is (layers, columns)."""
    layers, columns = shape
    ax.set(xlim=(0, columns), ylim=(layers, 0), facecolor=NEVER)
    ax.vlines(range(columns + 1), 0, layers, color=CELL_EDGE, linewidth=0.5, zorder=0.5)
    ax.hlines(range(layers + 1), 0, columns, color=CELL_EDGE, linewidth=0.5, zorder=0.5)
    for name, count in counts.items():
        place = block_place(name)
        if place is not None and place.kind in kinds:
            column = kinds.index(place.kind) if place.head is None else place.head
            colour = COLOURS(norm(count))
            ax.add_patch(Rectangle((column, place.layer), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.5))
            if text >= LEAST_TEXT:
                ink = max((WHITE, BLACK), key=lambda ink: contrast(ink, to_hex(colour)))
                middle: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": text, "color": ink}
                ax.text(column + 0.5, place.layer + 0.5, str(count), **middle)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=7.5, labelcolor=INK, labelleft=False)
    ax.set_yticks(*_ticks(layers))
    if len(kinds) == 1:
        ax.set_xticks(*_ticks(columns))
        ax.set_title(kinds[0], fontsize=9, color=INK, pad=4)
    else:
        ax.set_xticks([index + 0.5 for index in range(columns)], [""] * columns)
        for index, kind in enumerate(kinds):
            ax.text(index + 0.5, -0.15, kind, rotation=50, ha="left", va="bottom", fontsize=8, color=INK)


def _ticks(count: int) -> tuple[list[float], list[str]]:
    """Return where the numbers of layers or heads stand, in the middle of their cells: all, or every few."""
    shown = list(range(0, count, 1 if count <= 6 else 2 if count <= 16 else 4 if count <= 48 else -(-count // 10)))
    return [index + 0.5 for index in shown], [str(index) for index in shown]
