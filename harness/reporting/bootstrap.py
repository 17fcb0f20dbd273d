"""How far an estimate could be off: draws of it, over items and over replicates, and the interval that they give.

A nested bootstrap. Items are drawn by clusters, the same for all replicates, since they are measured on the same
items. Of three seeds resampling would say too little (its 95 % intervals cover 75 %), so the replicates add Student's
t instead: one combination of their deviations for each draw. Both are the same for every method and metric, so
differences of draws, and whatever else is computed from them draw by draw, are paired.

The two parts add up to too much where replicates differ by no more than chance over items makes them: with three, such
intervals cover 98 to 99.8 %. Subtracting that share would cover only 92 % of other cases, so it stays.

Array letters: D draws, R replicates (rows: seeds, or models pretrained from several), M models, N items, C clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from harness.digests import digest_of
from harness.reporting.aggregate import CONFIDENCE

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DRAWS = 2000
_SEED = 11
_UPPER = 0.5 + CONFIDENCE / 2


@dataclass(frozen=True, kw_only=True, eq=False)
class ItemValues:
    """What one metric has for each item, of every replicate of one point."""

    values_RN: Floats
    """NaN: not known of that item."""
    weights_RN: Floats
    """Tokens, or 1; an item of weight 0 counts as not known."""
    clusters_N: Integers
    """Any code; items that are no separate evidence (their continuations are the same) share one."""
    items: str
    """Names the items: values on the same items share their draws, those on others have independent ones."""
    models_R: Integers | None = None
    """A code for each replicate: seeds of the same model share one. None: all are of one model."""
    aggregate: Literal["mean", "exp_mean"] = "mean"
    """As `Metric.aggregate`."""
    low: float = -math.inf
    high: float = math.inf
    """The metric's bounds."""

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit together."""
        shape = np.shape(self.values_RN)
        rows = shape[:1] if self.models_R is None else np.shape(self.models_R)
        if len(shape) != 2 or np.shape(self.weights_RN) != shape or (*rows, *np.shape(self.clusters_N)) != shape:
            raise ValueError(
                f"values have the shape {shape}, weights {np.shape(self.weights_RN)}, clusters "
                f"{np.shape(self.clusters_N)}, models {rows}; give values and weights as (replicates, items)"
            )
        if not shape[0]:
            raise ValueError(f"there is no replicate of '{self.items}'; give one row of values for each")

    def known(self) -> tuple[Floats, Floats]:
        """Return values and weights (R, N), both 0 where the value is not known."""
        known_RN = ~np.isnan(self.values_RN) & (self.weights_RN > 0)
        return np.where(known_RN, self.values_RN, 0.0), np.where(known_RN, self.weights_RN, 0.0)

    def item_means(self) -> Floats:
        """Return the weighted mean over the known items of each replicate (R,); NaN where none is known.

        Of an `exp_mean` it is the logarithm of the estimate.
        """
        values_RN, weights_RN = self.known()
        with np.errstate(invalid="ignore"):
            return np.asarray((weights_RN * values_RN).sum(axis=1) / weights_RN.sum(axis=1), dtype=np.float64)

    def in_clusters(self, amounts_RN: Floats) -> Floats:
        """Return the sums (R, C) over the items of each cluster."""
        names_C, codes_N = np.unique(self.clusters_N, return_inverse=True)
        sums_CR = np.zeros((len(names_C), len(amounts_RN)))
        np.add.at(sums_CR, codes_N, amounts_RN.T)
        return sums_CR.T


def by_model(estimates_R: Floats, models_R: Integers | None) -> Floats:
    """Return the mean over each model's seeds along the last axis (..., M); what was given if all are of one model.

    The highest level with several members is the one that counts: seeds of one model are no separate evidence of
    what another model would give.

    Example:
        >>> by_model(np.array([1.0, 3.0, 6.0]), np.array([7, 7, 9]))
        array([2., 6.])
    """
    models_M = np.unique(np.zeros(estimates_R.shape[-1]) if models_R is None else models_R)
    if len(models_M) < 2:
        return estimates_R
    return np.stack([estimates_R[..., models_R == model].mean(axis=-1) for model in models_M], axis=-1)


def estimate(item_values: ItemValues) -> float:
    """Return the metric's value: of each replicate that of its known items, then the mean over replicates.

    NaN where a replicate has no known item. Several models count alike, however many seeds each has.

    Example:
        Two seeds; of the second one item is not known. Their perplexities are 4 and 1:

        >>> estimate(
        ...     ItemValues(
        ...         values_RN=np.log([[2.0, 8.0], [1.0, np.nan]]), weights_RN=np.ones((2, 2)),
        ...         clusters_N=np.arange(2), items="prompts", aggregate="exp_mean",
        ...     )
        ... )
        2.5
    """
    return float(by_model(_on_metrics_scale(item_values, item_values.item_means()), item_values.models_R).mean())


def _on_metrics_scale(item_values: ItemValues, means: Floats) -> Floats:
    """Return what the metric makes of weighted means."""
    if item_values.aggregate == "mean":
        return means
    with np.errstate(over="ignore"):
        return np.exp(means)


def cluster_draws(clusters_N: Integers, items: str) -> NDArray[np.uint8]:
    """Return how often each cluster is drawn (D, C), clusters in the order of their codes; each draw has C of them.

    The same for the same `items`, so that whatever is measured on them is compared on the same draws.

    Example:
        >>> counts_DC = cluster_draws(np.array([5, 5, 8, 9]), "prompts")
        >>> counts_DC.shape, set(counts_DC.sum(axis=1).tolist())
        ((2000, 3), {3})
    """
    return _counts(len(np.unique(clusters_N)), items)


@lru_cache(maxsize=4)
def _counts(clusters: int, items: str) -> NDArray[np.uint8]:
    """Return the counts of `cluster_draws`, made once for all metrics; a byte each, since 256 of one never happen."""
    generator = np.random.default_rng([_SEED, int(digest_of(items), 16)])
    counts_DC = np.empty((DRAWS, clusters), dtype=np.uint8)
    for counts_C in counts_DC:
        counts_C[:] = np.bincount(generator.integers(clusters, size=clusters), minlength=clusters)
    counts_DC.setflags(write=False)
    return counts_DC


@lru_cache(maxsize=4)
def _replicate_noise(replicates: int) -> Floats:
    """Return noise (D, R) whose product with the replicates' deviations from their mean is Student's.

    It has R - 1 degrees of freedom and the scale sd / sqrt(R). Since it is one combination of the replicates for all
    metrics, what goes up together in them does so in the draws.
    """
    generator = np.random.default_rng([_SEED, replicates])
    normal_DR = generator.standard_normal((DRAWS, replicates))
    chi_D1 = np.sqrt(generator.chisquare(replicates - 1, size=(DRAWS, 1)))
    return np.asarray(normal_DR / chi_D1 / math.sqrt(replicates), dtype=np.float64)


def draws(item_values: ItemValues) -> Floats:
    """Return draws (D,) of the estimate, within the metric's bounds: over items and, with several, replicates.

    NaN in all where it cannot be told: fewer than two clusters with a known item, or an infinite value.
    NaN in the draws that had no known item. Draws over items are spread a little around the estimate, by what Student's
    t of C - 1 has over the normal distribution: of few clusters plain percentiles cover too little.
    The replicates' part of an `exp_mean` is a factor, so that no draw is below 0.

    Source:
        T. C. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section 4.2 (expanded percentiles).
    """
    point_R = by_model(_on_metrics_scale(item_values, item_values.item_means()), item_values.models_R)
    drawn_DR = by_model(_on_metrics_scale(item_values, _drawn_item_means(item_values)), item_values.models_R)
    drawn_D: Floats = drawn_DR.mean(axis=1)
    if len(point_R) > 1:
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            noise_D = _replicate_noise(len(point_R)) @ (point_R - point_R.mean())
            if item_values.aggregate == "mean":
                drawn_D = drawn_D + noise_D
            else:
                drawn_D = drawn_D * np.exp(noise_D / point_R.mean())
    return np.clip(drawn_D, item_values.low, item_values.high)


def _drawn_item_means(item_values: ItemValues) -> Floats:
    """Return draws (D, R) of `item_means`, clusters resampled."""
    values_RN, weights_RN = item_values.known()
    means_R = item_values.item_means()
    with np.errstate(invalid="ignore"):
        amounts_RN = np.vstack([weights_RN * (values_RN - means_R[:, None]), weights_RN])
        sums_RC = item_values.in_clusters(amounts_RN)
        drawn_DR = cluster_draws(item_values.clusters_N, item_values.items).astype(np.float64) @ sums_RC.T
        deviations_DR, drawn_weights_DR = np.hsplit(drawn_DR, 2)
        deviations_DR /= drawn_weights_DR
    known_R = (sums_RC[len(means_R) :] > 0).sum(axis=1)
    freedom_R = np.where(known_R > 1, known_R - 1.0, np.nan)
    spread_R = np.sqrt(known_R / freedom_R) * stdtrit(freedom_R, _UPPER) / ndtri(_UPPER)
    return np.asarray(means_R + spread_R * deviations_DR, dtype=np.float64)


def replicate_draws(
    estimates_R: Floats, models_R: Integers | None = None, low: float = -math.inf, high: float = math.inf
) -> Floats:
    """Return draws (D,) of the mean of estimates that no items stand behind (MAUVE); NaN in all for one replicate.

    The noise is the same as that of `draws`.

    Source:
        Student, "The probable error of a mean", 1908: t of R - 1 degrees of freedom.
    """
    point_R = by_model(estimates_R, models_R)
    if len(point_R) < 2:
        return np.full(DRAWS, np.nan)
    with np.errstate(invalid="ignore"):
        drawn_D: Floats = point_R.mean() + _replicate_noise(len(point_R)) @ (point_R - point_R.mean())
    return np.clip(drawn_D, low, high)


def interval(draws_D: Floats) -> tuple[float, float]:
    """Return the percentiles that hold 95 % of the draws; NaN, NaN if any draw is NaN.

    A draw without a known item is no evidence of either side, and leaving it out would make few items look like many.

    Example:
        >>> low, high = interval(np.arange(2001.0))
        >>> round(low), round(high)
        (50, 1950)
    """
    if np.isnan(draws_D).any():
        return math.nan, math.nan
    low, high = np.quantile(draws_D, [1 - _UPPER, _UPPER])
    return float(low), float(high)
