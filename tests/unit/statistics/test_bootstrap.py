"""Intervals: that they cover what they say on simulated items with a known truth, and what has none."""

import functools
import math

import numpy as np
import pytest
from scipy import stats

from harness.statistics import bootstrap
from harness.statistics.bootstrap import cluster_draws, draws, estimate, interval, replicate_draws, row_intervals
from tests.unit.statistics.values import MODELS, N, item_values

SIMULATIONS = 400
COVERS = pytest.approx(0.95, abs=0.02)
"""The standard error of a share of 400 is 0.011: what covers 91 % or 99 % would hardly pass for 95 %."""


def coverage(simulate, truth, seed=0):
    """The share of simulations whose interval holds the truth."""
    generator = np.random.default_rng(seed)
    intervals = [interval(draws(simulate(generator))) for _ in range(SIMULATIONS)]
    return np.mean([low <= truth <= high for low, high in intervals])


def tokens_until_a_mismatch(generator):
    return item_values(np.minimum(generator.geometric(0.1, N) - 1, 50))


def perplexity(generator):
    tokens_N = generator.integers(5, 60, N)
    return item_values(generator.normal(2.0, 8 / np.sqrt(tokens_N)), tokens_N, aggregate="exp_mean")


def repeated(generator):
    """Items of which four at a time have nearly the same value."""
    values_N = np.repeat(generator.normal(0.0, 1.0, N // 4), 4) + generator.normal(0.0, 0.3, N)
    return item_values(values_N, clusters=np.repeat(np.arange(N // 4), 4))


def seeds(generator, count, spread):
    """Seeds that differ, on items that differ: what is common to all, of the seed, of the item, of both."""
    return generator.normal(0, spread, (count, 1)) + generator.normal(0, 1, N) + generator.normal(0, 0.5, (count, N))


def models_and_seeds(generator):
    """Four models, each erased with two seeds."""
    return item_values(np.repeat(generator.normal(0, 0.5, 4), 2)[:, None] + seeds(generator, 8, 0.1), models_R=MODELS)


SIMULATED = [
    (lambda g: item_values(g.normal(0.0, 1.0, 12)), 0.0, 0),
    pytest.param(lambda g: item_values(g.normal(3.0, 2.0, N)), 3.0, 0, marks=pytest.mark.soak),
    pytest.param(lambda g: item_values(g.random(N) < 0.9), 0.9, 0, marks=pytest.mark.soak),
    pytest.param(lambda g: item_values(g.exponential(10.0, N)), 10.0, 0, marks=pytest.mark.soak),
    pytest.param(tokens_until_a_mismatch, 9 * (1 - 0.9**50), 0, marks=pytest.mark.soak),
    pytest.param(perplexity, math.exp(2.0), 0, marks=pytest.mark.soak),
    pytest.param(repeated, 0.0, 0, marks=pytest.mark.soak),
    pytest.param(lambda g: item_values(seeds(g, 3, 0.4)), 0.0, 3, marks=pytest.mark.soak),
    pytest.param(lambda g: item_values(seeds(g, 5, 0.4)), 0.0, 5, marks=pytest.mark.soak),
    pytest.param(models_and_seeds, 0.0, 0, marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("simulate", "truth", "seed"), SIMULATED)
def test_intervals_cover(simulate, truth, seed):
    assert coverage(simulate, truth, seed) == COVERS


@pytest.mark.soak
def test_seeds_that_differ_by_no_more_than_their_items_overcover_and_do_not_undercover():
    assert coverage(lambda generator: item_values(seeds(generator, 3, 0.0)), 0.0) >= 0.95


def test_replicates_without_items_cover():
    generator = np.random.default_rng(0)
    held = [interval(replicate_draws(generator.normal(0.8, 0.02, 3))) for _ in range(SIMULATIONS)]
    assert np.mean([low <= 0.8 <= high for low, high in held]) == COVERS


def test_the_estimate_is_the_declared_aggregate():
    values_RN, weights_RN = [[1.0, 2.0, np.nan], [3.0, 5.0, 7.0]], [[1.0, 3.0, 9.0], [1.0, 1.0, 0.0]]
    assert estimate(item_values(values_RN, weights_RN)) == pytest.approx((1.75 + 4.0) / 2)
    perplexity = estimate(item_values(values_RN, weights_RN, aggregate="exp_mean"))
    assert perplexity == pytest.approx(math.exp((1.75 + 4.0) / 2))


def test_models_count_alike_however_many_seeds_they_have():
    values = item_values([[1.0, 1.0], [3.0, 3.0], [6.0, 6.0]], models_R=np.array([0, 0, 1]))
    assert estimate(values) == pytest.approx(4.0)
    assert draws(values).mean() != pytest.approx(4.0, abs=1e-6)  # Two models: the noise of one degree of freedom.
    assert bootstrap.average_by_model(np.array([1.0, 3.0]), np.array([5, 5])).tolist() == [1.0, 3.0]


def test_what_is_rarely_right_covers_whatever_its_share_is():
    """Of N items that are right or not the intervals are so few that their coverage is a sum, not a simulation."""
    intervals = {right: interval(draws(item_values(np.arange(N) < right))) for right in range(31)}

    def covered(share):
        held = [right for right, (low, high) in intervals.items() if low <= share <= high]
        return stats.binom.pmf(held, N, share).sum()

    shares = np.linspace(0.012, 0.06, 49)
    coverages = [covered(share) for share in shares]
    assert np.mean(coverages) == pytest.approx(0.95, abs=0.01)
    assert min(coverages) > 0.93
    counts_DN = cluster_draws(N, "prompts")
    intervals = {right: interval(counts_DN @ (np.arange(N) < right).astype(float) / N) for right in range(31)}
    assert min(map(covered, shares)) < 0.85, "plain percentiles would undercover"


def test_draws_are_those_of_a_loop_over_resampled_items():
    generator = np.random.default_rng(0)
    values_N, weights_N, clusters_N = generator.random(12), generator.random(12), np.repeat([4, 2, 9, 7], 3)
    drawn = [
        np.average(values_N, weights=weights_N * counts_C[np.searchsorted([2, 4, 7, 9], clusters_N)])
        for counts_C in cluster_draws(4, "prompts").astype(float)
    ]
    center = np.average(values_N, weights=weights_N)
    moves_C = [(weights_N / weights_N.sum() * (values_N - center))[clusters_N == name].sum() for name in (2, 4, 7, 9)]
    acceleration = sum(move**3 for move in moves_C) / (6 * sum(move**2 for move in moves_C) ** 1.5)
    ties = np.isclose(drawn, center, atol=1e-7)
    bias = stats.norm.ppf(((np.array(drawn) < center) & ~ties).mean() + ties.mean() / 2)
    moved = bias + stats.norm.ppf([0.025, 0.975])
    bca = np.quantile(drawn, stats.norm.cdf(bias + moved / (1 - acceleration * moved)))
    widening = math.sqrt(4 / 3) * 3.182446 / 1.959964  # t of 3 degrees of freedom against the normal distribution.
    found = interval(draws(item_values(values_N, weights_N, clusters_N)))
    assert found == pytest.approx(center + widening * (bca - center), rel=1e-4)


def test_what_is_measured_on_the_same_items_is_drawn_together():
    values_N = np.random.default_rng(0).normal(size=N)
    assert np.ptp(draws(item_values(values_N + 0.1)) - draws(item_values(values_N))) < 1e-6
    elsewhere = draws(item_values(values_N, items="sequences"))
    assert abs(np.corrcoef(draws(item_values(values_N)), elsewhere)[0, 1]) < 0.1


def test_equal_items_leave_no_width_and_draws_stay_within_the_bounds():
    assert interval(draws(item_values(np.full(N, 0.3)))) == pytest.approx((0.3, 0.3), abs=1e-12)
    assert interval(draws(item_values([[0.9, 1.0, 1.0], [0.2, 0.1, 0.3]], low=0.0, high=1.0))) == (0.0, 1.0)
    assert interval(np.clip(replicate_draws(np.array([0.9, 0.1])), 0.0, 1.0)) == (0.0, 1.0)
    assert draws(item_values([[2.0, 3.0], [0.1, 0.2]], aggregate="exp_mean")).min() >= 0


UNTOLD = {
    "one item": item_values([0.4]),
    "one cluster": item_values([0.4, 0.6], clusters=[3, 3]),
    "one known cluster": item_values([0.4, np.nan, 0.6], clusters=[3, 4, 3]),
    "one item that counts": item_values([0.4, 0.6], weights=[1.0, 0.0]),
    "nothing known": item_values([np.nan, np.nan]),
    "a seed without anything": item_values([[0.1, 0.2], [np.nan, np.nan]]),
    "draws without a known item": item_values([0.1, 0.3, *[np.nan] * 20]),
    "infinite": item_values([1.0, math.inf, 2.0], aggregate="exp_mean"),
    "infinite exponential": item_values([900.0, 901.0, 902.0], aggregate="exp_mean"),
}


@pytest.mark.parametrize("name", UNTOLD)
def test_where_it_cannot_be_told_there_is_no_interval(name):
    assert np.isnan(interval(draws(UNTOLD[name]))).all()


def test_one_replicate_without_items_has_no_interval():
    assert np.isnan(interval(replicate_draws(np.array([0.8])))).all()
    assert np.isnan(interval(replicate_draws(np.array([0.8, 0.7]), models_R=np.array([1, 1])))).sum() == 0


def test_draws_that_were_made_before_are_those_of_the_same_values_alone():
    values_N = np.random.default_rng(0).normal(size=N)
    first_D = draws(item_values(values_N))
    changed_N = np.where(np.arange(N) == 7, values_N + 1.0, values_N)
    for other in (item_values(changed_N), item_values(values_N, 1 + (np.arange(N) == 7)), item_values(values_N[::-1])):
        assert (draws(other) != first_D).any()
    assert (draws(item_values(values_N, items="sequences")) != first_D).any()
    assert (draws(item_values(values_N, clusters=np.arange(N) // 2)) != first_D).any()
    np.testing.assert_array_equal(draws(item_values(values_N)), first_D)


def accuracies(wrong, count=96, value=0.0):
    """Return accuracies that are all 1 but for a few."""
    return item_values(np.where(np.arange(count) < wrong, value, 1.0), low=0.0, high=1.0)


@pytest.mark.parametrize("wrong", [0, 1, 3, 9])
@pytest.mark.parametrize("count", [16, 96])
def test_of_values_nearly_all_at_a_bound_the_far_end_is_clopper_and_pearsons(wrong, count):
    low, high = interval(draws(accuracies(wrong, count)))
    exact = 1 - stats.beta.ppf(0.975, wrong + 1, count - wrong)
    assert low <= exact + 0.01
    if wrong < 3:  # Of more, BCa's end is further out now and then.
        assert low == pytest.approx(exact, abs=0.05)
    assert high >= 1 - wrong / count
    mirrored = item_values(1 - accuracies(wrong, count).values_RN, low=0.0, high=1.0)
    assert interval(draws(mirrored)) == pytest.approx((1 - high, 1 - low), abs=0.01)


def test_a_mean_of_one_is_surer_of_more_items_and_no_surer_of_copies():
    of_16, of_96 = (interval(draws(accuracies(0, count)))[0] for count in (16, 96))
    assert of_16 < of_96 < 1.0
    copies = item_values(np.ones(96), clusters=np.arange(96) // 6, low=0.0, high=1.0)
    assert interval(draws(copies))[0] == pytest.approx(of_16, abs=1e-9)


@pytest.mark.parametrize(("clusters", "mean"), [(5, 0.02), (9, 0.98), (10, 0.02), (11, 0.98), (20, 0.02)])
def test_a_mean_near_a_bound_is_covered_and_was_not_by_resampling(monkeypatch, mean, clusters):
    monkeypatch.setattr(bootstrap, "DRAWS", 1000)
    for kept in ("_dirichlet", "_gamma_quantiles", "cluster_draws"):  # Nothing that is kept of other numbers of draws.
        monkeypatch.setattr(bootstrap, kept, functools.cache(getattr(bootstrap, kept).__wrapped__))
    generator, rows = np.random.default_rng(5), 300
    means = {}
    for name, values_RN in {
        "0 or 1": (generator.random((rows, clusters)) < mean).astype(float),
        "far apart": generator.beta(2 * mean, 2 * (1 - mean), (rows, clusters)),
        "close": generator.beta(10 * mean, 10 * (1 - mean), (rows, clusters)),
        "very close": generator.beta(50 * mean, 50 * (1 - mean), (rows, clusters)),
    }.items():
        low_R, high_R = row_intervals(item_values(values_RN, low=0.0, high=1.0)).T
        means[name] = np.mean((low_R <= mean) & (mean <= high_R))
    assert min(means.values()) >= 0.93, means


def test_an_end_near_a_bound_does_not_jump():
    """Neither where a value leaves the bound, nor as one cluster after another does."""
    ends_by_wrong = np.array([interval(draws(accuracies(wrong, 96, 0.5))) for wrong in range(96)])
    assert np.abs(np.diff(ends_by_wrong, axis=0)).max() < 2.1 * 0.5 / 96, "the mean itself moves by .5 / 96 at each"
    for wrong in (0, 9, 10):
        left = accuracies(wrong, 16).values_RN - np.where(np.arange(16) == 15, 1e-9, 0.0)
        ends = interval(draws(accuracies(wrong, 16)))
        assert interval(draws(item_values(left, low=0.0, high=1.0))) == pytest.approx(ends, abs=1e-4)


def test_intervals_of_rows_have_the_longer_end_too():
    rows = item_values(np.vstack([accuracies(wrong).values_RN for wrong in (0, 2, 40)]), low=0.0, high=1.0)
    for row, ends in enumerate(row_intervals(rows)):
        assert ends == pytest.approx(interval(draws(rows.part(slice(row, row + 1)))), abs=2e-3)


@pytest.mark.parametrize("aggregate", ["mean", "exp_mean"])
def test_intervals_of_many_rows_at_once_are_those_of_each(aggregate):
    generator = np.random.default_rng(1)
    values = generator.random((5, 20))
    values[1, :19], values[2], values[3] = np.nan, 0.5, np.where(generator.random(20) < 0.3, np.nan, values[3])
    weights = generator.integers(1, 5, (5, 20)).astype(float)
    common = {"clusters_N": np.arange(20) // 2, "items": "prompts", "aggregate": aggregate, "low": 0.0}
    together = row_intervals(bootstrap.ItemValues(values_RN=values, weights_RN=weights, **common))
    for row in range(5):
        row_values = bootstrap.ItemValues(values_RN=values[[row]], weights_RN=weights[[row]], **common)
        np.testing.assert_allclose(together[row], interval(draws(row_values)), rtol=1e-6)
    assert np.isnan(together[1]).all(), "one cluster tells nothing"
