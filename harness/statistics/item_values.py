"""Values of one metric by item, their weighted means and the influence of each cluster.

Array letters: R replicates (rows: seeds, or models pretrained from several), M models, N items, C clusters.
"""

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

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
        codes_N = self._codes_N
        return np.stack([np.bincount(codes_N, weights=amounts_N) for amounts_N in amounts_RN])

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

    def row(self, number: int) -> Self:
        """Return one row, as one replicate."""
        values_1N, weights_1N = self.values_RN[[number]], self.weights_RN[[number]]
        return replace(self, values_RN=values_1N, weights_RN=weights_1N, models_R=None)

    def averaged(self) -> Self:
        """Return the weighted mean over the replicates that know an item, as one replicate."""
        values_RN, weights_RN = self.known
        weights_N = weights_RN.sum(axis=0)
        with np.errstate(invalid="ignore"):
            values_N = (values_RN * weights_RN).sum(axis=0) / weights_N
        return replace(self, values_RN=values_N[None], weights_RN=weights_N[None], models_R=None)


def by_model(estimates_R: Floats, models_R: Integers | None) -> Floats:
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
    return float(item_values.estimates(by_model(item_values.item_means(), item_values.models_R).mean()))
