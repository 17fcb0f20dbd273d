"""Table of a sweep, one row for every measured point, from the journal or from a table.csv."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.analysis.damage import flag, over_erased
from harness.analysis.evidence import HIGH, LOW, Evidence, error_over_texts, interval_columns
from harness.analysis.metrics import Aims, MetricInfo, costs, read_declarations
from harness.base import messages
from harness.contracts import Metric
from harness.errors import DataError
from harness.records.results import PointResults, Results, TrialResults
from harness.settings import ORIGINAL, REFERENCE_ROWS, Compare, Plan
from harness.statistics.bootstrap import Floats

LEADING = (
    "sweep", "model", "replicate_of", "method", "variant", "label", "reference", "strength_name", "strength", "seed",
    "until", "engine", "precision", "definition", "judged_by_original",
)  # fmt: skip
TRAILING = (
    "collapsed", "collapse_class", "collapse_reason", "over_erased", "ranked", "control", "frontier", "stop_reason",
    "erase_seconds", "measure_seconds", "peak_memory_bytes", "trial_id", "point_id",
)  # fmt: skip
STANDARD_ERROR = "{}_stderr"
"""Column of a metric's standard error over its texts, where the evaluator notes one."""
_FLOATS = ("strength", "erase_seconds", "measure_seconds")
_FLAGS = ("collapsed", "over_erased", "ranked", "control", "frontier")


def table(results: Results, info: MetricInfo, evidence: Evidence | None = None) -> pd.DataFrame:
    """Return one row for each measured point, with the columns of table.csv.

    A metric that a point lacks is NaN. `ranked` marks at most one point of each trial; a `control` is shown without a
    rank. With items each metric has its 95 % interval (`ma_low`, `ma_high`), and a standard error that counts copies
    once.
    """
    evidence = evidence or Evidence()
    rows = []
    for trial in results.trials:
        ranked = _ranked_point(trial, results.plan)
        is_control = trial.spec.variant in results.plan.controls
        for point in trial.measured:
            rows.append({**_point_row(point, info, evidence), "ranked": point is ranked, "control": is_control})
    frame = pd.DataFrame(rows).assign(frontier=False)
    if rows:
        intervals = pd.DataFrame(interval_columns(list(frame["point_id"]), info, evidence), index=frame.index)
        frame = pd.concat([frame, intervals], axis=1)
    numbers = _number_columns(info, frame)
    frame = frame.reindex(columns=[*LEADING, *numbers, *TRAILING])
    flagged = flag(_typed(frame, numbers), info, results.plan.collapse)
    flagged["over_erased"] = pd.Series(over_erased(flagged, info, evidence), flagged.index, dtype=object)
    return flagged.assign(frontier=_frontier_flags(flagged, info, results.plan.compare))


def _number_columns(info: MetricInfo, frame: pd.DataFrame) -> list[str]:
    others = [STANDARD_ERROR.format(name) for name in info]
    others += [form.format(name) for name in info for form in (LOW, HIGH)]
    return [*info, *(name for name in others if name in frame.columns and name not in info)]


def _frontier_flags(table: pd.DataFrame, info: MetricInfo, compare: Compare) -> pd.Series:
    axes = [info[name] for name in ("ma", "el_3") if name in info][:1]
    axes += [info[compare.cost]] if compare.cost in info else []
    is_first, aims = pd.Series(False, index=table.index), Aims(table)
    erased = table[~table["method"].isin(REFERENCE_ROWS)]
    for _, points in erased.groupby(["model", "seed", "method"], sort=False) if len(axes) == 2 else ():
        is_first[points.index] = non_dominated(*(costs(aims.deviations(points, metric), metric) for metric in axes))
    return is_first


