"""Sections with tables of numbers: the paper's main table, reasoning, and a published table next to ours."""

from collections.abc import Sequence

import pandas as pd
from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.text import Text

from harness.analysis import metrics, published, ranking
from harness.analysis.main_table import READ_BY, main_frame, reasoning_frame, recited_frame, shown_metrics
from harness.base.messages import printable
from harness.contracts import CloserTo
from harness.reporting.render import Column, fill_template, latex_escape, markdown_escape, render
from harness.reporting.section import Pictures, Section, details, paragraph
from harness.reporting.summary import caption

MARKS_MEAN = (
    "Best bold, second best underlined: marks follow the printed numbers and ignore uncertainty. † collapsed, "
    "‡ over-erased: shown, not ranked."
)
RANKS_MEAN = (
    "Ranks by the paper's rule: a group ranks the mean of its metrics' ranks, and the average ranks the mean of both "
    "groups' ranks; = is a tie. In brackets or small: the bounds of 95 % of the ranks in draws of the numbers."
)


class MainTable(Section):
    """Every ranked row with ranks, numbers and intervals; `reporting.files` writes the tables' files."""

    title = "Main table"
    lead = "Each method where it is ranked; † has collapsed and ‡ is over-erased, so neither has a rank."
    needs_points = True

    def html(self, pictures: Pictures) -> Markup:
        page_rows = self.analysis.shown
        table = render(main_frame(page_rows), main_columns(page_rows, with_ranks_first=True), "html")
        about = paragraph(MARKS_MEAN, caption(page_rows.table)) + paragraph(RANKS_MEAN)
        if self.analysis.readings:
            about += paragraph("What the judges make of human text:", *map(str, self.analysis.readings))
        return table + details("How to read the marks, intervals and ranks", about)


def main_columns(ranked: ranking.RankedTable, *, with_ranks_first: bool = False) -> list[Column]:
    """Return the columns of the main table: numbers, then ranks as in the paper, or the ranks first."""
    columns = [Column("model", "Model", "heading"), Column("needs", "", "group"), Column("label", "Method")]
    columns += [Column("strength", "Strength")]
    numbers = []
    for metric in shown_metrics(ranked):
        better = "nearest" if isinstance(metric.better, CloserTo) else metric.better
        numbers.append(Column(metric.name, metric.title, "number", metric, better, metrics.group_title(metric.group)))
    titles = ["Erasure", "Generation", "Average", *map(metrics.group_title, metrics.own_groups(ranked.info))]
    names = zip(ranking.rank_names(ranked.info), titles, strict=True)
    ranks = [Column(name, title, "rank", group="Ranking") for name, title in names]
    return [*columns, *(ranks + numbers if with_ranks_first else numbers + ranks), Column("state", "State", "note")]


def main_markdown(ranked: ranking.RankedTable, question: str, caption: str, answer: str = "") -> str:
    """Return the main table of every model, under the sweep's question and the answer."""
    table = "No point has been measured yet.\n"
    if len(ranked.table):
        table = render(main_frame(ranked), main_columns(ranked), "markdown")
    about = f"{MARKS_MEAN} {RANKS_MEAN}"
    first = f"{answer}\n\n## Main table\n\n" if answer else ""
    return f"# {markdown_escape(question)}\n\n{first}{markdown_escape(caption)}\n\n{table}\n{about}\n"


def main_latex(ranked: ranking.RankedTable, caption: str) -> str:
    """Return the main table in the paper's layout, as a `table*` for booktabs and colortbl."""
    columns = [column for column in main_columns(ranked) if column.name not in ("strength", "state")]
    table, caption = render(main_frame(ranked), columns, "latex"), latex_escape(caption)
    return fill_template("harness.reporting", "templates/main_table.tex.j2", table=table, caption=caption)


