"""What only the whole table shows of a point, as tags: MLflow's runs are searched and coloured by them."""

from __future__ import annotations

import pandas as pd

from harness.analysis.tradeoff.curves import styles
from harness.reporting.figures.style import REFERENCE_STYLES

_WORDS = {True: "true", False: "false"}


def point_tags(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return each point's tags by its id: whether it collapsed and how, is ranked, and is on its method's frontier.

    `mlflow.runColor` is the colour that its variant has in the report's figures.
    """
    colours = {method: colour for method, (_, _, colour) in REFERENCE_STYLES.items()}
    for variant, (colour, _) in styles(table).items():
        colours.setdefault(variant, colour)
    columns = ["point_id", "variant", "collapsed", "collapse_class", "ranked", "frontier"]
    tags = {}
    for row in table[columns].to_dict(orient="records"):
        of_point = {
            "collapsed": _WORDS.get(row["collapsed"], "unknown"),
            "collapse_class": row["collapse_class"] or "none",
            "ranked": _WORDS[bool(row["ranked"])],
            "frontier": _WORDS[bool(row["frontier"])],
        }
        if row["variant"] in colours:
            of_point["mlflow.runColor"] = colours[row["variant"]]
        tags[row["point_id"]] = of_point
    return tags