def non_dominated(erasure_P: Floats, utility_P: Floats) -> NDArray[np.bool_]:
    """Return the mask of points that no other beats: at least as good in both costs, and better in one.

    Equal points all stay. A point that lacks a number is out, and beats none.

    Example:
        >>> non_dominated(np.array([0.1, 0.2, 0.2, np.nan]), np.array([3.0, 2.0, 4.0, 0.0])).tolist()
        [True, True, False, False]
    """
    (e, other_e), (u, other_u) = ((costs_P[:, None], costs_P) for costs_P in (erasure_P, utility_P))
    beats_PP = (e <= other_e) & (u <= other_u) & ((e < other_e) | (u < other_u))
    return np.asarray(~(np.isnan(erasure_P + utility_P) | beats_PP.any(axis=0)))


def _point_row(point: PointResults, info: MetricInfo, evidence: Evidence) -> dict[str, Any]:
    spec = point.spec
    names = ("sweep", "method", "variant", "label", "strength_name", "seed", "trial_id")
    row: dict[str, Any] = {name: getattr(spec, name) for name in names}
    row |= {"model": spec.model.id, "replicate_of": spec.replicate_of or ""}
    row |= {"reference": "" if spec.is_reference else spec.reference, "until": spec.until.key if spec.until else ""}
    measured = " and ".join(dict.fromkeys(each.precision for each in spec.evaluators)) or "fp32"
    trained = measured if spec.is_reference else spec.training.precision
    precision = trained if trained == measured else f"{trained}, measured in {measured}"
    row |= {"engine": str(spec.engine), "precision": precision}
    row["judged_by_original"] = " and ".join(role for role, judge in spec.judges.items() if judge.id == ORIGINAL)
    row |= {"strength": point.strength, "point_id": spec.point_id(point.strength), "stop_reason": point.stop_reason}
    row |= {name: getattr(point.made, name, None) for name in ("erase_seconds", "peak_memory_bytes")}
    row["measure_seconds"] = sum(measurement.seconds for measurement in point.measurements)
    row = {name: messages.storable(value) if isinstance(value, str) else value for name, value in row.items()}
    definitions = set()
    for measurement in point.measurements:
        if any(metric.get("ranked", True) and metric["group"] != "reasoning" for metric in measurement.metrics):
            definitions.add(measurement.definition)
        errors = measurement.notes.get("standard_errors", {})
        metrics = [metric for metric in measurement.metrics if spec.shows(metric["group"], metric.get("items"))]
        for name in [metric["name"] for metric in metrics]:
            if name in measurement.numbers:
                row[name] = measurement.numbers[name]
            if name in errors:
                counted_once = error_over_texts(row["point_id"], info[name], evidence)
                row[STANDARD_ERROR.format(name)] = errors[name] if counted_once is None else counted_once
    return row | {"definition": messages.storable("+".join(sorted(definitions)))}


def _ranked_point(trial: TrialResults, plan: Plan) -> PointResults | None:
    """Return the point that is ranked: at the strength that the sweep names, else the last.

    With only walks it is that to the first level. A cumulative trial that failed before its last point has none.
    """
    if not trial.measured or trial.spec.is_reference:
        return None
    if trial.spec.until is not None:
        return trial.measured[0] if plan.ranks_first_walk and trial.spec.until == plan.until[0] else None
    ranked_at = plan.ranked_at.get(trial.spec.variant)
    if ranked_at is not None:
        return next((point for point in trial.measured if point.strength == ranked_at), None)
    last = trial.measured[-1]
    is_on_its_way = trial.failure and last.strength != trial.spec.strengths[-1] and not last.stop_reason
    return None if is_on_its_way else last


