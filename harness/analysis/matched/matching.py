"""Where a variant meets a limit: the points, or the mixtures of two neighbours, that stand for it there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from harness.analysis.evidence import REPLICATE, Evidence, replicate_draws_of
from harness.analysis.matched.limit import Limit
from harness.analysis.metrics import Aims, costs, deviations, metric_mean
from harness.analysis.tradeoff.trajectories import Columns, Trajectory
from harness.contracts import CloserTo, Metric
from harness.metric import exponential
from harness.records.results import StudyResults
from harness.specs import TrialSpec
from harness.statistics.bootstrap import draws, interval
from harness.statistics.frontier import crossing
from harness.statistics.item_values import Floats, Integers, ItemValues, Match

CLOSE = 0.02


@dataclass(frozen=True)
class Mixture:
    """A replicate's point: one row of the table, or two neighbours of a trajectory, each with its weight."""

    rows: Columns
    weights: tuple[float, ...]
    original: Columns
    """The replicate's original: one row."""
    is_at_limit: bool
    """Whether the limit is met and no more than met: the point lies between two that were measured on either side."""

    def with_original(self) -> Columns:
        """Return its rows, and after them the original's."""
        return {name: np.concatenate([column, self.original[name]]) for name, column in self.rows.items()}


@dataclass(frozen=True)
class Mixed:
    """What one metric has at the mixtures of a variant."""

    metric: Metric
    numbers_R: Floats
    """Of each replicate."""
    items: ItemValues | None
    """What each item has; None of a metric without items."""
    match: Match | None
    """How uncertain it is where the limit is met; None where nothing is interpolated, or no items tell it."""
    replicates: tuple[tuple[str, int], ...]
    """Model and seed of each."""
    models_R: Integers
    """A code for the model of each."""

    def number(self) -> float:
        """Return the mean over the replicates, of numbers that the tables have or that lie between them."""
        return metric_mean(self.numbers_R, self.metric, self.models_R)

    @cached_property
    def number_and_interval(self) -> tuple[float, float, float]:
        """The mean over the replicates, and the ends of its 95 % interval; NaN where it is not known."""
        if self.items is not None:
            return self.number(), *interval(draws(self.items, self.match))
        return self.number(), *interval(replicate_draws_of(self.numbers_R, self.metric, self.models_R))

    def is_paired_with(self, other: Mixed) -> bool:
        """Return whether both were measured on the same items in the same replicates."""
        if self.items is None or other.items is None:
            return False
        return (self.items.items, self.replicates) == (other.items.items, other.replicates)


def mix(mixtures: Sequence[Mixture], metric: Metric, evidence: Evidence, limit: Limit | None = None) -> Mixed:
    """Return what a metric has at the mixtures, one for each replicate.

    Args:
        mixtures: Of one variant.
        metric: What is reported.
        evidence: The items behind the table's numbers.
        limit: What they meet; None: the limit's own metric, which is at the limit by construction.
    """
    numbers_R = np.array([mixed_number(mixture, metric) for mixture in mixtures])
    shares = tuple(_shares(mixture, metric) for mixture in mixtures)
    items = _items([mixture.rows for mixture in mixtures], shares, metric, evidence)
    match = _match(mixtures, metric, evidence, limit) if limit and items else None
    return Mixed(metric, numbers_R, items, match, _replicates(mixtures), _models(mixtures))


def price(mixtures: Sequence[Mixture], metric: Metric, evidence: Evidence, limit: Limit) -> Mixed | None:
    """Return what an `exp_mean` costs at the mixtures: times the original's, in each replicate.

    The original's items are the same, so that what is hard for both is no uncertainty. None for any other metric: a
    ratio says nothing of a number that has a bound.
    """
    if metric.aggregate != "exp_mean":
        return None
    of_ratio = replace(metric, low=0.0)
    ratios, shares, rows = [], [], []
    for mixture in mixtures:
        ratios.append(mixed_number(mixture, metric) / float(mixture.original[metric.name][0]))
        shares.append((*mixture.weights, -1.0))
        rows.append(mixture.with_original())
    items = _items(rows, tuple(shares), of_ratio, evidence)
    match = _match(mixtures, metric, evidence, limit) if items else None
    return Mixed(of_ratio, np.array(ratios), items, match, _replicates(mixtures), _models(mixtures))


