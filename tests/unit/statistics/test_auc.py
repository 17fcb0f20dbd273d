"""AUCs of models and of texts, against loops over pairs; their intervals, where nothing differs and where it does."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import mannwhitneyu

from harness.statistics.auc import auc_interval, model_auc, text_auc


def wins(first, second):
    return [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(first, second)]


@pytest.mark.parametrize("seed", range(5))
def test_the_auc_is_the_share_of_pairs_that_the_first_group_wins(seed):
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, 4, 6).astype(float), generator.integers(0, 3, 4).astype(float)
    assert model_auc(first, second).value == pytest.approx(np.mean(wins(first, second)))
    assert model_auc(first, second).value == pytest.approx(mannwhitneyu(first, second).statistic / 24)
    unknown = model_auc([*first, math.nan], second)
    assert unknown == model_auc(first, second), "what is not known takes no part"
    assert math.isnan(model_auc([math.nan], second).value)


@pytest.mark.parametrize(
    ("value", "first", "second"), [(0.5, 5, 5), (0.9, 4, 7), (1.0, 5, 5), (0.0, 2, 2), (0.64, 30, 30)]
)
def test_the_bounds_solve_newcombes_equation(value, first, second):
    for bound in auc_interval(value, first, second):
        if bound not in (0.0, 1.0):
            shape = 1 + ((first + second) / 2 - 1) * ((1 - bound) / (2 - bound) + bound / (1 + bound))
            variance = bound * (1 - bound) / (first * second) * shape
            assert abs(value - bound) == pytest.approx(1.959964 * math.sqrt(variance), rel=1e-5)


def test_perfect_separation_of_few_models_is_no_certainty():
    low, high = auc_interval(1.0, 5, 5)
    assert high == 1.0
    assert 0.5 < low < 0.7
    assert auc_interval(1.0, 30, 30)[0] > 0.9, "more models say more"
    assert auc_interval(0.0, 5, 5) == pytest.approx((0.0, 1.0 - low))


def test_shuffled_labels_of_models_give_a_half_and_the_interval_holds_it():
    """All 252 ways to call five of ten models memorised: nothing is left to chance."""
    values = set(range(10))
    estimates = [model_auc(list(first), list(values - set(first))) for first in itertools.combinations(values, 5)]
    assert np.mean([estimate.value for estimate in estimates]) == pytest.approx(0.5)
    held = np.mean([estimate.low <= 0.5 <= estimate.high for estimate in estimates])
    assert held == pytest.approx(238 / 252), "as the exact rank sum test of 5 against 5 at about 5 %"


@pytest.mark.parametrize("shift", [0.5, 1.0, 2.0])
def test_the_interval_of_models_holds_the_truth_where_there_is_a_difference(shift):
    truth = float(ndtr(shift / math.sqrt(2)))
    draws = np.random.default_rng(0).normal(size=(2000, 10))
    values = ((draws[:, :5, None] + shift) > draws[:, None, 5:]).mean(axis=(1, 2)).round(9)
    intervals = {value: auc_interval(value, 5, 5) for value in set(values.tolist())}
    held = np.mean([intervals[value][0] <= truth <= intervals[value][1] for value in values.tolist()])
    assert 0.93 <= held <= 0.995


def crossed(generator, shift=0.0, models=5, texts=40):
    """Models and texts that differ, and a difference between the groups: values by model and text."""
    hard_T = generator.normal(size=texts)
    groups = []
    for level in (shift, 0.0):
        aside_P1 = generator.normal(scale=0.5, size=(models, 1))
        groups.append(level + aside_P1 + hard_T + generator.normal(size=(models, texts)))
    return groups


def test_the_auc_of_texts_is_the_share_of_triples():
    generator = np.random.default_rng(1)
    first, second = generator.integers(0, 3, (3, 4)).astype(float), generator.integers(0, 3, (2, 4)).astype(float)
    first[0, 1] = math.nan
    shares = []
    for text in range(4):
        known = [value for value in first[:, text] if not math.isnan(value)]
        shares += wins(known, second[:, text])
    assert text_auc(first, second, np.arange(4)).value == pytest.approx(np.mean(shares))


def test_shuffled_labels_of_texts_give_a_half_and_the_interval_holds_it():
    generator = np.random.default_rng(2)
    estimates = [text_auc(*crossed(generator), np.arange(40)) for _ in range(300)]
    assert np.mean([estimate.value for estimate in estimates]) == pytest.approx(0.5, abs=0.02)
    held = np.mean([estimate.low <= 0.5 <= estimate.high for estimate in estimates])
    assert 0.92 <= held <= 0.99
    found = text_auc(*crossed(generator, shift=2.0), np.arange(40))
    assert found.low > 0.5, "and labels that mean something are found"


def test_a_text_that_stands_there_a_hundred_times_is_one_text():
    first, second = crossed(np.random.default_rng(3), shift=0.5, texts=6)
    once = text_auc(first, second, np.arange(6))
    copied = [np.repeat(values, 100, axis=1) for values in (first, second)]
    clustered = text_auc(*copied, np.repeat(np.arange(6), 100))
    assert (clustered.value, clustered.low, clustered.high) == pytest.approx((once.value, once.low, once.high))
    separate = text_auc(*copied, np.arange(600))
    assert separate.high - separate.low < once.high - once.low


def test_where_all_texts_of_all_models_agree_the_interval_is_that_of_the_models():
    apart = text_auc(np.ones((5, 30)), np.zeros((5, 30)), np.arange(30))
    assert (apart.value, apart.low, apart.high) == (1.0, *auc_interval(1.0, 5, 5))
    assert math.isnan(text_auc([[math.nan]], [[1.0]], np.arange(1)).value)
