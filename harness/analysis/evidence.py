"""The evidence for each number of a table: the values of its items, as arrays that can be resampled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from harness.analysis.metrics import MetricInfo, noise_deviation
from harness.base.files import digest_of
from harness.contracts import Metric
from harness.records.items import MetricItems
from harness.records.results import Results
from harness.statistics.bootstrap import CONFIDENCE, DRAWS, draws, interval, replicate_draws, row_intervals
from harness.statistics.item_values import Floats, ItemValues

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
    _intervals: dict[tuple[str, ...], tuple[float, float]] = field(default_factory=dict)
    """Of what was drawn from items, by metric and points: ranks and cells have the same draws."""

    def items(self, point_id: str, metric: Metric) -> MetricItems | None:
        """Return what each item of a point has of a metric; None where the point keeps none."""
        return self.by_point.get(point_id, {}).get(metric.name)

    def of(self, rows: pd.DataFrame, metric: Metric) -> ItemValues | None:
        """Return what each item has of a metric in the rows of a table: seeds, or replicates, of one variant.

        An item that a row does not list is not known there. None where a row keeps none.
        """
        return self.of_points(list(rows["point_id"]), metric, pd.factorize(rows[REPLICATE])[0])

    def of_points(
        self, point_ids: Sequence[str], metric: Metric, models_R: NDArray[np.int64] | None = None
    ) -> ItemValues | None:
        """Return the same of points; `models_R` as of `ItemValues`."""
        known = []
        for point_id in point_ids:
            items = self.items(point_id, metric)
            if items is None:
                return None
            known.append(items)
        if any(items.ids != known[0].ids for items in known):
            known = _aligned(known)
        if not known or not known[0].ids:
            return None
        ids = known[0].ids
        if ids not in self._names:
            self._names[ids] = digest_of(list(ids))
        _, clusters_N = np.unique(known[0].clusters, return_inverse=True)
        return ItemValues(
            values_RN=np.stack([items.values_N for items in known]),
            weights_RN=np.stack([items.weights_N for items in known]),
            clusters_N=clusters_N,
            items=self._names[ids],
            models_R=models_R,
            aggregate=metric.aggregate,
            low=metric.low,
            high=metric.high,
        )

    def draws(self, rows: pd.DataFrame, metric: Metric) -> Floats:
        """Return draws (D,) of a metric's mean over rows: seeds, or replicates, of one variant; NaN where not known.

        With items over them and, with several rows, over those; without, over several rows alone, and of one row by
        the noise that the metric declares, which is independent for each variant.
        """
        if not len(rows):
            return np.full(DRAWS, np.nan)
        if (values := self.of(rows, metric)) is not None:
            drawn_D = draws(values)
            self._intervals[metric.name, *rows["point_id"]] = interval(drawn_D)
            return drawn_D
        numbers_R, models_R = rows[metric.name].to_numpy(dtype=float), pd.factorize(rows[REPLICATE])[0]
        if len(numbers_R) > 1:
            return replicate_draws_of(numbers_R, metric, models_R)
        [row] = rows.to_dict("records")
        names = [str(row[name]) for name in (REPLICATE, "variant", "seed")]
        normal_D = np.random.default_rng(int(digest_of([metric.name, *names]), 16)).standard_normal(DRAWS)
        value = float(numbers_R[0])
        if not math.isfinite(value):
            return np.full(DRAWS, np.nan)
        return np.clip(value + noise_deviation(value, metric) * normal_D, metric.low, metric.high)

    def interval(self, rows: pd.DataFrame, metric: Metric) -> tuple[float, float]:
        """Return the 95 % interval of a metric's mean over rows, of what `draws` draws; NaN, NaN where it is not known.

        Of the noise that a metric declares it is the normal distribution's, within the metric's bounds.
        """
        key = metric.name, *rows["point_id"]
        if key in self._intervals:
            return self._intervals[key]
        if len(rows) > 1 or self.of(rows, metric) is not None:
            return interval(self.draws(rows, metric))
        value = float(rows[metric.name].iloc[0])
        if not math.isfinite(value):
            return math.nan, math.nan
        half = float(ndtri(0.5 + CONFIDENCE / 2)) * noise_deviation(value, metric)
        low, high = np.clip([value - half, value + half], metric.low, metric.high)
        return float(low), float(high)


def replicate_draws_of(numbers_R: Floats, metric: Metric, models_R: NDArray[np.int64]) -> Floats:
    """Return draws (D,) of a mean of numbers that no items stand behind: of an `exp_mean` of their logarithms."""
    if metric.aggregate == "mean":
        return replicate_draws(numbers_R, models_R, metric.low, metric.high)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        drawn_D = np.exp(replicate_draws(np.log(numbers_R), models_R))
    return np.clip(drawn_D, metric.low, metric.high)


def chosen_items(items: MetricItems, shared: Set[str]) -> MetricItems:
    """Return the items whose ids are among `shared`, in the order of their ids."""
    in_order = sorted(range(len(items.ids)), key=items.ids.__getitem__)
    rows = [row for row in in_order if items.ids[row] in shared]
    ids, clusters = (tuple(np.array(names, dtype=object)[rows]) for names in (items.ids, items.clusters))
    return MetricItems(ids, clusters, items.values_N[rows], items.weights_N[rows])


def _aligned(known: Sequence[MetricItems]) -> list[MetricItems]:
    """Return several points' items as lists of the same items, in the order of their ids; others are not known."""
    by_id: dict[str, str] = {}
    for items in known:
        by_id |= zip(items.ids, items.clusters, strict=True)
    ids, clusters = zip(*sorted(by_id.items()), strict=True)
    aligned = []
    for items in known:
        rows = dict(zip(items.ids, range(len(items.ids)), strict=True))
        at = [rows.get(id, -1) for id in ids]
        values_N, weights_N = np.append(items.values_N, math.nan), np.append(items.weights_N, math.nan)
        aligned.append(MetricItems(ids, clusters, values_N[at], weights_N[at]))
    return aligned


