"""The gate: a method that is compared with itself is not told from itself, and from one that costs more it is."""

import math

import pytest

from harness.analysis.analysis import Analysis
from harness.library import read_folder
from harness.settings import replace
from studies.error_rates import upper_bound

MAX_RATE = 0.1
"""The upper bound of the rate of false pages must lie below: twice the level of all tests of a page."""
REPETITIONS = 60
TWICE = {"ga": "ga_again", "gd": "gd_again"}
"""Each method, and its other name."""


def test_the_bound_of_a_rate_by_hand():
    assert upper_bound(0, 80) == pytest.approx(1 - 0.025 ** (1 / 80))
    assert upper_bound(5, 120) < MAX_RATE < upper_bound(6, 120), "the gate shuts at 6 false pages of 120"


def pages_against_themselves(results):
    """Yield a page for each method that is there under two names: the row of the second, the first as reference.

    All the other rows are contrasts of the same page.
    """
    for name, again in TWICE.items():
        plan = replace(results.plan, compare=replace(results.plan.compare, reference=name))
        rows = Analysis(replace(results, plan=plan)).answer.frame.set_index("variant")
        assert not math.isnan(rows.loc[again, "ratio"]), "it is compared with itself"
        yield rows.loc[again]


def simulated(simulate_sweep, folder, deviation, seeds=3, repetitions=REPETITIONS):
    """Pages of sweeps in which both names of a method cost the same, but for the noise of runs and items."""
    costs = {"ga": 1.0, "ga_again": 1.0, "gd": 0.7, "gd_again": 0.7}
    for repetition in range(repetitions):
        path = folder / str(repetition)
        simulate_sweep(path, costs, seeds=seeds, deviation=deviation, seed=[seeds, repetition], prompts=48, noise=0.2)
        yield from pages_against_themselves(read_folder(path))


@pytest.mark.soak
@pytest.mark.parametrize("deviation", [0.05, 0.1])
def test_simulated_methods_are_not_told_from_themselves(simulate_sweep, tmp_path, deviation):
    pages = list(simulated(simulate_sweep, tmp_path, deviation))
    false = sum(page["verdict"] in ("cheaper", "dearer") for page in pages)
    print(f"three runs that deviate by {deviation}: {false} of {len(pages)} pages are false")
    assert upper_bound(false, len(pages)) < MAX_RATE
    # The gate can shut: if items were all the evidence, most pages would tell a method from itself.
    alone = sum(abs(math.log(page["ratio"])) > 1.96 * math.sqrt(page["item_variance"]) for page in pages)
    assert upper_bound(alone, len(pages)) > MAX_RATE


def test_fewer_than_three_runs_say_nothing(simulate_sweep, tmp_path):
    pages = [*simulated(simulate_sweep, tmp_path / "1", deviation=0.1, seeds=1, repetitions=1)]
    pages += simulated(simulate_sweep, tmp_path / "2", deviation=0.1, seeds=2, repetitions=1)
    assert {page["verdict"] for page in pages} == {""}


@pytest.mark.soak
def test_a_method_that_costs_30_percent_more_is_told_from_itself(simulate_sweep, tmp_path):
    costs, told = {"ga": 1.0, "ga_again": 1.0 + math.log(1.3)}, 0
    for repetition in range(10):
        path = tmp_path / str(repetition)
        simulate_sweep(path, costs, deviation=0.02, seed=repetition, noise=0.2)
        rows = Analysis(read_folder(path)).answer.frame.set_index("variant")
        told += rows.loc["ga_again", "verdict"] == "dearer"
    assert told >= 8
