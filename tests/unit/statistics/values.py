"""Values of items, one cluster each and all of one weight where nothing else is said."""

import numpy as np

from harness.statistics.bootstrap import ItemValues

N = 256
MODELS = np.repeat(np.arange(4), 2)


def item_values(values, weights=None, clusters=None, **others):
    values_RN = np.atleast_2d(np.asarray(values, dtype=float))
    weights_RN = np.ones_like(values_RN) if weights is None else np.atleast_2d(np.asarray(weights, dtype=float))
    clusters_N = np.arange(values_RN.shape[1]) if clusters is None else np.asarray(clusters)
    about = {"values_RN": values_RN, "weights_RN": weights_RN, "clusters_N": clusters_N, "items": "prompts"}
    return ItemValues(**about | others)
