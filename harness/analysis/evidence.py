"""Per-item values behind each number of a table, as arrays that can be resampled."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from harness.analysis.metrics import MetricInfo, noise_deviation
from harness.base.files import digest_of
from harness.contracts import Metric
from harness.records.items import MetricItems
from harness.records.results import Results
from harness.statistics import bootstrap

ROWS_AT_ONCE = 64
"""Points whose intervals are drawn together, in about ten megabytes."""
REPLICATE = "replicate"
"""Column of the replicate model, where `model` is the name that all replicates share."""
LOW, HIGH = "{}_low", "{}_high"
"""Columns of the bounds of a metric's 95 % interval."""


@dataclass(frozen=True)
class Evidence:
    """Items of every measured point."""

    by_point: Mapping[str, Mapping[str, MetricItems]] = field(default_factory=dict)
    """Items by point id and metric."""
    text_names: Mapping[str, str] = field(default_factory=dict)
    """Where texts stand in their file, by item id."""
    _names: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Names of the draws of each set of items."""
    _intervals: dict[tuple[str, ...], tuple[float, float]] = field(default_factory=dict)
    """Cached intervals by metric and points."""

    def items(self, point_id: str, metric: Metric) -> MetricItems | None:
        """Return a point's items of a metric; None where it has none."""
        return self.by_point.get(point_id, {}).get(metric.name)

    def of(self, rows: pd.DataFrame, metric: Metric) -> bootstrap.ItemValues | None:
        """Return the items of one variant's rows (seeds or replicates); None where a row has none.

        An item that a row lacks is NaN there.
        """
        return self.point_values(list(rows["point_id"]), metric, pd.factorize(rows[REPLICATE])[0])

    def point_values(
        self, point_ids: Sequence[str], metric: Metric, models_R: NDArray[np.int64] | None = None
    ) -> bootstrap.ItemValues | None:
        """Return the items of points; `models_R` as in `ItemValues`."""
        items_by_point = [items for point_id in point_ids if (items := self.items(point_id, metric)) is not None]
        if len(items_by_point) < len(point_ids):
            return None
        if any(items.ids != items_by_point[0].ids for items in items_by_point):
            clusters: dict[str, str] = {}
            for items in items_by_point:
                clusters |= zip(items.ids, items.clusters, strict=True)
            items_by_point = [_items_of(dict(sorted(clusters.items())), items) for items in items_by_point]
        if not items_by_point or not items_by_point[0].ids:
            return None
        ids = items_by_point[0].ids
        if ids not in self._names:
            self._names[ids] = digest_of(list(ids))
        _, clusters_N = np.unique(items_by_point[0].clusters, return_inverse=True)
        values_RN = np.stack([items.values_N for items in items_by_point])
        weights_RN = np.stack([items.weights_N for items in items_by_point])
        about: Any = {"items": self._names[ids], "aggregate": metric.aggregate, "low": metric.low, "high": metric.high}
        rows: Any = {"values_RN": values_RN, "weights_RN": weights_RN, "models_R": models_R}
        return bootstrap.ItemValues(clusters_N=clusters_N, **rows, **about)

    def draws(self, rows: pd.DataFrame, metric: Metric) -> bootstrap.Floats:
        """Return draws (D,) of a metric's mean over one variant's rows; NaN where not known.

        Without items, several rows are drawn, and one row gets the metric's declared noise, of its own.
        """
        if not len(rows):
            return np.full(bootstrap.DRAWS, np.nan)
        if (values := self.of(rows, metric)) is not None:
            drawn_D = bootstrap.draws(values)
            self._intervals[metric.name, *rows["point_id"]] = bootstrap.interval(drawn_D)
            return drawn_D
        numbers_R, models_R = rows[metric.name].to_numpy(dtype=float), pd.factorize(rows[REPLICATE])[0]
        if len(numbers_R) > 1:
            is_mean = metric.aggregate == "mean"
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                drawn_D = bootstrap.replicate_draws(numbers_R if is_mean else np.log(numbers_R), models_R)
                return np.clip(drawn_D if is_mean else np.exp(drawn_D), metric.low, metric.high)
        value = float(numbers_R[0])
        if not math.isfinite(value):
            return np.full(bootstrap.DRAWS, np.nan)
        names = [str(rows[name].iloc[0]) for name in (REPLICATE, "variant", "seed")]
        normal_D = np.random.default_rng(int(digest_of([metric.name, *names]), 16)).standard_normal(bootstrap.DRAWS)
        return np.clip(value + noise_deviation(value, metric) * normal_D, metric.low, metric.high)

    def interval(self, rows: pd.DataFrame, metric: Metric) -> tuple[float, float]:
        """Return the 95 % interval of a metric's mean over rows, from `draws`; NaN, NaN where not known.

        For declared noise it is the normal distribution's, within the metric's bounds.
        """
        key = metric.name, *rows["point_id"]
        if key in self._intervals:
            return self._intervals[key]
        if len(rows) > 1 or self.of(rows, metric) is not None:
            return bootstrap.interval(self.draws(rows, metric))
        value = float(rows[metric.name].iloc[0])
        if not math.isfinite(value):
            return math.nan, math.nan
        half = float(ndtri(0.5 + bootstrap.CONFIDENCE / 2)) * noise_deviation(value, metric)
        low, high = np.clip([value - half, value + half], metric.low, metric.high)
        return float(low), float(high)


