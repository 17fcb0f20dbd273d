"""Large sweeps: pages that stay readable, and intervals of many rows at once."""

import re

import numpy as np
import pytest

from harness.analysis.analysis import Analysis
from harness.reporting.files import write
from harness.reporting.sections import repeat
from harness.statistics.bootstrap import ItemValues, draws, interval, row_intervals


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


@pytest.fixture
def nine_trials(make_row, make_plan, make_results, make_measurement):
    """Return the results of trials of two points each."""
    specs = [make_row("emso", (1, 2), seed, evaluators={"memorization": "key"}) for seed in range(9)]
    records = {spec.trial_id: [make_measurement(spec, strength) for strength in spec.points()] for spec in specs}
    return make_results(make_plan(*specs), records)


def test_of_many_trials_the_first_are_listed(nine_trials, monkeypatch, tmp_path):
    monkeypatch.setattr(repeat, "MAX_TRIALS", 5)
    write(Analysis(nine_trials), tmp_path)
    assert len(re.findall(r">done</td><td[^>]*>\d+ of \d+</td>", (tmp_path / "report.html").read_text())) == 5
