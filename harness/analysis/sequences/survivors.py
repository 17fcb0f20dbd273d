"""Which sequences survive which method: the same sequences in the same order, by their ids and never by their text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.analysis.evidence import Evidence
from harness.analysis.metrics import metrics_in
from harness.analysis.ranking import RankedTable
from harness.analysis.seeds import ranked_rows
from harness.contracts import Metric
from harness.specs import ORIGINAL, RETRAINED, UNSEEN_ROWS

SHOWN = 24
QUANTILE = 0.95
"""A sequence survives where more is left of it than of this share of those that the model never saw."""


@dataclass(frozen=True)
class Survivors:
    """What each method leaves of each sequence, on one model and seed."""

    model: str
    metric: Metric
    level: float
    """Above it a sequence survives; NaN where no unseen text shows it."""
    unseen: str
    """Whose sequences show it: the retrained model's, or unseen texts."""
    columns: tuple[str, ...]
    """The original and the ranked methods."""
    counts: tuple[int, ...]
    """Of each column, how many sequences survive; nothing where that is not known."""
    total: int
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    """The sequences of which most is left on average over the methods: id, and a value for each column."""


def survivors(ranked: RankedTable) -> list[Survivors]:
    """Return for each model what is left of the sequences, by the headline metric of erasure; none without items."""
    headlines = [metric for metric in metrics_in(ranked.info, "erasure") if metric.headline and metric.items]
    tables = []
    for model, rows in ranked.table.groupby("model", sort=False) if headlines else ():
        table = _model_survivors(str(model), rows, headlines[0], ranked.evidence)
        if table:
            tables.append(table)
    return tables


def _model_survivors(model: str, rows: pd.DataFrame, metric: Metric, evidence: Evidence) -> Survivors | None:
    first_rows = rows.drop_duplicates("method").set_index("method")["point_id"]
    by_method: dict[str, Mapping[str, float]] = {}
    for method in (ORIGINAL, RETRAINED, *UNSEEN_ROWS):
        items = evidence.items(first_rows.get(method, ""), metric)
        by_method[method] = items.by_id() if items else {}
    columns = {"Original": by_method[ORIGINAL]}
    for _, seeds in ranked_rows(rows).groupby("variant", sort=False):
        items = evidence.items(seeds["point_id"].iloc[0], metric)
        if items and items.ids:
            columns[str(seeds["label"].iloc[0])] = items.by_id()
    ids = list(by_method[ORIGINAL])
    if not ids or len(columns) == 1:
        return None
    unseen = next((method for method in (RETRAINED, *UNSEEN_ROWS) if by_method[method]), "")
    level = float(np.nanquantile(list(by_method[unseen].values()), QUANTILE)) if unseen else math.nan
    values_NC = pd.DataFrame(columns, index=ids).to_numpy(dtype=float)
    left_N = np.nan_to_num(values_NC[:, 1:], nan=-math.inf).mean(axis=1)
    order = np.argsort(-left_N, kind="stable")[:SHOWN]
    return Survivors(
        model=model,
        metric=metric,
        level=level,
        unseen=unseen,
        columns=tuple(columns),
        counts=tuple((values_NC > level).sum(axis=0).tolist()) if unseen else (),
        total=len(ids),
        rows=tuple((ids[row], tuple(values_NC[row].tolist())) for row in order),
    )