def read_table(path: Path) -> tuple[pd.DataFrame, dict[str, Metric]]:
    """Return a table.csv, ours or a published one, with every column that a table has, and its metrics.

    A published table needs `model`, `method` and a declared metric. Missing columns are filled: `variant` = `method`,
    no strength, seed 0, ranked unless it is a reference row. Unknown columns stay text.
    """
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (OSError, ValueError) as error:  # pandas' own errors are of the latter kind.
        raise DataError(f"{path} cannot be read as a table: {messages.shown(str(error).strip())}.") from error
    columns = ", ".join(map("'{}'".format, frame.columns))
    if lacking := [f"'{name}'" for name in ("model", "method") if name not in frame.columns]:
        raise DataError(f"{path} lacks {', '.join(lacking)}. Its columns are {columns}.")
    declared = read_declarations(path)
    if not (info := {name: metric for name, metric in declared.items() if name in frame.columns}):
        raise DataError(f"{path} has none of the metrics declared next to it ({', '.join(declared)}), but {columns}.")
    numbers = _number_columns(info, frame)
    parsers: dict[str, tuple[Callable[[str], Any], str]] = dict.fromkeys([*_FLOATS, *numbers], (float, "a number"))
    parsers |= dict.fromkeys(("seed", "peak_memory_bytes"), (int, "a whole number"))
    parsers |= dict.fromkeys(_FLAGS, ({"true": True, "false": False}.__getitem__, "true or false"))
    for name in frame.columns.intersection(list(parsers)):
        frame[name] = _parsed_column(path, frame[name], *parsers[name])
    return _typed(_filled(frame, path.stem), numbers), info


def _parsed_column(path: Path, cells: pd.Series, parse: Callable[[str], Any], expectation: str) -> pd.Series:
    values = []
    for line, cell in enumerate(cells, start=2):
        try:
            values.append(parse(cell.strip().lower()) if cell.strip() else None)
        except (ValueError, KeyError):
            place = f"{path}, line {line}, column '{cells.name}'"
            raise DataError(f"{place}: '{messages.shown(cell, 100)}' is not {expectation}.") from None
    return pd.Series(values, index=cells.index, dtype=object)


def _filled(frame: pd.DataFrame, sweep: str) -> pd.DataFrame:
    is_reference = frame["method"].isin(REFERENCE_ROWS)
    names = frame["method"].where(~is_reference, frame["method"].str.capitalize())
    defaults: dict[str, Any] = dict.fromkeys((*LEADING, *TRAILING), "") | dict.fromkeys(_FLOATS, math.nan)
    defaults |= {"sweep": sweep, "variant": frame["method"], "label": frame.get("variant", names), "seed": 0}
    defaults |= {"ranked": ~is_reference, "control": False, "frontier": False}
    defaults |= dict.fromkeys(("peak_memory_bytes", "collapsed", "over_erased"))
    own = [name for name in frame.columns if name not in defaults]
    lacking = {name: default for name, default in defaults.items() if name not in frame.columns}
    filled = pd.concat([pd.DataFrame(lacking, index=frame.index), frame], axis=1)
    filled[_LIST] = filled[_LIST].map(lambda text: tuple(filter(None, text.split(_BETWEEN))))
    return filled[[*LEADING, *own, *TRAILING]]


def _typed(frame: pd.DataFrame, metrics: Iterable[str]) -> pd.DataFrame:
    floats = dict.fromkeys((*_FLOATS, *metrics), "float64")
    kinds = dict.fromkeys(_FLAGS[:2], "object") | dict.fromkeys(_FLAGS[2:], "bool")
    kinds |= {**floats, "seed": "int64", "peak_memory_bytes": "Int64"}
    typed = frame.assign(seed=frame["seed"].fillna(0)).astype(kinds)
    return typed.copy()  # In one piece: of a hundred columns with a type each, pandas warns at every column added.


_TRUTH_COLUMNS = ("collapsed", "over_erased", "broken", "ranked", "control", "frontier", "recited", "is_reference")
# The column with several names in a cell, and their separator.
_LIST, _BETWEEN = "collapse_reason", " and "


def joined_lists(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with names joined as text: `mauve and perplexity`."""
    return table.assign(**{_LIST: table[_LIST].map(_BETWEEN.join)}) if _LIST in table else table


def csv_text(table: pd.DataFrame) -> str:
    """Return a table as CSV: full precision, `true` and `false`, empty cells for missing values."""
    table, words = joined_lists(table), {True: "true", False: "false"}
    truths = table.columns.intersection(list(_TRUTH_COLUMNS))
    columns = {name: [words.get(value, "") for value in table[name]] for name in truths}
    return table.assign(**columns).to_csv(index=False, lineterminator="\n")
