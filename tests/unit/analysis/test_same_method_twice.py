"""The gate: a method that is compared with itself is not told from itself, and from one that costs more it is."""

import math
from dataclasses import replace

import pytest
from scipy import stats

from harness.analysis.analysis import Analysis
from harness.analysis.matched.verdicts import verdict_tables
from harness.library import read_folder
from harness.records.journal import Journal
from harness.records.results import read_results
from harness.statistics.significance import holm
from harness.sweep import main

LEVEL = 0.05
REPETITIONS = 40
TWICE = {"ga": "ga_again", "gd": "gd_again"}
"""Each method, and its other name."""


def rate_bounds(false, pages):
    """The 95 % interval of a rate that was seen `false` times on so many pages: Clopper's and Pearson's."""
    exact = stats.binomtest(false, pages).proportion_ci(0.95, method="exact")
    return exact.low, exact.high


def test_bounds_of_a_rate_by_hand():
    assert rate_bounds(0, 80) == pytest.approx((0.0, 1 - 0.025 ** (1 / 80)))
    assert rate_bounds(8, 80)[0] < LEVEL < rate_bounds(9, 80)[0], "the gate shuts at 9 false pages of 80"


def passes(false, pages, what):
    low, high = rate_bounds(false, pages)
    print(f"{what}: {false} of {pages} pages are false, {false / pages:.3f} ({low:.3f} to {high:.3f})")
    return low <= LEVEL


def pages_against_themselves(results):
    """Yield a page for each method that is there under two names: what is said of the second, the first as reference.

    All the other rows are contrasts of the same page.
    """
    analysis = Analysis(results)
    for name, again in TWICE.items():
        tables = verdict_tables(analysis.matched, name, results.plan.compare.margin)
        if name == analysis.verdicts[0].reference.variant:  # The page that a report has.
            assert [table.rows for table in tables] == [table.rows for table in analysis.verdicts]
        judged = [one for table in tables for one in table.rows if one.row.variant == again and one.contrast]
        assert judged, "it is compared with itself"
        yield judged


def is_false(said):
    return bool({"better", "worse"} & set(said))


def simulated(simulate_sweep, folder, deviation, seeds=5, repetitions=REPETITIONS):
    """Pages of sweeps in which both names of a method cost the same, but for the noise of seeds and items."""
    costs = {"ga": 1.0, "ga_again": 1.0, "gd": 0.7, "gd_again": 0.7}
    for repetition in range(repetitions):
        path = folder / str(repetition)
        simulate_sweep(path, costs, seeds=seeds, deviation=deviation, seed=[seeds, repetition], prompts=48, noise=0.2)
        yield from pages_against_themselves(read_folder(path))


@pytest.mark.soak
@pytest.mark.parametrize("deviation", [0.05, 0.1])
def test_simulated_methods_are_not_told_from_themselves(simulate_sweep, tmp_path, deviation):
    pages = list(simulated(simulate_sweep, tmp_path, deviation))
    false = sum(is_false([one.verdict for one in page]) for page in pages)
    assert passes(false, len(pages), f"five seeds that deviate by {deviation}")
    # The gate can shut: if items were all the evidence, as of one seed, most pages would tell a method from itself.
    alone = 0
    for page in pages:
        alone += min(holm([replace(one.contrast, replicates_variance=0.0).p for one in page])) < LEVEL
    assert not passes(alone, len(pages), "by items alone")


@pytest.mark.soak
def test_of_one_seed_nothing_is_said(simulate_sweep, tmp_path):
    pages = list(simulated(simulate_sweep, tmp_path, deviation=0.1, seeds=1, repetitions=4))
    assert {one.verdict for page in pages for one in page} == {None}


@pytest.mark.soak
def test_a_method_that_costs_30_percent_more_is_told_from_itself(simulate_sweep, tmp_path):
    costs, told = {"ga": 1.0, "ga_again": 1.0 + math.log(1.3)}, 0
    for repetition in range(10):
        path = tmp_path / str(repetition)
        simulate_sweep(path, costs, deviation=0.02, seed=repetition, noise=0.2)
        [_, at_75] = Analysis(read_folder(path)).verdicts
        told += at_75.rows[0].verdict == "worse"
    assert told >= 8


SWEEP = """
# Is a method told from itself?
name: twice
models: [miniature-s]
seeds: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
data:
  forget: {source: miniature, sequences: 24}
  retain: {source: miniature, sequences: 24}
  utility: {source: miniature, prompts: 16, reference_tokens: 32}
  validation: {source: miniature, sequences: 8}
training: {learning_rate: 2.0e-4, global_batch: 8, early_stop: null}
methods:
  gradient_ascent: {epochs: [1, 2, 3]}
  gradient_difference: {epochs: [1, 2, 3]}
evaluators:
  memorization: {el_sequences: 4, el_prefixes: 2}
  generation: {}
compare: {erasure: [ma]}
keep_erased: none
"""


def relabelled(folder):
    """The results of ten seeds as those of five: seeds 5 to 9 are the same methods' under another name."""
    journal = Journal(folder / "journal")
    plan, trials = journal.read_plan(), []
    short = {"gradient_ascent": "ga", "gradient_difference": "gd"}
    for spec in plan.trials:
        if not spec.is_reference:
            name = short[spec.variant]
            trials.append(replace(spec, variant=name if spec.seed < 5 else TWICE[name], seed=spec.seed % 5))
        elif spec.seed < 5:
            trials.append(spec)
    return read_results(replace(plan, trials=tuple(trials)), journal)


@pytest.mark.soak
def test_trained_methods_are_not_told_from_themselves(tmp_path):
    (tmp_path / "twice.yaml").write_text(SWEEP.lstrip())
    results_of = ["--executor", "inline", "--results", str(tmp_path)]
    assert main([str(tmp_path / "twice.yaml"), *results_of]) == 0
    pages = list(pages_against_themselves(relabelled(tmp_path / "twice")))
    assert all(one.contrast.replicates == 5 for page in pages for one in page)
    false = sum(is_false([one.verdict for one in page]) for page in pages)
    print([(one.row.label, one.verdict, one.contrast) for page in pages for one in page])
    assert passes(false, len(pages), "miniature-s, five seeds")
