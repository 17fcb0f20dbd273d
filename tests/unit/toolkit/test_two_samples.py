"""An AUC as the mean of a value for each text: against scikit-learn's, DeLong's formulas and what is drawn again."""

import math

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from harness.statistics.bootstrap import row_intervals
from harness.statistics.contrasts import paired_contrast
from harness.toolkit import auc_items
from tests.unit.statistics.values import item_values


def scores(seed, members=23, others=41, apart=0.8):
    """Scores of members and others; rounded, so that many are tied."""
    generator = np.random.default_rng(seed)
    return generator.normal(apart, 1, members).round(1), generator.normal(0, 1, others).round(1)


def pair_wins(members, others):
    """1 where a member is higher, a half where it is equal (N, M)."""
    return np.array([[(member > other) + (member == other) / 2 for other in others] for member in members])


def delong_covariance(one, other):
    """DeLong's covariance of two AUCs on the same texts, one pair at a time, with N and M in place of N − 1, M − 1."""
    parts = []
    for axis in (1, 0):
        first, second = (pair_wins(*sides).mean(axis=axis) for sides in (one, other))
        parts.append(((first - first.mean()) * (second - second.mean())).mean() / len(first))
    return sum(parts)


@pytest.mark.parametrize("seed", range(5))
def test_the_mean_is_the_auc(seed):
    members, others = scores(seed)
    expected = roc_auc_score([1] * len(members) + [0] * len(others), [*members, *others])
    assert auc_items(members, others).mean() == pytest.approx(expected, abs=1e-12)
    assert auc_items(members, others, "lower").mean() == pytest.approx(1 - expected, abs=1e-12)
    assert len(set(members) & set(others)) > 3, "there are ties"


@pytest.mark.parametrize("seed", range(5))
def test_the_standard_error_is_delongs(seed):
    sides = scores(seed)
    values, texts = item_values(auc_items(*sides)), sum(map(len, sides))
    variance = delong_covariance(sides, sides)
    assert values.standard_errors()[0] ** 2 * (texts - 1) / texts == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_two_aucs_on_the_same_texts_are_compared_with_their_covariance(seed):
    one = scores(seed)
    other = tuple(side + part / 2 for side, part in zip(one, scores(seed + 100, apart=0.0), strict=True))
    contrast = paired_contrast(*(item_values(auc_items(*sides)) for sides in (one, other)))
    variances = delong_covariance(one, one) + delong_covariance(other, other)
    expected = variances - 2 * delong_covariance(one, other)
    texts = sum(map(len, one))
    assert contrast.items_variance * (texts - 1) / texts == pytest.approx(expected, rel=1e-9)
    assert expected < variances / 2, "far less than of independent texts"
    assert contrast.difference == pytest.approx(pair_wins(*one).mean() - pair_wins(*other).mean(), abs=1e-12)


def test_intervals_of_drawn_texts_hold_the_true_auc():
    generator = np.random.default_rng(7)
    drawn = [auc_items(generator.normal(1, 1, 30), generator.normal(0, 1, 60)) for _ in range(400)]
    low, high = row_intervals(item_values(drawn, items="texts")).T
    true = norm.cdf(1 / math.sqrt(2))
    assert 0.92 < np.mean((low < true) & (true < high)) < 0.98
    assert np.mean((low < 0.5) & (high > 0.5)) < 0.1, "they are no wider than they need to be"


def test_a_text_without_a_score_does_not_count_and_an_infinite_score_does():
    members, others = scores(1, 6, 5)
    items = auc_items([*members, math.nan], [math.nan, *others])
    assert np.isnan(items).tolist() == [False] * 6 + [True, True] + [False] * 5
    assert items[~np.isnan(items)].tolist() == auc_items(members, others).tolist()
    assert auc_items([math.inf, 0.0], [math.inf, -math.inf]).mean() == (0.5 + 1 + 0 + 1) / 4


def test_without_a_score_on_one_side_nothing_is_known():
    assert np.isnan(auc_items([math.nan], [1.0, 2.0])).all()
    assert np.isnan(auc_items([1.0], [])).all()
    assert len(auc_items([1.0], [])) == 1
