"""Repeats: the rows of a variant, and statistics over several seeds."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from harness.errors import DataError
from harness.records.results import Results, TrialResults
from harness.statistics.bootstrap import CONFIDENCE

_WORST_FIRST = {"degenerate": 0, "gibberish": 1, "unknown": 2, "healthy": 3}


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and the half width of its 95 % interval; NaN for fewer than two values or with NaN among them.

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


def rename_replicates(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with replicates under their model's name and with a distinct seed for each of their seeds.

    `replicate` and `replicate_seed` contain each row's own model and seed.
    """
    own = table["model"]
    models = table["replicate_of"].replace("", pd.NA).fillna(own)
    renamed: pd.DataFrame = table.assign(model=models, replicate=own, replicate_seed=table["seed"])
    for _, rows in renamed[table["replicate_of"] != ""].groupby("model"):
        renamed.loc[rows.index, "seed"] = rows.groupby(["replicate_seed", "replicate"], sort=False).ngroup()
    return renamed


def match_originals(rows: pd.DataFrame, originals: pd.DataFrame) -> pd.DataFrame | None:
    """Return each row's original, of its seed else the first of its model; None where a row has none."""
    starts: list[pd.DataFrame] = []
    for replicate, seed, replicate_seed in zip(rows["replicate"], rows["seed"], rows["replicate_seed"], strict=True):
        model_rows = originals[originals["replicate"] == replicate]
        if not len(model_rows):
            return None
        seed_rows = model_rows[model_rows["seed"] == seed]
        starts.append((seed_rows if len(seed_rows) else model_rows).head(1).assign(replicate_seed=replicate_seed))
    return pd.concat(starts)


def repeats_of_points(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return one variant's rows in groups of repeats: seeds and replicates of one strength or level."""
    grid = rows[rows["until"] == ""]
    return [*points_by_target(rows).values(), *(points for _, points in grid.groupby("strength", dropna=False))]


def points_by_target(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows that were walked to each level."""
    return {str(level): points for level, points in rows[rows["until"] != ""].groupby("until", sort=False)}


def restore_replicates(table: pd.DataFrame) -> pd.DataFrame:
    """Undo `rename_replicates`."""
    own: pd.DataFrame = table.assign(model=table["replicate"], seed=table["replicate_seed"])
    return own.drop(columns=["replicate", "replicate_seed"])


def ranked_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each model, variant and seed."""
    rows = table[table["ranked"]]
    twice = rows[rows.duplicated(["model", "variant", "seed"])]
    if len(twice):
        first = twice.iloc[0]
        raise DataError(
            f"'{first['variant']}' on {first['model']}, seed {first['seed']}, has more than one ranked row. Give each "
            "of its settings a name of its own in the sweep file, or mark one row as 'ranked' in the table."
        )
    return rows


def work_seconds(trials: Iterable[TrialResults]) -> float:
    """Return the seconds of erasing and measuring, without repetitions; unrecorded ones count 0."""
    seconds = []
    for trial in trials:
        # Counted from the start of its trial.
        made = max((point.made.erase_seconds for point in trial.measured if point.made), default=0.0)
        seconds.append(trial.walked.seconds if trial.walked and trial.walked.seconds >= 0 else made)
        seconds += [measurement.seconds for point in trial.measured for measurement in point.measurements]
    return math.fsum(seconds)


def strengths(values: Sequence[float]) -> str:
    """Return the range of a variant's strengths over seeds.

    Example:
        >>> strengths([7.0, 7.0]), strengths([5.0, 7.0]), strengths([-0.2, 0.3]), strengths([float("nan")])
        ('7', '5–7', '-0.2 to 0.3', '')
    """
    numbers = sorted({value for value in values if not math.isnan(value)})
    ends = [f"{value:.4g}" for value in [*numbers[:1], *numbers[1:][-1:]]]
    return (" to " if "-" in "".join(ends) else "–").join(ends)


def strength_text(name: str, *values: float) -> str:
    """Return the strength of a point or its repeats: `gamma 0.05`; '' for a reference row."""
    return f"{name} {strengths(values)}".strip()


def worst_class(classes: Sequence[str]) -> str:
    """Return the worst collapse class of several seeds: degenerate, gibberish, unknown, healthy."""
    return min(classes, key=lambda name: _WORST_FIRST.get(name, len(_WORST_FIRST)))


def seconds_per_seed(results: Results) -> float:
    """Return the expected seconds of another training seed, with its search where each seed has one.

    Holdout rows are left out. NaN where a trial did not record its time, or runs are replicates, which others train.
    """
    trials = [trial for trial in results.trials if (trial.measured or trial.walked) and not trial.spec.is_unseen_row]
    seeds = {trial.spec.seed for trial in trials if not trial.spec.is_reference}
    for trial in trials:
        if trial.spec.replicate_of or (trial.walked and math.isnan(trial.walked.seconds)):
            return math.nan
    studies = [study for study in results.studies if study.spec.per == "seed"]
    searching = [candidate.seconds for study in studies for candidate in study.candidates]
    return (work_seconds(trials) + math.fsum(searching)) / len(seeds) if seeds else math.nan
