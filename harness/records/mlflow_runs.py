"""Content of a sweep's runs in MLflow, and the view on which its page opens.

Runs contain numbers, settings and digests: no samples or error messages, and no notes but the training's losses, hence
no text of the forget set.
"""

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from harness.contracts import Json, Metric, Number
from harness.metric import parse_metric
from harness.records.record import DIRTY, parse_time
from harness.records.results import PointResults, Results, TrialResults, point_name
from harness.records.setting_changes import flatten_texts
from harness.settings import Trial

_VIEW = "mlflow.sharedViewState."
_STATUS = {"done": "FINISHED", "failed": "FAILED", "missing": "RUNNING"}


class RunContent(NamedTuple):
    """The content of one run."""

    key: str
    """Unique in the sweep."""
    tags: dict[str, str]
    settings: dict[str, Json]
    numbers: dict[tuple[str, int], float]
    """By name and step."""
    status: str
    started_ms: int
    ended_ms: int

    @property
    def params(self) -> dict[str, str]:
        """Return the settings as MLflow's texts."""
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in self.settings.items()}
        return {_legal(name): text for name, text in texts.items()}

    @property
    def metrics(self) -> list[tuple[str, int, float]]:
        """Return the finite numbers: name, step, value."""
        return [(_legal(name), step, value) for (name, step), value in self.numbers.items() if math.isfinite(value)]


def trial_run(trial: TrialResults) -> RunContent:
    """Return a trial's run; the step of a number is its strength if all are whole, else the strength's index."""
    spec, strengths = trial.spec, [point.strength for point in trial.points]
    numbers: dict[tuple[str, int], float] = {}
    integers = [strength for strength in strengths if isinstance(strength, int)]
    steps = integers if len(integers) == len(strengths) else range(len(strengths))
    for point, step in zip(trial.points, steps, strict=True):
        numbers |= {(name, step): value for name, value in _numbers(point).items()}
    for point in trial.points:
        losses = point.made.notes.get("loss_by_step", ()) if point.made else ()
        numbers |= {("training/loss", step): loss for step, loss in enumerate(losses, start=1)}
    tags = _tags(spec, "trial", spec.trial_id, spec.strengths[0] if len(spec.strengths) == 1 else None)
    tags |= _measured_tags(trial, trial.points, trial.stop.reason if trial.stop else "")
    tags["strengths"] = ", ".join(f"{strength:g}" for strength in strengths if strength is not None) or "none"
    error = trial.failure.error if trial.failure else "none"
    exception = re.match(r"[A-Za-z_][\w.]*(?=:|$)", error)  # Its message may quote a text.
    tags["error"] = exception.group() if exception else "see the journal"
    tags["versions"] = ", ".join(" ".join(item) for item in trial.versions[-1].items()) if trial.versions else "none"
    started, ended = map(milliseconds, trial.written or (None, None))
    # Records have whole seconds; a short trial begins and ends in one.
    seconds = sum(measurement.seconds for point in trial.points for measurement in point.measurements)
    started = min(started, ended - int(seconds * 1000))
    return RunContent(spec.trial_id, tags, run_settings(spec), numbers, _STATUS[trial.status], started, ended)


def point_run(trial: TrialResults, point: PointResults) -> RunContent:
    """Return a point's run, a row of the table; it starts when the model was erased."""
    spec, strength = point.spec, point.strength
    numbers = {(name, 0): value for name, value in _numbers(point).items()}
    settings, key = run_settings(spec), spec.point_id(strength)
    if strength is not None:
        settings |= {"strength": strength, f"settings.{spec.strength_name}": strength}
    tags = _tags(spec, "point", spec.trial_id, strength) | _measured_tags(trial, (point,), point.stop_reason)
    is_whole = strength not in dict(trial.remaining)
    ends = [milliseconds(measurement.at) for measurement in point.measurements]
    starts = [end - int(each.seconds * 1000) for end, each in zip(ends, point.measurements, strict=True)]
    starts += [milliseconds(point.made.at)] if point.made else []
    status = "FINISHED" if is_whole else _STATUS[trial.status]
    return RunContent(key, tags | {"point_id": key}, settings, numbers, status, min(starts), max(ends))


