"""Whether a method erased anything: what differs from the original beyond chance, text by text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from harness.analysis.evidence import REPLICATE, Evidence
from harness.analysis.grouping import LEVEL, p_of_pair, split_rows
from harness.analysis.metrics import Aims
from harness.contracts import Metric
from harness.statistics.significance import holm

LEAST_TEXTS = 8
"""Of fewer no test shows anything: not even that they all changed alike (a sign test of seven, by three metrics)."""


def has_erased_nothing(
    rows: pd.DataFrame, originals: pd.DataFrame, metrics: Sequence[Metric], evidence: Evidence, aims: Aims
) -> bool:
    """Return whether no metric shows that a variant erased anything; False where that is not known.

    A metric shows it where it is better than the original's, and the paired test over texts (copies are one; the mean
    of the seeds of each) gives p < 0.05, corrected for the number of metrics (Holm). There is no floor: it is the same
    texts and the same model, so that chance alone stands between a difference and an erasure, and what erased little
    has the last rank. Of fewer than eight texts any improvement counts.

    Args:
        rows: The points that stand for the variant, one for each seed of a model.
        originals: The rows of the original.
        metrics: The ranked ones of erasure.
        evidence: The items behind both.
        aims: What metrics are to be close to.
    """
    starts = _starts(rows, originals)
    if starts is None or not metrics:
        return False
    both, p_values = pd.concat([rows, starts]), []
    for metric in metrics:
        values = evidence.of(both, metric) if metric.items else None
        if values is None:
            return False
        erased, original = (half.averaged() for half in split_rows(values, len(rows)))
        p, texts = 1.0, min(erased.known_clusters(), original.known_clusters())
        if aims.cost(rows, metric) < aims.cost(starts, metric):
            sides = aims.deviations(rows, metric).mean(), aims.deviations(starts, metric).mean()
            p = p_of_pair(metric, erased, original, sides) if texts >= LEAST_TEXTS else math.nan
        if math.isnan(p):
            return False
        p_values.append(p)
    return min(holm(p_values)) >= LEVEL


def _starts(rows: pd.DataFrame, originals: pd.DataFrame) -> pd.DataFrame | None:
    """Return each row's original, of its seed or else the first of its model; None where one has none."""
    starts = []
    for replicate, seed in zip(rows[REPLICATE], rows["seed"], strict=True):
        of_model = originals[originals[REPLICATE] == replicate]
        if not len(of_model):
            return None
        of_seed = of_model[of_model["seed"] == seed]
        starts.append((of_seed if len(of_seed) else of_model).head(1))
    of_rows: pd.DataFrame = pd.concat(starts)
    return of_rows
