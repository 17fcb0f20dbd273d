"""The points of a method in the order of rising strength: what may be interpolated between, and nothing else."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.specs import ORIGINAL, TrialSpec

Columns = Mapping[str, NDArray[Any]]
"""Rows of a table, each column by its name: of thousands of replicates they take a thousandth of the time of frames."""


@dataclass(frozen=True)
class Trajectory:
    """One setting of a variant at rising strength, in every replicate: seeds, and models pretrained alike."""

    variant: str
    spec: TrialSpec
    """Of any of its trials: they differ in strength, seed and model alone."""
    replicates: tuple[Columns, ...]
    """Rows of the table, for each replicate: the original, at strength 0, and then the erased models."""
    erased: pd.DataFrame
    """The same rows without the originals, replicate by replicate."""


def trajectories(rows: pd.DataFrame, specs: Mapping[str, TrialSpec]) -> list[Trajectory]:
    """Return the trajectories of one model's rows (with replicates: of all that share its name).

    Trials of one setting at several strengths make one trajectory, whether the strength is cumulative or not. A
    replicate whose original was not measured has none.

    Args:
        rows: Of a table.
        specs: Of all trials, by id.
    """
    rows = rows.reset_index(drop=True)
    columns = {str(name): rows[name].to_numpy() for name in rows.columns}
    settings = {id: specs[id].setting_digest for id in rows["trial_id"].unique() if not specs[id].is_reference}
    erased = rows[rows["trial_id"].isin(settings)]
    starts = _originals(rows)
    of_settings = []
    for (variant, _), points in erased.groupby(["variant", erased["trial_id"].map(settings)], sort=False):
        places = []
        for (replicate, seed), of_replicate in points.groupby(["replicate", "seed"], sort=True)["strength"]:
            start = starts.get((replicate, seed), starts.get((replicate, None)))
            if start is not None:
                places.append(np.array([start, *of_replicate.sort_values().index]))
        if places:
            of_settings.append(
                Trajectory(
                    str(variant),
                    specs[points.iloc[0]["trial_id"]],
                    tuple({name: column[of_one] for name, column in columns.items()} for of_one in places),
                    rows.loc[np.concatenate([of_one[1:] for of_one in places])],
                )
            )
    return of_settings


def _originals(rows: pd.DataFrame) -> dict[tuple[Hashable, Hashable], int]:
    """Return the place of each replicate's original by its seed, and under no seed its first."""
    starts: dict[tuple[Hashable, Hashable], int] = {}
    originals = rows.loc[rows["method"] == ORIGINAL, ["replicate", "seed"]]
    for place, replicate, seed in originals.itertuples():
        starts.setdefault((replicate, seed), place)
        starts.setdefault((replicate, None), place)
    return starts
