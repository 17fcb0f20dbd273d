"""A published table next to ours: matching rows, obstacles to a comparison, and differences.

Obstacles follow from the plan: the model, definition, texts, judges and training are compared with the published ones.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pandas as pd

from harness.analysis import damage, ranking, seeds
from harness.analysis.metrics import mean_over, read_declarations, select_metrics
from harness.contracts import Checkpoint, Definition, Json, Metric, Training
from harness.planning.published import PUBLISHED, Conditions, PublishedRow, published_conditions, published_tolerances
from harness.plugins import EVALUATORS, METHODS, plain_settings
from harness.records.results import PointResults, Results, TrialResults
from harness.settings import REFERENCE_ROWS, EvaluatorSpec, Source, Trial, replace

COLUMNS = (
    "model", "place", "label", "strength", "collapsed", "lacking", "name", "metric", "ours",
    "published", "difference", "tolerance", "is_inside", "obstacles", "is_set_aside",
)  # fmt: skip
COLLAPSED_THERE = "the published model has collapsed: its flag is compared, not its numbers"
MAX_SPREAD = 2.0
"""Half width of our interval, in tolerances, above which agreement means nothing; it excuses no disagreement."""
# Fields of a source that follow from the others and the texts.
_FOLLOWS = {"digest", "rows", "longest"}


def published_frame(results: Results, ranked: ranking.RankedTable) -> pd.DataFrame:
    """Return the published table next to ours: a row for each model, row and figure.

    A model of ours is matched with the published one of its id, else with the one at its place in the list. `obstacles`
    is why two figures cannot be compared; `is_inside` is whether ours lies within the tolerance, or None;
    `is_set_aside` is whether only the published figure prevents the comparison. The collapse flag is named `collapsed`
    and has no metric. `lacking` is why we have no such row.
    """
    name, rows = results.plan.reproduces, []
    if name is None:
        return pd.DataFrame(columns=list(COLUMNS))
    conditions, metrics = published_conditions()[name], read_declarations(PUBLISHED / f"{name}.csv")
    theirs_in_order, by_id = list(conditions.models), {id.lower(): theirs for theirs, id in conditions.models.items()}
    figures: dict[tuple[str, str], dict[Hashable, Any]] = {}
    for record in pd.read_csv(PUBLISHED / f"{name}.csv").to_dict("records"):
        row_name = str(record.get(conditions.row_column or "", next(iter(conditions.rows))))
        figures[record.get("model", theirs_in_order[0]), row_name] = record
    for number, model in enumerate(dict.fromkeys(spec.table_model for spec in results.plan.trials)):
        theirs = by_id.get(model.lower(), theirs_in_order[min(number, len(theirs_in_order) - 1)])
        about = {"model": model, "place": f"{model} next to {theirs} of {conditions.title}"}
        for key, row in conditions.rows.items():
            for cell in _row_cells(results, model, row, figures[theirs, key], metrics, ranked, conditions, theirs):
                rows.append(about | cell)
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(("is_inside", "ours", "published"), object))


def _row_cells(
    results: Results,
    model: str,
    row: PublishedRow,
    figures: Mapping[Hashable, Any],
    metrics: Mapping[str, Metric],
    ranked: ranking.RankedTable,
    conditions: Conditions,
    theirs: str,
) -> Iterator[dict[str, Any]]:
    points, lacking = match_points(results, model, row)
    ours = ranked.table[ranked.table["point_id"].isin([point.spec.point_id(point.strength) for point in points])]
    has_collapsed, is_collapsed = figures.get("collapsed") is True, bool(ours["collapsed"].eq(True).any())
    about = {"label": row.label, "lacking": lacking, "collapsed": is_collapsed, "strength": ""}
    if points and points[0].strength is not None:
        about["strength"] = seeds.strength_text(points[0].spec.strength_name, float(points[0].strength))

    def differences(*metrics: Metric) -> list[str]:
        clauses: dict[str, None] = {}
        for metric, point in product(metrics, points):
            clauses |= dict.fromkeys(condition_differences(point, metric, row, conditions, conditions.models[theirs]))
        return list(clauses)

    for name, declared in metrics.items():
        measured_as, published = conditions.measured_as.get(name, name), float(figures[name])
        metric, tolerance, value = ranked.info.get(measured_as), math.nan, math.nan
        obstacles, theirs_only = [lacking or f"this sweep does not measure {measured_as}"], []
        if metric is not None and not lacking:
            value, (low, high) = mean_over(ours, metric), ranked.evidence.interval(ours, metric)
            obstacles, theirs_only = differences(metric), [COLLAPSED_THERE] if has_collapsed else []
            if measured_as in published_tolerances():
                tolerance = published_tolerances()[measured_as].at(published)
            else:
                theirs_only.append(f"no tolerance is stated for {declared.title}")
            if max(high - value, value - low) > MAX_SPREAD * tolerance and _is_within(value - published, tolerance):
                reason = "is too uncertain to compare: its 95 % interval is too wide"
                obstacles.append(f"our own figure of {declared.title} {reason}")
        cell = _cell(name, value, published, tolerance, (*obstacles, *theirs_only))
        yield about | cell | {"metric": declared, "is_set_aside": bool(theirs_only) and not obstacles}
    if "collapsed" in figures and row.method not in REFERENCE_ROWS:
        judges = [metric for metric in select_metrics(ranked.info, "generation") if metric.collapse]
        obstacles = differences(*judges)
        if lacking or not judges:
            obstacles = [lacking or "this sweep measures nothing that shows a collapse"]
        flag = damage.is_any(ours["collapsed"])
        cell = _cell("collapsed", math.nan if flag is None else flag, has_collapsed, 0.0, tuple(obstacles))
        printed = {"ours": flag, "published": has_collapsed, "difference": None, "tolerance": None}
        yield about | cell | printed | {"metric": None, "is_set_aside": False}


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
        within = [point for point in trial.measured if (point.strength or 0) <= (row.strength or 0)]
        if not within or trial.status != "done":
            state = "is not finished" if trial.status == "missing" else f"goes further ({trial.spec.strength_name})"
            state = f"failed: {trial.failure.reason}" if trial.failure else state
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


def _is_row(spec: Trial, row: PublishedRow, settings: Mapping[str, Json]) -> bool:
    if spec.method != row.method or spec.is_reference:
        return spec.method == row.method
    is_at_strength = METHODS.load(row.method).strength.cumulative or spec.strengths == (row.strength,)
    return is_at_strength and {**settings, **spec.settings} == settings


def condition_differences(
    point: PointResults, metric: Metric, row: PublishedRow, conditions: Conditions, model_id: str
) -> Iterator[str]:
    """Yield the differences between a point's conditions and the published number's."""
    spec, is_of_utility = point.spec, metric.group == "generation"
    compared: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
    compared["another model"] = _checkpoints(spec.model, [model_id])
    for measurement in point.measurements:
        if metric.name in measurement.numbers:
            name = measurement.evaluator
            [evaluator] = [evaluator for evaluator in spec.evaluators if evaluator.name == name]
            if name in EVALUATORS.names():
                compared[f"other settings of {name}"] = _evaluator_settings(evaluator, conditions.definition)
            else:
                yield "an evaluator that is not installed"
            compared["another definition"] = {"": measurement.definition}, {"": conditions.definition}
    if metric.judge and (names := conditions.judges.get(metric.judge)):
        compared["another judge"] = _checkpoints(spec.judges[metric.judge], names)
    for source in filter(None, (spec.measured, spec.forget)):
        is_same = all(getattr(source, name) == value for name, value in conditions.forget.items())
        if not is_same and not (spec.is_reference and is_of_utility):
            ours = {"": f"{source.rows} sequences of {source.source}"}
            compared["another forget set"] = ours, {"": conditions.about_forget}
    is_validated = not spec.is_reference and spec.reference != "memorized_model"
    roles = {"utility": is_of_utility, "retain": spec.reference == "retain_data", "validation": is_validated}
    for role, is_read in roles.items():
        if is_read and (fields := getattr(conditions, role)):
            used, published = getattr(spec, role) or Source(source="none"), Source(**fields)
            compared[f"other {role} texts"] = used.model_dump(exclude=_FOLLOWS), published.model_dump(exclude=_FOLLOWS)
    memorization = replace(spec.memorization, **conditions.memorized_model)
    published_spec = replace(spec, training=Training(**conditions.training), memorization=memorization)
    if spec.reference == "memorized_model":
        compared["other training of the memorised model"] = _memorizing(spec), _memorizing(published_spec)
    elif not spec.is_reference:
        compared["other training"] = _describe(spec.training), _describe(published_spec.training)
    if not spec.is_reference and not point.stop_reason:
        compared["another strength"] = {spec.strength_name: point.strength}, {spec.strength_name: row.strength}
    for title, (mine, theirs) in compared.items():
        if unlike := _unlike(mine, theirs):
            yield f"{title} ({unlike})"


def _checkpoints(ours: Checkpoint, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    # A local folder may have such a name too.
    id = names[0] if ours.id.lower() in map(str.lower, names) else ours.id
    id += " in a folder" if id == names[0] and ours.revision is None and "/" in ours.id else ""
    tokenizer = "its own" if ours.tokenizer == ours.location else ours.tokenizer
    return {"": id, "tokenizer": tokenizer}, {"": names[0], "tokenizer": "its own"}


def _evaluator_settings(evaluator: EvaluatorSpec, definition: Definition) -> tuple[dict[str, Json], dict[str, Json]]:
    usual = plain_settings(EVALUATORS.configure(evaluator.name, {"definition": definition}))

    def names(settings: Mapping[str, Json]) -> list[str]:
        return [metric.name for metric in EVALUATORS.configure(evaluator.name, dict(settings)).metrics]

    ours = dict(usual)
    for name, value in evaluator.settings.items():
        if name != "definition" and (name not in usual or names({**usual, name: value}) == names(usual)):
            ours[name] = value
    return ours, usual


def _memorizing(spec: Trial) -> dict[str, Any]:
    return {**spec.memorization.model_dump(), **_describe(spec.memorized_training)}


def _describe(training: Training) -> dict[str, Any]:
    return {name: value for name, value in training.describe().items() if name in training.identity()}


def _unlike(ours: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    differences = []
    for name in dict.fromkeys([*published, *ours]):
        mine, theirs = ours.get(name), published.get(name)
        if mine != theirs:
            has = f"no {name}" if mine is None else f"{name} {mine}".strip()
            differences.append(f"{has}, not {'none' if theirs is None else theirs}")
    return "; ".join(differences)
