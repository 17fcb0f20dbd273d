"""The figure of how sure ranks are: for each method a bar of the shares of draws in which it has each average rank."""

from __future__ import annotations

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from harness.reporting.figures import style
from harness.reporting.figures.colours import BLACK, WHITE, contrast

COLOURS: Colormap = LinearSegmentedColormap.from_list("ranks", colormaps["Blues"]([1.0, 0.75, 0.5, 0.12]))
"""From the first rank to the last."""
_ROW_INCHES = 0.27
_LEAST_SHARE = 0.05
"""Of a bar's part that has room for its rank."""


def rank_probabilities(ranking: pd.DataFrame, shares: pd.DataFrame) -> Figure | None:
    """Return a panel for each model, its rows best first; None where no average rank has an interval.

    Args:
        ranking: As `RankedTable.ranking`.
        shares: As `RankedTable.rank_shares`.
    """
    drawn = ranking[ranking["rank_group"] != ""]
    models = list(drawn["model"].unique())
    if not models:
        return None
    rows = [int((drawn["model"] == model).sum()) for model in models]
    size = (6.4, _ROW_INCHES * sum(rows) + 0.75 * len(models))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(models), squeeze=False, height_ratios=rows)[:, 0]
    for ax, model in zip(axes, models, strict=True):
        of_model = drawn[drawn["model"] == model]
        _draw_bars(ax, of_model, shares[shares["model"] == model])
        if len(models) > 1:
            style.panel_title(ax, model, fontsize=9)
    axes[-1].set_xlabel("share of draws with each average rank", fontsize=9, color=style.INK)
    return figure


def _draw_bars(ax: Axes, of_model: pd.DataFrame, shares: pd.DataFrame) -> None:
    """Draw one model's bars: each part is as wide as its rank is frequent, and says which it is where it has room."""
    last = max(len(of_model), 2)
    for y, variant in enumerate(of_model["variant"]):
        left = 0.0
        for rank, share in shares[shares["variant"] == variant].sort_values("rank")[["rank", "share"]].to_numpy():
            colour = to_hex(COLOURS((rank - 1) / (last - 1)))
            ax.barh(y, share, 0.8, left=left, color=colour, edgecolor="white", linewidth=0.5)
            if share >= _LEAST_SHARE:
                ink = max((WHITE, BLACK), key=lambda ink: contrast(ink, colour))
                place = (left + share / 2, y)
                ax.annotate(f"{rank:.0f}", place, ha="center", va="center_baseline", fontsize=7.5, color=ink)
            left += share
    ax.set_yticks(range(len(of_model)), list(map(style.without_mathtext, of_model["label"])), fontsize=8.5)
    ax.set(xlim=(0, 1), ylim=(len(of_model) - 0.5, -0.5))
    ax.xaxis.set_major_formatter(PercentFormatter(1))
    ax.tick_params(labelsize=8, color=style.FAINT, labelcolor=style.INK, length=2)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(style.FAINT)
