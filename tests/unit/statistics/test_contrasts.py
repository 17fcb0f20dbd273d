"""Contrasts: their p, intervals, verdicts and power, against SciPy, by hand, by jackknives and by simulated tests."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.statistics.contrasts import LEVEL, POWER, Contrast, paired_contrast, power, replicates_needed, verdicts
from harness.statistics.item_values import ItemValues, Match

MARGIN = math.log(1.1)
MANY = 100_000
"""Clusters of which Student's t is the normal distribution."""


def item_values(values, weights=None, clusters=None, **others):
    values_RN = np.atleast_2d(np.asarray(values, dtype=float))
    return ItemValues(
        values_RN=values_RN,
        weights_RN=np.ones_like(values_RN) if weights is None else np.atleast_2d(np.asarray(weights, dtype=float)),
        clusters_N=np.arange(values_RN.shape[1]) if clusters is None else np.asarray(clusters),
        items=others.pop("items", "prompts"),
        **others,
    )


def of_seeds(differences):
    """The contrast of replicates whose items say the same, each of its own."""
    differences = np.asarray(differences)
    return Contrast(differences.mean(), 0.0, differences.var(ddof=1) / len(differences), 256, len(differences))


def of_items(differences):
    differences = np.asarray(differences)
    return Contrast(differences.mean(), differences.var(ddof=1) / len(differences), 0.0, len(differences), 1)


PARTS = pytest.mark.parametrize("contrast_of", [of_seeds, of_items])


@PARTS
@pytest.mark.parametrize("count", [2, 3, 20])
def test_of_one_part_p_is_that_of_the_paired_t_test(contrast_of, count):
    a, b = np.random.default_rng(count).normal(0.3, 0.2, (2, count))
    assert contrast_of(a - b).p == pytest.approx(stats.ttest_rel(a, b).pvalue)


@PARTS
@pytest.mark.parametrize("shift", [0.0, 0.04, 0.08, 0.12, -0.3])
def test_equivalence_is_two_one_sided_t_tests(contrast_of, shift):
    differences = np.random.default_rng(1).normal(0.0, 0.05, 12) + shift
    above = stats.ttest_1samp(differences, -MARGIN, alternative="greater").pvalue
    below = stats.ttest_1samp(differences, MARGIN, alternative="less").pvalue
    assert contrast_of(differences).equivalence_p(MARGIN) == pytest.approx(max(above, below))
    assert (contrast_of(differences).equivalence_p(MARGIN) > 0.5) == (abs(differences.mean()) > MARGIN)


@PARTS
def test_an_interval_is_students(contrast_of):
    differences = np.random.default_rng(2).normal(0.3, 0.2, 5)
    for level in (0.05, 0.1):
        expected = stats.ttest_1samp(differences, 0).confidence_interval(1 - level)
        assert contrast_of(differences).interval(level) == pytest.approx(tuple(expected))


