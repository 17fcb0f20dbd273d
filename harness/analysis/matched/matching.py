"""Where a variant meets a limit: the points, or the mixtures of two neighbours, that stand for it there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from harness.analysis.evidence import REPLICATE, Evidence
from harness.analysis.matched.limit import Limit
from harness.analysis.metrics import Aims, costs, deviations
from harness.analysis.tradeoff.trajectories import Columns, Trajectory
from harness.contracts import CloserTo, Metric
from harness.records.results import StudyResults
from harness.specs import TrialSpec
from harness.statistics.bootstrap import draws, interval, replicate_draws
from harness.statistics.frontier import crossing
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


@dataclass(frozen=True)
class Variant:
    """What is known of one variant on one model."""

    name: str
    label: str
    trajectories: list[Trajectory] = field(default_factory=list)
    studies: list[StudyResults] = field(default_factory=list)
    """One for each replicate of the model, if it was tuned."""

    @property
    def budget(self) -> str:
        """Return what its search was given; '' where nothing was tuned."""
        tried = steps = 0
        for study in self.studies:
            tried += len(study.candidates)
            steps += study.optimiser_steps
        return f"{tried} candidates, {steps} steps" if tried else ""


def mixtures_at(variant: Variant, limit: Limit, specs: Mapping[str, TrialSpec], aims: Aims) -> list[Mixture]:
    """Return what stands for a variant at the limit, in each replicate; nothing if any does not reach it."""
    if variant.studies and limit.target:
        return _chosen_by_tuning(variant, limit.target, specs)
    reported = limit.reported[0]
    best: list[Mixture] = []
    least = math.inf
    for one in variant.trajectories:
        if mixtures := _crossings(one, limit, aims):
            mean = np.mean([mixed_number(mixture, reported) for mixture in mixtures], keepdims=True)
            cost = float(costs(deviations(mean, reported, mean_aim(mixtures, reported, aims)), reported)[0])
            if not best or cost < least:
                best, least = mixtures, cost
    return best


def _chosen_by_tuning(variant: Variant, target: str, specs: Mapping[str, TrialSpec]) -> list[Mixture]:
    """Return the points that tuning chose for the target, one for each replicate; nothing if any lacks one."""
    chosen = []
    for one in variant.trajectories:
        for rows in one.replicates:
            for place, strength in enumerate(rows["strength"]):
                if target in specs[rows["trial_id"][place]].targets_at(strength):
                    chosen.append(Mixture(_at(rows, place), (1.0,)))
    if len(chosen) < sum(len(study.spec.seeds) for study in variant.studies):
        return []
    return sorted(chosen, key=lambda point: (point.rows["replicate"][0], point.rows["replicate_seed"][0]))


def _at(rows: Columns, *places: int) -> Columns:
    return {name: column[list(places)] for name, column in rows.items()}


def _crossings(trajectory: Trajectory, limit: Limit, aims: Aims) -> list[Mixture]:
    """Return where a trajectory meets the limit in each replicate; nothing if in any it does not."""
    mixtures = []
    for rows in trajectory.replicates:
        sign = _side_of_original(rows, limit)
        by_P = sign * mixing_scale(rows[limit.metric.name], limit.metric)
        of_P = costs(aims.deviations(rows, limit.reported[0]), limit.reported[0])
        at_limit = sign * float(mixing_scale(np.array(limit.of(rows)), limit.metric))
        at = crossing(at_limit, by_P, of_P, "down" if limit.is_erasure else "up")
        if at is None and not limit.is_erasure and (known := np.flatnonzero(~np.isnan(by_P) & ~np.isnan(of_P))).size:
            # It never costs that much: what it erases at the most is within the limit.
            mixtures.append(Mixture(_at(rows, int(known[np.argmin(of_P[known])])), (1.0,)))
        elif at is None:
            return []
        elif at.is_measured:
            mixtures.append(Mixture(_at(rows, at.right if at.weight else at.left), (1.0,)))
        else:
            mixtures.append(Mixture(_at(rows, at.left, at.right), (1 - at.weight, at.weight)))
    return mixtures


def _side_of_original(rows: Columns, limit: Limit) -> float:
    """Return 1 where the metric is to fall, or may only rise, to the limit, and -1 where it is the other way round."""
    if isinstance(limit.metric.better, CloserTo):
        return 1.0 if rows[limit.metric.name][0] > limit.of(rows) else -1.0
    return 1.0 if limit.metric.better == "lower" else -1.0


def mean_aim(mixtures: Sequence[Mixture], metric: Metric, aims: Aims) -> float:
    """Return what a metric's mean over mixtures is to be close to; NaN for a metric without an aim."""
    return float(np.mean([np.dot(mixture.weights, aims.of(mixture.rows, metric)) for mixture in mixtures]))


def least_cost(one: Trajectory, metric: Metric, aims: Aims) -> tuple[float, float]:
    """Return the least that a trajectory's metric costs, and what it is there: means over the replicates."""
    least = []
    for rows in one.replicates:
        costs_P = costs(aims.deviations(rows, metric), metric)[1:]
        place = int(np.argmin(np.where(np.isnan(costs_P), np.inf, costs_P)))
        least.append((costs_P[place], rows[metric.name][1 + place]))
    cost, value = np.mean(least, axis=0)
    return float(cost), float(value)
