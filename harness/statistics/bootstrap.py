"""Values of a metric by item, draws of their mean over items and replicates, and its interval.

A nested bootstrap. Items are drawn by clusters, the same for all replicates. Resampling three seeds would say too
little (its 95 % intervals cover 75 %), so the replicates add Student's t: one combination of their deviations for each
draw. Every method and metric has the same, so differences of draws are paired.

The sum is conservative where replicates differ only by chance over items: with three, intervals cover 97 to 99.8 %.

Array letters: D draws, R replicates (rows: seeds, or models pretrained from several), M models, N items, C clusters.
"""

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr, ndtri, stdtrit

from harness.base.files import digest_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class ItemValues:
    """Values of one metric for each item and replicate of one point."""

    values_RN: Floats
    """NaN: not known."""
    weights_RN: Floats
    """Tokens, or 1; an item of weight 0 counts as not known."""
    clusters_N: Integers
    """Any code; copies of an item share one."""
    items: str
    """Name of the items: equal names share their draws, others are independent."""
    models_R: Integers | None = None
    """A code for each replicate's model; None: one model."""
    aggregate: Literal["mean", "exp_mean"] = "mean"
    """As `Metric.aggregate`."""
    low: float = -math.inf
    high: float = math.inf
    """Bound of the metric."""

    @cached_property
    def known(self) -> tuple[Floats, Floats]:
        """Values and weights (R, N), both 0 where the value is not known."""
        known_RN = ~np.isnan(self.values_RN) & (self.weights_RN > 0)
        return np.where(known_RN, self.values_RN, 0.0), np.where(known_RN, self.weights_RN, 0.0)

    @cached_property
    def _codes_N(self) -> Integers:
        return np.asarray(np.unique(self.clusters_N, return_inverse=True)[1], dtype=np.int64)

    @cached_property
    def _content(self) -> tuple[object, ...]:
        digest = hashlib.sha256()
        for array in (*self.known, self._codes_N):
            digest.update(array.tobytes())
        return digest.digest(), np.shape(self.values_RN), self.items

    def __hash__(self) -> int:
        """Return the hash of everything that decides the means."""
        return hash(self._content)

    def __eq__(self, other: object) -> bool:
        """Return whether another has the same means."""
        return isinstance(other, ItemValues) and self._content == other._content

    def only(self, kept_RN: NDArray[np.bool_]) -> Self:
        """Return the values with all others set to NaN (R, N)."""
        return replace(self, values_RN=np.where(kept_RN, self.values_RN, np.nan))

    def item_means(self) -> Floats:
        """Return the weighted mean over known items of each replicate (R,) or NaN; of logs for an `exp_mean`."""
        values_RN, weights_RN = self.known
        with np.errstate(invalid="ignore"):
            return np.asarray((weights_RN * values_RN).sum(axis=1) / weights_RN.sum(axis=1), dtype=np.float64)

    def estimates(self, means: Floats | np.floating) -> Floats:
        """Return the metric's values for such means."""
        if self.aggregate == "mean":
            return np.asarray(means)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(means))

    def sum_by_cluster(self, amounts_RN: Floats) -> Floats:
        """Return the sums (R, C) over the items of each cluster."""
        return np.stack([np.bincount(self._codes_N, weights=amounts_N) for amounts_N in amounts_RN])

    @cached_property
    def clusters_R(self) -> Integers:
        """Number of clusters with a known item, in each row."""
        return np.asarray((self.sum_by_cluster(self.known[1]) > 0).sum(axis=1), dtype=np.int64)

    def known_clusters(self) -> int:
        """Return the smallest number of clusters with a known item, of any row."""
        return int(self.clusters_R.min())

    def influences(self) -> Floats:
        """Return each cluster's part (R, C) of the linearised weighted mean."""
        values_RN, weights_RN = self.known
        with np.errstate(invalid="ignore"):
            shares_RN = weights_RN / weights_RN.sum(axis=1, keepdims=True)
            return self.sum_by_cluster(shares_RN * (values_RN - self.item_means()[:, None]))

    def standard_errors(self) -> Floats:
        """Return the standard error (R,) of `item_means` over clusters; NaN for fewer than two with a known item."""
        with np.errstate(divide="ignore", invalid="ignore"):
            variances_R = (self.influences() ** 2).sum(axis=1) * self.clusters_R / (self.clusters_R - 1)
        return np.where(self.clusters_R > 1, np.sqrt(variances_R), np.nan)

    def part(self, rows: slice) -> Self:
        """Return some of the replicates."""
        models_R = None if self.models_R is None else self.models_R[rows]
        return replace(self, values_RN=self.values_RN[rows], weights_RN=self.weights_RN[rows], models_R=models_R)

    def averaged(self) -> Self:
        """Return the weighted mean over the replicates that know an item, as one replicate."""
        values_RN, weights_RN = self.known
        weights_N = weights_RN.sum(axis=0)
        with np.errstate(invalid="ignore"):
            values_N = (values_RN * weights_RN).sum(axis=0) / weights_N
        return replace(self, values_RN=values_N[None], weights_RN=weights_N[None], models_R=None)


