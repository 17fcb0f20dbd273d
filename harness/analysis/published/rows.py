"""Which points of a sweep a row of a published table is, and how their measurement differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from harness.contracts import Checkpoint, Definition, Json, Metric, Training
from harness.plugins import EVALUATORS, METHODS, plain_settings
from harness.records.published import Conditions, PublishedRow
from harness.records.results import PointResults, Results, TrialResults
from harness.specs import REFERENCE_ROWS, EvaluatorSpec, MemorizedTraining, Source, TrialSpec

COMPARED = frozenset({
    "method", "reference", "settings", "strength_name", "strengths",  # these identify the row
    "model", "training", "memorization", "forget", "measured", "retain", "utility", "validation",
    "evaluators", "judges",
})  # fmt: skip
"""Fields of a trial that are compared with what a table states."""
FIXED_BY_NO_TABLE = frozenset({
    "trial_id", "sweep", "variant", "label", "replicate_of",  # names
    "cpus", "gpus", "time_limit", "keep_erased", "samples", "sample_count", "reading",  # decide no number
    "method_version", "engine", "seed",  # how it is computed, of which no source says anything
    "until", "walk_to", "levels", "unseen", "searched",  # how settings were chosen, which are compared
    "retrained",  # of reference rows, and what a level is
})  # fmt: skip
"""Fields that may be anything. One in neither set, which is added later, must have its default."""
_FOLLOWS = ("digest", "rows", "longest")
"""Fields of a source that its others and the texts decide."""


def points_of(results: Results, model: str, row: PublishedRow) -> tuple[list[PointResults], str]:
    """Return the points of every seed that are a published row; or why there are none."""
    settings = _settings_of_row(row)
    trials: list[TrialResults] = []
    for trial in results.trials:
        spec = trial.spec
        is_first = not trials or spec.variant == trials[0].spec.variant
        if is_first and model in (spec.replicate_of, spec.model.id) and _is_row(spec, row, settings):
            trials.append(trial)
    if not trials:
        asked = {**row.settings, "strength": row.strength} if row.strength is not None else row.settings
        listed = ", ".join(f"{name} {value}" for name, value in asked.items())
        return [], f"no row of this sweep is {row.method}{f' with {listed}' if listed else ''}"
    points = []
    for trial in trials:
        most = row.strength or 0
        within = [point for point in trial.measured if point.strength is None or point.strength <= most]
        if not within or trial.status != "done":
            state = f"goes further ({trial.spec.strength_name})"
            if trial.status == "missing":
                state = "is not finished"
            if trial.failure:
                state = f"failed: {trial.failure.reason}"
            return [], f"'{trial.spec.variant}', seed {trial.spec.seed}, {state}"
        points.append(within[-1])
    return points, ""


def _settings_of_row(row: PublishedRow) -> dict[str, Json]:
    if row.method in REFERENCE_ROWS:
        return {}
    field = METHODS.load(row.method).strength.field
    settings = dict(plain_settings(METHODS.configure(row.method, {**row.settings, field: row.strength})))
    del settings[field]
    return settings


def _is_row(spec: TrialSpec, row: PublishedRow, settings: Mapping[str, Json]) -> bool:
    if spec.method != row.method or spec.is_reference:
        return spec.method == row.method
    if {**settings, **spec.settings} != settings:
        return False
    return METHODS.load(row.method).strength.cumulative or spec.strengths == (row.strength,)


def condition_differences(
    point: PointResults, metric: Metric, row: PublishedRow, conditions: Conditions, model_id: str
) -> Iterator[str]:
    """Yield in what a point's number was measured otherwise than the published one."""
    spec = point.spec
    if other := _unlike_checkpoint(spec.model, [model_id]):
        yield f"another model ({other})"
    definitions, evaluators = set(), set()
    for measurement in point.measurements:
        if metric.name in measurement.numbers:
            definitions.add(measurement.definition)
            evaluators.add(measurement.evaluator)
    for definition in sorted(definitions - {conditions.definition}):
        yield f"another definition ({definition}, not {conditions.definition})"
    for evaluator in spec.evaluators:
        if evaluator.name in evaluators:
            yield from _evaluator_differences(evaluator, conditions.definition)
    known = conditions.judges.get(metric.judge or "", ())
    if metric.judge and known and (other := _unlike_checkpoint(spec.judges[metric.judge], known)):
        yield f"another judge ({other})"
    yield from _text_differences(spec, metric, conditions)
    if not spec.is_reference:
        yield from _erasing_differences(spec, conditions)
        if point.strength != row.strength and not point.stop_reason:
            yield f"another strength ({spec.strength_name} {point.strength:g}, not {row.strength:g})"
    for field in fields(spec):
        ours = getattr(spec, field.name)
        if field.name not in COMPARED | FIXED_BY_NO_TABLE and ours != field.default:
            yield f"other settings ({_unlike({field.name: ours}, {field.name: field.default})})"


