"""Repeats: which rows stand for a variant, and what several seeds say together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from harness.errors import DataError
from harness.records.results import PointResults, StudyResults
from harness.settings import UNSEEN_ROWS
from harness.statistics.bootstrap import CONFIDENCE

_WORST_FIRST = {"degenerate": 0, "gibberish": 1, "unknown": 2, "healthy": 3}


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and the half width of its 95 % interval; NaN for fewer than two values.

    NaN among the values makes both NaN: a mean over other seeds than asked for would mislead.

    Source:
        Student, "The probable error of a mean", 1908: t of n - 1 degrees of freedom.

    Example:
        >>> mean, half = mean_and_interval([0.60, 0.62, 0.64])
        >>> round(mean, 3), round(half, 4)
        (0.62, 0.0497)
    """
    count = len(values)
    mean = math.fsum(values) / count if count else math.nan
    if count < 2:
        return mean, math.nan
    quantile = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2))
    with np.errstate(invalid="ignore"):  # An infinite value has no spread: NaN.
        return mean, quantile * float(np.std(values, ddof=1)) / math.sqrt(count)


def with_replicates(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table as it is averaged: replicates of a model under its name, each of their seeds one of its own.

    `replicate` and `replicate_seed` keep what each row's model and seed are.
    """
    own = table["model"]
    named = table["replicate_of"].replace("", pd.NA).fillna(own)
    shown: pd.DataFrame = table.assign(model=named, replicate=own, replicate_seed=table["seed"])
    for _, rows in shown[table["replicate_of"] != ""].groupby("model"):
        shown.loc[rows.index, "seed"] = rows.groupby(["replicate_seed", "replicate"], sort=False).ngroup()
    return shown


def originals_of(rows: pd.DataFrame, originals: pd.DataFrame) -> pd.DataFrame | None:
    """Return each row's original, of its seed or else the first of its model; None where a row has none."""
    starts = []
    for replicate, seed, of_replicate in zip(rows["replicate"], rows["seed"], rows["replicate_seed"], strict=True):
        of_model = originals[originals["replicate"] == replicate]
        if not len(of_model):
            return None
        of_seed = of_model[of_model["seed"] == seed]
        starts.append((of_seed if len(of_seed) else of_model).head(1).assign(replicate_seed=of_replicate))
    found: pd.DataFrame = pd.concat(starts)
    return found


def repeats_of_points(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return one variant's rows as groups that repeat each other: seeds, and replicates, of one point.

    They share a strength, or the level that they were walked to.
    """
    grid = rows[rows["until"] == ""]
    return [*points_by_target(rows).values(), *(points for _, points in grid.groupby("strength", dropna=False))]


def points_by_target(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows that were walked to each level; nothing where none was."""
    return {str(level): points for level, points in rows[rows["until"] != ""].groupby("until", sort=False)}


def as_measured(table: pd.DataFrame) -> pd.DataFrame:
    """Return what `with_replicates` was given."""
    own: pd.DataFrame = table.assign(model=table["replicate"], seed=table["replicate_seed"])
    return own.drop(columns=["replicate", "replicate_seed"])


def ranked_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that stand for their variant: one for each model, variant and seed.

    Raises:
        DataError: Two rows stand for the same, so that no one can tell which is ranked.
    """
    rows = table[table["ranked"]]
    twice = rows[rows.duplicated(["model", "variant", "seed"])]
    if len(twice):
        first = twice.iloc[0]
        raise DataError(
            f"'{first['variant']}' on {first['model']}, seed {first['seed']}, has more than one ranked row. Give each "
            "of its settings a name of its own in the sweep file, or mark one row as 'ranked' in the table."
        )
    return rows


def work_seconds(points: Sequence[PointResults]) -> float:
    """Return how long points took to erase and to measure, without what was done again; what is not recorded as 0."""
    erasing: dict[str, float] = {}
    measuring = 0.0
    for point in points:
        if point.made:  # Counted from the start of its trial.
            trial_id = point.spec.trial_id
            erasing[trial_id] = max(point.made.erase_seconds, erasing.get(trial_id, 0.0))
        for measurement in point.measurements:
            measuring += measurement.seconds
    return math.fsum(erasing.values()) + measuring


def seconds_per_seed(points: Sequence[PointResults], studies: Sequence[StudyResults] = ()) -> float:
    """Return how long another training seed would take by what the measured ones did; NaN where that is not known.

    Unseen texts are measured once for all seeds; where each seed has a search of its own, that is counted too. What a
    trial did not record leaves it unknown.
    """
    of_seeds = [point for point in points if not point.spec.is_of_unseen]
    seeds = {point.spec.seed for point in of_seeds}
    is_known = all(point.made or point.spec.is_reference for point in of_seeds)
    searching = 0.0
    for study in studies:
        if study.spec.per == "seed":
            searching += math.fsum(candidate.seconds for candidate in study.candidates)
    return (work_seconds(of_seeds) + searching) / len(seeds) if is_known and seeds else math.nan


def seed_count(table: pd.DataFrame) -> int:
    """Return how many seeds a table has; rows of unseen texts have one for all."""
    return int(table.loc[~table["method"].isin(UNSEEN_ROWS), "seed"].nunique())


def strengths(values: Sequence[float]) -> str:
    """Return the strength that stands for a variant; the range of them where seeds differ.

    Example:
        >>> strengths([7.0, 7.0]), strengths([5.0, 7.0]), strengths([0.05]), strengths([float("nan")])
        ('7', '5–7', '0.05', '')
    """
    known = np.unique(values)
    known = known[~np.isnan(known)]
    return "–".join(f"{value:.4g}" for value in [*known[:1], *known[1:][-1:]])


def worst_class(classes: Sequence[str]) -> str:
    """Return the collapse class that stands for several seeds: that of any that collapsed, first.

    Example:
        >>> worst_class(["healthy", "gibberish"]), worst_class(["healthy", "unknown"])
        ('gibberish', 'unknown')
    """
    return min(classes, key=lambda name: _WORST_FIRST.get(name, len(_WORST_FIRST)))
