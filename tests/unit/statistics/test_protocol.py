"""The protocol of a page's verdicts: by hand, in closed form and against a naive one."""

import math

import numpy as np
import pytest
from scipy import stats

from harness.statistics import contrasts
from harness.statistics.bootstrap import ItemValues
from harness.statistics.contrasts import POWER, deviation_bounds, judge_methods, power, runs_needed
from studies.error_rates import MAX_FALSE_PAGES, against_themselves, upper_bound

MARGIN = math.log(1.1)


def test_four_methods_by_hand():
    differences = {
        "kl": np.array([-0.5, -0.4, -0.6]),  # Deviation .1.
        "gd": np.array([-0.3, -0.3, -0.3]),  # None of its own: the median, .15, counts.
        "ga": np.array([0.0, 0.2, -0.2]),  # .2
        "ta": np.array([1.0, 1.4, 1.2, np.nan]),  # .2 in three paired runs.
    }
    judged = judge_methods(differences, dict.fromkeys(differences, 0.0025), MARGIN)
    # SE² = .15² / 3 + .0025 = .01; t of 4 degrees, .975: 2.776.
    assert (judged["gd"].low, judged["gd"].high) == pytest.approx((-0.3 - 0.2776, -0.3 + 0.2776), abs=1e-4)
    # KL's deviation is below the median, and TA's above it: R - 1 degrees.
    for name, tests, size, sd, freedom in (("kl", 4, 0.5, 0.15, 4), ("ta", 3, 1.2, 0.2, 2)):
        p = 2 * stats.t.sf(size / math.sqrt(sd**2 / 3 + 0.0025), freedom)
        assert judged[name].p == pytest.approx(tests * p)
    assert judged["ta"].runs == 3
    assert (judged["kl"].verdict, judged["ta"].verdict) == ("cheaper", "dearer")
    assert judged["gd"].verdict == judged["ga"].verdict == "can't tell yet"


def test_a_method_that_is_itself_the_median_has_only_its_own_runs_for_evidence():
    differences = {str(sd): np.array([0.5 - sd, 0.5, 0.5 + sd]) for sd in (0.01, 0.02, 0.1, 0.2, 0.3)}
    judged = judge_methods(differences, dict.fromkeys(differences, 0.0), MARGIN)
    for name, deviation, freedom in (("0.02", 0.1, 4), ("0.1", 0.1, 2), ("0.2", 0.2, 2)):
        assert judged[name].high == pytest.approx(0.5 + stats.t.ppf(0.975, freedom) * deviation / math.sqrt(3))


def test_one_method_without_item_noise_is_students_paired_test():
    values = np.random.default_rng(1).normal(0.3, 0.2, 5)
    [judged] = judge_methods({"kl": values}, {"kl": 0.0}, MARGIN).values()
    reference = stats.ttest_1samp(values, 0.0)
    assert judged.p == pytest.approx(reference.pvalue)
    assert (judged.low, judged.high) == pytest.approx(tuple(reference.confidence_interval(0.95)))
    above = stats.ttest_1samp(values, -MARGIN, alternative="greater").pvalue
    below = stats.ttest_1samp(values, MARGIN, alternative="less").pvalue
    assert judged.equivalence_p == pytest.approx(max(above, below))


@pytest.mark.parametrize(("methods", "freedom"), [(3, 2), (4, 4)])
def test_four_methods_double_the_degrees_of_freedom(methods, freedom):
    differences = {str(number): np.array([0.3, 0.4, 0.5]) for number in range(methods)}
    differences["0"] = np.array([0.31, 0.4, 0.49])
    judged = judge_methods(differences, dict.fromkeys(differences, 0.0), MARGIN)
    assert judged["0"].high - 0.4 == pytest.approx(stats.t.ppf(0.975, freedom) * 0.1 / math.sqrt(3))


UNJUDGED = [([0.3, 0.3], 0.01), ([0.3, np.nan, 0.3], 0.01), ([], 0.01), ([0.3, np.inf, 0.3], 0.01), ([0.3] * 3, np.nan)]


@pytest.mark.parametrize(("values", "items"), UNJUDGED)
def test_what_is_not_judged_has_no_interval_and_does_not_count_among_the_tests(values, items):
    sure = np.array([0.3, 0.31, 0.29])
    only = judge_methods({"kl": sure}, {"kl": 0.0}, MARGIN)
    judged = judge_methods({"kl": sure, "gd": np.array(values)}, {"kl": 0.0, "gd": items}, MARGIN)
    assert judged["kl"] == only["kl"]
    assert judged["gd"].verdict == "can't tell yet"
    assert np.isnan([judged["gd"].low, judged["gd"].high, judged["gd"].p, judged["gd"].equivalence_p]).all()


