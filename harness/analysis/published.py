"""A published table next to ours: matching rows, obstacles to a comparison, and differences.

Obstacles follow from the plan: the model, definition, texts, judges and training are compared with the published ones.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.analysis.metrics import mean_over, read_declarations, select_metrics
from harness.analysis.ranking import RankedTable
from harness.analysis.seeds import strength_text
from harness.contracts import Checkpoint, Definition, Json, Metric, Training
from harness.errors import DataError, unknown
from harness.plugins import EVALUATORS, METHODS, plain_settings
from harness.records.published import PUBLISHED, Conditions, PublishedRow, published_conditions, published_tolerances
from harness.records.results import PointResults, Results, TrialResults
from harness.settings import REFERENCE_ROWS, EvaluatorSpec, Source, TrialSpec, replace

COLUMNS = (
    "title", "model", "published_model", "label", "strength", "collapsed", "lacking", "name", "metric", "ours",
    "published", "difference", "tolerance", "is_inside", "obstacles", "is_set_aside",
)  # fmt: skip
COLLAPSED_THERE = "the published model has collapsed: its flag is compared, not its numbers"
MAX_SPREAD = 2.0
"""Half width of our interval, in tolerances, above which agreement means nothing; it excuses no disagreement."""
COMPARED = frozenset({
    "method", "reference", "settings", "strength_name", "strengths",  # these identify the row
    "model", "training", "memorization", "forget", "measured", "retain", "utility", "validation",
    "evaluators", "judges",
})  # fmt: skip
"""Fields of a trial that are compared with the table's conditions."""
FIXED_BY_NO_TABLE = frozenset({
    "trial_id", "sweep", "variant", "label", "replicate_of",  # names
    "cpus", "gpus", "time_limit", "keep_erased", "samples", "sample_count", "reading",  # decide no number
    "method_version", "engine", "seed",  # how it is computed, of which no source says anything
    "until", "walk_to", "levels", "unseen", "searched",  # how settings were chosen, which are compared
    "retrained",  # of reference rows, and what a level is
})  # fmt: skip
"""Fields that may have any value. A field in neither set must have its default."""
_FOLLOWS = ("digest", "rows", "longest")
"""Fields of a source that follow from the others and the texts."""


def published_frame(results: Results, ranked: RankedTable) -> pd.DataFrame:
    """Return the published table next to ours: a row for each model, row and figure.

    A model of ours is matched with the published one of its id, else with the one at its place in the list. `obstacles`
    is why two figures cannot be compared; `is_inside` is whether ours lies within the tolerance, or None;
    `is_set_aside` is whether only the published figure prevents the comparison. The collapse flag is named `collapsed`
    and has no metric. `lacking` is why we have no such row.

    Raises:
        DataError: There is no such published table.
    """
    name, rows = results.plan.reproduces, []
    if name is None:
        return pd.DataFrame(columns=list(COLUMNS))
    if name not in published_conditions():
        raise DataError(unknown("published table", name, published_conditions()))
    conditions, metrics = published_conditions()[name], read_declarations(PUBLISHED / f"{name}.csv")
    only_row, by_id = next(iter(conditions.rows)), {id.lower(): theirs for theirs, id in conditions.models.items()}
    theirs_in_order = list(conditions.models)
    figures: dict[tuple[str, str], dict[Hashable, Any]] = {}
    for record in pd.read_csv(PUBLISHED / f"{name}.csv").to_dict("records"):
        row_name = str(record.get(conditions.row_column or "", only_row))
        figures[record.get("model", theirs_in_order[0]), row_name] = record
    for number, model in enumerate(dict.fromkeys(spec.table_model for spec in results.plan.trials)):
        theirs = by_id.get(model.lower(), theirs_in_order[min(number, len(theirs_in_order) - 1)])
        about = {"title": conditions.title, "model": model, "published_model": theirs}
        for key, row in conditions.rows.items():
            for cell in _row_cells(results, model, row, figures[theirs, key], metrics, ranked, conditions, theirs):
                rows.append(about | cell)
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"is_inside": object, "ours": object, "published": object})


