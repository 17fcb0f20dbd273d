"""The protocol of a page's verdicts: by hand, in closed form and against a naive one."""

import math

import numpy as np
import pytest
from scipy import stats

from harness.statistics.item_values import ItemValues
from harness.statistics.protocol import item_variance, judge_methods

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
    p_values = [2 * stats.t.sf(size / math.sqrt(sd**2 / 3 + 0.0025), 4) for size, sd in ((1.2, 0.2), (0.5, 0.15))]
    assert judged["ta"].p == pytest.approx(4 * p_values[0])
    assert judged["kl"].p == pytest.approx(3 * p_values[1])
    assert judged["ta"].runs == 3
    assert {name: one.verdict for name, one in judged.items()} == {
        "kl": "cheaper", "gd": "can't tell yet", "ga": "can't tell yet", "ta": "dearer",
    }  # fmt: skip


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
    judged = judge_methods(differences, dict.fromkeys(differences, 0.0), MARGIN)
    assert judged["0"].high - 0.4 == pytest.approx(stats.t.ppf(0.975, freedom) * 0.1 / math.sqrt(3))


@pytest.mark.parametrize(
    ("values", "items"),
    [([0.3, 0.3], 0.01), ([0.3, np.nan, 0.3], 0.01), ([], 0.01), ([0.3, np.inf, 0.3], 0.01), ([0.3] * 3, np.nan)],
)
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
        found.append(item_variance(a, b))
        means.append((a.item_means() - b.item_means()).mean())
    assert np.mean(found) == pytest.approx(np.var(means), rel=0.08)
