"""Large sweeps: work that grows with what there is, and no faster; pages that stay readable. Counted, never timed."""

import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from harness.analysis import shown
from harness.analysis.analysis import Analysis
from harness.analysis.ranks.rule import printed
from harness.base.plain_data import repeated
from harness.records.results import Results, trial_results
from harness.reporting.files import write
from harness.reporting.sections import trials
from harness.statistics.bootstrap import draws, interval, row_intervals
from harness.statistics.frontier import non_dominated
from harness.statistics.item_values import ItemValues

VARIANTS, POINTS = 4, 60
"""Fewer than are really shown."""


class Compared(int):
    """A number that counts how often it is compared."""

    count = 0

    def __eq__(self, other):
        Compared.count += 1
        return int(self) == int(other)

    __hash__ = int.__hash__


def test_a_value_is_found_again_without_looking_at_all_before_it():
    values = [Compared(number) for number in range(1000)]
    assert list(repeated(values)) == []
    assert Compared.count < len(values)
    assert list(repeated([*values, Compared(7)])) == [(1000, 7)]
    assert list(repeated([{"a": [1]}, {"a": [1]}, {"a": [2]}, [1], 1, True])) == [(1, {"a": [1]}), (5, True)]


def naive(erasure, utility):
    pairs = list(zip(erasure, utility, strict=True))
    return [not np.isnan(e + u) and not any(a <= e and b <= u and (a < e or b < u) for a, b in pairs) for e, u in pairs]


def test_the_frontier_is_that_of_all_pairs_and_holds_no_table_of_them():
    generator = np.random.default_rng(0)
    choices = np.array([0.0, -0.0, 1.0, 2.0, 3.0, np.nan, np.inf])
    for size in (*range(8), 30):
        for _ in range(30):
            erasure, utility = generator.choice(choices, (2, size))
            assert non_dominated(erasure, utility).tolist() == naive(erasure, utility)

    def most_held(count):
        erasure, utility = generator.random((2, count))
        tracemalloc.start()
        non_dominated(erasure, utility)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert most_held(4000) < 5 * most_held(1000)


@pytest.mark.parametrize("aggregate", ["mean", "exp_mean"])
def test_intervals_of_many_rows_at_once_are_those_of_each(aggregate):
    generator = np.random.default_rng(1)
    values = generator.random((5, 20))
    values[1, :19], values[2], values[3] = np.nan, 0.5, np.where(generator.random(20) < 0.3, np.nan, values[3])
    weights = generator.integers(1, 5, (5, 20)).astype(float)
    common = {"clusters_N": np.arange(20) // 2, "items": "prompts", "aggregate": aggregate, "low": 0.0}
    together = row_intervals(ItemValues(values_RN=values, weights_RN=weights, **common))
    for row in range(5):
        alone = ItemValues(values_RN=values[[row]], weights_RN=weights[[row]], **common)
        np.testing.assert_allclose(together[row], interval(draws(alone)), rtol=1e-6)
    assert np.isnan(together[1]).all(), "one cluster tells nothing"


def test_ties_among_many_ranks():
    assert printed([1.0, 2.0, 2.0, float("nan")]) == ["1", "=2", "=2", ""]


@pytest.fixture(scope="module")
def large(make_row, make_plan, make_measurement):
    """Return the results of many variants, measured at several strengths."""

    def make(variants, strengths, seeds=1):
        generator = np.random.default_rng(2)
        specs = [make_row("original", seed=seed) for seed in range(seeds)]
        specs += [
            make_row(f"emso(k={k})", tuple(range(1, strengths + 1)), seed, method="emso", label=f"EMSO (k={k})")
            for k in range(variants)
            for seed in range(seeds)
        ]
        numbers = ("ma", "el_3", "perplexity")
        trials = []
        for spec in specs:
            records = [
                make_measurement(spec, strength, numbers={name: generator.random() for name in numbers})
                for strength in spec.points()
            ]
            trials.append(trial_results(replace(spec, evaluators=spec.evaluators[:1]), records))
        return Results(make_plan(*(trial.spec for trial in trials)), tuple(trials))

    return make


def test_a_report_of_many_variants_shows_the_best_and_says_where_the_others_are(large, tmp_path, monkeypatch):
    monkeypatch.setattr(shown, "VARIANTS", VARIANTS)
    results = large(3 * VARIANTS, 1)
    analysis = Analysis(results)
    write(analysis, tmp_path)
    points, ranking = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("table", "ranking"))
    assert (len(points), len(ranking)) == (1 + 3 * VARIANTS, 3 * VARIANTS), "the tables have everything"
    page, lines = (tmp_path / "report.html").read_text(), (tmp_path / "table.md").read_text()
    said = f"Shown are {1 + VARIANTS} of {1 + 3 * VARIANTS} points, of {VARIANTS} of {3 * VARIANTS} rows"
    assert said in page
    assert said in lines
    best = list(analysis.ranked.ranking["label"])
    assert all(f">{label}<" in page for label in best[:VARIANTS])
    assert not any(f">{label}<" in page for label in best[VARIANTS:])
    assert len(re.findall(r'<tr id="point-', page)) == 1 + VARIANTS


def test_a_long_trajectory_is_thinned_evenly_and_keeps_its_ends(large, monkeypatch):
    monkeypatch.setattr(shown, "POINTS", POINTS)
    results = large(1, POINTS + 25)
    analysis = Analysis(results)
    kept = analysis.points["strength"].dropna()
    assert (kept.min(), kept.max()) == (1, POINTS + 25)
    assert POINTS // 2 < len(kept) <= POINTS
    assert set(np.diff(sorted(kept))) <= {1, 2}
    assert {point.strength for trial in analysis.shown.trials for point in trial.measured} - {None} == set(kept)


def test_a_sweep_of_a_usual_size_is_shown_whole(large):
    results = large(5, 3, seeds=2)
    analysis = Analysis(results)
    assert analysis.shown is results
    assert analysis.shown_table.ranked is analysis.ranked
    assert analysis.shown_table.note == ""


def test_a_part_of_many_trials_has_the_trials_of_all_its_points(large, monkeypatch, tmp_path):
    monkeypatch.setattr(shown, "POINTS", 80)
    monkeypatch.setattr(shown, "TRIALS", 5)
    monkeypatch.setattr(trials, "TRIALS", 5)
    results = large(3, 10, seeds=3)
    analysis = Analysis(results)
    assert {trial.spec.trial_id for trial in analysis.shown.trials} == set(analysis.points["trial_id"])
    write(Analysis(results), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert len(re.findall(r"<td>done</td><td class=.number.>\d+ of \d+</td>", page)) == min(5, len(results.trials))
