"""The table: one row for every measured point, from the journal or from a table.csv."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.contracts import Number
from harness.errors import DataError
from harness.records.journal import status
from harness.reporting.collapse import flag
from harness.reporting.facts import Records, known_facts, measurements, metric_facts
from harness.specs import (
    ORIGINAL,
    REFERENCE_ROWS,
    UNSEEN_ROWS,
    Failed,
    Measurement,
    Plan,
    Point,
    Stopped,
    TrialSpec,
)

LEADING = (
    *("sweep", "model", "method", "variant", "label", "reference", "strength_name", "strength", "seed"),
    *("engine", "precision", "definition", "judged_by_original"),
)
TRAILING = (
    *("collapsed", "collapse_class", "collapse_reason", "ranked", "stop_reason", "erase_seconds", "measure_seconds"),
    *("peak_memory_bytes", "trial_id", "point_id"),
)
STANDARD_ERROR = "{}_stderr"
"""The column of a metric's standard error over what it is a mean of, where its evaluator notes one."""
_FLOATS = ("strength", "erase_seconds", "measure_seconds")


@dataclass(frozen=True)
class Reached:
    """One measured point of a trial: a row of the table."""

    spec: TrialSpec
    strength: Number | None
    point: Point | None
    """How the point was made; None if only its measurements were kept."""
    measurements: tuple[Measurement, ...]
    """The last of each evaluator; never empty."""
    stop_reason: str
    """Why the trajectory ended here; '' everywhere else."""

    @property
    def definition(self) -> str:
        """Return the definition behind the ranked numbers: `exact`, `table`, or `exact+table`."""
        ranked = [(each, metric) for each in self.measurements for metric in each.metrics if metric["ranked"]]
        return "+".join(sorted({each.definition for each, metric in ranked if metric["group"] != "reasoning"}))


def reached(spec: TrialSpec, records: Records) -> list[Reached]:
    """Return the trial's measured points by rising strength.

    Where a trajectory ended between two strengths that were asked for, its end is a point too.
    """
    trial = records.get(spec.trial_id, ())
    stop = next((record for record in reversed(trial) if isinstance(record, Stopped)), None)
    strengths: Sequence[Number | None] = spec.points()
    if stop and stop.strength < max(spec.strengths, default=stop.strength):
        strengths = sorted({*spec.strengths, stop.strength})
    # The first of each: a point erased once more for a new evaluator says nothing new about its cost.
    points = {record.point_id: record for record in reversed(trial) if isinstance(record, Point)}
    found = []
    for strength in strengths:
        name = spec.point_id(strength)
        latest = {each.key: each for each in measurements(spec, records) if each.point_id == name}
        reason = stop.reason if stop and stop.strength == strength else ""
        if latest:
            found.append(Reached(spec, strength, points.get(name), tuple(latest.values()), reason))
    return found


def reached_all(plan: Plan, records: Records) -> list[Reached]:
    """Return every measured point of the sweep, in the order of its trials."""
    return [point for spec in plan.trials for point in reached(spec, records)]


def failures(plan: Plan, records: Records) -> list[tuple[TrialSpec, Failed]]:
    """Return the trials whose last attempt raised, and left something to be measured, with how it ended."""
    found = []
    for spec in plan.trials:
        trial = records.get(spec.trial_id, ())
        if status(spec, trial) == "failed":
            found.append((spec, next(record for record in reversed(trial) if isinstance(record, Failed))))
    return found


def table(plan: Plan, records: Records) -> pd.DataFrame:
    """Return one row for each measured point of the sweep, with the columns of table.csv.

    A metric that a point lacks is NaN. `ranked` marks the one point of each trial, at most, that
    stands for its method in the ranking.
    """
    facts = metric_facts(plan, records)
    failed = {spec.trial_id for spec, _ in failures(plan, records)}
    rows = []
    for spec in plan.trials:
        points = reached(spec, records)
        ranked = _ranked_point(plan, points, spec.trial_id in failed)
        rows += [_row(point, point is ranked) for point in points]
    errors = [
        name for name in map(STANDARD_ERROR.format, facts) if name not in facts and any(name in row for row in rows)
    ]
    numbers = [*facts, *errors]
    frame = pd.DataFrame(rows, columns=[*LEADING, *numbers, *TRAILING])
    found = flag(_typed(frame, numbers), plan.collapse)
    found.loc[found["method"].isin(UNSEEN_ROWS), ["collapse_class", "collapse_reason"]] = ""
    return found