def average_by_model(estimates_R: Floats, models_R: Integers | None) -> Floats:
    """Return the mean over each model's seeds along the last axis (..., M); unchanged if there is one model.

    Seeds of one model are no separate evidence about other models.
    """
    models_M = np.unique(np.zeros(estimates_R.shape[-1]) if models_R is None else models_R)
    if len(models_M) < 2:
        return estimates_R
    return np.stack([estimates_R[..., models_R == model].mean(axis=-1) for model in models_M], axis=-1)


def estimate(item_values: ItemValues) -> float:
    """Return the metric's value: the mean over replicates, of known items; models count alike.

    The mean of an `exp_mean` is geometric. NaN where a replicate has no known item.
    """
    return float(item_values.estimates(average_by_model(item_values.item_means(), item_values.models_R).mean()))


CONFIDENCE = 0.95
"""Confidence of every interval and test."""
DRAWS = 10_000
"""Chance moves an end of a 95 % interval by 1 % of its width; 2,000 draws by 2 to 5 %."""
# Counts that are multiplied together: 32 MiB in single precision.
_AT_ONCE = 2**23
# Effective shares of clusters off a bound: up to the first they crowd at it, from the second not at all.
_CROWDED, _SPREAD = 0.3, 0.8
_MAX_SHARES = 256
_SEED = 11
_UPPER = 0.5 + CONFIDENCE / 2
# A standard error below this is rounding.
_ROUNDING = 1e-12
# Draws nearer than this to the estimate, in standard errors, are equal to it (fp32).
_TIE = 1e-5


@lru_cache(maxsize=4)
def cluster_draws(clusters: int, items: str) -> NDArray[np.uint8]:
    """Return the counts of each cluster in each draw (D, C), up to 10,000 of them; each row sums to C.

    Equal `items` have equal draws, so that comparisons are paired.
    """
    generator = np.random.default_rng([_SEED, int(digest_of(items), 16)])
    counts_DC = np.empty((DRAWS, clusters), dtype=np.uint8)
    for part_DC in np.array_split(counts_DC, math.ceil(8 * counts_DC.size / _AT_ONCE)):
        drawn_DC = generator.integers(clusters, size=part_DC.shape) + clusters * np.arange(len(part_DC))[:, None]
        part_DC[:] = np.bincount(drawn_DC.ravel(), minlength=part_DC.size).reshape(part_DC.shape)
    counts_DC.setflags(write=False)
    return counts_DC


@lru_cache(maxsize=4)
def _replicate_noise(replicates: int) -> Floats:
    """Return noise (D, R) whose product with the replicates' deviations from their mean is Student's t.

    It has R - 1 degrees of freedom and the scale sd / sqrt(R), and is the same for all metrics.
    """
    generator = np.random.default_rng([_SEED, replicates])
    normal_DR = generator.standard_normal((DRAWS, replicates))
    chi_D1 = np.sqrt(generator.chisquare(replicates - 1, size=(DRAWS, 1)))
    return np.asarray(normal_DR / chi_D1 / math.sqrt(replicates), dtype=np.float64)


