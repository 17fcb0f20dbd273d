"""What a method's points cover, and where a trajectory passes a limit: hand-worked, by brute force, and its edges."""

import math

import numpy as np
import pytest

from harness.statistics.frontier import between, crossing, crossing_weight, non_dominated

NAN = math.nan


def arrays(*rows):
    return [np.array(row, dtype=float) for row in rows]


def test_non_dominated_points_are_those_of_a_search_over_all_pairs():
    generator = np.random.default_rng(0)
    for _ in range(200):
        points = generator.integers(0, 6, size=(8, 2)).astype(float)  # Many ties.
        beaten = [any((q <= p).all() and (q < p).any() for q in points) for p in points]
        assert non_dominated(*points.T).tolist() == [not one for one in beaten]


def test_equal_points_both_stay_and_neither_does_once_a_better_one_is_there():
    assert non_dominated(*arrays([1, 1, 2], [3, 3, 1])).tolist() == [True, True, True]
    assert non_dominated(*arrays([1, 1, 1], [3, 3, 1])).tolist() == [False, False, True]


def test_a_point_without_a_number_neither_stays_nor_beats():
    assert non_dominated(*arrays([1, 0, NAN], [1, NAN, 0])).tolist() == [True, False, False]


def test_between_two_neighbours_a_value_is_linear():
    found = crossing(0.75, *arrays([1.0, 0.9, 0.5], [4.0, 6.0, 10.0]))
    assert (found.left, found.right) == (1, 2)
    assert found.weight == pytest.approx(0.375)
    assert found.value == pytest.approx(7.5)
    assert not found.is_measured


def test_a_point_at_the_limit_is_taken_as_measured():
    found = crossing(0.5, *arrays([1.0, 0.9, 0.5, 0.4], [4.0, 6.0, 10.0, 30.0]))
    assert (found.value, found.right, found.is_measured) == (10.0, 2, True)


def test_what_never_passes_is_not_extrapolated():
    by, of = arrays([1.0, 0.9, 0.5], [4.0, 6.0, 10.0])
    assert crossing(0.49, by, of) is None
    assert crossing(0.5, by, of) is not None
    assert crossing(7.0, *arrays([4.0, 6.0], [1.0, 0.9]), passes="up") is None
    assert crossing(0.5, *arrays([NAN, NAN], [1.0, 2.0])) is None


def test_cost_rises_to_its_limit_as_erasure_falls():
    found = crossing(5.0, *arrays([4.0, 4.5, 6.5], [1.0, 0.9, 0.5]), passes="up")
    assert found.value == pytest.approx(0.8)


def test_the_first_crossing_counts_of_a_trajectory_that_returns():
    by, of = arrays([1.0, 0.8, 0.95, 0.7], [4.0, 6.0, 9.0, 10.0])
    assert crossing(0.9, by, of).value == pytest.approx(5.0)
    assert crossing(0.75, by, of).left == 2  # It has not passed that one before.


def test_a_start_beyond_the_limit_meets_a_target_and_breaks_a_budget():
    assert crossing(0.9, *arrays([0.8, 0.5], [4.0, 9.0])).value == 4.0
    assert crossing(3.0, *arrays([4.0, 9.0], [1.0, 0.5]), passes="up") is None
    assert crossing(4.0, *arrays([4.0, 9.0], [1.0, 0.5]), passes="up").value == 1.0


def test_a_gap_is_as_if_it_had_not_been_measured_and_a_missing_value_is_no_value():
    assert crossing(0.75, *arrays([1.0, NAN, 0.5], [4.0, 5.0, 8.0])).value == pytest.approx(6.0)
    found = crossing(0.75, *arrays([1.0, 0.5, 0.4], [4.0, NAN, 8.0]))
    assert math.isnan(found.value)
    assert found.right == 1


def test_an_infinite_neighbour_leaves_the_measured_one():
    found = crossing(5.0, *arrays([4.0, math.inf], [1.0, 0.2]), passes="up")
    assert (found.value, found.is_measured) == (1.0, True)


def test_draws_are_matched_one_by_one_and_never_beyond_the_neighbours():
    by_left, by_right, of_left, of_right = arrays([1.0, 0.8, 0.9, 0.9], [0.8, 0.6, 0.85, 0.9], [4] * 4, [8] * 4)
    weights = crossing_weight(0.9, by_left, by_right)
    assert weights.tolist() == pytest.approx([0.5, 0.0, 0.0, 1.0])
    assert between(of_left, of_right, weights).tolist() == pytest.approx([6.0, 4.0, 4.0, 8.0])
    assert np.isnan(crossing_weight(0.9, NAN, 0.8))


def test_the_draw_that_is_the_estimate_gives_the_estimate():
    by, of = arrays([1.0, 0.9, 0.5], [4.0, 6.0, 10.0])
    found = crossing(0.75, by, of)
    weight = crossing_weight(0.75, by[[found.left]], by[[found.right]])
    assert between(of[[found.left]], of[[found.right]], weight).tolist() == [found.value]
