"""Section on reasoning tasks: a figure and a table."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from harness.analysis.curves import styles
from harness.analysis.metrics import select_metrics
from harness.contracts import Metric
from harness.reporting import style
from harness.reporting.render import Column, render
from harness.reporting.section import PageContext, Section, paragraph
from harness.settings import ORIGINAL

_MEANS = (
    "Zero-shot accuracy of the references and of the ranked points; small: the 95 % interval, over questions and "
    "seeds. Change: against the original. † collapsed."
)


class ReasoningTasks(Section):
    """Accuracy of each row on every task, and its change."""

    title = "Reasoning"
    stems = ("reasoning",)
    needs_points = True

    @cached_property
    def figures(self) -> dict[str, Figure]:
        frame, tasks = self.analysis.answers, select_metrics(self.analysis.info, "reasoning")
        return {"reasoning": bars(frame, tasks, styles(self.analysis.points))} if len(frame) else {}

    def files(self) -> dict[str, str]:
        frame = self.analysis.answers
        table = render(frame, self._columns(), "markdown") if len(frame) else ""
        return {"reasoning.md": f"{_MEANS}\n\n{table}"} if table else {}

    def html(self, page: PageContext) -> Markup:
        frame = self.analysis.answers
        if frame.empty:
            return Markup("")
        picture = page.picture("reasoning", "Bars: each row's accuracy on each reasoning task.", "Hatched: collapsed.")
        return picture + paragraph(_MEANS) + render(frame, self._columns(), "html")

    def _columns(self) -> list[Column]:
        columns = [Column("model", "Model", "heading"), Column("label", "Method"), Column("strength", "Strength")]
        for task in select_metrics(self.analysis.info, "reasoning"):
            columns.append(Column(task.name, task.title, "number", task))
            columns.append(Column(f"{task.name}_change", "change", "change"))
        return columns


def bars(frame: pd.DataFrame, tasks: list[Metric], styles_by_variant: style.Styles) -> Figure:
    """Return a panel of grouped bars for each model: a group for each task, a bar for each row.

    Source: EMSO paper, section 4.2 (a radar there; its legend has the means).
    """
    by_model = list(frame.groupby("model", sort=False))
    figure = Figure(figsize=(11.0, 2.7 * len(by_model) + 0.9), layout="constrained")
    names = [task.name for task in tasks]
    handles = {}
    for ax, (model, rows) in zip(figure.subplots(len(by_model), 1, squeeze=False).flat, by_model, strict=True):
        for place, row in enumerate(rows.to_dict("records")):
            colour = style.variant_colour(row["variant"], styles_by_variant)
            look = {"color": colour}
            if row["collapsed"]:
                look = {"facecolor": "white", "edgecolor": colour, "hatch": "////"}
            at = np.arange(len(tasks)) - 0.42 + 0.84 / len(rows) * (place + 0.5)
            heights = np.array([row[name] for name in names])
            ends = np.array([[row[f"{name}{end}"] for name in names] for end in ("_low", "_high")])
            errors = np.nan_to_num(np.abs(ends - heights))
            ax.bar(at, heights, 0.75 / len(rows), yerr=errors, error_kw={"elinewidth": 0.8, "ecolor": "grey"}, **look)
            handles[row["variant"]] = Patch(color=colour, label=style.without_mathtext(row["label"]))
            if row["variant"] == ORIGINAL:
                ax.hlines(
                    heights, np.arange(len(tasks)) - 0.45, np.arange(len(tasks)) + 0.45, linestyle=":", color=colour
                )
        style.panel_title(ax, str(model))
        ax.set(ylim=(0, 1.04), ylabel="accuracy")
        ax.set_xticks(range(len(tasks)), [task.title for task in tasks])
        style.dress(ax)
    note = "Dotted: the original model. Whiskers: the 95 % interval. Hatched: collapsed."
    style.legend_below(figure, list(handles.values()), note, columns=10)
    return figure