def run_settings(spec: Trial) -> dict[str, Json]:
    """Return a trial's settings by dotted path; reference rows have no settings of a method."""
    names = ("variant", "method", "method_version", "label", "seed", "strength_name")
    settings: dict[str, Json] = {name: getattr(spec, name) for name in names}
    settings |= {"engine": str(spec.engine), "model": spec.model.id, "model_digest": spec.model.digest}
    if not spec.is_reference:
        settings |= flatten_texts({"settings": spec.settings, "training": spec.training.describe()})
    return settings


def erased_tags(point: PointResults, results: Path, table_tags: Mapping[str, str]) -> dict[str, str]:
    """Return the folder of a point's erased model, and the command that exports it; nothing for a broken model."""
    spec, kept_in = point.spec, f"artifacts/erased/{point.erased_key}"
    is_sound = table_tags and "true" not in (table_tags.get("collapsed"), table_tags.get("over_erased"))
    if not is_sound or not (results / kept_in).exists():
        return {}
    name, out = f"{spec.sweep}:{spec.point_id(point.strength)}", f"{spec.sweep}-{point_name(point)}"
    folder = [] if results.name == "results" else ["--results", results.name]
    return {"kept_in": kept_in, "export": shlex.join(["lethe", "export", name, *folder, "--out", out])}


def milliseconds(at: str | None) -> int:
    """Return a record's time in milliseconds; 0 if unknown."""
    return int(parse_time(at).timestamp() * 1000) if at else 0


def _tags(spec: Trial, kind: str, trial_id: str, strength: Number | None) -> dict[str, str]:
    level = f", {spec.until}" if spec.until else ""
    at = "" if strength is None else f", {spec.strength_name} {strength:g}"
    name = f"{spec.label}{level}{at}, {spec.model.short_name}, seed {spec.seed}"
    tags = {"mlflow.runName": name, "mlflow.source.name": f"sweep {spec.sweep}", "mlflow.source.type": "LOCAL"}
    tags |= {name: getattr(spec, name) for name in ("variant", "method")}
    return tags | {"kind": kind, "trial_id": trial_id, "model": spec.model.id}


def _measured_tags(trial: TrialResults, points: Sequence[PointResults], stop_reason: str) -> dict[str, str]:
    not_finite = {name for point in points for name, value in _numbers(point).items() if not math.isfinite(value)}
    definitions = {measurement.definition for point in points for measurement in point.measurements}
    tags = {"forget_digest": trial.spec.forget.digest, "stop_reason": stop_reason or "none"}
    for name, values in (("definition", definitions), ("not_finite", not_finite)):
        tags[name] = ", ".join(sorted(values)) or "none"
    for attempt in trial.attempts[-1:]:
        tags |= {"node": attempt.node, "mlflow.source.git.commit": attempt.commit.removesuffix(DIRTY)}
    return {name: value for name, value in tags.items() if value}


def _numbers(point: PointResults) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, metric in _declared([point]).items():
        if point.spec.shows(metric.group, metric.items) and metric.name in point.numbers:
            numbers[name] = value = point.numbers[metric.name]
            if _is_unbounded(metric) and 0 < value < math.inf:
                numbers[_logarithm(name)] = math.log10(value)
    numbers["resources/measure_seconds"] = sum(measurement.seconds for measurement in point.measurements)
    if point.made:
        numbers["resources/erase_seconds"] = point.made.erase_seconds
        if point.made.peak_memory_bytes is not None:
            numbers["resources/peak_memory_bytes"] = point.made.peak_memory_bytes
    return numbers


def _legal(name: str) -> str:
    return re.sub(r"[^\w\-./: ]", "_", name)


def _declared(points: Iterable[PointResults]) -> dict[str, Metric]:
    declared: dict[str, Metric] = {}
    for point in points:
        for measurement in point.measurements:
            for metric in map(parse_metric, measurement.metrics):
                declared[f"{metric.group}/{metric.name}"] = metric
    return declared


