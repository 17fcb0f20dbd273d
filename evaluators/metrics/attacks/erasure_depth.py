"""Erasure depth: how much of what a text's tokens owe to training is gone from a model's layers, not from its end."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

LEAST_DROP = 0.05
"""In nats a token: where the retrained model has lost no more than this, a layer knows nothing of the text."""


def erasure_depth(lost_by_retrained_L: ArrayLike, lost_by_model_L: ArrayLike) -> float:
    """Return Σ d_ret · clip(d / d_ret, 0, 1) / Σ d_ret over the layers at which d_ret exceeds .05.

    0 is the original, which has lost nothing; 1 has lost on every layer at least what the retrained model has, as a
    model may that has lost everything. NaN where no layer tells the original from the retrained model.

    Args:
        lost_by_retrained_L: By layer, log p of the text that the original has and the retrained model does not, each
            the mean of its tokens in nats: d_ret.
        lost_by_model_L: The same of the model that is measured: d.

    Source: the logit lens of the meta-evaluation of arXiv:2605.24614, with its threshold.

    Example:
        The first layer knows nothing of the text. Of the others the model has lost half, and more than all:

        >>> erasure_depth([0.01, 1.0, 3.0], [0.5, 0.5, 4.0])
        0.875
        >>> erasure_depth([0.01, 1.0, 3.0], [0.0, -2.0, 0.0])
        0.0
    """
    of_retrained_L, of_model_L = (np.asarray(lost, dtype=float) for lost in (lost_by_retrained_L, lost_by_model_L))
    knows_L = of_retrained_L > LEAST_DROP
    if not knows_L.any():
        return math.nan
    could_L, lost_L = of_retrained_L[knows_L], of_model_L[knows_L]
    # d_ret · clip(d / d_ret, 0, 1), without a division.
    return float(np.clip(lost_L, 0.0, could_L).sum() / could_L.sum())
