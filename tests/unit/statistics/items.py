"""Values of items, as the tests of statistics write them."""

import numpy as np

from harness.statistics.item_values import ItemValues


def item_values(values, weights=None, clusters=None, items="prompts", **others):
    """Return values with a weight of 1 and a cluster each, unless they are given."""
    values_RN = np.atleast_2d(np.asarray(values, dtype=float))
    return ItemValues(
        values_RN=values_RN,
        weights_RN=np.ones_like(values_RN) if weights is None else np.atleast_2d(np.asarray(weights, dtype=float)),
        clusters_N=np.arange(values_RN.shape[1]) if clusters is None else np.asarray(clusters),
        items=items,
        **others,
    )