def read_evidence(results: Results) -> Evidence:
    """Return the items of every measured point.

    Ids and clusters, which are the same for all methods, are held once.

    Raises:
        DataError: A file of them was damaged after the journal was read.
    """
    held: dict[tuple[str, ...], tuple[str, ...]] = {}
    by_point: dict[str, dict[str, MetricItems]] = {}
    for point in results.measured:
        kept = by_point[point.spec.point_id(point.strength)] = results.items(point)
        for name, items in kept.items():
            clusters = held.setdefault(items.clusters, items.clusters)
            kept[name] = replace(items, ids=held.setdefault(items.ids, items.ids), clusters=clusters)
    return Evidence(by_point)


def error_over_texts(point_id: str, metric: Metric, evidence: Evidence) -> float | None:
    """Return the standard error of a metric's mean with copies of a text counted once, as `draws` counts them.

    None where no item is a copy: then the evaluator's own standard error is right.
    """
    items = evidence.items(point_id, metric)
    if items is None or not items.has_copies or (values := evidence.of_points([point_id], metric)) is None:
        return None
    return float(values.standard_errors()[0])


def interval_columns(point_ids: Sequence[str], info: MetricInfo, evidence: Evidence) -> dict[str, NDArray[np.float64]]:
    """Return, for a table's points, the columns that bound each metric's interval; none if no point keeps items."""
    columns: dict[str, NDArray[np.float64]] = {}
    if not any(evidence.by_point.values()):
        return columns
    for metric in info.values():
        if not metric.items:
            continue
        bounds_P2 = np.full((len(point_ids), 2), np.nan)
        for rows in _on_same_items(point_ids, metric, evidence):
            for start in range(0, len(rows), ROWS_AT_ONCE):
                part = rows[start : start + ROWS_AT_ONCE]
                if (values := evidence.of_points([point_ids[row] for row in part], metric)) is not None:
                    bounds_P2[part] = row_intervals(values)
        columns[LOW.format(metric.name)], columns[HIGH.format(metric.name)] = bounds_P2.T
    return columns


def _on_same_items(point_ids: Sequence[str], metric: Metric, evidence: Evidence) -> Iterable[list[int]]:
    """Return the places of points that have a metric's values on the same items, group by group."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for row, point_id in enumerate(point_ids):
        items = evidence.items(point_id, metric)
        if items is not None and items.ids:
            groups.setdefault((items.ids, items.clusters), []).append(row)
    return groups.values()


def split_rows(values: ItemValues, first: int) -> tuple[ItemValues, ItemValues]:
    """Return the values of the first replicates, and of the others."""
    parts = []
    for part in (slice(None, first), slice(first, None)):
        models_R = None if values.models_R is None else values.models_R[part]
        rows = values.values_RN[part], values.weights_RN[part]
        parts.append(replace(values, values_RN=rows[0], weights_RN=rows[1], models_R=models_R))
    return parts[0], parts[1]
