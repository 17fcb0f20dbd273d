"""Which sequences survive which method: the same sequences in the same order, by their ids and never by their text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
    """Above it a sequence survives; NaN where no unseen text tells."""
    unseen: str
    """Whose sequences tell it: the retrained model's, or unseen texts."""
    columns: tuple[str, ...]
    """The original and the ranked methods."""
    counts: tuple[int, ...]
    """Of each column, how many sequences survive; nothing where no unseen text tells."""
    total: int
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    """The sequences of which most is left on average over the methods: id, and a value for each column."""


def survivors(ranked: RankedTable) -> list[Survivors]:
    """Return for each model what is left of the sequences, by the headline metric of erasure; none without items."""
    metric = next((metric for metric in metrics_in(ranked.info, "erasure") if metric.headline and metric.items), None)
    if metric is None:
        return []
    tables = [_survivors(str(model), rows, metric, ranked) for model, rows in ranked.table.groupby("model", sort=False)]
    return [table for table in tables if table]


def _survivors(model: str, rows: pd.DataFrame, metric: Metric, ranked: RankedTable) -> Survivors | None:
    def values(of_rows: pd.DataFrame) -> Mapping[str, float]:
        items = ranked.evidence.by_point.get(of_rows.iloc[0]["point_id"], {}) if len(of_rows) else {}
        known = items.get(metric.name)
        return known.by_id() if known else {}

    by_method = {method: values(rows[rows["method"] == method]) for method in (ORIGINAL, RETRAINED, *UNSEEN_ROWS)}
    of_variants = {
        str(group.iloc[0]["label"]): values(group) for _, group in ranked_rows(rows).groupby("variant", sort=False)
    }
    kept = {label: of_items for label, of_items in of_variants.items() if of_items}
    ids = list(by_method[ORIGINAL])
    if not ids or not kept:
        return None
    unseen = next((method for method in (RETRAINED, *UNSEEN_ROWS) if by_method[method]), "")
    never_seen = np.array(list(by_method[unseen].values())) if unseen else np.array([math.nan])
    level = float(np.nanquantile(never_seen, QUANTILE)) if unseen else math.nan
    columns = {"Original": by_method[ORIGINAL], **kept}
    values_NC: NDArray[np.float64] = np.array(
        [[of_items.get(id, math.nan) for of_items in columns.values()] for id in ids]
    )
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