def _items(
    rows: Sequence[Columns], shares: tuple[tuple[float, ...], ...], metric: Metric, evidence: Evidence
) -> ItemValues | None:
    point_ids = np.concatenate([columns["point_id"] for columns in rows])
    models_R = pd.factorize(np.array([columns[REPLICATE][0] for columns in rows], dtype=object))[0]
    return evidence.of_points(list(map(str, point_ids)), metric, models_R, shares)


def _match(mixtures: Sequence[Mixture], metric: Metric, evidence: Evidence, limit: Limit) -> Match | None:
    """Return how uncertain it is where the mixtures meet the limit; None where none lies between two points."""
    slopes, shares = [], []
    for mixture in mixtures:
        by_P, scale_P = matching_scale(mixture.rows[limit.metric.name], limit.metric)
        of_P, of_scale_P = matching_scale(mixture.rows[metric.name], metric)
        with np.errstate(invalid="ignore"):  # Between two infinite numbers it is not known.
            slope = float((of_P[1] - of_P[0]) / (by_P[1] - by_P[0])) if len(mixture.weights) == 2 else 0.0
        # Of a mean of items the draws are no logarithms.
        slopes.append(slope * mixed_number(mixture, metric) if (of_scale_P != 1).any() else slope)
        shares.append(tuple(np.asarray(mixture.weights) * scale_P))
    if not any(slopes):
        return None
    by = _items([mixture.rows for mixture in mixtures], tuple(shares), limit.metric, evidence)
    return Match(by, np.array(slopes)) if by else None


def _replicates(mixtures: Sequence[Mixture]) -> tuple[tuple[str, int], ...]:
    return tuple((str(one.rows[REPLICATE][-1]), int(one.rows["replicate_seed"][-1])) for one in mixtures)


def _models(mixtures: Sequence[Mixture]) -> Integers:
    models, _ = zip(*_replicates(mixtures), strict=True)
    return np.asarray(pd.factorize(np.array(models, dtype=object))[0], dtype=np.int64)


def is_at_limit(mixtures: Sequence[Mixture]) -> bool:
    """Return whether all replicates are at the limit, so that they may be compared with others that are."""
    return all(mixture.is_at_limit for mixture in mixtures)


def mixed_number(mixture: Mixture, metric: Metric) -> float:
    """Return the number between a mixture's rows: on a straight line, or on that of the logarithms.

    It is the latter of an `exp_mean` and of what falls by factors.

    Example:
        >>> about = dict(name="p", better="lower", unit="", low=1.0, high=9e9, group="", source="", title="")
        >>> halfway = Mixture({"p": np.array([4.0, 9.0])}, (0.5, 0.5), {}, True)
        >>> [round(mixed_number(halfway, Metric(**about, aggregate=how)), 6) for how in ("mean", "exp_mean")]
        [6.5, 6.0]
    """
    values_P = mixture.rows[metric.name]
    if not has_log_scale(values_P, metric):
        return float(np.dot(mixture.weights, values_P))
    with np.errstate(divide="ignore"):
        return exponential(float(np.dot(mixture.weights, np.log(values_P))))


def has_log_scale(values_P: Floats, metric: Metric) -> bool:
    """Return whether what lies between values is computed from their logarithms.

    What falls by factors may have nothing left at a point: there the logarithm is not known, and it is not.
    """
    return metric.aggregate == "exp_mean" or (metric.log_scale and bool((values_P > 0).all()))


def _shares(mixture: Mixture, metric: Metric) -> tuple[float, ...]:
    """Return what of each row's mean of items makes the mixture's number, and moves with it as the number does.

    Between two means that fall by factors that is their weight, times the number over the mean.
    """
    values_P = mixture.rows[metric.name]
    if metric.aggregate == "exp_mean" or not has_log_scale(values_P, metric):
        return mixture.weights
    return tuple(mixed_number(mixture, metric) * np.asarray(mixture.weights) / values_P)


def matching_scale(values_P: Floats, metric: Metric) -> tuple[Floats, Floats]:
    """Return values on the scale on which a limit is crossed, and how much that moves with the mean of their items.

    It is the logarithm of what falls by factors, and of an `exp_mean`, whose items are logarithms already. Where a
    point has nothing left at all its logarithm is not known, and the values are taken as they are.

    Example:
        >>> about = dict(name="el_3", better="lower", unit="", low=0.0, high=1.0, group="", source="", title="")
        >>> [scale.round(3).tolist() for scale in matching_scale(np.array([0.5, 0.1]), Metric(**about, log_scale=True))]
        [[-0.693, -2.303], [2.0, 10.0]]
    """
    if not has_log_scale(values_P, metric):
        return values_P, np.ones_like(values_P)
    with np.errstate(divide="ignore"):
        return np.log(values_P), np.ones_like(values_P) if metric.aggregate == "exp_mean" else 1 / values_P


