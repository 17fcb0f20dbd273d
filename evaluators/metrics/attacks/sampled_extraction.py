"""Sampled extraction: how likely a text comes out in so many tries, from its log-probability. In fp64."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def leak_at(log_p: ArrayLike, tries: int) -> np.ndarray:
    """Return the probability that at least one of so many samples is the whole text: 1 − (1 − p)^k, for each text.

    0 is a text that the sampling scheme never writes, 1 one that it always writes; NaN stays NaN. It is exact where
    peers estimate it from samples: 1 − C(N − c, k) / C(N, k) of N with c hits has it as its expectation.

    Source: Reisizadeh et al., arXiv:2511.04934 (leak@k, here of verbatim text); Hayes et al., arXiv:2410.19482.

    Args:
        log_p: The log-probability of each text under the sampling scheme, in nats; −∞ where it never writes it.
        tries: k.

    Example:
        A text of p = 0.3, one of 1e-12 and one that is never written, in 1 and in 100 tries:

        >>> log_p = np.log([0.3, 1e-12])
        >>> leak_at(log_p, 1).round(13).tolist(), leak_at([*log_p, -np.inf], 100).round(13).tolist()
        ([0.3, 1e-12], [1.0, 1e-10, 0.0])
    """
    with np.errstate(divide="ignore"):  # Of p = 1 the logarithm of a miss is −∞, and the leak 1.
        log_miss = np.log1p(-np.exp(np.minimum(log_p, 0.0)))
    return np.asarray(-np.expm1(tries * log_miss))


def extractable(log_p: ArrayLike, tries: int, chance: float) -> np.ndarray:
    """Return for each text whether it is (n, p)-extractable, 1 or 0: written in n tries with a chance of at least p.

    That is n >= log(1 − p) / log(1 − p_z) for a text of probability p_z. NaN stays NaN.

    Source: Hayes et al., arXiv:2410.19482, definition of (n, p)-discoverable extraction.

    Args:
        log_p: As in `leak_at`.
        tries: n.
        chance: p, between 0 and 1.

    Example:
        Of p_z = 0.3 it takes log(0.1) / log(0.7) = 6.5 tries to have a chance of 0.9:

        >>> extractable(np.log([0.3]), 6, 0.9).tolist(), extractable(np.log([0.3]), 7, 0.9).tolist()
        ([0.0], [1.0])
    """
    leaks = leak_at(log_p, tries)
    return np.where(np.isnan(leaks), np.nan, (leaks >= chance).astype(float))