def _unlike_checkpoint(ours: Checkpoint, known: Sequence[str]) -> str:
    """Return in what a model is not the hub's of one of these names; a local folder may have such a name too."""
    if ours.id.lower() not in map(str.lower, known):
        return f"{ours.id}, not {known[0]}"
    if ours.revision is None and "/" in ours.id:
        return f"a folder of the name {ours.id}, not the hub's"
    return "" if ours.tokenizer == ours.location else f"{ours.id} with a tokenizer that is not its own"


def _evaluator_differences(evaluator: EvaluatorSpec, definition: Definition) -> Iterator[str]:
    """Yield the settings of an evaluator that are not its defaults, but for those that metrics are named after."""
    if evaluator.name not in EVALUATORS.names():
        yield f"an evaluator that is not installed ({evaluator.name}), so that its settings cannot be compared"
        return
    usual = plain_settings(EVALUATORS.configure(evaluator.name, {"definition": definition}))

    def names(settings: Mapping[str, Json]) -> list[str]:
        return [metric.name for metric in EVALUATORS.configure(evaluator.name, dict(settings)).metrics]

    ours = dict(usual)
    for name, value in evaluator.settings.items():
        if name != "definition" and (name not in usual or names({**usual, name: value}) == names(usual)):
            ours[name] = value
    if unlike := _unlike(ours, usual):
        yield f"other settings of {evaluator.name} ({unlike})"


def _text_differences(spec: TrialSpec, metric: Metric, conditions: Conditions) -> Iterator[str]:
    """Yield which texts a number was measured on, or its model was erased with, that are not the table's."""
    is_of_utility = metric.group == "generation"
    if conditions.forget and not (spec.is_reference and is_of_utility):
        for source in filter(None, (spec.measured, spec.forget)):
            if _unlike(asdict(source), conditions.forget, all_of_ours=False):
                yield f"another forget set ({source.rows} sequences of {source.source}, not {conditions.about_forget})"
                break
    compared: dict[str, tuple[Source | None, Mapping[str, Json]]] = {}
    if is_of_utility:
        compared["utility"] = spec.utility, conditions.utility
    if spec.reference == "retain_data":
        compared["retain"] = spec.retain, conditions.retain
    if not spec.is_reference and spec.reference != "memorized_model":
        compared["validation"] = spec.validation, conditions.validation
    for role, (ours, stated) in compared.items():
        used = asdict(ours) if ours else {}
        if stated and (unlike := _unlike(used, asdict(Source(**stated)), ignored=_FOLLOWS)):
            yield f"other {role} texts ({unlike})"


def _erasing_differences(spec: TrialSpec, conditions: Conditions) -> Iterator[str]:
    """Yield in what a model was trained otherwise: the erased one itself, or the memorised one that it is made of."""
    memorization = MemorizedTraining(**{**asdict(spec.memorization), **conditions.memorized_model})
    stated = replace(spec, training=Training(**conditions.training), memorization=memorization)
    if spec.reference == "memorized_model":
        if unlike := _unlike(_memorizing(spec), _memorizing(stated)):
            yield f"other training of the memorized model ({unlike})"
    elif unlike := _unlike(_in_words(spec.training), _in_words(stated.training)):
        yield f"other training ({unlike})"


def _memorizing(spec: TrialSpec) -> dict[str, Any]:
    return {**asdict(spec.memorization), **_in_words(spec.memorized_training)}


def _in_words(training: Training) -> dict[str, Any]:
    return {name: value for name, value in training.in_words().items() if name in training.identity()}


def _unlike(
    ours: Mapping[str, Any], stated: Mapping[str, Any], *, all_of_ours: bool = True, ignored: Sequence[str] = ()
) -> str:
    differences = []
    for name in dict.fromkeys([*stated, *(ours if all_of_ours else ())]):
        mine, theirs = ours.get(name), stated.get(name)
        if mine != theirs and name not in ignored:
            has = f"no {name}" if mine is None else f"{name} {mine}"
            differences.append(f"{has}, not {'none' if theirs is None else theirs}")
    return "; ".join(differences)