def _row_cells(
    results: Results,
    model: str,
    row: PublishedRow,
    figures: Mapping[Hashable, Any],
    metrics: Mapping[str, Metric],
    ranked: RankedTable,
    conditions: Conditions,
    theirs: str,
) -> Iterator[dict[str, Any]]:
    points, lacking = match_points(results, model, row)
    ours = ranked.table[ranked.table["point_id"].isin([point.spec.point_id(point.strength) for point in points])]
    is_method, has_collapsed = row.method not in REFERENCE_ROWS, figures.get("collapsed") is True
    first = points[0] if points and is_method else None
    about: dict[str, Any] = {"label": row.label, "lacking": lacking, "strength": ""}
    about["strength"] = strength_text(first.spec.strength_name, float(first.strength or 0)) if first else ""
    about["collapsed"] = bool(ours["collapsed"].eq(True).any())

    def differences(*metrics: Metric) -> list[str]:
        obstacles_found: dict[str, None] = {}
        for metric in metrics:
            for point in points:
                point_differences = condition_differences(point, metric, row, conditions, conditions.models[theirs])
                obstacles_found |= dict.fromkeys(point_differences)
        return list(obstacles_found)

    for name, declared in metrics.items():
        measured_as, published = conditions.measured_as.get(name, name), float(figures[name])
        metric, tolerance, value = ranked.info.get(measured_as), math.nan, math.nan
        theirs_only = []
        if lacking or metric is None:
            obstacles = [lacking or f"this sweep does not measure {measured_as}"]
        else:
            value, (low, high) = mean_over(ours, metric), ranked.evidence.interval(ours, metric)
            if measured_as in published_tolerances():
                tolerance = published_tolerances()[measured_as].at(published)
            obstacles = differences(metric)
            if max(high - value, value - low) > MAX_SPREAD * tolerance and _is_within(value - published, tolerance):
                obstacles.append(
                    f"our own figure of {declared.title} is too uncertain to compare: its 95 % interval is too wide"
                )
            theirs_only = [COLLAPSED_THERE] if has_collapsed else []
            theirs_only += [f"no tolerance is stated for {declared.title}"] if math.isnan(tolerance) else []
        cell = _cell(name, value, published, tolerance, (*obstacles, *theirs_only))
        yield about | cell | {"metric": declared, "is_set_aside": bool(theirs_only) and not obstacles}
    if "collapsed" in figures and is_method:
        judges = [metric for metric in select_metrics(ranked.info, "generation") if metric.collapse]
        obstacles = differences(*judges)
        if lacking or not judges:
            obstacles = [lacking or "this sweep measures nothing that shows a collapse"]
        flags = ours["collapsed"].astype(float)
        flag = 1.0 if flags.eq(1.0).any() else float(flags.sum(skipna=False)) if len(flags) else math.nan
        cell = _cell("collapsed", flag, float(has_collapsed), 0.0, tuple(obstacles))
        printed = {"ours": None if math.isnan(flag) else flag == 1.0, "published": has_collapsed, "difference": None}
        yield about | cell | printed | {"metric": None, "tolerance": None, "is_set_aside": False}


def _cell(name: str, ours: float, published: float, tolerance: float, obstacles: tuple[str, ...]) -> dict[str, Any]:
    cell = {"name": name, "ours": ours, "published": published, "difference": ours - published, "tolerance": tolerance}
    return cell | {"obstacles": obstacles, "is_inside": None if obstacles else _is_within(ours - published, tolerance)}


def _is_within(difference: float, tolerance: float) -> bool:
    return round(abs(difference), 9) <= round(tolerance, 9)


def obstacle_sentences(frame: pd.DataFrame) -> list[str]:
    """Return each obstacle once, with the figures that it concerns."""
    obstacles = frame.explode("obstacles").dropna(subset="obstacles")
    sentences = []
    for obstacle, cells in obstacles.groupby("obstacles", sort=False):
        rows, names = (list(dict.fromkeys(cells[column])) for column in ("label", "name"))
        is_of_all = len(rows) == frame["label"].nunique() and len(names) == frame["name"].nunique()
        where = "everywhere" if is_of_all else f"{', '.join(names)} of {', '.join(rows)}"
        sentences.append(f"{obstacle} ({where})")
    return sentences


