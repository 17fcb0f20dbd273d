"""What only the whole table shows of a point, as tags: MLflow's runs are searched and coloured by them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from harness.analysis.attacks.excess import AttackedRow, AttackTable
from harness.analysis.tradeoff.curves import styles
from harness.reporting.figures.style import REFERENCE_STYLES

_WORDS = {True: "true", False: "false"}
TAGGED = ("collapsed", "over_erased")


def point_tags(table: pd.DataFrame, attacked: Sequence[AttackTable] = ()) -> dict[str, dict[str, str]]:
    """Return each point's tags by its id: whether it collapsed and how, is over-erased, ranked, or on the frontier.

    `mlflow.runColor` is the colour that its variant has in the report's figures. An attacked point's `excess.METRIC` is
    how much more an attack gets out of it than out of the retrained model, over all its seeds, with the interval.
    """
    excesses: dict[str, dict[str, str]] = {}
    for of_model in attacked:
        for of_points in of_model.rows:
            excesses |= dict.fromkeys(of_points.point_ids, _excess_tags(of_model, of_points))
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


def _excess_tags(of_model: AttackTable, row: AttackedRow) -> dict[str, str]:
    tags = {}
    for metric, excess in zip(of_model.metrics, row.excesses, strict=True):
        if not math.isnan(excess.difference):
            cell = excess.cell()
            tags[f"excess.{metric.name}"] = f"{cell.text} ({cell.interval})" if cell.interval else cell.text
    return tags
