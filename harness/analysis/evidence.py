"""What stands behind each number of a table: the values of its items, as arrays that can be resampled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.analysis.metrics import MetricInfo
from harness.base.digests import digest_of
from harness.contracts import Metric
from harness.records.items import MetricItems
from harness.records.results import Results
from harness.statistics.bootstrap import draws, interval, replicate_draws, row_intervals
from harness.statistics.item_values import ItemValues

ROWS_AT_ONCE = 64
"""Points whose intervals are drawn together: their draws take some ten megabytes."""
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

        An item that a row does not list is not known there. None where a row keeps none.
        """
        return self.of_points(list(rows["point_id"]), metric, pd.factorize(rows[REPLICATE])[0])

    def of_points(
        self,
        point_ids: Sequence[str],
        metric: Metric,
        models_R: NDArray[np.int64] | None = None,
        shares: tuple[tuple[float, ...], ...] | None = None,
    ) -> ItemValues | None:
        """Return the same of points; `models_R` and `shares` as of `ItemValues`."""
        kept = [self.by_point.get(point_id, {}).get(metric.name) for point_id in point_ids]
        known = [items for items in kept if items is not None]
        if not known or len(known) < len(kept):
            return None
        first = known[0]
        if any(items.ids != first.ids for items in known):
            clusters = {id: cluster for items in known for id, cluster in zip(items.ids, items.clusters, strict=True)}
            known = [_listing(items, clusters) for items in known]
            first = known[0]
        if not first.ids:
            return None
        _, clusters_N = np.unique(first.clusters, return_inverse=True)
        return ItemValues(
            values_RN=np.stack([items.values_N for items in known]),
            weights_RN=np.stack([items.weights_N for items in known]),
            clusters_N=clusters_N,
            items=self._name(first.ids),
            models_R=models_R,
            shares=shares,
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


def chosen_items(items: MetricItems, shared: Set[str]) -> MetricItems:
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


def _listing(items: MetricItems, clusters: Mapping[str, str]) -> MetricItems:
    """Return the items with all that have a cluster here, in the order of their ids; others are not known."""
    rows = {id: row for row, id in enumerate(items.ids)}
    ids = sorted(clusters)
    values_N, weights_N = (np.append(of_items, math.nan) for of_items in (items.values_N, items.weights_N))
    at = [rows.get(id, -1) for id in ids]
    return MetricItems(tuple(ids), tuple(clusters[id] for id in ids), values_N[at], weights_N[at])


def read_evidence(results: Results) -> Evidence:
    """Return the items of every measured point.

    Ids and clusters, which are the same for all methods, are held once.

    Raises:
        DataError: A file of them was damaged after the journal was read.
    """
    held: dict[tuple[str, ...], tuple[str, ...]] = {}

    def once(items: MetricItems) -> MetricItems:
        ids, clusters = (held.setdefault(texts, texts) for texts in (items.ids, items.clusters))
        return replace(items, ids=ids, clusters=clusters)

    return Evidence(
        {
            point.spec.point_id(point.strength): {name: once(items) for name, items in results.items(point).items()}
            for point in results.measured
        }
    )


def error_over_texts(point_id: str, metric: Metric, evidence: Evidence) -> float | None:
    """Return the standard error of a metric's mean with copies of a text counted once, as `draws` counts them.

    None where no item is a copy, and what the evaluator says stands.
    """
    items = evidence.by_point.get(point_id, {}).get(metric.name)
    if items is None or not items.has_copies or (values := evidence.of_points([point_id], metric)) is None:
        return None
    return float(values.standard_errors()[0])


def interval_columns(point_ids: Sequence[str], info: MetricInfo, evidence: Evidence) -> dict[str, NDArray[np.float64]]:
    """Return, for a table's points, the columns that bound each metric's interval; none if no point keeps items."""
    columns: dict[str, NDArray[np.float64]] = {}
    for metric in info.values() if any(evidence.by_point.values()) else ():
        if metric.items:
            bounds_P2 = np.full((len(point_ids), 2), np.nan)
            for rows in _alike(point_ids, metric, evidence):
                if (values := evidence.of_points([point_ids[row] for row in rows], metric)) is not None:
                    bounds_P2[rows] = row_intervals(values)
            columns[LOW.format(metric.name)], columns[HIGH.format(metric.name)] = bounds_P2.T
    return columns


def _alike(point_ids: Sequence[str], metric: Metric, evidence: Evidence) -> Iterator[list[int]]:
    """Yield the places of points that have a metric's values on the same items, as many as are drawn at once."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for row, point_id in enumerate(point_ids):
        items = evidence.by_point.get(point_id, {}).get(metric.name)
        if items is not None and items.ids:
            groups.setdefault((items.ids, items.clusters), []).append(row)
    for rows in groups.values():
        yield from (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))
