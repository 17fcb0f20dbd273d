"""The points of a method in the order of rising strength: what may be interpolated between, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import pandas as pd

from harness.digests import digest_of
from harness.specs import ORIGINAL, TrialSpec


@dataclass(frozen=True)
class Trajectory:
    """One setting of a variant at rising strength, in every replicate: seeds, and models pretrained alike."""

    variant: str
    spec: TrialSpec
    """Of any of its trials: they differ in strength, seed and model alone."""
    replicates: tuple[pd.DataFrame, ...]
    """Rows of the table, for each replicate: the original, at strength 0, and then the erased models."""


def trajectories(rows: pd.DataFrame, specs: Mapping[str, TrialSpec]) -> list[Trajectory]:
    """Return the trajectories of one model's rows (with replicates: of all that share its name).

    Trials of one setting at several strengths make one trajectory, whether the strength is cumulative or not. A
    replicate whose original was not measured has none.

    Args:
        rows: Of a table.
        specs: Of all trials, by id.
    """
    erased = rows[rows["trial_id"].map(lambda trial_id: not specs[trial_id].is_reference)]
    settings = erased["trial_id"].map(lambda trial_id: _setting(specs[trial_id]))
    of_settings = []
    for (variant, _), points in erased.groupby(["variant", settings], sort=False):
        replicates = []
        for (replicate, seed), of_replicate in points.groupby(["replicate", "seed"], sort=True):
            originals = rows[(rows["method"] == ORIGINAL) & (rows["replicate"] == replicate)]
            same_seed = originals[originals["seed"] == seed]
            start = (same_seed if len(same_seed) else originals).head(1)
            if len(start):
                replicates.append(pd.concat([start, of_replicate.sort_values("strength")]))
        if replicates:
            of_settings.append(Trajectory(str(variant), specs[points.iloc[0]["trial_id"]], tuple(replicates)))
    return of_settings


def _setting(spec: TrialSpec) -> str:
    """Return what is the same for all trials of a trajectory."""
    return digest_of([spec.method, dict(spec.settings), asdict(spec.training)])
