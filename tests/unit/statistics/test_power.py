"""Power with two sources of variance: against simulated tests, at the ends where one of them is gone, and by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from harness.statistics.contrasts import POWER, Contrast, power, replicates_needed
from harness.statistics.power import contrast_power, items_to_find, replicates_to_find
from harness.statistics.significance import two_part_p

SIMULATIONS = 1500


def of_spread(items, deviation, replicates=3, clusters=64):
    """A contrast whose items leave it uncertain by `items`, and whose replicates deviate."""
    return Contrast(0.2, items**2, deviation**2 / replicates, clusters, replicates)


def found(difference, contrast, replicates, tests):
    """The share of simulated sweeps whose test finds a difference: both variances estimated anew."""
    generator, shares = np.random.default_rng(replicates), 0
    deviation, freedom = math.sqrt(contrast.replicates_variance * contrast.replicates), contrast.clusters - 1
    for _ in range(SIMULATIONS):
        of_replicates = generator.normal(difference, deviation, replicates)
        seen = of_replicates.mean() + generator.normal(0, math.sqrt(contrast.items_variance))
        of_items = contrast.items_variance * generator.chisquare(freedom) / freedom
        variances = of_items, of_replicates.var(ddof=1) / replicates
        shares += two_part_p(seen, variances, (freedom, replicates - 1)) < 0.05 / tests
    return shares / SIMULATIONS


@pytest.mark.parametrize("contrast", [of_spread(0.02, 0.13), of_spread(0.1, 0.1)], ids=["seeds", "both"])
@pytest.mark.parametrize(("difference", "replicates", "tests"), [(0.3, 3, 1), (0.4, 5, 6), (0.3, 12, 1)])
def test_power_is_the_share_of_simulated_sweeps_that_find_it(contrast, difference, replicates, tests):
    expected = found(difference, contrast, replicates, tests)
    error = math.sqrt(expected * (1 - expected) / SIMULATIONS)
    assert contrast_power(difference, contrast, replicates, tests) == pytest.approx(expected, abs=3.5 * error + 0.01)


@pytest.mark.parametrize("replicates", [2, 3, 8])
def test_with_items_without_end_it_is_students_test_of_the_replicates(replicates):
    ours = contrast_power(0.3, of_spread(0.0, 0.13), replicates, 4)
    assert ours == pytest.approx(power(0.3, 0.13, replicates, 4), abs=0.01)


def test_with_replicates_that_do_not_differ_it_is_that_of_the_items():
    expected = stats.norm.sf(stats.t.isf(0.025, 63) - 3.0)
    assert contrast_power(0.3, of_spread(0.1, 0.0), 5) == pytest.approx(expected, abs=1e-3)
    assert replicates_to_find(0.3, of_spread(0.1, 0.0)) == 2
    assert replicates_to_find(0.1, of_spread(0.1, 0.0)) is None


def test_no_fewer_replicates_would_do_and_items_never_make_it_fewer():
    for items in (0.0, 0.02, 0.05):
        contrast = of_spread(items, 0.13)
        needed = replicates_to_find(0.2, contrast, 4)
        assert contrast_power(0.2, contrast, needed, 4) >= POWER
        assert contrast_power(0.2, contrast, needed - 1, 4) < POWER
        assert needed >= replicates_needed(0.2, 0.13, 4)
    assert needed > replicates_needed(0.2, 0.13, 4)


def test_where_items_are_missing_no_number_of_replicates_helps():
    assert replicates_needed(0.2, 0.05) is not None
    assert replicates_to_find(0.2, of_spread(0.2, 0.05)) is None
    assert contrast_power(0.2, of_spread(0.2, 0.05), 1000) < 0.2


def test_without_a_difference_or_a_second_replicate_nothing_is_said():
    contrast = of_spread(0.05, 0.1)
    assert contrast_power(0.0, contrast, 4) == pytest.approx(found(0.0, contrast, 4, 1), abs=0.02)
    assert contrast_power(-0.3, contrast, 4) == pytest.approx(contrast_power(0.3, contrast, 4))
    assert contrast_power(0.3, contrast, 1) == 0.0
    assert replicates_to_find(0.0, contrast) is None
    assert replicates_to_find(math.nan, contrast) is None
    assert replicates_to_find(math.inf, contrast) is None
    alone = Contrast(0.3, 0.01, 0.0, 64, 1)
    assert math.isnan(contrast_power(0.3, alone, 5))
    assert replicates_to_find(0.3, alone) is None


def test_what_has_no_variance_at_all_is_found_if_it_is_there():
    exact = Contrast(0.3, 0.0, 0.0, 64, 3)
    assert (contrast_power(0.3, exact, 3), contrast_power(0.0, exact, 3)) == (1.0, 0.0)
    assert (replicates_to_find(0.3, exact), replicates_to_find(0.0, exact)) == (2, None)


def test_items_needed_are_those_of_students_test_and_no_fewer():
    # Normal theory: (1.96 + .842)² · .88² / .0953² is 669, and Student's t takes some more.
    needed = items_to_find(math.log(1.1), 0.055**2, 256)
    assert needed == pytest.approx(669, abs=4)
    powers = [power(math.log(1.1), 0.055 * 16, count) for count in (needed - 1, needed)]
    assert powers[0] < POWER <= powers[1]
    assert items_to_find(math.log(1.1), 0.055**2 / 4, 256) == pytest.approx(needed / 4, abs=2)
    assert items_to_find(5.0, 0.055**2, 256) == 3


def test_items_that_say_nothing_need_no_number():
    assert items_to_find(0.1, 0.0, 256) == 2
    assert items_to_find(0.1, 0.01, 1) is None
    assert items_to_find(0.0, 0.01, 256) is None
    assert items_to_find(1e-6, 0.01, 256) is None
