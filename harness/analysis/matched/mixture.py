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

    @property
    def _models_R(self) -> Integers:
        return np.asarray(pd.factorize(pd.Series([model for model, _ in self.replicates]))[0], dtype=np.int64)

    def number(self) -> float:
        """Return the mean over the replicates, of numbers that the tables have or that lie between them."""
        return float(by_model(self.numbers_R, self._models_R).mean())

    def number_and_interval(self) -> tuple[float, float, float]:
        """Return the mean over the replicates, and the ends of its 95 % interval; NaN where nothing tells it."""
        drawn_D = (
            replicate_draws(self.numbers_R, self._models_R, self.metric.low, self.metric.high)
            if self.items is None
            else draws(self.items)
        )
        return self.number(), *interval(drawn_D)


def mix(mixtures: Sequence[Mixture], metric: Metric, evidence: Evidence) -> Mixed:
    """Return what a metric has at the mixtures, one for each replicate."""
    replicates = tuple(
        (str(mixture.rows[REPLICATE][-1]), int(mixture.rows["replicate_seed"][-1])) for mixture in mixtures
    )
    point_ids = [str(point_id) for mixture in mixtures for point_id in mixture.rows["point_id"]]
    models_R = pd.factorize(pd.Series([model for model, _ in replicates]))[0]
    shares = tuple(mixture.weights for mixture in mixtures)
    values = evidence.of_points(point_ids, metric, models_R, shares)
    return Mixed(metric, np.array([mixed_number(mixture, metric) for mixture in mixtures]), values, replicates)


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
