"""What a search is worth at each budget: the best that so many candidates, or so many seconds, would have given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.statistics.item_values import Floats

PERMUTATIONS = 1000


@dataclass(frozen=True)
class BestAtBudget:
    """The expected best at rising budgets, where it is known that any candidate reaches its aim."""

    best: tuple[float, ...]
    """The mean of the best over the draws in which one reaches it; NaN where none does."""
    chance: tuple[float, ...]
    """That one reaches it."""

    def known(self) -> Floats:
        """Return the best at each budget; infinite where fewer than half of all draws reach the aim."""
        return np.where(np.array(self.chance) >= 0.5, self.best, np.inf)


def expected_best(values: Sequence[float]) -> BestAtBudget:
    """Return the expected least of n of N values, n from 1 to N, drawn with replacement.

    E[min] = sum over i of v_(i) [((N - i + 1)/N)^n - ((N - i)/N)^n] over the sorted values v; where some are infinite,
    given that one of the n is not. Source: Dodge et al. 2019, arXiv:1909.03004, equation 7 of the maximum.

    Args:
        values: Of each candidate, least is best; infinite where it does not reach its aim.

    Example:
        Of two draws from 1 and 3, three of four hold a 1. ::

            >>> expected_best([3.0, 1.0])
            BestAtBudget(best=(2.0, 1.5), chance=(1.0, 1.0))
            >>> expected_best([3.0, float("inf")]).chance
            (0.5, 0.75)
    """
    rising = np.sort(np.asarray(values, float))
    count, reaching = len(rising), int(np.isfinite(rising).sum())
    best, chance = [], []
    for drawn in range(1, count + 1):
        at_least = (np.arange(count, -1, -1) / count) ** drawn  # That none of the first 0, 1, ... N is drawn.
        weights = (at_least[:-1] - at_least[1:])[:reaching]
        reached = float(weights.sum())
        chance.append(reached)
        best.append(float(rising[:reaching] @ weights / reached) if reaching else float("nan"))
    return BestAtBudget(tuple(best), tuple(chance))


def expected_best_at_cost(
    values: Sequence[float],
    costs: Sequence[float],
    budgets: Sequence[float],
    shared: float = 0.0,
    permutations: int = PERMUTATIONS,
) -> BestAtBudget:
    """Return the expected least of the values that a budget pays for, over random orders of the candidates.

    A candidate counts once it is paid for whole. The orders are the same in every call: their seed is fixed.

    Args:
        values: Of each candidate, least is best; infinite where it does not reach its aim.
        costs: Of each candidate, in any unit.
        budgets: In the same unit.
        shared: What is paid once, before any of them.
        permutations: How many orders are averaged.

    Example:
        Two candidates of a second each; a third that takes ten is never paid for. ::

            >>> expected_best_at_cost([1.0, 1.0, 0.0], [1.0, 1.0, 10.0], [0.5, 2.0, 12.0]).best
            (nan, 1.0, 0.0)
            >>> expected_best_at_cost([1.0, 2.0], [1.0, 1.0], [2.0, 4.0], shared=2.0).chance
            (0.0, 1.0)
    """
    generator = np.random.default_rng(0)
    value_of, cost_of = np.asarray(values, float), np.asarray(costs, float)
    sums, counts = np.zeros(len(budgets)), np.zeros(len(budgets))
    for _ in range(permutations):
        order = generator.permutation(len(value_of))
        paid = np.searchsorted(shared + np.cumsum(cost_of[order]), np.asarray(budgets), side="right")
        least = np.concatenate([[np.inf], np.minimum.accumulate(value_of[order])])[paid]
        is_reached = np.isfinite(least)
        sums[is_reached] += least[is_reached]
        counts += is_reached
    best = np.divide(sums, counts, out=np.full(len(budgets), np.nan), where=counts > 0)
    return BestAtBudget(tuple(best.tolist()), tuple((counts / permutations).tolist()))
