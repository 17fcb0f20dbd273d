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
from harness.contracts import CloserTo, Metric
from harness.reporting.render import Column, latex_escape, markdown_escape, render
from harness.reporting.section import PageContext, Section, paragraph
from harness.reporting.summary import caption

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
        about = paragraph(*notes(page_rows), caption(page_rows.table), RANKS_MEAN)
        if self.analysis.readings:
            about += paragraph("What the judges make of human text:", *map(str, self.analysis.readings))
        table = render(main_frame(page_rows), main_columns(page_rows, with_ranks_first=True), "html")
        return about + table


def main_columns(ranked: RankedTable, *, with_ranks_first: bool = False) -> list[Column]:
    """Return the columns of the main table: numbers, then ranks as in the paper, or the ranks first."""
    columns = [Column("model", "Model", "heading"), Column("needs", "", "group"), Column("label", "Method")]
    columns.append(Column("strength", "Strength"))
    numbers = [_metric_column(metric) for metric in shown_metrics(ranked)]
    titles = ["Erasure", "Generation", "Average", *map(group_title, own_groups(ranked.info))]
    ranks = []
    for name, title in zip(rank_names(ranked.info), titles, strict=True):
        ranks.append(Column(name, title, "rank", group="Ranking"))
    state = Column("state", "State", "note")
    return [*columns, *ranks, *numbers, state] if with_ranks_first else [*columns, *numbers, *ranks, state]


def _metric_column(metric: Metric) -> Column:
    better = "nearest" if isinstance(metric.better, CloserTo) else metric.better
    return Column(metric.name, metric.title, "number", metric, better, group=group_title(metric.group))


def notes(ranked: RankedTable) -> list[str]:
    """Return notes on marks, on metrics without items, and on rows that are left out."""
    sentences = [
        "Best bold, second best underlined, as the numbers stand: a mark says nothing of how sure it is. † collapsed, "
        "‡ over-erased: shown, not ranked."
    ]
    whole = [metric for metric in shown_metrics(ranked) if not metric.items]
    if whole and any(ranked.evidence.by_point.values()):
        have, them = ("have", "them") if len(whole) > 1 else ("has", "it")
        names = " and ".join(metric.title for metric in whole)
        sentences.append(
            f"{names} {have} no items: only several seeds, or the noise that is declared, give {them} an interval."
        )
    return sentences


def main_markdown(ranked: RankedTable, question: str, caption: str, answer: str = "") -> str:
    """Return the main table of every model, under the sweep's question and the answer."""
    table = "No point has been measured yet.\n"
    if len(ranked.table):
        table = render(main_frame(ranked), main_columns(ranked), "markdown")
    about = " ".join(filter(None, [*notes(ranked), RANKS_MEAN]))
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
    names = {metric.name for metric in shown_metrics(page_rows) if metric.axis is not None} | {
        *rank_names(page_rows.info)
    }
    columns = [Column("model", "", "heading"), Column("label", "Method")]
    columns += [column for column in main_columns(page_rows) if column.name in names]
    table = render(_without_intervals(frame, names), [*columns, Column("state", "State")], "terminal")
    return Group(*parts, table, Text(caption(whole.table)))


def _without_intervals(frame: pd.DataFrame, names: set[str]) -> pd.DataFrame:
    bounds = [f"{name}{end}" for name in names if not name.startswith("rank_") for end in ("_low", "_high")]
    return frame.drop(columns=[name for name in bounds if name in frame.columns])


def recited_columns(frame: pd.DataFrame) -> Sequence[Column]:
    """Return the columns of `recited_frame`."""
    columns = [Column("model", "Model", "heading"), Column("metric", "Metric")]
    columns += [Column(method, title, "number") for method, title in READ_BY.items() if method in frame.columns]
    return columns