def _is_unbounded(metric: Metric) -> bool:
    """Return whether a metric, such as perplexity, is drawn as a logarithm: a collapsed model would squeeze the others.

    MLflow's charts have no logarithmic scale.
    """
    return metric.axis is not None and math.isinf(metric.high)


def _logarithm(name: str) -> str:
    group, _, metric = name.partition("/")
    return f"{group}/log10_{metric}"


def experiment_tags(results: Results, made_ms: int) -> dict[str, str]:
    """Return the experiment's kind, and the sweep's two views in the form that MLflow's page saves.

    One has the points: table, trade-off (erasure upwards, generation across), and parallel coordinates. The other has a
    line of each trial through its strengths, in the method's colour, and its loss by step.
    """
    sweep, declared = results.plan.sweep, _declared(results.measured)
    run_name, columns = "attributes.`Run Name`", _columns(declared)
    saved = json.loads(Path(__file__).with_name("mlflow_view.json").read_text(encoding="utf-8"))
    layout = {"selectedColumns": columns, "columnOrder": [run_name, *columns], "columnWidths": {run_name: 330}}
    tags = {"mlflow.experimentKind": "custom_model_development"}
    for kind, key, charts in zip(("point", "trial"), (sweep, f"{sweep}: lines"), _charts(declared, saved), strict=True):
        state = saved["state"] | layout | {"searchFilter": f"tags.kind = '{kind}' AND tags.sweep = '{sweep}'"}
        state["compareRunCharts"] = charts
        view = {"name": f"{sweep}: {kind}s", "createdAt": made_ms, "updatedAt": made_ms, "state": json.dumps(state)}
        tags[_VIEW + _legal(key)] = json.dumps(view)
    return tags


def view_addresses(experiment: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return the page of each sweep's points by sweep, as a path on the server."""
    page = f"#/experiments/{experiment}/runs?workflowType=machine_learning&compareRunsMode=CHART&viewStateShareKey="
    names = sorted(tag.removeprefix(_VIEW) for tag in tags if tag.startswith(_VIEW))
    return {name: f"{page}{quote(name)}" for name in names}


def _columns(declared: Mapping[str, Metric]) -> list[str]:
    ranked = sorted((name for name, metric in declared.items() if metric.ranked), key=lambda name: declared[name].group)
    params = [f"params.`{name}`" for name in ("variant", "strength", "training.learning_rate")]
    metrics = [f"metrics.`{_legal(name)}`" for name in ranked]
    return [*params, *metrics, "tags.`collapse_class`", "tags.`over_erased`", "tags.`ranked`"]


def _charts(declared: Mapping[str, Metric], saved: Mapping[str, Any]) -> tuple[list[Json], list[Json]]:
    """Return the charts of points, and those of trials."""
    unbounded, axes = {name for name, metric in declared.items() if _is_unbounded(metric)}, {}
    for group in ("generation", "erasure"):
        names = [name for name, metric in declared.items() if metric.group == group and metric.axis is not None]
        # Perplexity, the cost of comparisons, comes first.
        names.sort(key=lambda name: (group == "generation" and name not in unbounded, declared[name].axis))
        axes[group] = [_legal(_logarithm(name) if name in unbounded else name) for name in names]
    points, lines = list[Json](), list[Json]()
    for number, (x, y) in enumerate(zip(axes["generation"], axes["erasure"], strict=False)):
        both = {"xaxis": {"key": x, "type": "METRIC"}, "yaxis": {"key": y, "type": "METRIC"}}
        points.append({**saved["scatter"], "uuid": f"scatter-{number}", **both})
        across = {"xAxisKey": "metric", "selectedXAxisMetricKey": x, "metricKey": y, "selectedMetricKeys": [y]}
        lines.append({**saved["line"], "uuid": f"line-{number}", **across})
    points.append({**saved["parallel"], "selectedMetrics": [*axes["erasure"], *axes["generation"]]})
    return points, [*lines, {**saved["line"], **saved["loss"]}]
