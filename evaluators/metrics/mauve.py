"""MAUVE: how close the distribution of generated texts is to that of human ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

import numpy as np


def mauve_score(generated_ND: np.ndarray, human_ND: np.ndarray, seeds: Sequence[int]) -> list[float]:
    """Return MAUVE for each k-means seed: near 0 for another language, near 1 for the human's own.

    Features are the same model's on both sides. Empty if the optional package is not installed or a
    feature is not finite: MAUVE is then not measurable.

    Args:
        generated_ND: Features of N generated texts.
        human_ND: Features of N human texts.
        seeds: Of the clustering; one score for each.

    Source: Pillutla et al., arXiv:2102.01454; the package's defaults: scaling 5, N / 10 clusters.
    """
    try:
        import mauve
    except ImportError:
        return []
    if not (np.isfinite(generated_ND).all() and np.isfinite(human_ND).all()):
        return []
    state = np.random.get_state()
    try:
        with _silence():
            return [
                float(mauve.compute_mauve(p_features=generated_ND, q_features=human_ND, seed=seed, verbose=False).mauve)
                for seed in seeds
            ]
    finally:
        np.random.set_state(state)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - os.devnull is a name, not a path of ours
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
