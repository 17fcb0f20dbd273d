"""Points between two measured ones: their numbers, and what each item has there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from harness.contracts import Metric
from harness.reporting.bootstrap import draws, interval, replicate_draws
from harness.reporting.evidence import REPLICATE, Evidence
from harness.reporting.item_values import Floats, ItemValues, estimate
from harness.reporting.trajectories import Columns


@dataclass(frozen=True)
class Mixture:
    """A replicate's point: one row of the table, or two neighbours of a trajectory, each with its weight."""

    rows: Columns
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Mixed:
    """What one metric has at the mixtures of a variant."""

    metric: Metric
    numbers_R: Floats
    """Of each replicate."""
    items: ItemValues | None
    """What each item has; None of a metric without items."""
    replicates: tuple[tuple[str, int], ...]
    """Model and seed of each."""

    def number(self) -> float:
        """Return the mean over the replicates."""
        return float(self.numbers_R.mean()) if self.items is None else estimate(self.items)

    def number_and_interval(self) -> tuple[float, float, float]:
        """Return the mean over the replicates, and the ends of its 95 % interval; NaN where nothing tells it."""
        models_R = pd.factorize(pd.Series([model for model, _ in self.replicates]))[0]
        drawn_D = (
            replicate_draws(self.numbers_R, models_R, self.metric.low, self.metric.high)
            if self.items is None
            else draws(self.items)
        )
        return self.number(), *interval(drawn_D)


def mix(mixtures: Sequence[Mixture], metric: Metric, evidence: Evidence) -> Mixed:
    """Return what a metric has at the mixtures, one for each replicate.

    Between two points an item has the mixture of its pseudo-values there: how much it moves the number of either,
    about that number. Their mean is the mixture of both numbers (of an `exp_mean`, of the logarithms).
    """
    numbers_R = np.array([np.dot(mixture.weights, mixture.rows[metric.name]) for mixture in mixtures])
    replicates = tuple(
        (str(mixture.rows[REPLICATE][-1]), int(mixture.rows["replicate_seed"][-1])) for mixture in mixtures
    )
    point_ids, models = (
        np.concatenate([mixture.rows[name] for mixture in mixtures]) for name in ("point_id", REPLICATE)
    )
    values = evidence.of_points(point_ids.tolist(), metric, pd.factorize(models)[0])
    counts = [len(mixture.weights) for mixture in mixtures]
    if values is not None and max(counts) > 1:
        starts = np.cumsum([0, *counts[:-1]])
        parts = np.split(pseudo_values(values), starts[1:])
        mixed_RN = np.stack([np.dot(mixture.weights, part) for mixture, part in zip(mixtures, parts, strict=True)])
        models_R = None if values.models_R is None else values.models_R[starts]
        values = replace(values, values_RN=mixed_RN, weights_RN=np.ones_like(mixed_RN), models_R=models_R)
    return Mixed(metric, numbers_R, values, replicates)


def pseudo_values(values: ItemValues) -> Floats:
    """Return for each item (R, N) the mean plus what the item adds to it; their plain mean is the weighted mean.

    Example:
        >>> from harness.reporting.item_values import ItemValues
        >>> two = ItemValues(
        ...     values_RN=np.array([[1.0, 4.0]]), weights_RN=np.array([[2.0, 1.0]]), clusters_N=np.arange(2), items=""
        ... )
        >>> pseudo_values(two).tolist()
        [[0.6666666666666667, 3.333333333333333]]
    """
    values_RN, weights_RN = values.known
    means_R1 = values.item_means()[:, None]
    count_R1 = (weights_RN > 0).sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        pseudo_RN = means_R1 + count_R1 * weights_RN * (values_RN - means_R1) / weights_RN.sum(axis=1, keepdims=True)
    return np.where(weights_RN > 0, pseudo_RN, np.nan)
