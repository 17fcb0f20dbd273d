"""Points between two measured ones: their numbers, and what each item has there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.analysis.evidence import REPLICATE, Evidence
from harness.analysis.tradeoff.trajectories import Columns
from harness.contracts import Metric
from harness.statistics.bootstrap import draws, interval, replicate_draws
from harness.statistics.item_values import Floats, Integers, ItemValues, by_model


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

    models_R: Integers
    """A code for the model of each."""

    def number(self) -> float:
        """Return the mean over the replicates, of numbers that the tables have or that lie between them."""
        return float(by_model(self.numbers_R, self.models_R).mean())

    def number_and_interval(self) -> tuple[float, float, float]:
        """Return the mean over the replicates, and the ends of its 95 % interval; NaN where it is not known."""
        drawn_D = (
            replicate_draws(self.numbers_R, self.models_R, self.metric.low, self.metric.high)
            if self.items is None
            else draws(self.items)
        )
        return self.number(), *interval(drawn_D)


def mix(mixtures: Sequence[Mixture], metric: Metric, evidence: Evidence) -> Mixed:
    """Return what a metric has at the mixtures, one for each replicate."""
    replicates, shares, numbers = [], [], []
    point_ids: list[str] = []
    for mixture in mixtures:
        replicates.append((str(mixture.rows[REPLICATE][-1]), int(mixture.rows["replicate_seed"][-1])))
        point_ids += map(str, mixture.rows["point_id"])
        shares.append(mixture.weights)
        numbers.append(mixed_number(mixture, metric))
    models_R = pd.factorize(np.array([model for model, _ in replicates], dtype=object))[0]
    items = evidence.of_points(point_ids, metric, models_R, tuple(shares))
    return Mixed(metric, np.array(numbers), items, tuple(replicates), models_R)


def mixed_number(mixture: Mixture, metric: Metric) -> float:
    """Return the number between a mixture's rows: on a straight line, and of an `exp_mean` on that of the logarithms.

    Example:
        >>> about = dict(name="p", better="lower", unit="", low=1.0, high=9e9, group="", source="", title="")
        >>> halfway = Mixture({"p": np.array([4.0, 9.0])}, (0.5, 0.5))
        >>> [round(mixed_number(halfway, Metric(**about, aggregate=how)), 6) for how in ("mean", "exp_mean")]
        [6.5, 6.0]
    """
    mixed = float(np.dot(mixture.weights, mixing_scale(mixture.rows[metric.name], metric)))
    return math.exp(mixed) if metric.aggregate == "exp_mean" else mixed


def mixing_scale(values: Floats, metric: Metric) -> Floats:
    """Return values on the scale on which they are mixed: of an `exp_mean` the logarithm."""
    return np.log(values) if metric.aggregate == "exp_mean" else values
