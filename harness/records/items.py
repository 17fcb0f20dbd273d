"""What each item has: one Parquet file a measurement, written whole, its digest in the journal's line."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from harness.base.digests import known_digest
from harness.base.files import write_whole
from harness.base.storage import reading
from harness.errors import DataError

_COLUMNS = {"metric": pa.string(), "item": pa.string(), "cluster": pa.string()} | dict.fromkeys(
    ("value", "weight"), pa.float64()
)


@dataclass(frozen=True)
class MetricItems:
    """What each item has of one metric, in the order that is the same for every method."""

    ids: tuple[str, ...]
    clusters: tuple[str, ...]
    """Items of one cluster share a text, and are no independent evidence: sequences with the same continuation."""
    values_N: NDArray[np.float64]
    """NaN: not known of this item."""
    weights_N: NDArray[np.float64]
    """How much an item counts in the metric's aggregate; 1 unless the metric says otherwise."""

    def by_id(self) -> dict[str, float]:
        """Return the value of each item."""
        return dict(zip(self.ids, self.values_N.tolist(), strict=True))

    @property
    def has_copies(self) -> bool:
        """Return whether any two items share a text."""
        return len(set(self.clusters)) < len(self.clusters)


def aggregated(
    values_N: NDArray[np.float64], weights_N: NDArray[np.float64], aggregate: Literal["mean", "exp_mean"]
) -> float:
    """Return the number that follows from its items: their weighted mean, or its exponential; NaN if none is known.

    Example:
        >>> values, weights = np.array([0.0, 1.0, np.nan]), np.array([1.0, 3.0, 5.0])
        >>> aggregated(values, weights, "mean"), round(aggregated(values, weights, "exp_mean"), 4)
        (0.75, 2.117)
    """
    counted = ~np.isnan(values_N) & (weights_N > 0)
    if not counted.any():
        return math.nan
    mean = float(np.average(values_N[counted], weights=weights_N[counted]))
    return math.exp(mean) if aggregate == "exp_mean" else mean


def items_file(results: Path, point_id: str, key: str) -> Path:
    """Return where the items of a measurement are: its point's id and its evaluator's key name it."""
    return results / "items" / point_id / f"{key}.parquet"


def write_items(path: Path, by_metric: dict[str, MetricItems]) -> str:
    """Write what each item has, whole or not at all, and return the file's digest; '' and no file without metrics."""
    if not by_metric:
        return ""
    columns = {
        "metric": [name for name, items in by_metric.items() for _ in items.ids],
        "item": [id for items in by_metric.values() for id in items.ids],
        "cluster": [cluster for items in by_metric.values() for cluster in items.clusters],
        "value": np.concatenate([items.values_N for items in by_metric.values()]),
        "weight": np.concatenate([items.weights_N for items in by_metric.values()]),
    }
    table = pa.table(columns, schema=pa.schema(_COLUMNS))
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", use_dictionary=["metric", "item", "cluster"])
    write_whole(path, buffer.getvalue(), "what each item has", durable=True)
    return known_digest(path)


def is_intact(path: Path, digest: str) -> bool:
    """Return whether the file is there and is what was written.

    Raises:
        DataError: It cannot be read.
    """
    try:
        with reading(path, "what each item has"):
            return path.is_file() and known_digest(path) == digest
    except FileNotFoundError:
        return False


def read_items(path: Path, digest: str) -> dict[str, MetricItems]:
    """Return what each item has, by metric.

    Raises:
        DataError: The file is gone, or is not what was written.
    """
    if not is_intact(path, digest):
        raise DataError(f"{path} is missing or damaged. Run the sweep again: it measures that point anew.")
    try:
        with path.open("rb") as file:
            table = pq.read_table(file).cast(pa.schema(_COLUMNS))
    except (pa.ArrowException, ValueError) as error:
        raise DataError(
            f"{path} is no table of items ({type(error).__name__}). Remove it and run the sweep again: it measures "
            "that point anew."
        ) from error
    columns = {name: table.column(name).to_pylist() for name in ("metric", "item", "cluster")}
    values, weights = (table.column(name).to_numpy() for name in ("value", "weight"))
    starts = [row for row, name in enumerate(columns["metric"]) if row == 0 or columns["metric"][row - 1] != name]
    return {
        columns["metric"][start]: MetricItems(
            tuple(columns["item"][start:end]),
            tuple(columns["cluster"][start:end]),
            values[start:end],
            weights[start:end],
        )
        for start, end in zip(starts, [*starts[1:], len(values)], strict=True)
    }
