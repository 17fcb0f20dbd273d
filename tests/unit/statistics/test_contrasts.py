"""Contrasts and Holm's correction: by hand, against oracles, and on simulated items with no difference."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from harness.settings import replace
from harness.statistics.bootstrap import draws, interval
from harness.statistics.contrasts import LEVEL, Contrast, holm, paired_p, two_part_p
from tests.unit.statistics.values import MODELS, N, item_values

SIMULATIONS = 1000
FALSE_POSITIVES = 0.05 + 2 * math.sqrt(0.05 * 0.95 / SIMULATIONS)
"""Two standard errors of such a share above 5 %: 0.0638."""
QUADS = np.repeat(np.arange(N // 4), 4)
WEIGHTED = {"weights": np.arange(1.0, N + 1), "aggregate": "exp_mean"}


def share_below(simulate, level=0.05, simulations=SIMULATIONS, **settings):
    """The share of simulated pairs of values whose p is below the level."""
    generator = np.random.default_rng(0)
    pairs = (simulate(generator) for _ in range(simulations))
    return np.mean([paired_p(item_values(a, **settings), item_values(b, **settings)) < level for a, b in pairs])


def right_or_not(generator):
    hard_N = generator.random(N)
    return [generator.random(N) < np.where(hard_N < 0.8, 0.95, 0.4) for _ in "ab"]


def skewed(generator):
    common_N = generator.exponential(5.0, N)
    return [common_N + generator.exponential(5.0, N) for _ in "ab"]


def repeated(generator):
    return [np.repeat(generator.normal(0, 1, N // 4), 4) + generator.normal(0, 0.3, N) for _ in "ab"]


def seeds(count, spread, shift=0.0):
    """Replicates of two methods on common items; the spread is that of the seeds."""

    def simulate(generator):
        item_N = generator.normal(0, 1, N)
        a, b = (item_N + generator.normal(0, spread, (count, 1)) + generator.normal(0, 0.5, (count, N)) for _ in "ab")
        return a, b + shift

    return simulate


def models_and_seeds(generator):
    return [np.repeat(generator.normal(0, 0.3, 4), 2)[:, None] + one for one in seeds(8, 0.1)(generator)]


WITHOUT_DIFFERENCE = [
    pytest.param(right_or_not, {}, id="right-or-not"),
    pytest.param(skewed, {}, id="skewed", marks=pytest.mark.soak),
    pytest.param(skewed, WEIGHTED, id="weighted-perplexity", marks=pytest.mark.soak),
    pytest.param(repeated, {"clusters": QUADS}, id="clustered", marks=pytest.mark.soak),
    pytest.param(seeds(2, 0.2), {}, id="two-seeds", marks=pytest.mark.soak),
    pytest.param(seeds(3, 0.0), {}, id="three-seeds-that-do-not-differ", marks=pytest.mark.soak),
    pytest.param(seeds(3, 0.3), {}, id="three-seeds", marks=pytest.mark.soak),
    pytest.param(seeds(5, 0.1), {}, id="five-seeds", marks=pytest.mark.soak),
    pytest.param(models_and_seeds, {"models_R": MODELS}, id="models-with-seeds", marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("simulate", "settings"), WITHOUT_DIFFERENCE)
def test_false_positives_are_at_most_five_percent(simulate, settings):
    assert share_below(simulate, **settings) <= FALSE_POSITIVES


def test_a_difference_of_some_standard_errors_is_found():
    assert share_below(lambda g: (item := g.normal(0, 5, N), item + g.normal(0.25, 1, N)), simulations=300) > 0.95
    assert share_below(seeds(3, 0.02, shift=0.5), simulations=300) > 0.95


def test_one_replicate_is_the_paired_t_test_of_its_items():
    a, b = np.random.default_rng(0).normal(size=(2, 20))
    assert paired_p(item_values(a), item_values(b)) == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert paired_p(item_values(b), item_values(a)) == paired_p(item_values(a), item_values(b))


def test_seeds_that_all_items_follow_are_the_test_of_the_seeds():
    a, b = np.array([0.3, 0.5, 0.4]), np.array([0.8, 0.6, 0.9])
    p = paired_p(*(item_values(np.repeat(one[:, None], N, axis=1)) for one in (a, b)))
    assert p == pytest.approx(stats.ttest_rel(a, b).pvalue)


def test_items_that_one_does_not_know_do_not_count():
    a, b = np.random.default_rng(0).normal(size=(2, 20))
    holed_a, holed_b = a.copy(), b.copy()
    holed_a[3], holed_b[7] = np.nan, np.nan
    p = paired_p(item_values(np.delete(a, [3, 7])), item_values(np.delete(b, [3, 7])))
    assert paired_p(item_values(holed_a), item_values(holed_b)) == pytest.approx(p)


def test_a_perplexity_is_compared_by_its_logarithm():
    a, b, tokens = np.random.default_rng(0).uniform(1, 3, size=(3, N))
    as_mean = paired_p(item_values(a, tokens), item_values(b, tokens))
    assert paired_p(*(item_values(one, tokens, aggregate="exp_mean") for one in (a, b))) == as_mean


def test_no_difference_has_p_one_and_the_same_one_everywhere_that_of_a_sign_test():
    values = np.random.default_rng(0).random((3, 6))
    assert paired_p(item_values(values), item_values(values)) == 1
    assert paired_p(item_values([0.1 + 0.2] * 6), item_values([0.3] * 6)) == 1  # Equal but for the last bit.
    assert paired_p(item_values(values + 0.1), item_values(values)) == 2 / 2**6


def test_where_it_cannot_be_told_p_is_nan():
    for values in ([[0.1]], [[0.1, np.nan, np.nan]], [[0.1, 0.4], [np.nan, np.nan]], [[0.1, math.inf, 0.3]]):
        assert math.isnan(paired_p(item_values(values), item_values(np.zeros_like(values)))), values


def test_what_is_not_paired_is_refused():
    others = [item_values([1.0, 2.0], items="sequences"), item_values([1.0, 2.0], aggregate="exp_mean")]
    for other in [*others, item_values([1.0, 2.0, 3.0]), item_values([[1.0, 2.0], [3.0, 4.0]])]:
        with pytest.raises(ValueError, match="cannot be paired"):
            paired_p(item_values([1.0, 2.0]), other)


@pytest.mark.parametrize("freedoms", [(255, 1), (255, 2), (11, 4), (12000, 9), (40, 40)])
@pytest.mark.parametrize("variances", [(1.0, 1.0), (1.0, 0.01), (0.01, 1.0)])
def test_two_parts_are_the_sum_of_two_student_variables(variances, freedoms):
    generator = np.random.default_rng(0)
    students = [generator.standard_t(freedom, 100_000) for freedom in freedoms]
    sums = math.sqrt(variances[0]) * students[0] + math.sqrt(variances[1]) * students[1]
    for difference in (0.5, 2.0, 5.0):
        share = (np.abs(sums) >= difference).mean()
        assert two_part_p(difference, variances, freedoms) == pytest.approx(share, abs=4 * 0.5 / math.sqrt(100_000))
    assert two_part_p(0.0, variances, freedoms) == pytest.approx(1.0)


def test_the_interval_of_drawn_differences_ends_where_p_is_five_percent():
    for seed in range(5):
        a, b = (item_values(one) for one in seeds(3, 0.05)(np.random.default_rng(seed)))
        low, high = interval(draws(a) - draws(b))
        shifted = [item_values(a.values_RN - edge) for edge in (low, high)]
        # A percentile of 10,000 draws is off by 0.0016, and p counts both sides.
        assert [paired_p(one, b) for one in shifted] == pytest.approx([0.05, 0.05], abs=3 * 0.0032)


def of_seeds(differences):
    """The contrast of replicates whose items say the same, each of its own."""
    return Contrast(differences.mean(), 0.0, differences.var(ddof=1) / len(differences), 256, len(differences))


def of_items(differences):
    return Contrast(differences.mean(), differences.var(ddof=1) / len(differences), 0.0, len(differences), 1)


PARTS = pytest.mark.parametrize("contrast_of", [of_seeds, of_items])


@PARTS
@pytest.mark.parametrize("count", [2, 3, 20])
def test_of_one_part_p_is_that_of_the_paired_t_test(contrast_of, count):
    a, b = np.random.default_rng(count).normal(0.3, 0.2, (2, count))
    assert contrast_of(a - b).p == pytest.approx(stats.ttest_rel(a, b).pvalue)


@PARTS
def test_an_interval_is_students(contrast_of):
    differences = np.random.default_rng(2).normal(0.3, 0.2, 5)
    for level in (0.05, 0.1):
        expected = stats.ttest_1samp(differences, 0).confidence_interval(1 - level)
        assert contrast_of(differences).interval(level) == pytest.approx(tuple(expected))


PARTS_OF_CONTRASTS = {"items_variance": st.floats(1e-4, 0.1), "replicates_variance": st.sampled_from([1e-4, 0.01, 0.3])}
COUNTS = {"clusters": st.integers(2, 300), "replicates": st.integers(2, 12)}
contrasts = st.builds(Contrast, difference=st.floats(-0.5, 0.5), **PARTS_OF_CONTRASTS, **COUNTS)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(contrasts)
def test_at_an_end_of_the_interval_p_is_five_percent(contrast):
    for end in contrast.interval():
        assert replace(contrast, difference=contrast.difference - end).p == pytest.approx(LEVEL)
    low, high = contrast.interval()
    assert (contrast.p < LEVEL) == (not low <= 0 <= high)


def test_without_variance_equal_is_equal_and_what_differs_everywhere_is_a_sign_test():
    same, apart = Contrast(0.0, 0.0, 0.0, 8, 1), Contrast(-0.5, 0.0, 0.0, 8, 1)
    assert (same.p, same.interval()) == (1.0, (0.0, 0.0))
    assert (apart.p, apart.interval()) == (2 / 2**8, (-0.5, -0.5))


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=8, unique=True))
def test_holm_is_the_step_down_procedure(p_values):
    def rejected(p_values, level):
        out = set()
        for step, index in enumerate(np.argsort(p_values)):
            if p_values[index] > level / (len(p_values) - step):
                break
            out.add(int(index))
        return out

    adjusted = holm(p_values)
    for level in (0.01, 0.05, 0.2):
        assert {index for index, p in enumerate(adjusted) if p <= level} == rejected(p_values, level)


def test_holm_leaves_out_what_was_not_tested_and_stays_a_probability():
    assert holm([0.01, math.nan, 0.02, 0.9]) == pytest.approx([0.03, math.nan, 0.04, 0.9], nan_ok=True)
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_equal_clusters_are_the_test_of_their_means():
    a, b = np.random.default_rng(0).normal(size=(2, N))
    by_cluster = stats.ttest_rel(a.reshape(-1, 4).mean(axis=1), b.reshape(-1, 4).mean(axis=1)).pvalue
    assert paired_p(item_values(a, clusters=QUADS), item_values(b, clusters=QUADS)) == pytest.approx(by_cluster)