def _row(point: Reached, ranked: bool) -> dict[str, Any]:
    spec, made = point.spec, point.point
    row = {
        "sweep": spec.sweep,
        "model": spec.model.id,
        "method": spec.method,
        "variant": spec.variant,
        "label": spec.label,
        "reference": "" if spec.is_reference else spec.reference,
        "strength_name": spec.strength_name,
        "strength": point.strength,
        "seed": spec.seed,
        "engine": str(spec.engine),
        "precision": spec.training.precision,
        "definition": point.definition,
        "judged_by_original": " and ".join(role for role, judge in spec.judges.items() if judge.id == ORIGINAL),
        "ranked": ranked,
        "stop_reason": point.stop_reason,
        "erase_seconds": made.erase_seconds if made else None,
        "measure_seconds": sum(each.seconds for each in point.measurements),
        "peak_memory_bytes": made.peak_memory_bytes if made else None,
        "trial_id": spec.trial_id,
        "point_id": spec.point_id(point.strength),
    }
    for measurement in point.measurements:
        asked = {metric["name"] for metric in measurement.metrics}
        if spec.method in UNSEEN_ROWS:
            asked = {metric["name"] for metric in measurement.metrics if metric["group"] == "erasure"}
        errors = measurement.notes.get("standard_errors", {})
        row.update({name: value for name, value in measurement.numbers.items() if name in asked})
        row.update({STANDARD_ERROR.format(name): value for name, value in errors.items() if name in asked})
    return row


def _ranked_point(plan: Plan, points: Sequence[Reached], failed: bool) -> Reached | None:
    """Return the point that is ranked: at the strength that the sweep names, or else the last one.

    A cumulative trial that failed on its way has not reached its last point yet, so none is ranked.
    """
    if not points or points[0].spec.is_reference:
        return None
    spec, last = points[0].spec, points[-1]
    if spec.variant in plan.ranked_at:
        return next((point for point in points if point.strength == plan.ranked_at[spec.variant]), None)
    return None if failed and last.strength != spec.strengths[-1] and not last.stop_reason else last


def read_table(path: Path) -> pd.DataFrame:
    """Return a table.csv, ours or a published one, with every column that a table has.

    A published table needs `model`, `method` and a known metric; what else it lacks is filled: a row is
    a method's only point (`variant` = `method`, no strength, seed 0), and is ranked unless
    it is a reference row. Columns that are no table's own are kept as text.

    Raises:
        DataError: No file, no CSV, required columns missing, or a number that is none; named by
            file, line and column.
    """
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (OSError, UnicodeDecodeError, pd.errors.EmptyDataError, pd.errors.ParserError) as error:
        raise DataError(f"{path} cannot be read as a table: {str(error).strip()}.") from error
    metrics = list(known_facts(frame.columns))
    errors = [name for name in map(STANDARD_ERROR.format, metrics) if name in frame.columns]
    lacking = [name for name in ("model", "method") if name not in frame.columns]
    if lacking:
        raise DataError(f"{path} lacks {_listed(lacking)}. Its columns are {_listed(frame.columns)}.")
    if not metrics:
        raise DataError(
            f"{path} has no metric that is known, such as 'ma' or 'mauve'. Its columns are {_listed(frame.columns)}."
        )
    for names, parse, wanted in (
        ((*_FLOATS, *metrics, *errors), float, "a number"),
        (("seed", "peak_memory_bytes"), int, "a whole number"),
        (("collapsed", "ranked"), _truth, "true or false"),
    ):
        for name in [name for name in names if name in frame.columns]:
            frame[name] = _parsed(path, frame[name], parse, wanted)
    return _typed(_filled(frame, path.stem), [*metrics, *errors])


def _parsed(path: Path, cells: pd.Series, parse: Callable[[str], Any], wanted: str) -> pd.Series:
    """Return the cells' values; None for an empty one."""
    values = []
    for line, cell in enumerate(cells, start=2):
        try:
            values.append(parse(cell.strip()) if cell.strip() else None)
        except ValueError:
            raise DataError(f"{path}, line {line}, column '{cells.name}': '{cell}' is not {wanted}.") from None
    return pd.Series(values, index=cells.index, dtype=object)


def _truth(cell: str) -> bool:
    if cell.lower() not in ("true", "false"):
        raise ValueError(cell)
    return cell.lower() == "true"


def _filled(frame: pd.DataFrame, sweep: str) -> pd.DataFrame:
    """Return the frame with every leading and trailing column, in a table's order."""
    references = frame["method"].isin(REFERENCE_ROWS)
    names = frame["method"].where(~references, frame["method"].str.capitalize())
    defaults: dict[str, Any] = dict.fromkeys((*LEADING, *TRAILING), "") | dict.fromkeys(_FLOATS, math.nan)
    defaults |= {"sweep": sweep, "variant": frame["method"], "label": frame.get("variant", names)}
    defaults |= {"seed": 0, "peak_memory_bytes": None, "collapsed": None, "ranked": ~references}
    frame = frame.assign(**{name: value for name, value in defaults.items() if name not in frame.columns})
    own = [name for name in frame.columns if name not in defaults]
    return frame[[*LEADING, *own, *TRAILING]]


def _typed(frame: pd.DataFrame, metrics: Iterable[str]) -> pd.DataFrame:
    """Return the frame with the types of a table's columns, whether it has rows or not."""
    floats = dict.fromkeys((*_FLOATS, *metrics), "float64")
    frame = frame.assign(seed=frame["seed"].fillna(0), collapsed=frame["collapsed"].astype(object))
    return frame.astype({**floats, "seed": "int64", "ranked": "bool", "peak_memory_bytes": "Int64"})


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
