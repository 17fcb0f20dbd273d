"""Which points of a sweep a row of a published table is, and in what they were measured otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harness.contracts import Json, Metric
from harness.planning.validation import plain_settings
from harness.plugins import METHODS
from harness.records.published import Conditions, PublishedRow
from harness.records.results import PointResults, Results, TrialResults
from harness.specs import REFERENCE_ROWS, TrialSpec


def points_of(results: Results, model: str, row: PublishedRow) -> tuple[list[PointResults], str]:
    """Return the points of every seed that are a published row; or why there are none."""
    settings = _settings(row)
    trials = [
        trial
        for trial in results.trials
        if model in (trial.spec.replicate_of, trial.spec.model.id) and _is_row(trial.spec, row, settings)
    ]
    trials = [trial for trial in trials if trial.spec.variant == trials[0].spec.variant]
    if not trials:
        asked = {**row.settings, **({} if row.strength is None else {"strength": row.strength})}
        told = ", ".join(f"{name} {value}" for name, value in asked.items())
        return [], f"no row of this sweep is {row.method}{f' with {told}' if told else ''}"
    for trial in trials:
        if not _points_within(trial, row) or trial.status != "done":
            return [], f"'{trial.spec.variant}', seed {trial.spec.seed}, {_state(trial)}"
    return [_points_within(trial, row)[-1] for trial in trials], ""


def _state(trial: TrialResults) -> str:
    """Return why a trial has no point that is a published row."""
    if trial.failure:
        return f"failed: {trial.failure.error}"
    if trial.status == "missing":
        return "is not finished"
    return f"goes further ({trial.spec.strength_name})"


def _points_within(trial: TrialResults, row: PublishedRow) -> list[PointResults]:
    """Return the measured points as far as a published row's strength goes."""
    return [point for point in trial.measured if point.strength is None or point.strength <= (row.strength or 0)]


def _settings(row: PublishedRow) -> dict[str, Json]:
    """Return all settings of a row but its strength."""
    if row.method in REFERENCE_ROWS:
        return {}
    field = METHODS.load(row.method).strength.field
    whole = plain_settings(METHODS.configure(row.method, {**row.settings, field: row.strength}))
    return {name: value for name, value in whole.items() if name != field}


def _is_row(spec: TrialSpec, row: PublishedRow, settings: Mapping[str, Json]) -> bool:
    if spec.method != row.method or spec.is_reference:
        return spec.method == row.method
    if {**settings, **spec.settings} != settings:
        return False
    return METHODS.load(row.method).strength.cumulative or spec.strengths == (row.strength,)


def differences(
    point: PointResults, metric: Metric, row: PublishedRow, conditions: Conditions, model_id: str
) -> Iterator[str]:
    """Yield in what a point's number was measured otherwise than the published one, as far as that is stated."""
    spec = point.spec
    if spec.model.id.lower() != model_id.lower() or spec.model.revision is None:
        yield f"another model ({spec.model.id}, not {model_id})"
    definitions = {made.definition for made in point.measurements if metric.name in made.numbers}
    for definition in definitions - {conditions.definition}:
        yield f"another definition ({definition}, not {conditions.definition})"
    forget = spec.measured or spec.forget
    if _unlike(forget, conditions.forget) and not (spec.is_reference and metric.group == "generation"):
        yield f"another forget set ({forget.rows} sequences of {forget.source}, not {conditions.about_forget})"
    if metric.group == "generation" and (unlike := _unlike(spec.utility, conditions.utility)):
        yield f"other utility texts ({unlike})"
    known = conditions.judges.get(metric.judge or "", ())
    if metric.judge and known and spec.judges[metric.judge].id.lower() not in map(str.lower, known):
        yield f"another judge ({spec.judges[metric.judge].id}, not {known[0]})"
    if spec.is_reference:
        return
    trained = (spec.memorization, conditions.memorized_model), (spec.training, conditions.training)
    if unlike := _unlike(*trained[0 if spec.reference == "memorized_model" else 1]):
        yield f"other training ({unlike})"
    if point.strength != row.strength and not point.stop_reason:
        yield f"another strength ({spec.strength_name} {point.strength:g}, not {row.strength:g})"


def _unlike(ours: object, stated: Mapping[str, Json]) -> str:
    """Return each stated field that differs: `learning_rate 4e-05, not 1e-05`."""
    differing = {name: getattr(ours, name) for name, value in stated.items() if getattr(ours, name) != value}
    return ", ".join(
        f"{'no ' if it is None else ''}{name}{'' if it is None else f' {it}'}, not {stated[name]}"
        for name, it in differing.items()
    )