def match_points(results: Results, model: str, row: PublishedRow) -> tuple[list[PointResults], str]:
    """Return the points of every seed that match a published row, or why there are none."""
    settings = _settings_of_row(row)
    trials: list[TrialResults] = []
    for trial in results.trials:
        spec = trial.spec
        is_first = not trials or spec.variant == trials[0].spec.variant
        if is_first and model in (spec.replicate_of, spec.model.id) and _is_row(spec, row, settings):
            trials.append(trial)
    if not trials:
        settings_asked = {**row.settings, "strength": row.strength} if row.strength is not None else row.settings
        listed = ", ".join(f"{name} {value}" for name, value in settings_asked.items())
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
    """Yield the differences between a point's conditions and the published number's."""
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
    judge_names = conditions.judges.get(metric.judge or "", ())
    if metric.judge and judge_names and (other := _unlike_checkpoint(spec.judges[metric.judge], judge_names)):
        yield f"another judge ({other})"
    yield from _text_differences(spec, metric, conditions)
    if not spec.is_reference:
        yield from _erasing_differences(spec, conditions)
        if point.strength != row.strength and not point.stop_reason:
            yield f"another strength ({spec.strength_name} {point.strength:g}, not {row.strength:g})"
    for name, field in type(spec).model_fields.items():
        ours, usual = getattr(spec, name), field.get_default(call_default_factory=True)
        if name not in COMPARED | FIXED_BY_NO_TABLE and ours != usual:
            yield f"other settings ({_unlike({name: ours}, {name: usual})})"


def _unlike_checkpoint(ours: Checkpoint, names: Sequence[str]) -> str:
    """Return a difference between a model and the hub's of these names; a local folder may have such a name too."""
    if ours.id.lower() not in map(str.lower, names):
        return f"{ours.id}, not {names[0]}"
    if ours.revision is None and "/" in ours.id:
        return f"a folder of the name {ours.id}, not the hub's"
    return "" if ours.tokenizer == ours.location else f"{ours.id} with a tokenizer that is not its own"


def _evaluator_differences(evaluator: EvaluatorSpec, definition: Definition) -> Iterator[str]:
    """Yield an evaluator's settings that are not defaults, but for those that metrics are named after."""
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
    is_of_utility = metric.group == "generation"
    if conditions.forget and not (spec.is_reference and is_of_utility):
        for source in filter(None, (spec.measured, spec.forget)):
            if _unlike(source.model_dump(), conditions.forget, all_of_ours=False):
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
        used = ours.model_dump() if ours else {}
        if stated and (unlike := _unlike(used, Source(**stated).model_dump(), ignored=_FOLLOWS)):
            yield f"other {role} texts ({unlike})"


def _erasing_differences(spec: TrialSpec, conditions: Conditions) -> Iterator[str]:
    memorization = replace(spec.memorization, **conditions.memorized_model)
    published_spec = replace(spec, training=Training(**conditions.training), memorization=memorization)
    if spec.reference == "memorized_model":
        if unlike := _unlike(_memorizing(spec), _memorizing(published_spec)):
            yield f"other training of the memorized model ({unlike})"
    elif unlike := _unlike(_training_settings(spec.training), _training_settings(published_spec.training)):
        yield f"other training ({unlike})"


def _memorizing(spec: TrialSpec) -> dict[str, Any]:
    return {**spec.memorization.model_dump(), **_training_settings(spec.memorized_training)}


def _training_settings(training: Training) -> dict[str, Any]:
    return {name: value for name, value in training.in_words().items() if name in training.identity()}


def _unlike(
    ours: Mapping[str, Any], published: Mapping[str, Any], *, all_of_ours: bool = True, ignored: Sequence[str] = ()
) -> str:
    differences = []
    for name in dict.fromkeys([*published, *(ours if all_of_ours else ())]):
        mine, theirs = ours.get(name), published.get(name)
        if mine != theirs and name not in ignored:
            has = f"no {name}" if mine is None else f"{name} {mine}"
            differences.append(f"{has}, not {'none' if theirs is None else theirs}")
    return "; ".join(differences)