contrasts = st.builds(
    Contrast,
    difference=st.floats(-0.5, 0.5),
    items_variance=st.floats(1e-4, 0.1),
    replicates_variance=st.sampled_from([1e-4, 0.01, 0.3]),
    clusters=st.integers(2, 300),
    replicates=st.integers(2, 12),
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(contrasts)
def test_at_an_end_of_the_interval_p_is_five_percent(contrast):
    for end in contrast.interval():
        assert replace(contrast, difference=contrast.difference - end).p == pytest.approx(LEVEL)
    low, high = contrast.interval()
    assert (contrast.p < LEVEL) == (not low <= 0 <= high)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(contrasts, st.floats(0.05, 1.5))
def test_equivalence_is_an_interval_of_90_percent_within_the_margin(contrast, margin):
    low, high = contrast.interval(2 * LEVEL)
    assert (contrast.equivalence_p(margin) < LEVEL) == (-margin < low and high < margin)


def test_two_parts_are_less_certain_than_either_alone():
    both = Contrast(0.3, 0.01, 0.01, 64, 4)
    alone = [replace(both, items_variance=0.0), replace(both, replicates_variance=0.0)]
    assert all(both.p > one.p for one in alone)
    assert all(both.interval()[1] > one.interval()[1] for one in alone)


def test_without_variance_equal_is_equal_and_what_differs_everywhere_is_a_sign_test():
    same, apart = Contrast(0.0, 0.0, 0.0, 8, 1), Contrast(-0.5, 0.0, 0.0, 8, 1)
    assert (same.p, same.equivalence_p(MARGIN), same.interval()) == (1.0, 0.0, (0.0, 0.0))
    assert (apart.p, apart.equivalence_p(MARGIN), apart.interval()) == (2 / 2**8, 1.0, (-0.5, -0.5))


def at_p(p, difference=-0.5):
    """A contrast of many items with that p."""
    return Contrast(difference, (difference / stats.norm.isf(p / 2)) ** 2, 0.0, MANY, 1)


def test_the_four_verdicts():
    known, unknown = 0.01**2, 0.4**2
    planned = {
        "better": Contrast(-0.5, known, 0.0, MANY, 1),
        "worse": Contrast(0.5, known, 0.0, MANY, 1),
        "equivalent": Contrast(0.0, known, 0.0, MANY, 1),
        "undecided": Contrast(-0.5, unknown, 0.0, MANY, 1),
    }
    assert verdicts(list(planned.values()), MARGIN) == list(planned)


def test_what_differs_surely_by_less_than_the_margin_is_equivalent_and_by_more_it_is_not():
    at_half, beyond = Contrast(0.05, 1e-6, 0.0, MANY, 1), Contrast(0.12, 1e-6, 0.0, MANY, 1)
    assert at_half.p < 1e-9
    assert verdicts([at_half, beyond], MARGIN) == ["equivalent", "worse"]


def test_a_page_of_contrasts_is_one_family():
    assert at_p(0.03).p == pytest.approx(0.03, rel=1e-3)
    assert verdicts([at_p(0.03)], MARGIN) == ["better"]
    assert verdicts([at_p(0.03), *[at_p(0.8)] * 4], MARGIN) == ["undecided"] * 5
    # Holm: .005 · 3, .02 · 2 and .04 · 1 are all below .05; Bonferroni would keep the first alone.
    assert verdicts([at_p(0.04), at_p(0.005), at_p(0.02, 0.5)], MARGIN) == ["better", "better", "worse"]
    assert verdicts([], MARGIN) == []


def test_what_is_not_known_is_undecided_and_does_not_count_among_the_tests():
    unknown = Contrast(math.nan, 0.01, 0.0, MANY, 1)
    assert verdicts([at_p(0.03), *[unknown] * 4], MARGIN) == ["better", *["undecided"] * 4]


SEQUENCES, PROMPTS = 120, 150
LIMIT = 0.75


class Method:
    """Items of three points: the original, and two of a trajectory between which the matched metric is at the limit.

    Array letters: K points (the original, left, right), S sequences of the forget set, N prompts.
    """

    def __init__(self, seed, is_log):
        """Draw them; several seeds share what is hard about an item, as methods and replicates do."""
        own, common = np.random.default_rng([5, seed]), np.random.default_rng(5)
        hard_S, hard_N = common.normal(0, 0.1, SEQUENCES // 2).repeat(2), common.normal(0, 0.5, PROMPTS)
        levels = np.array([0.99, 0.85, 0.6])[:, None]
        self.matched_KS = levels + hard_S + own.normal(0, 0.15, (3, SEQUENCES))
        self.tokens_N = common.integers(4, 40, PROMPTS)
        self.losses_KN = np.array([2.0, 2.4, 3.1])[:, None] + hard_N + own.normal(0, 0.1, (3, PROMPTS))
        self.scale = np.log if is_log else np.asarray
        self.clusters_S, self.clusters_N = np.arange(SEQUENCES) // 2, np.arange(PROMPTS)

    def parts(self, kept_S, kept_N):
        """The matched metric and log perplexity of each point, over some items alone."""
        losses_KN, tokens_N = self.losses_KN[:, kept_N], self.tokens_N[kept_N]
        return self.matched_KS[:, kept_S].mean(axis=1), (losses_KN * tokens_N).sum(axis=1) / tokens_N.sum()

    def price(self, without_sequence=None, without_prompt=None):
        """What the limit costs, computed from scratch without a cluster: where it is crossed, and utility there."""
        by_K, losses_K = self.parts(self.clusters_S != without_sequence, self.clusters_N != without_prompt)
        left, right = self.scale(by_K[1:])
        weight = (left - self.scale(LIMIT)) / (left - right)
        return (1 - weight) * losses_K[1] + weight * losses_K[2] - losses_K[0]

    def evidence(self):
        """The same as the analysis has it: rows and shares of the price, and of the matched metric with the slope."""
        by_K, losses_K = self.parts(np.full(SEQUENCES, True), np.full(PROMPTS, True))
        left, right = self.scale(by_K[1:])
        weight = (left - self.scale(LIMIT)) / (left - right)
        shares = np.array([1 - weight, weight])
        moved = shares / by_K[1:] if self.scale is np.log else shares
        return (*shares, -1.0), tuple(moved), (losses_K[2] - losses_K[1]) / (right - left)


def contrast_of(ours, theirs, is_matched=True):
    """The contrast of two methods, each a list of replicates."""
    sides = []
    for replicates in (ours, theirs):
        shares, moved, slopes = zip(*(one.evidence() for one in replicates), strict=True)
        values = item_values(
            np.concatenate([one.losses_KN[[1, 2, 0]] for one in replicates]),
            np.tile(replicates[0].tokens_N, (3 * len(replicates), 1)), shares=shares, aggregate="exp_mean",
        )  # fmt: skip
        matched = np.concatenate([one.matched_KS[1:] for one in replicates])
        by = item_values(matched, clusters=replicates[0].clusters_S, items="sequences", shares=moved)
        sides.append((values, Match(by, np.array(slopes)) if is_matched else None))
    (a, match_a), (b, match_b) = sides
    return paired_contrast(a, b, match_a, match_b)


def jackknifed(difference, clusters):
    left_out = np.array([difference(cluster) for cluster in np.unique(clusters)])
    count = len(left_out)
    return (count - 1) / count * ((left_out - left_out.mean()) ** 2).sum()


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_prices_at_a_crossing_vary_as_their_jackknife_over_both_metrics_items_does(is_log, count):
    ours = [Method(seed, is_log) for seed in range(count)]
    theirs = [Method(seed, is_log) for seed in range(10, 10 + count)]

    def difference(**without):
        return np.mean([a.price(**without) - b.price(**without) for a, b in zip(ours, theirs, strict=True)])

    of_matched = jackknifed(lambda cluster: difference(without_sequence=cluster), ours[0].clusters_S)
    of_reported = jackknifed(lambda cluster: difference(without_prompt=cluster), ours[0].clusters_N)
    contrast, taken_as_known = contrast_of(ours, theirs), contrast_of(ours, theirs, is_matched=False)
    assert contrast.difference == pytest.approx(difference())
    assert contrast.items_variance == pytest.approx(of_matched + of_reported, rel=0.03)
    assert taken_as_known.items_variance == pytest.approx(of_reported, rel=0.03)
    assert of_matched > 0.3 * of_reported, "to take the crossing as known would be seen"
    assert (contrast.clusters, contrast.replicates) == (SEQUENCES // 2, count)
    assert taken_as_known.clusters == PROMPTS
    of_each = [a.price() - b.price() for a, b in zip(ours, theirs, strict=True)]
    assert contrast.replicates_variance == pytest.approx(np.var(of_each, ddof=1) / count if count > 1 else 0.0)


def test_two_methods_that_cross_alike_lose_what_they_share():
    one = Method(0, is_log=False)
    twin = Method(0, is_log=False)
    twin.losses_KN = one.losses_KN + np.array([0.0, 0.1, 0.1])[:, None]
    alike, different = contrast_of([one], [twin]), contrast_of([one], [Method(1, is_log=False)])
    assert (alike.difference, alike.standard_error) == pytest.approx((-0.1, 0.0), abs=1e-9)
    assert different.standard_error > 0.01


def test_only_one_of_the_two_may_lie_between_points():
    between, measured = Method(0, is_log=False), Method(1, is_log=False)
    shares, moved, slope = between.evidence()
    a = item_values(between.losses_KN[[1, 2, 0]], np.tile(between.tokens_N, (3, 1)), shares=(shares,))
    b = item_values(measured.losses_KN[[1, 0]], np.tile(between.tokens_N, (2, 1)), shares=((1.0, -1.0),))
    by = item_values(between.matched_KS[1:], clusters=between.clusters_S, items="sequences", shares=(moved,))
    _, losses_K = measured.parts(np.full(SEQUENCES, True), np.full(PROMPTS, True))
    theirs = losses_K[1] - losses_K[0]
    of_matched = jackknifed(lambda cluster: between.price(without_sequence=cluster) - theirs, between.clusters_S)
    known = paired_contrast(a, b).items_variance
    assert paired_contrast(a, b, Match(by, np.array([slope]))).items_variance - known == pytest.approx(
        of_matched, rel=0.03
    )
    assert paired_contrast(b, a, None, Match(by, np.array([slope]))).items_variance - known == pytest.approx(
        of_matched, rel=0.03
    )


def test_matched_metrics_of_other_texts_are_refused_and_of_one_cluster_say_nothing():
    a, b = (item_values(np.random.default_rng(seed).normal(size=20)) for seed in (0, 1))

    def match(values, **others):
        return Match(item_values(values, items="sequences", **others), np.ones(1))

    with pytest.raises(ValueError, match="9 clusters of items in one and 7 in the other"):
        paired_contrast(a, b, match(np.arange(9.0)), match(np.arange(7.0)))
    assert paired_contrast(a, b, match(np.arange(9.0)), match(np.arange(9.0))) is not None
    assert paired_contrast(a, b, match(np.arange(3.0), clusters=[4, 4, 4])) is None
    assert paired_contrast(a, b, match([1.0, math.inf, 2.0])) is None


@pytest.mark.parametrize("unknown", [[[0.1, 0.3], [math.nan, math.nan]], [[0.1, math.inf], [0.2, 0.3]]], ids=str)
def test_a_replicate_without_a_number_is_no_contrast(unknown):
    known = item_values([[0.1, 0.2], [0.4, 0.3]])
    assert paired_contrast(item_values(unknown), known) is None
    assert paired_contrast(known, item_values([[0.3, 0.1], [0.2, 0.4]])) is not None


TESTS = 20_000


def found(difference, deviation, replicates, tests):
    """The share of simulated paired t tests that find a difference."""
    generator = np.random.default_rng([replicates, tests])
    samples = generator.normal(difference, deviation, (TESTS, replicates))
    return (stats.ttest_1samp(samples, 0.0, axis=1).pvalue < 0.05 / tests).mean()


@pytest.mark.parametrize("ratio", [0.0, 0.6, 1.5, 3.2])
@pytest.mark.parametrize(("replicates", "tests"), [(2, 1), (3, 1), (5, 6), (12, 21)])
def test_power_is_the_share_of_simulated_tests_that_find_a_difference(ratio, replicates, tests):
    expected = found(ratio * 0.13, 0.13, replicates, tests)
    error = math.sqrt(max(expected * (1 - expected), 1e-3) / TESTS)
    assert power(ratio * 0.13, 0.13, replicates, tests) == pytest.approx(expected, abs=4 * error)


def test_power_without_a_difference_is_the_level_and_of_one_replicate_nothing():
    assert power(0.0, 0.13, 7, 4) == pytest.approx(0.05 / 4)
    assert power(9.0, 0.13, 1) == 0.0
    assert power(-0.42, 0.13, 5) == power(0.42, 0.13, 5)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.floats(0.15, 8.0), st.integers(1, 21))
def test_no_fewer_replicates_would_do(ratio, tests):
    needed = replicates_needed(ratio, 1.0, tests)
    assert power(ratio, 1.0, needed, tests) >= POWER
    assert power(ratio, 1.0, needed - 1, tests) < POWER


def test_what_a_thousand_replicates_do_not_find_is_not_found():
    assert power(0.08, 1.0, 1000) < POWER
    assert replicates_needed(0.08, 1.0) is None
    assert replicates_needed(0.1, 1.0) == 787
