"""Whether two methods can be distinguished: paired tests, corrected for their number, and the groups that follow.

Array letters: R replicates, M models, N items, C clusters, P tests.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import combinations
from string import ascii_letters

import numpy as np
from scipy.special import betaln, expit, log_expit, stdtr

from harness.statistics.item_values import Integers, ItemValues, by_model

_ROUNDING = 1e-12
"""Means that are equal on paper may differ by this; so may values that are all the same, relative to them."""
_STEP = 0.1


def paired_p(a: ItemValues, b: ItemValues) -> float:
    """Return the two-sided p-value of a difference of two estimates on the same items.

    Only items that both know count, in each replicate (between points: at all of them). The variance of the difference
    has two parts: over items (linearised weighted means, summed within clusters; averaged over replicates) and, with
    several replicates, that of the replicates' differences. What is compared of an `exp_mean` are the logarithms of the
    replicates' estimates.

    p is 1 where the estimates are equal. Where all are the same and not 0 there is no variance, and p is that of
    a sign test over the clusters. NaN where it is not known: a replicate with fewer than two
    clusters of items that both know, an infinite value.

    Args:
        a: Of one method.
        b: Of the other: row by row the same replicates, column by column the same items.

    Raises:
        ValueError: They are not: other items, another number of replicates, or another aggregate.

    Source:
        E. Miller, "Adding Error Bars to Evals", 2024, arXiv:2411.00640, equations 4 (clusters) and 7 (pairs).

    Example:
        Differences of 1, 2, 1 and 2 have the mean 1.5 and the standard error sqrt(1/12): t = 5.196 of 3 degrees.

        >>> shared = {"weights_RN": np.ones((1, 4)), "clusters_N": np.arange(4), "items": "prompts"}
        >>> left = ItemValues(values_RN=np.array([[3.0, 7.0, 2.0, 9.0]]), **shared)
        >>> right = ItemValues(values_RN=np.array([[2.0, 5.0, 1.0, 7.0]]), **shared)
        >>> round(paired_p(left, right), 4)
        0.0138
    """
    _refuse_unpaired(a, b)
    known_RN = a.known_in_all() & b.known_in_all()
    a, b = a.only(known_RN), b.only(known_RN)
    known_clusters = a.known_clusters()
    with np.errstate(invalid="ignore"):
        difference_M = by_model(a.item_means() - b.item_means(), a.models_R)
        influences_C = by_model((a.influences() - b.influences()).T, a.models_R).mean(axis=1)
    difference, models = float(difference_M.mean()), len(difference_M)
    if not (math.isfinite(difference) and np.isfinite(influences_C).all() and known_clusters > 1):
        return math.nan
    if abs(difference) < _ROUNDING:
        return 1.0
    items_variance = float((influences_C**2).sum()) * known_clusters / (known_clusters - 1)
    replicates_variance = float(difference_M.var(ddof=1)) / models if models > 1 else 0.0
    if items_variance + replicates_variance < (_ROUNDING * difference) ** 2:
        return 2.0 ** (1 - known_clusters)
    return two_part_p(difference, (items_variance, replicates_variance), (known_clusters - 1, models - 1))


def _refuse_unpaired(a: ItemValues, b: ItemValues) -> None:
    """Raise if two do not have the same items and replicates in the same places."""
    faults = {
        "items": a.items != b.items or not np.array_equal(a.clusters_N, b.clusters_N),
        "replicates": a.replicates != b.replicates or _codes(a.models_R) != _codes(b.models_R),
        "aggregate": a.aggregate != b.aggregate,
    }
    if any(faults.values()):
        named = " and ".join(name for name, differs in faults.items() if differs)
        raise ValueError(
            f"'{a.items}' {a.values_RN.shape} and '{b.items}' {b.values_RN.shape} cannot be paired: their {named} "
            "differ. Keep the rows of the replicates that both have, in one order, and the columns of the same items."
        )


def _codes(models_R: Integers | None) -> list[int]:
    """Return the models' codes; none if all are of one model."""
    return [] if models_R is None else models_R.tolist()


