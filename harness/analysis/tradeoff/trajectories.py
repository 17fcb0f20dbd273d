"""The points of a method in the order of rising strength: what may be interpolated between, and nothing else."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

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
    settings: dict[str, str] = {}
    for id in rows["trial_id"].unique():
        if not specs[id].is_reference:
            settings[id] = specs[id].setting_digest
    erased = rows[rows["trial_id"].isin(settings)]
    starts = _originals(rows)
    of_settings = []
    for (variant, _), points in erased.groupby(["variant", erased["trial_id"].map(settings)], sort=False):
        replicates, places = [], []
        for (replicate, seed), of_replicate in points.groupby(["replicate", "seed"], sort=True)["strength"]:
            start = starts.get((replicate, seed), starts.get((replicate, None)))
            if start is not None:
                rising = list(of_replicate.sort_values().index)
                replicates.append({name: column[[start, *rising]] for name, column in columns.items()})
                places += rising
        if places:
            spec = specs[points.iloc[0]["trial_id"]]
            of_settings.append(Trajectory(str(variant), spec, tuple(replicates), rows.loc[places]))
    return of_settings


def _originals(rows: pd.DataFrame) -> dict[tuple[Hashable, Hashable], int]:
    """Return the place of each replicate's original by its seed, and under no seed its first."""
    starts: dict[tuple[Hashable, Hashable], int] = {}
    originals = rows.loc[rows["method"] == ORIGINAL, ["replicate", "seed"]]
    for place, replicate, seed in originals.itertuples():
        starts.setdefault((replicate, seed), place)
        starts.setdefault((replicate, None), place)
    return starts
