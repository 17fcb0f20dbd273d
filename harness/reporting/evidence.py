"""What stands behind each number of a table: the values of its items, as arrays that can be resampled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from harness.contracts import Metric
from harness.digests import digest_of
from harness.records.items import MetricItems
from harness.records.results import Results
from harness.reporting.bootstrap import draws, interval, replicate_draws
from harness.reporting.item_values import ItemValues
from harness.reporting.metric_info import MetricInfo

REPLICATE = "replicate"
"""The column that says which model a row is of, where `model` names all that were pretrained alike."""
LOW, HIGH = "{}_low", "{}_high"
"""The columns of a table that bound a metric's 95 % interval."""


@dataclass(frozen=True)
class Evidence:
    """The items of every measured point, read once for all that compares them."""

    by_point: Mapping[str, Mapping[str, MetricItems]] = field(default_factory=dict)
    """By a point's id, then by metric."""
    _names: dict[tuple[str, ...], str] = field(default_factory=dict)
    """What the draws of each set of items are called."""

    def of(self, rows: pd.DataFrame, metric: Metric) -> ItemValues | None:
        """Return what each item has of a metric in the rows of a table: seeds, or replicates, of one variant.

        Items that not every row knows are left out. None where a row keeps none, or no two know the same.
        """
        kept = [self.by_point.get(point_id, {}).get(metric.name) for point_id in rows["point_id"]]
        known = [items for items in kept if items is not None]
        if not known or len(known) < len(kept):
            return None
        first = known[0]
        if any(items.ids != first.ids for items in known):
            shared = set(first.ids).intersection(*(items.ids for items in known[1:]))
            known = [chosen_items(items, shared) for items in known]
            first = known[0]
            if not first.ids:
                return None
        _, clusters_N = np.unique(first.clusters, return_inverse=True)
        return ItemValues(
            values_RN=np.stack([items.values_N for items in known]),
            weights_RN=np.stack([items.weights_N for items in known]),
            clusters_N=clusters_N,
            items=self._name(first.ids),
            models_R=pd.factorize(rows[REPLICATE])[0],
            aggregate=metric.aggregate,
            low=metric.low,
            high=metric.high,
        )

    def _name(self, ids: tuple[str, ...]) -> str:
        if ids not in self._names:
            self._names[ids] = digest_of(list(ids))
        return self._names[ids]

    def interval(self, rows: pd.DataFrame, metric: Metric) -> tuple[float, float]:
        """Return the 95 % interval of a metric's mean over rows; NaN, NaN where nothing tells it.

        With items it is over them and, with several rows, over those; without, over several rows alone.
        """
        if (values := self.of(rows, metric)) is not None:
            return interval(draws(values))
        estimates_R, models_R = rows[metric.name].to_numpy(dtype=float), pd.factorize(rows[REPLICATE])[0]
        return interval(replicate_draws(estimates_R, models_R, metric.low, metric.high))


def chosen_items(items: MetricItems, shared: set[str]) -> MetricItems:
    """Return the items whose ids are among `shared`, in the order of their ids."""
    order = sorted((id, row) for row, id in enumerate(items.ids) if id in shared)
    rows = [row for _, row in order]
    return replace(
        items,
        ids=tuple(id for id, _ in order),
        clusters=tuple(items.clusters[row] for row in rows),
        values_N=items.values_N[rows],
        weights_N=items.weights_N[rows],
    )


def read_evidence(results: Results) -> Evidence:
    """Return the items of every measured point.

    Raises:
        DataError: A file of them was damaged after the journal was read.
    """
    return Evidence({point.spec.point_id(point.strength): results.items(point) for point in results.measured})


def interval_columns(rows: pd.DataFrame, info: MetricInfo, evidence: Evidence) -> dict[str, list[float]]:
    """Return, for the rows of a table, the columns that bound each metric's interval; none if no point keeps items."""
    columns: dict[str, list[float]] = {}
    singles = [rows.iloc[[row]].assign(replicate=rows["model"]) for row in range(len(rows))]
    for metric in info.values() if any(evidence.by_point.values()) else ():
        if metric.items:
            intervals = [evidence.interval(single, metric) for single in singles]
            columns[LOW.format(metric.name)] = [low for low, _ in intervals]
            columns[HIGH.format(metric.name)] = [high for _, high in intervals]
    return columns