def test_equal_prices_are_equivalent_and_signs_only_are_no_evidence():
    [equal] = judge_methods({"kl": np.zeros(3)}, {"kl": 0.0}, MARGIN).values()
    [always] = judge_methods({"kl": np.full(3, 0.3)}, {"kl": 0.0}, MARGIN).values()
    assert (equal.verdict, always.verdict, always.p) == ("equivalent", "can't tell yet", 0.25)
    assert judge_methods({"kl": np.zeros(3)}, {"kl": 0.0}, 0.0)["kl"].verdict == "can't tell yet", "nothing is within 0"


def test_methods_with_other_numbers_of_runs_have_their_own_degrees_of_freedom():
    differences = {str(runs): np.resize([0.1, -0.1], runs) for runs in (4, 6, 8, 10)}
    judged = judge_methods(differences, dict.fromkeys(differences, 0.0), MARGIN)
    typical = np.median([values.std(ddof=1) for values in differences.values()])
    error = max(typical, differences["10"].std(ddof=1)) / math.sqrt(10)
    assert judged["10"].high == pytest.approx(stats.t.ppf(0.975, 18) * error)


def test_variance_over_items_is_that_of_items_drawn_anew():
    generator = np.random.default_rng(2)
    shared = {"clusters_N": np.arange(60), "items": "prompts", "aggregate": "exp_mean"}
    found, means = [], []
    for _ in range(1500):
        hard_N, weights_N = generator.normal(0, 0.3, (2, 60)), generator.integers(5, 60, 60)
        a_RN, b_RN = (hard_N[side] + generator.normal(0, 0.1, (3, 60)) for side in (0, 1))
        a, b = (ItemValues(values_RN=side, weights_RN=np.tile(weights_N, (3, 1)), **shared) for side in (a_RN, b_RN))
        found.append(contrasts.paired_contrast(a, b).items_variance)
        means.append((a.item_means() - b.item_means()).mean())
    assert np.mean(found) == pytest.approx(np.var(means), rel=0.08)


@pytest.mark.parametrize(("runs", "methods", "items"), [(3, 1, 0.0), (3, 6, 0.0), (5, 6, 0.03), (8, 2, 0.05)])
def test_power_is_how_often_the_protocol_finds_a_difference_among_methods_without_one(runs, methods, items):
    generator, expected, pages = np.random.default_rng([runs, methods]), power(0.3, 0.13, runs, methods, items**2), 500
    found = 0
    for _ in range(pages):
        means = generator.normal(0.0, items, (methods, 1)) + np.where(np.arange(methods) == 0, 0.3, 0.0)[:, None]
        values_KR = means + generator.normal(0.0, 0.13, (methods, runs))
        differences = {str(method): values_R for method, values_R in enumerate(values_KR)}
        found += judge_methods(differences, dict.fromkeys(differences, items**2), MARGIN)["0"].verdict == "dearer"
    assert found / pages == pytest.approx(expected, abs=0.05)


def test_power_by_hand_and_at_its_ends():
    of_one = stats.nct(2, 0.3 / (0.13 / math.sqrt(3))).sf(stats.t.isf(0.05 / 2, 2))
    assert power(0.3, 0.13, 3) == pytest.approx(of_one, abs=1e-3)
    assert power(0.0, 0.13, 7) == pytest.approx(0.05, abs=1e-3)
    assert power(0.2, 0.1, 6, 6) == pytest.approx(0.732, abs=0.02), "3,000 simulated pages"
    assert (power(9.0, 0.13, 2), power(9.0, 0.0, 3), power(0.0, 0.0, 3), power(9.0, 1e-3, 99)) == (0.0, 1.0, 0.0, 1.0)


def test_no_fewer_runs_would_do_and_items_set_a_limit():
    for methods, items in ((1, 0.0), (6, 0.03**2)):
        needed = runs_needed(0.2, 0.13, methods, items)
        assert power(0.2, 0.13, needed - 1, methods, items) < POWER <= power(0.2, 0.13, needed, methods, items)
    assert runs_needed(0.2, 0.01, items=0.2**2) is None
    assert runs_needed(0.0, 0.13) is None
    assert power(0.02, 0.13, contrasts.MAX_RUNS) < POWER


def test_bounds_of_a_deviation_hold_it_in_80_of_100_pilots():
    deviations = np.random.default_rng(0).normal(0, 0.2, (4000, 3)).std(axis=1, ddof=1)
    bounds = np.array([deviation_bounds(deviation, 2) for deviation in deviations])
    assert np.mean((bounds[:, 0] <= 0.2) & (bounds[:, 1] >= 0.2)) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("runs", [3, 5])
def test_a_method_under_two_names_is_not_told_from_itself(runs):
    """The gate of the study, on fewer pages: the upper bound of the rate of false pages."""
    generator = np.random.default_rng(runs)
    prices = {str(method): generator.normal(0.0, 0.1, 2000) for method in range(6)}
    assert upper_bound(*against_themselves(prices, runs, 400, generator)) < MAX_FALSE_PAGES


def test_the_gate_shuts_where_a_method_is_told_from_itself():
    assert upper_bound(13, 400) > MAX_FALSE_PAGES > upper_bound(11, 400)
