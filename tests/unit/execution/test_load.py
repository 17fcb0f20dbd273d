"""Large sweeps: intervals of many rows at once."""

import numpy as np
import pytest

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
