"""Section with a published table next to ours; also for the terminal."""

from __future__ import annotations

import pandas as pd
from markupsafe import Markup
from rich.console import Group
from rich.text import Text

from harness.analysis.published import obstacle_sentences
from harness.base.messages import printable
from harness.reporting.render import Column, render
from harness.reporting.section import PageContext, Section, paragraph

_MEANS = (
    "Ours, and the published figure behind it. † collapsed here. `lethe verify` holds what can be compared against its "
    "tolerances."
)


class Published(Section):
    """Each figure next to the published one."""

    title = "Next to the published table"
    needs_points = True

    def html(self, page: PageContext) -> Markup:
        frame = self.analysis.published
        if frame.empty:
            return Markup("")
        obstacles = "; ".join(obstacle_sentences(frame))
        not_compared = paragraph(f"Not to be compared: {obstacles}." if obstacles else "")
        return paragraph(_MEANS) + render(*published_table(frame), "html") + not_compared


def published_table(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Column]]:
    """Return the published layout: a row for each model and method, two columns for each metric."""
    place = frame["model"] + " next to " + frame["published_model"] + " of " + frame["title"]
    keys = ["place", "label", "strength", "collapsed"]
    rows = frame.assign(place=place).set_index(keys)
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
    place = frame["model"] + " next to " + frame["published_model"] + " of " + frame["title"]
    verdict = frame["is_inside"].map({True: "inside", False: "OUTSIDE"}).fillna("not compared")
    lines = frame.drop(columns="collapsed").assign(row=rows, figure=names, verdict=verdict, place=place)
    columns = [Column("place", "", "heading"), Column("row", "Row", "group"), Column("figure", "Metric")]
    columns += [Column("ours", "Ours", "number"), Column("published", "Published", "number")]
    columns += [Column("difference", "Difference", "change"), Column("tolerance", "±", "number")]
    sentences = [f"Not compared: {sentence}." for sentence in obstacle_sentences(frame)]
    table = render(lines, [*columns, Column("verdict", "Verdict")], "terminal")
    return Group(table, *(Text(printable(sentence)) for sentence in sentences))