def two_part_p(difference: float, variances: tuple[float, float], freedoms: tuple[int, int]) -> float:
    """Return the two-sided p-value of a difference whose variance is the sum of two that were estimated.

    The reference is the sum of two Student variables, scaled by the two standard errors: what the draws of `bootstrap`
    have. Satterthwaite's single t is liberal here: with two replicates up to 11 % false positives of 5, with three 7 %.

    Args:
        difference: Estimated.
        variances: Of the difference, over items and over replicates; not both 0.
        freedoms: Degrees of freedom of each; one whose variance is 0 has no part.

    Source:
        H. Ruben, "On the distribution of the weighted difference of two independent Student variables", 1960: given
        a beta variable, the sum is one Student variable of both degrees of freedom together.

    Example:
        With one part alone it is Student's test: 12.706 is the 97.5 % point of one degree of freedom.

        >>> round(two_part_p(12.706, (0.0, 1.0), (255, 1)), 4), round(two_part_p(12.706, (1.0, 1.0), (255, 1)), 4)
        (0.05, 0.0503)
    """
    parts = [(variance, freedom) for variance, freedom in zip(variances, freedoms, strict=True) if variance > 0]
    if len(parts) == 1:
        ((variance, freedom),) = parts
        return float(2 * stdtr(freedom, -abs(difference) / math.sqrt(variance)))
    (v, m), (w, n) = parts
    # Its logit: the density falls off as an exponential on both sides, where the trapezoid rule is exact to the end.
    logits = math.log(m / n) + np.arange(-80.0, 80.0, _STEP)
    densities = np.exp(m / 2 * log_expit(logits) + n / 2 * log_expit(-logits) - betaln(m / 2, n / 2))
    scales = np.sqrt((v * m / expit(logits) + w * n / expit(-logits)) / (m + n))
    return float(min(1.0, 2 * _STEP * (densities * stdtr(m + n, -abs(difference) / scales)).sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number: at most 0.05 together are falsely below 0.05. NaN stays NaN.

    A NaN was not tested and does not count among the tests.

    Source:
        S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.

    Example:
        The least of three counts three times, the next twice, the largest once; none falls below one before it:

        >>> holm([0.04, 0.01, 0.03])
        [0.06, 0.03, 0.06]
    """
    adjusted, largest = list(p_values), 0.0
    tested = [index for index, p in enumerate(p_values) if not math.isnan(p)]
    for rank, index in enumerate(sorted(tested, key=lambda index: p_values[index])):
        largest = adjusted[index] = max(largest, min(1.0, (len(tested) - rank) * p_values[index]))
    return adjusted


def groups(names: Sequence[str], different: Collection[frozenset[str]]) -> dict[str, str]:
    """Return the letters of each name: two share one if and only if they are not in `different`.

    No letter can be left out: each joins two that no other letter joins, or is the only one of its name.

    Args:
        names: Best first; `a` is the letter of the first.
        different: The pairs that differ significantly.

    Raises:
        ValueError: A pair in `different` is not one of two of the names.

    Source:
        H.-P. Piepho, "An Algorithm for a Letter-Based Representation of All-Pairwise Comparisons", 2004
        (insert and absorb), and J. Gramm et al., 2006, for letters that absorbing leaves over.

    Example:
        The middle one cannot be distinguished from either; the two others differ:

        >>> groups(["kl", "gd", "emso"], {frozenset({"kl", "emso"})})
        {'kl': 'a', 'gd': 'ab', 'emso': 'b'}
    """
    places = {name: place for place, name in enumerate(names)}
    if strange := [sorted(pair) for pair in different if len(pair) != 2 or not pair <= places.keys()]:
        raise ValueError(
            f"{strange[0]} is not a pair of {list(names)}; give each pair that differs as two of the names"
        )
    columns = {frozenset(places.values())}
    for pair in sorted(sorted(places[name] for name in pair) for pair in different):
        split = {column - {place} for column in columns if column.issuperset(pair) for place in pair}
        split |= {column for column in columns if not column.issuperset(pair)}
        columns = {column for column in split if not any(column < other for other in split)}
    kept = sorted(columns, key=sorted)
    for column in reversed(kept.copy()):
        others = [other for other in kept if other != column]
        if all(
            any(other.issuperset(joined) for other in others) for joined in combinations(column, min(2, len(column)))
        ):
            kept = others
    letters = {column: _group_letter(index) for index, column in enumerate(kept)}
    return {name: "".join(letters[column] for column in kept if place in column) for name, place in places.items()}


def _group_letter(index: int) -> str:
    """Return a, b, ... z, A, ... Z, and the accented letters that follow in Unicode."""
    return ascii_letters[index] if index < len(ascii_letters) else chr(ord("Ā") + index - len(ascii_letters))
