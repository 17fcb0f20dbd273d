"""Tags of points that follow from the whole table, for MLflow's search and colours."""

from __future__ import annotations

import math

import pandas as pd

from harness.analysis.curves import styles
from harness.reporting.figures.style import REFERENCE_STYLES
from harness.reporting.render import Column, cell_texts

_WORDS = {True: "true", False: "false"}
TAGGED = ("collapsed", "over_erased")


def point_tags(table: pd.DataFrame, attacked: pd.DataFrame | None = None) -> dict[str, dict[str, str]]:
    """Return each point's tags by its id: collapsed, over-erased, ranked, frontier, colour.

    `mlflow.runColor` is the variant's colour in the figures. `excess.METRIC` is the excess of an attack over the
    retrained model, over all seeds, with its interval.
    """
    excesses: dict[str, dict[str, str]] = {}
    for row in attacked.to_dict("records") if attacked is not None else ():
        if not math.isnan(row["excess"]):
            text, interval = cell_texts(row, Column("excess", "", "change"))
            for point_id in row["point_ids"]:
                tag = f"{text} ({interval})" if interval else text
                excesses.setdefault(point_id, {})[f"excess.{row['metric']}"] = tag
    colours = {method: colour for method, (_, _, colour) in REFERENCE_STYLES.items()}
    for variant, (colour, _) in styles(table).items():
        colours.setdefault(variant, colour)
    columns = ["point_id", "model", "method", "variant", *TAGGED, "collapse_class", "ranked", "frontier"]
    tags = {}
    for row in table[columns].to_dict(orient="records"):
        of_point = {
            **{name: _WORDS.get(row[name], "unknown") for name in TAGGED},
            "collapse_class": row["collapse_class"] or "none",
            "ranked": _WORDS[bool(row["ranked"])],
            "frontier": _WORDS[bool(row["frontier"])],
        }
        if row["variant"] in colours:
            of_point["mlflow.runColor"] = colours[row["variant"]]
        tags[row["point_id"]] = of_point | excesses.get(row["point_id"], {})
    return tags