def draws(item_values: ItemValues) -> Floats:
    """Return draws (D,) of the estimate, within the metric's bounds: over items and, with several, replicates.

    All are NaN where a replicate has fewer than two clusters of known items, or an infinite value; a draw without known
    items is NaN. An `exp_mean` is drawn on the scale of its logarithm.

    Percentiles of plain draws cover too little of few clusters and of skewed values (88 % where 5 of 256 are right). So
    each deviation is replaced by the one at its BCa level, and widened by the ratio of Student's t of C - 1 to the
    normal distribution. `interval` of that is the widened BCa interval. Where clusters crowd at a bound of the metric,
    the other end is at least Gaffke's.

    Source:
        B. Efron, "Better Bootstrap Confidence Intervals", 1987, equation 2.3, with the acceleration 7.3 of each
        cluster's influence; T. C. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, for the width.
    """
    means_M = average_by_model(item_values.item_means(), item_values.models_R)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        deviations_DR = _drawn_item_means(item_values) - item_values.item_means()
        deviations_D = average_by_model(deviations_DR, item_values.models_R).mean(axis=1)
        influences_C = average_by_model(item_values.influences().T, item_values.models_R).mean(axis=1)
        deviations_D = _corrected(deviations_D, influences_C, item_values.known_clusters())
        for end, tail_D in _tails(item_values.averaged()):
            # One half of the deviations, in the order of their ranks, is at least as far out as the tail.
            half, further = (slice(None, DRAWS // 2), np.minimum) if end == 0 else (slice(DRAWS // 2, None), np.maximum)
            order = np.argsort(deviations_D, kind="stable")[half]
            deviations_D[order] = further(deviations_D[order], tail_D[half])
        if len(means_M) > 1:
            deviations_D += _replicate_noise(len(means_M)) @ (means_M - means_M.mean())
        drawn_D = item_values.estimates(means_M.mean() + deviations_D)
    return np.clip(drawn_D, item_values.low, item_values.high)


def _tails(item_values: ItemValues) -> list[tuple[int, Floats]]:
    """Return the smallest deviations of a row whose values crowd at a bound: sorted (D,) for each such end (0: lower).

    Resampling 16 accuracies of 1.000 gives only ones. Gaffke's bound gives each cluster a share drawn from a flat
    Dirichlet distribution, and one more share to the worst possible value. For values 0 and 1 that is Clopper and
    Pearson's interval. The extra share fades as the values leave the bound together.

    Source:
        N. Gaffke, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
        variable", 2005; E. Learned-Miller and P. Thomas, arXiv:1905.06208. The fading, by Kish's effective number of
        deviations, is Lethe's own.
    """
    low, high = item_values.low, item_values.high
    if item_values.aggregate != "mean" or not math.isfinite(high - low):
        return []
    values_1N, weights_1N = item_values.known
    sums_C, weights_C = item_values.sum_by_cluster(np.vstack([values_1N * weights_1N, weights_1N]))
    sums_C, weights_C = sums_C[weights_C > 0], weights_C[weights_C > 0]
    tails = []
    for end, (worst, bound) in enumerate(((low, high), (high, low))):
        aside_C = np.abs(sums_C / weights_C - bound)
        effective = aside_C.sum() ** 2 / max((aside_C**2).sum(), _ROUNDING**2)
        crowding = (_SPREAD - effective / len(aside_C)) / (_SPREAD - _CROWDED)
        if crowding > 0 and len(aside_C) > 1:
            order = np.argsort(-aside_C, kind="stable")
            far, near = order[:_MAX_SHARES], order[_MAX_SHARES:]
            shares_DK, _ = _dirichlet()
            sums_D, weights_D = (shares_DK[:, : len(far)] @ np.column_stack([sums_C[far], weights_C[far]])).T
            more_D = _gamma_quantiles(min(crowding, 1.0)) * weights_C.mean()
            if len(near):  # All of them are next to the bound: their shares are drawn as a sum.
                near_D = np.random.default_rng([_SEED, len(near)]).standard_gamma(len(near), DRAWS) / len(near)
                sums_D, weights_D = (sums_D + near_D * sums_C[near].sum(), weights_D + near_D * weights_C[near].sum())
            drawn_D = (sums_D + more_D * worst) / (weights_D + more_D)
            tails.append((end, np.sort(drawn_D) - sums_C.sum() / weights_C.sum()))
    return tails


@lru_cache
def _gamma_quantiles(shape: float) -> Floats:
    return np.asarray(gammaincinv(shape, _dirichlet()[1]))


@lru_cache(maxsize=1)
def _dirichlet() -> tuple[Floats, Floats]:
    generator = np.random.default_rng(_SEED)
    return generator.standard_exponential((DRAWS, _MAX_SHARES)), generator.random(DRAWS)


@lru_cache(maxsize=64)
def _drawn_item_means(item_values: ItemValues) -> Floats:
    values_RN, weights_RN = item_values.known
    means_R = item_values.item_means()
    with np.errstate(invalid="ignore"):
        sums_RC = item_values.sum_by_cluster(np.vstack([weights_RN * (values_RN - means_R[:, None]), weights_RN]))
        sums_CR = sums_RC.T.astype(np.float32)
        counts_DC = cluster_draws(sums_RC.shape[1], item_values.items)
        parts = np.array_split(counts_DC, math.ceil(counts_DC.size / _AT_ONCE))
        drawn_DR = np.vstack([part.astype(np.float32) @ sums_CR for part in parts])
        deviations_DR, drawn_weights_DR = np.hsplit(drawn_DR.astype(np.float64), 2)
        means_DR: Floats = means_R + deviations_DR / drawn_weights_DR
    means_DR.setflags(write=False)
    return means_DR


def _corrected(deviations_D: Floats, influences_C: Floats, clusters: int) -> Floats:
    known_D = ~np.isnan(deviations_D)
    count, error = int(known_D.sum()), _error(influences_C)
    if clusters < 2 or not count:
        return np.full_like(deviations_D, np.nan)
    if error < _ROUNDING:
        return deviations_D
    deviations = deviations_D[known_D]
    # Equal draws stay in their order, which is the same for all that is measured on these items.
    order = np.argsort(np.round(deviations / (_TIE * error)), kind="stable")
    levels = _bca_levels(ndtri((np.arange(count) + 0.5) / count), deviations, influences_C)
    corrected = np.empty(count)
    corrected[order] = _widening(clusters) * np.interp(levels * (count - 1), np.arange(count), deviations[order])
    corrected_D = np.full_like(deviations_D, np.nan)
    corrected_D[known_D] = corrected
    return corrected_D


def _bca_levels(scores: Floats, deviations: Floats, influences_C: Floats) -> Floats:
    error = _error(influences_C)
    if error < _ROUNDING:
        return np.asarray(ndtr(scores), dtype=np.float64)
    acceleration = (influences_C**3).sum() / (6 * error**3)
    below, up_to = ((deviations < side * _TIE * error).mean() for side in (-1, 1))
    bias = ndtri((below + up_to) / 2)
    moved = bias + scores
    return np.asarray(ndtr(bias + moved / np.maximum(1 - acceleration * moved, _ROUNDING)), dtype=np.float64)


def _error(influences_C: Floats) -> float:
    return math.sqrt((influences_C**2).sum())


def _widening(clusters: int) -> float:
    """Return the ratio of Student's t to the normal quantile, corrected for draws of few clusters."""
    return math.sqrt(clusters / (clusters - 1)) * float(stdtrit(clusters - 1, _UPPER)) / float(ndtri(_UPPER))


def row_intervals(item_values: ItemValues) -> Floats:
    """Return the 95 % interval (R, 2) of each row, as by `interval` and `draws`."""
    means_R, drawn_DR = item_values.item_means(), _drawn_item_means(item_values)
    is_log = item_values.aggregate == "exp_mean"
    points_R, drawn_DR = item_values.estimates(means_R), item_values.estimates(drawn_DR)
    influences_RC, ends_R2 = item_values.influences(), np.full((len(points_R), 2), np.nan)
    # The draws between which `interval` takes its percentiles: only these four are corrected.
    ranks_2 = (DRAWS - 1) * np.array([1 - _UPPER, _UPPER])
    first_2 = np.floor(ranks_2)
    scores_22 = ndtri((np.stack([first_2, first_2 + 1]) + 0.5) / DRAWS)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for row, (point, clusters) in enumerate(zip(points_R, item_values.clusters_R, strict=True)):
            raw_D = np.log(drawn_DR[:, row] / point) if is_log else drawn_DR[:, row] - point
            if clusters > 1 and np.isfinite(raw_D).all():
                levels = _bca_levels(scores_22, raw_D, influences_RC[row])
                deviations_22 = _widening(int(clusters)) * np.quantile(raw_D, levels)
                before_2, after_2 = point * np.exp(deviations_22) if is_log else point + deviations_22
                ends_R2[row] = before_2 + (ranks_2 - first_2) * (after_2 - before_2)
                for end, tail_D in _tails(item_values.part(slice(row, row + 1))):
                    aside = point + np.quantile(tail_D, (1 - _UPPER, _UPPER)[end])
                    ends_R2[row, end] = (min, max)[end](ends_R2[row, end], aside)
        return np.asarray(np.clip(ends_R2, item_values.low, item_values.high), dtype=np.float64)


def replicate_draws(estimates_R: Floats, models_R: Integers | None = None) -> Floats:
    """Return draws (D,) of the mean of estimates without items (MAUVE), with the noise of `draws`; NaN for one row.

    Source:
        Student, "The probable error of a mean", 1908: t of R - 1 degrees of freedom.
    """
    point_R = average_by_model(estimates_R, models_R)
    if len(point_R) < 2:
        return np.full(DRAWS, np.nan)
    with np.errstate(invalid="ignore"):
        return np.asarray(point_R.mean() + _replicate_noise(len(point_R)) @ (point_R - point_R.mean()))


def interval(draws_D: Floats) -> tuple[float, float]:
    """Return the percentiles that contain 95 % of the draws; NaN, NaN if any draw is NaN, or both ends are infinite."""
    if np.isnan(draws_D).any():
        return math.nan, math.nan
    with np.errstate(invalid="ignore"):  # Between two infinite draws numpy finds NaN.
        low, high = np.quantile(draws_D, [1 - _UPPER, _UPPER])
    return float(low), math.inf if np.isnan(high) and not np.isnan(low) else float(high)
