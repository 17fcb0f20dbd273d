"""Large sweeps: pages that stay readable, and intervals of many rows at once."""

import re

import numpy as np
import pytest

from harness.analysis.analysis import Analysis
from harness.records.results import Results, trial_results
from harness.reporting.files import write
from harness.reporting.sections import repeat
from harness.settings import replace
from harness.statistics.bootstrap import draws, interval, row_intervals
from harness.statistics.item_values import ItemValues

VARIANTS, POINTS = 4, 60
"""Fewer than are really shown."""


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


def test_of_many_trials_the_first_are_listed(large, monkeypatch, tmp_path):
    monkeypatch.setattr(repeat, "MAX_TRIALS", 5)
    results = large(3, 10, seeds=3)
    write(Analysis(results), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert len(re.findall(r"<td>done</td><td>\d+ of \d+</td>", page)) == min(5, len(results.trials))