def ranking_table(whole: ranking.RankedTable, *, is_below_answer: bool = False) -> RenderableType:
    """Return every model's warnings and ranked rows for the terminal, or its recitation if nothing was erased."""
    warnings = whole.idle_warnings if is_below_answer else whole.headline_warnings
    parts = [Text("\n".join(warnings), style="bold")] if warnings else []
    below = Text(caption(whole.table).partition("Small: ")[0])
    if whole.is_of_references and len(whole.table):
        recited = recited_frame(whole)
        return Group(*parts, render(recited, recited_columns(recited), "terminal"), below)
    page_rows = whole.on_recited_texts
    frame = main_frame(page_rows)
    in_order = frame["model"].map({model: place for place, model in enumerate(frame["model"].unique())})
    frame = frame.assign(model_place=in_order).sort_values(["model_place", "place"], kind="stable")
    frame["label"] = frame["label"].where(frame["strength"] == "", frame["label"] + ", " + frame["strength"])
    numbers = [metric.name for metric in shown_metrics(page_rows) if metric.axis is not None]
    frame = frame.drop(columns=[f"{name}{end}" for name in numbers for end in ("_low", "_high")])
    names = {"model", "label", "state", *numbers, *ranking.rank_names(page_rows.info)}
    columns = [column for column in main_columns(page_rows) if column.name in names]
    return Group(*parts, render(frame, columns, "terminal"), below)


def recited_columns(frame: pd.DataFrame) -> Sequence[Column]:
    """Return the columns of `recited_frame`."""
    columns = [Column("model", "Model", "heading"), Column("metric", "Metric")]
    columns += [Column(method, title, "number") for method, title in READ_BY.items() if method in frame.columns]
    return columns


class ReasoningTasks(Section):
    """Accuracy of each row on every task, and its change."""

    title = "Reasoning"
    lead = (
        "Zero-shot accuracy, and its change against the original; small: the 95 % interval, over questions and seeds."
    )
    needs_points = True

    def html(self, pictures: Pictures) -> Markup:
        frame = reasoning_frame(self.analysis.shown)
        if frame.empty:
            return Markup("")
        columns = [Column("model", "Model", "heading"), Column("label", "Method"), Column("strength", "Strength")]
        for task in metrics.select_metrics(self.analysis.info, "reasoning"):
            columns.append(Column(task.name, task.title, "number", task))
            columns.append(Column(f"{task.name}_change", "change", "change"))
        return render(frame, columns, "html")


class Published(Section):
    """Each figure next to the published one."""

    title = "Next to the published table"
    lead = "Our figure, and behind it the published one; `lethe verify` compares them within tolerances."

    def html(self, pictures: Pictures) -> Markup:
        frame = self.analysis.published
        if frame.empty:
            return Markup("")
        obstacles = "; ".join(published.obstacle_sentences(frame))
        not_compared = paragraph(f"Not to be compared: {obstacles}." if obstacles else "")
        return render(*published_table(frame), "html") + not_compared


def published_table(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Column]]:
    """Return the published layout: a row for each model and method, two columns for each metric."""
    rows = frame.set_index(["place", "label", "strength", "collapsed"])
    columns = [Column("place", "", "heading"), Column("label", "Method"), Column("strength", "Strength")]
    wide = pd.DataFrame(index=rows.index.drop_duplicates())
    for name, cells in rows.groupby("name", sort=False):
        wide[f"{name}_ours"], wide[f"{name}_published"] = cells["ours"], cells["published"]
        metric = cells["metric"].iloc[0]
        columns.append(Column(f"{name}_ours", metric.title if metric else "Collapsed", "number", metric))
        columns.append(Column(f"{name}_published", "published", "number"))
    return wide.reset_index(), columns


def verified_table(frame: pd.DataFrame) -> Group:
    """Return a table for the terminal with a line for each figure, and the obstacles below it."""
    names = [cell["metric"].title if cell["metric"] else "Collapsed" for cell in frame.to_dict("records")]
    rows = (frame["label"] + " " + frame["strength"]).str.strip()
    verdict = frame["is_inside"].map({True: "inside", False: "OUTSIDE"}).fillna("not compared")
    lines = frame.drop(columns="collapsed").assign(row=rows, figure=names, verdict=verdict)
    columns = [Column("place", "", "heading"), Column("row", "Row", "group"), Column("figure", "Metric")]
    columns += [Column("ours", "Ours", "number"), Column("published", "Published", "number")]
    columns += [Column("difference", "Difference", "change"), Column("tolerance", "±", "number")]
    sentences = [f"Not compared: {sentence}." for sentence in published.obstacle_sentences(frame)]
    table = render(lines, [*columns, Column("verdict", "Verdict")], "terminal")
    return Group(table, *(Text(printable(sentence)) for sentence in sentences))
