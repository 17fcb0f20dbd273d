"""Section on selected blocks: a heat map and a table."""

from itertools import groupby

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.analysis.blocks import selection_grid, selection_heading
from harness.reporting import section, style
from harness.reporting.render import Column, render

MAX_BLOCKS = 10
"""Blocks of one table; selected_blocks.csv contains all."""
MAX_DRAWN = 12
"""Variants and models with a heat map, the first ones."""


class SelectedBlocks(section.Section):
    """Selections of each block, next to chance."""

    title = "Selected blocks"
    lead = "How often each part of the model was selected to be changed, next to chance."
    stems = ("selected_blocks",)

    def drawn(self, width: float, across: int) -> dict[str, Figure]:
        frame = self.analysis.blocks
        return {"selected_blocks": heat_map(frame, width)} if len(frame) else {}

    def frames(self) -> dict[str, pd.DataFrame]:
        return {"selected_blocks": self.analysis.blocks.loc[lambda frame: frame["selections"] > 0]}

    def html(self, pictures: section.Pictures) -> Markup:
        frame = self.analysis.blocks
        alt = "Heat maps: how often each block was selected, by layer, kind and head."
        caption = "Rows: layers, the shallowest on top. Columns: heads, kind by kind."
        text = section.picture(pictures, "selected_blocks", alt, caption)
        columns = [Column("block", "Block", "code"), Column("selections", "Selected", "count")]
        columns += [Column("share", "Share", "percent"), Column("chance", "By chance", "percent")]
        for _, rows in frame.groupby(["model", "variant"], sort=False):
            table = render(rows[rows["selections"] > 0].head(MAX_BLOCKS), columns, "html")
            text += section.details(selection_heading(rows), table)
        return text


def heat_map(frame: pd.DataFrame, width: float) -> Figure:
    """Return a heat map for each variant and model, a row for each layer, as the EMSO paper's table 4."""
    panels = list(frame.groupby(["model", "label"], sort=False))[:MAX_DRAWN]
    grids = [selection_grid(rows) for _, rows in panels]
    heights = [max(4, len(grid)) for grid, _ in grids]
    figure = Figure(figsize=(width, 0.17 * sum(heights) + 0.9 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights).flat
    for ax, ((model, label), rows), (grid, kinds) in zip(axes, panels, grids, strict=True):
        image = ax.imshow(grid, aspect="auto", cmap="Blues", vmin=0, vmax=rows["rounds"].iloc[0])
        start, ticks = 0, []
        for kind, columns in groupby(kinds):
            count = len(list(columns))
            ticks.append((start + (count - 1) / 2, kind))
            start += count
            ax.axvline(start - 0.5, color=style.FAINT, linewidth=0.8)
        ax.set_xticks([at for at, _ in ticks], [kind for _, kind in ticks], rotation=90)
        ax.set_ylabel("layer")
        style.panel_title(ax, f"{label} on {model}: in how many of {rows['rounds'].iloc[0]} rounds")
        figure.colorbar(image, ax=ax, ticks=MaxNLocator(4, integer=True))
    return figure
