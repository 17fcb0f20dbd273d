"""The expected best of a search, against every draw and every order, written out."""

import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.statistics.budget import expected_best, expected_best_at_cost

VALUES = st.lists(st.one_of(st.floats(-3, 3), st.just(math.inf)), min_size=1, max_size=4)


@given(VALUES)
def test_it_is_the_mean_over_all_draws(values):
    expected = expected_best(values)
    for drawn in range(1, len(values) + 1):
        least = [min(draw) for draw in product(values, repeat=drawn)]
        reached = [value for value in least if math.isfinite(value)]
        assert expected.chance[drawn - 1] == pytest.approx(len(reached) / len(least))
        if reached:
            assert expected.best[drawn - 1] == pytest.approx(np.mean(reached), abs=1e-9)
        else:
            assert math.isnan(expected.best[drawn - 1])


def test_by_cost_it_is_the_mean_over_all_orders():
    values, costs = [3.0, 1.0, math.inf, 2.0], [1.0, 4.0, 2.0, 3.0]
    budgets = [0.9, 1.0, 3.5, 5.0, 10.0]
    expected = expected_best_at_cost(values, costs, budgets, permutations=20_000)
    for budget, best, chance in zip(budgets, expected.best, expected.chance, strict=True):
        least = []
        for order in permutations(range(4)):
            paid = int((np.cumsum([costs[index] for index in order]) <= budget).sum())
            least.append(min((values[index] for index in order[:paid]), default=math.inf))
        reached = [value for value in least if math.isfinite(value)]
        assert chance == pytest.approx(len(reached) / len(least), abs=0.02)
        assert (math.isnan(best) and not reached) or best == pytest.approx(np.mean(reached), abs=0.03)
    assert (expected.best[-1], expected.chance[-1]) == (1.0, 1.0), "the whole budget buys the best"


def test_orders_are_the_same_each_time_and_a_dear_best_comes_late():
    values, budgets = [1.0, 2.0, 2.0, 2.0], [3.0, 13.0]
    dear = expected_best_at_cost(values, [10.0, 1.0, 1.0, 1.0], budgets)
    assert dear == expected_best_at_cost(values, [10.0, 1.0, 1.0, 1.0], budgets)
    assert dear.best[0] == 2.0
    quick = expected_best_at_cost(values, [1.0, 10.0, 1.0, 1.0], budgets)
    assert quick.best[0] < dear.best[0]