def chosen_items(items: MetricItems, shared: Set[str]) -> MetricItems:
    """Return the items whose ids are in `shared`, sorted by id."""
    clusters = dict(zip(items.ids, items.clusters, strict=True))
    return _items_of({id: clusters[id] for id in sorted(clusters.keys() & shared)}, items)


def _items_of(clusters: Mapping[str, str], items: MetricItems) -> MetricItems:
    place_by_id = {id: place for place, id in enumerate(items.ids)}
    at = [place_by_id.get(id, -1) for id in clusters]
    values_N, weights_N = np.append(items.values_N, math.nan), np.append(items.weights_N, math.nan)
    return MetricItems(tuple(clusters), tuple(clusters.values()), values_N[at], weights_N[at])


def read_evidence(results: Results) -> Evidence:
    """Return the items of every measured point; ids and clusters are shared between points.

    Raises:
        DataError: A file of items was damaged after the journal was read.
    """
    ids_cache: dict[tuple[str, ...], tuple[str, ...]] = {}
    by_point: dict[str, dict[str, MetricItems]] = {}
    for point in results.measured:
        point_items = by_point[point.spec.point_id(point.strength)] = results.items(point)
        for name, items in point_items.items():
            clusters = ids_cache.setdefault(items.clusters, items.clusters)
            point_items[name] = replace(items, ids=ids_cache.setdefault(items.ids, items.ids), clusters=clusters)
    return Evidence(by_point, results.plan.text_names)


def error_over_texts(point_id: str, metric: Metric, evidence: Evidence) -> float | None:
    """Return a mean's standard error with copies of a text counted once; None where there are no copies."""
    items = evidence.items(point_id, metric)
    if items is None or len(set(items.clusters)) == len(items.clusters):
        return None
    values = evidence.point_values([point_id], metric)
    return None if values is None else float(values.standard_errors()[0])


def interval_columns(point_ids: Sequence[str], info: MetricInfo, evidence: Evidence) -> dict[str, NDArray[np.float64]]:
    """Return the columns of each metric's interval; none if no point has items."""
    columns: dict[str, NDArray[np.float64]] = {}
    for metric in info.values() if any(evidence.by_point.values()) else ():
        if not metric.items:
            continue
        bounds_P2 = np.full((len(point_ids), 2), np.nan)
        rows_by_items: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
        for row, point_id in enumerate(point_ids):
            items = evidence.items(point_id, metric)
            if items is not None and items.ids:
                rows_by_items.setdefault((items.ids, items.clusters), []).append(row)
        for rows in rows_by_items.values():
            for start in range(0, len(rows), ROWS_AT_ONCE):
                part = rows[start : start + ROWS_AT_ONCE]
                if (values := evidence.point_values([point_ids[row] for row in part], metric)) is not None:
                    bounds_P2[part] = bootstrap.row_intervals(values)
        columns[LOW.format(metric.name)], columns[HIGH.format(metric.name)] = bounds_P2.T
    return columns


def split_rows(values: bootstrap.ItemValues, first: int) -> tuple[bootstrap.ItemValues, bootstrap.ItemValues]:
    """Return the values of the first replicates, and of the others."""
    return values.part(slice(None, first)), values.part(slice(first, None))
