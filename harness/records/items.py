"""Item values: one Parquet file a measurement, whose digest is in the journal's line."""

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.base.files import known_digest, write_whole
from harness.contracts import exponential
from harness.errors import DataError
from harness.statistics.bootstrap import Floats

_TEXTS, _NUMBERS = ("metric", "item", "cluster"), ("value", "weight")
_SCHEMA = pa.schema(dict.fromkeys(_TEXTS, pa.string()) | dict.fromkeys(_NUMBERS, pa.float64()))


@dataclass(frozen=True)
class MetricItems:
    """Item values of one metric, in the same order for every method."""

    ids: tuple[str, ...]
    clusters: tuple[str, ...]
    """Items of one cluster share a continuation, so they are not independent."""
    values_N: Floats
    """NaN: unknown."""
    weights_N: Floats
    """Weights in the metric's aggregate, 1 by default."""

    def by_id(self) -> dict[str, float]:
        """Return values by item id."""
        return dict(zip(self.ids, self.values_N.tolist(), strict=True))


def aggregated(values_N: Floats, weights_N: Floats, aggregate: Literal["mean", "exp_mean"]) -> float:
    """Return the items' weighted mean, or its exponential; NaN if no item is known.

    Example:
        >>> values, weights = np.array([0.0, 1.0, np.nan]), np.array([1.0, 3.0, 5.0])
        >>> aggregated(values, weights, "mean"), round(aggregated(values, weights, "exp_mean"), 4)
        (0.75, 2.117)
    """
    is_counted_N = ~np.isnan(values_N) & (weights_N > 0)
    if not is_counted_N.any():
        return math.nan
    mean = float(np.average(values_N[is_counted_N], weights=weights_N[is_counted_N]))
    return exponential(mean) if aggregate == "exp_mean" else mean


def items_file(results: Path, point_id: str, key: str) -> Path:
    """Return the path of the items of an evaluator, by its key, on a point."""
    return results / "items" / point_id / f"{key}.parquet"


def write_items(path: Path, by_metric: dict[str, MetricItems]) -> str:
    """Write the items atomically and return the file's digest; no metrics: no file, and ''."""
    if not by_metric:
        return ""
    tables = []
    for metric, items in by_metric.items():
        columns = [[metric] * len(items.ids), items.ids, items.clusters, items.values_N, items.weights_N]
        tables.append(pa.table(columns, schema=_SCHEMA))
    table, buffer = pa.concat_tables(tables).combine_chunks(), io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", use_dictionary=list(_TEXTS))
    write_whole(path, buffer.getvalue(), "what each item has", durable=True)
    return known_digest(path)


def is_intact(path: Path, digest: str) -> bool:
    """Return whether the file exists and has this digest."""
    return path.is_file() and known_digest(path) == digest


def read_items(path: Path, digest: str) -> dict[str, MetricItems]:
    """Return the items by metric."""
    if not is_intact(path, digest):
        raise DataError(f"{path} is missing or damaged. Run the sweep again: it measures that point again.")
    by_metric = {}
    for metric, rows in pq.read_table(path).to_pandas().groupby("metric", sort=False):
        values, weights = rows["value"].to_numpy(), rows["weight"].to_numpy()
        by_metric[str(metric)] = MetricItems(tuple(rows["item"]), tuple(rows["cluster"]), values, weights)
    return by_metric
