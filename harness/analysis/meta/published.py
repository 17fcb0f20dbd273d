"""What others found of metrics, to be laid beside what a sweep of one's own finds."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass

from harness.records.published import PUBLISHED

FILE = PUBLISHED / "metric_meta_evaluation.csv"


@dataclass(frozen=True)
class PublishedMetric:
    """A metric of the public study: 30 models with the knowledge and 30 without it, 150 unlearned ones."""

    title: str
    auc: float
    relearning: float
    rounding: float
    robustness: float


def published_metrics() -> Mapping[str, PublishedMetric]:
    """Return the study's figures by the name of our metric that measures the same; nothing outside of a checkout."""
    by_name: dict[str, PublishedMetric] = {}
    for row in published_rows():
        if row["ours"]:
            figures = (float(row[name]) for name in ("auc", "relearning", "rounding", "robustness"))
            by_name[row["ours"]] = PublishedMetric(row["title"], *figures)
    return by_name


def published_rows() -> list[dict[str, str]]:
    """Return every row of the study's table, as text."""
    if not FILE.is_file():
        return []
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
