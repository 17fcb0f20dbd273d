"""Section on memorised and other sequences: a figure and a table."""

from functools import cached_property

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.analysis import curves, seeds
from harness.reporting import section, style
from harness.reporting.render import Column, render
from harness.settings import ORIGINAL, RETRAINED

_MEANS = (
    "Tokens after a sequence's prefix up to the first that differs from the original's. Low is good for memorised "
    "sequences, high for the rest. The original recites a memorised sequence to the last token. Small: the 95 % "
    "interval over the sequences."
)


class ExactMatch(section.Section):
    """Agreement with the original on memorised and on other sequences."""

    title = "Memorised and not memorised"
    stems = ("exact_match_groups",)
    needs_points = True

    @cached_property
    def figures(self) -> dict[str, Figure]:
        frame, looks = self.analysis.agreements, curves.styles(self.analysis.points)
        return {"exact_match_groups": agreement_figure(frame, looks)} if len(frame) else {}

    def frames(self) -> dict[str, pd.DataFrame]:
        return {"exact_match_groups": self.analysis.agreements}

    def html(self, page: section.PageContext) -> Markup:
        frame = self.analysis.agreements
        if frame.empty:
            return Markup("")
        counts = frame.groupby("model", sort=False)[["memorized_sequences", "other_sequences"]].first()
        counted = [f"{model}: {one} sequences are memorised, {two} are not." for model, one, two in counts.itertuples()]
        columns = [Column("model", "Model", "heading"), Column("label", "Method"), Column("strength_text", "Strength")]
        columns += [Column("memorized", "Memorised", "number"), Column("other", "Not memorised", "number")]
        strengths = [*map(seeds.strength_text, frame["strength_name"], frame["strength"])]
        table = render(frame.assign(strength_text=strengths), columns, "html")
        alt = "What is left of memorised sequences across, of other sequences upwards."
        return page.picture("exact_match_groups", alt, classes="narrow") + section.paragraph(_MEANS, *counted) + table


def agreement_figure(frame: pd.DataFrame, styles_by_variant: style.Styles) -> Figure:
    """Return a panel for each model: agreement on other sequences over agreement on memorised ones.

    Source: EMSO paper, figure 5.
    """
    by_model = list(frame.groupby("model", sort=False))
    figure = Figure(figsize=(5.2 * len(by_model), 4.4), layout="constrained")
    handles: dict[str, Line2D] = {}
    for ax, (model, rows) in zip(figure.subplots(1, len(by_model), squeeze=False).flat, by_model, strict=True):
        original = rows[rows["variant"] == ORIGINAL]
        for name, points in rows.groupby("variant", sort=False):
            variant, label = str(name), str(points["label"].iloc[0])
            if variant in (ORIGINAL, RETRAINED):
                marker, size, colour = style.REFERENCE_STYLES[variant]
                ax.plot(points["memorized"], points["other"], marker, markersize=size * 0.8, color=colour, zorder=5)
                handles[variant] = style.reference_handle(variant, label)
                continue
            colour, marker = styles_by_variant[variant]
            line = pd.concat([original, points])
            ax.plot(line["memorized"], line["other"], color=colour, alpha=0.8)
            for point in points.to_dict("records"):
                look = style.point_style(colour, is_collapsed=point["collapsed"])
                ax.plot(point["memorized"], point["other"], marker, zorder=4, **look)
            handles[variant] = style.variant_handle(label, colour, marker)
        style.panel_title(ax, str(model))
        ax.set(xlabel="memorised: tokens left (← more is forgotten)", ylabel="not memorised: tokens left (↑ kept)")
        ax.set(ylim=(0, None))
        style.dress(ax)
    if frame["collapsed"].any():
        handles["collapsed"] = style.collapsed_handle()
    style.legend_below(figure, list(handles.values()), "Each curve begins at the original.", columns=5)
    return figure
