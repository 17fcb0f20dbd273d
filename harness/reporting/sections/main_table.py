"""Section with the paper's main table; also as Markdown, LaTeX and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.text import Text

from harness.analysis.main_table import READ_BY, main_frame, recited_frame, shown_metrics
from harness.analysis.metrics import group_title, own_groups
from harness.analysis.ranking import RankedTable, rank_names
from harness.contracts import CloserTo
from harness.reporting.render import Column, latex_escape, markdown_escape, render
from harness.reporting.section import PageContext, Section, paragraph
from harness.reporting.summary import caption

MARKS_MEAN = (
    "Best bold, second best underlined, as the numbers stand: a mark says nothing of how sure it is. † collapsed, "
    "‡ over-erased: shown, not ranked."
)
RANKS_MEAN = (
    "Ranks by the paper's rule: of the mean of the ranks of a group's metrics; the average is the rank of the mean of "
    "both groups. Equal ranks are marked with =. In brackets or small: the bounds of 95 % of the ranks in draws of the "
    "numbers."
)
_LATEX = r"""%% \usepackage{booktabs} and \usepackage{colortbl}
\begin{table*}[ht]
\centering\footnotesize\setlength{\tabcolsep}{4pt}
%s\caption{%s The best and the second-best results are \textbf{bold} and \underline{underlined}. Collapsed models are
\colorbox[rgb]{1,0.7,0.7}{red} and not ranked.}
\end{table*}
"""


class MainTable(Section):
    """Every ranked row with ranks, numbers and intervals; `reporting.files` writes the tables' files."""

    title = "Main table"
    needs_points = True

    def html(self, page: PageContext) -> Markup:
        page_rows = self.analysis.shown
        about = paragraph(MARKS_MEAN, caption(page_rows.table), RANKS_MEAN)
        if self.analysis.readings:
            about += paragraph("What the judges make of human text:", *map(str, self.analysis.readings))
        table = render(main_frame(page_rows), main_columns(page_rows, with_ranks_first=True), "html")
        return about + table


def main_columns(ranked: RankedTable, *, with_ranks_first: bool = False) -> list[Column]:
    """Return the columns of the main table: numbers, then ranks as in the paper, or the ranks first."""
    columns = [Column("model", "Model", "heading"), Column("needs", "", "group"), Column("label", "Method")]
    columns += [Column("strength", "Strength")]
    numbers = []
    for metric in shown_metrics(ranked):
        better = "nearest" if isinstance(metric.better, CloserTo) else metric.better
        numbers.append(Column(metric.name, metric.title, "number", metric, better, group_title(metric.group)))
    titles = ["Erasure", "Generation", "Average", *map(group_title, own_groups(ranked.info))]
    names = zip(rank_names(ranked.info), titles, strict=True)
    ranks = [Column(name, title, "rank", group="Ranking") for name, title in names]
    return [*columns, *(ranks + numbers if with_ranks_first else numbers + ranks), Column("state", "State", "note")]


def main_markdown(ranked: RankedTable, question: str, caption: str, answer: str = "") -> str:
    """Return the main table of every model, under the sweep's question and the answer."""
    table = "No point has been measured yet.\n"
    if len(ranked.table):
        table = render(main_frame(ranked), main_columns(ranked), "markdown")
    about = f"{MARKS_MEAN} {RANKS_MEAN}"
    first = f"{answer}\n\n## Main table\n\n" if answer else ""
    return f"# {markdown_escape(question)}\n\n{first}{markdown_escape(caption)}\n\n{table}\n{about}\n"


def main_latex(ranked: RankedTable, caption: str) -> str:
    """Return the main table in the paper's layout, as a `table*` for booktabs and colortbl."""
    columns = [column for column in main_columns(ranked) if column.name not in ("strength", "state")]
    return _LATEX % (render(main_frame(ranked), columns, "latex"), latex_escape(caption))


def ranking_table(whole: RankedTable, page_rows: RankedTable) -> RenderableType:
    """Return every model's warnings and ranked rows for the terminal, or its recitation if nothing was erased."""
    parts = [Text("\n".join(whole.headline_warnings), style="bold")] if whole.headline_warnings else []
    if whole.is_of_references and len(whole.table):
        recited = recited_frame(whole)
        return Group(*parts, render(recited, recited_columns(recited), "terminal"), Text(caption(whole.table)))
    frame = main_frame(page_rows)
    in_order = frame["model"].map({model: place for place, model in enumerate(frame["model"].unique())})
    frame = frame.assign(model_place=in_order).sort_values(["model_place", "place"], kind="stable")
    frame["label"] = frame["label"].where(frame["strength"] == "", frame["label"] + ", " + frame["strength"])
    numbers = [metric.name for metric in shown_metrics(page_rows) if metric.axis is not None]
    frame = frame.drop(columns=[f"{name}{end}" for name in numbers for end in ("_low", "_high")])
    names = {"model", "label", "state", *numbers, *rank_names(page_rows.info)}
    columns = [column for column in main_columns(page_rows) if column.name in names]
    return Group(*parts, render(frame, columns, "terminal"), Text(caption(whole.table)))


def recited_columns(frame: pd.DataFrame) -> Sequence[Column]:
    """Return the columns of `recited_frame`."""
    columns = [Column("model", "Model", "heading"), Column("metric", "Metric")]
    columns += [Column(method, title, "number") for method, title in READ_BY.items() if method in frame.columns]
    return columns