@dataclass(frozen=True)
class Variant:
    """What is known of one variant on one model."""

    name: str
    label: str
    trajectories: list[Trajectory] = field(default_factory=list)
    studies: list[StudyResults] = field(default_factory=list)
    """One for each replicate of the model, if it was tuned."""

    @property
    def has_several_points(self) -> bool:
        """Return whether any of its settings was measured at two strengths or more."""
        longest = 0
        for one in self.trajectories:
            longest = max(longest, *(len(replicate["strength"]) for replicate in one.replicates))
        return longest > 2

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
    reported = limit.reported[0]
    best: list[Mixture] = []
    least = math.inf
    for one in variant.trajectories:
        if mixtures := _crossings(one, limit, aims):
            mean = metric_mean(np.array([mixed_number(mixture, reported) for mixture in mixtures]), reported)
            cost = float(costs(deviations(np.array([mean]), reported, mean_aim(mixtures, reported, aims)), reported)[0])
            if not best or cost < least:
                best, least = mixtures, cost
    return best


def _at_target(rows: Columns, nearest: int, limit: Limit) -> Mixture:
    """Return a replicate's point at a target: between the nearest that was measured and the one on the other side.

    Where the nearest is not close to the target, or none is on the other side, it is the nearest itself.
    """
    local = _at(rows, range(max(nearest - 1, 0), min(nearest + 2, len(rows["strength"]))))
    mixture, original = _crossing(local, limit, np.arange(float(len(local["strength"])))), _at(rows, [0])
    stays = Mixture(_at(rows, [nearest]), (1.0,), original, is_at_limit=False)
    if mixture is None or not mixture.is_at_limit or is_missed(stays, limit):
        return stays
    return replace(mixture, original=original)


def is_missed(mixture: Mixture, limit: Limit) -> bool:
    """Return whether a point is further from a target than tuning calls close."""
    distance = abs(mixed_number(mixture, limit.metric) - limit.of(mixture.original))
    return bool(limit.target) and distance > CLOSE * float(mixture.original[limit.metric.name][0])


def _at(rows: Columns, places: Iterable[int]) -> Columns:
    places = list(places)
    return {name: column[places] for name, column in rows.items()}


def _crossings(trajectory: Trajectory, limit: Limit, aims: Aims) -> list[Mixture]:
    """Return where a trajectory meets the limit in each replicate; nothing if in any it does not."""
    mixtures = []
    for rows in trajectory.replicates:
        of_P = costs(aims.deviations(rows, limit.reported[0]), limit.reported[0])
        mixture = _crossing(rows, limit, of_P)
        if mixture is None and not limit.is_erasure:
            known = np.flatnonzero(~np.isnan(rows[limit.metric.name]) & ~np.isnan(of_P))
            if known.size:  # It never costs that much: what it erases at the most is within the limit.
                most = int(known[np.argmin(of_P[known])])
                mixture = Mixture(_at(rows, [most]), (1.0,), _at(rows, [0]), is_at_limit=False)
        if mixture is None:
            return []
        mixtures.append(mixture)
    return mixtures


def _crossing(rows: Columns, limit: Limit, of_P: Floats) -> Mixture | None:
    """Return where rows of rising strength first meet the limit; None if they do not."""
    level = limit.of(rows)
    by_P, _ = matching_scale(np.append(rows[limit.metric.name], level), limit.metric)
    sign = _side_of_original(rows, limit)
    at = crossing(sign * float(by_P[-1]), sign * by_P[:-1], of_P, "down" if limit.is_erasure else "up")
    if at is None:
        return None
    if at.is_measured:
        place = at.right if at.weight else at.left
        is_at_limit = bool(rows[limit.metric.name][place] == level)
        return Mixture(_at(rows, [place]), (1.0,), _at(rows, [0]), is_at_limit)
    return Mixture(_at(rows, [at.left, at.right]), (1 - at.weight, at.weight), _at(rows, [0]), is_at_limit=True)


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
