"""What the runs of a trial, of its points and of a candidate are to hold.

Nothing here may carry text of the forget set: no notes, no samples, no error messages.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from harness.contracts import Json, Number
from harness.records.record import Candidate, Journaled, Measurement, time_of
from harness.records.results import PointResults, StudyResults, TrialResults, reaching_probes
from harness.records.tracking.runs import Metrics, RunContent, RunStatus, Span, legal, source_tags, steps_of
from harness.specs import TrialSpec

Numbers = dict[tuple[str, Number | None], float]
"""By name and strength."""
_RUN_STATUS: dict[str, RunStatus] = {"done": "FINISHED", "failed": "FAILED", "missing": "RUNNING"}


def trial_runs(trial: TrialResults) -> list[RunContent]:
    """Return what a trial's run is to hold, and then each of its measured points', in the order of their strengths."""
    spans = _point_spans(trial)
    runs = [_trial_run(trial, sum(span.seconds for span in spans))]
    for point, span in zip(trial.points, spans, strict=True):
        if point.measurements:
            runs.append(_point_run(trial, point, span))
    return runs


def _trial_run(trial: TrialResults, seconds: float) -> RunContent:
    spec, strengths = trial.spec, [point.strength for point in trial.points]
    values: Numbers = {}
    for point in trial.points:
        for name, value in _costs(point).items():
            values[name, point.strength] = value
        for measurement in point.measurements:
            values[f"measure_seconds/{measurement.evaluator}", point.strength] = measurement.seconds
            for group, name, value in _grouped_numbers(measurement):
                values[f"{group}/{name}", point.strength] = value
    moments = [time_of(at) for at in trial.written]
    span = Span(started=min(moments, default=None), ended=max(moments, default=None), seconds=seconds)
    tags = {
        "mlflow.runName": _run_name(spec, spec.strengths[0] if len(spec.strengths) == 1 else None),
        "kind": "trial",
        "reference": spec.reference,
        "strengths": _listed(strengths),
        "status": trial.status,
        "stop_reason": trial.stop.reason if trial.stop else "none",
        "error": _type_of(trial.failure.error) if trial.failure else "none",
        **_shared_tags(trial, trial.points, values, span),
    }
    for name, version in trial.versions[-1].items() if trial.versions else ():
        tags[f"version.{name}"] = version
    status = _RUN_STATUS[trial.status]
    metrics = _finite_metrics(values, steps_of(strengths))
    return RunContent(spec.trial_id, tags, _params(run_settings(spec)), metrics, status, span, spec)


def _point_run(trial: TrialResults, point: PointResults, span: Span) -> RunContent:
    """Return what a measured point's run is to hold: the row of a table, with all that it was made with.

    MLflow's comparison begins with the first metrics by name, so costs are in a group that comes late.
    """
    spec, strength = point.spec, point.strength
    values: Numbers = {
        ("resources/measure_seconds", None): sum(measurement.seconds for measurement in point.measurements)
    }
    for name, value in _costs(point).items():
        values[f"resources/{name}", None] = value
    for measurement in point.measurements:
        items = {metric["name"]: metric.get("items") for metric in measurement.metrics}
        for group, name, value in _grouped_numbers(measurement):
            if spec.shows(group, items[name]):
                values[f"{group}/{name}", None] = value
                if name in unbounded_metrics(measurement) and value > 0:
                    values[f"{group}/{LOG.format(name)}", None] = math.log10(value)
    point_id = spec.point_id(strength)
    tags = {
        "mlflow.runName": _run_name(spec, strength),
        "kind": "point",
        "point_id": point_id,
        "stop_reason": point.stop_reason or "none",
        **_shared_tags(trial, (point,), values, span),
    }
    dial = {} if strength is None else {"strength": strength, f"settings.{spec.strength_name}": strength}
    is_whole = all(left != strength for left, _ in trial.remaining)
    status = "FINISHED" if is_whole else _RUN_STATUS[trial.status]
    metrics = _finite_metrics(values, {None: 0})
    return RunContent(point_id, tags, _params(run_settings(spec) | dial), metrics, status, span)


def candidate_run(study: StudyResults, candidate: Candidate) -> RunContent:
    """Return what a candidate's run is to hold.

    `least/ma at most 0.9` is the least of the utility among its probes that reach a target: absent where none does.
    """
    spec = study.spec.trial_with(candidate.settings, ())
    strengths = [probe["strength"] for probe in candidate.probes]
    values: Numbers = {}
    for probe in candidate.probes:
        for name, value in probe.items():
            if name != "strength":
                values[f"probe/{name}", probe["strength"]] = value
    for target in study.spec.targets:
        if reaching := reaching_probes(study.spec, target, candidate):
            least = min(probe[study.spec.utility] for probe in reaching)
            values[f"least/{target}".replace("<=", "at most"), None] = least
    ended = _moment(candidate)
    started = ended - timedelta(seconds=candidate.seconds) if ended else None
    key = f"{candidate.trial_id}-{candidate.number}"
    tags = {
        "mlflow.runName": f"{spec.variant} {spec.model.id} candidate {candidate.number} for {study.spec.seeds_text}",
        "search": study.spec.search,
        "kind": "candidate",
        "trial_id": key,
        "sweep": spec.sweep,
        "variant": spec.variant,
        "method": spec.method,
        "model": spec.model.id,
        "end": _type_of(candidate.end) if ":" in candidate.end else candidate.end,
        "times": "journaled" if ended else "durations only",
        "strengths": _listed(strengths),
        **source_tags(spec.sweep, ""),
    }
    settings = run_settings(spec)
    for name, value in candidate.settings.items():
        settings[f"searched.{name}"] = value
    span = Span(started=started, ended=ended, seconds=candidate.seconds)
    metrics = _finite_metrics(values, {**steps_of(strengths), None: 0})
    return RunContent(key, tags, _params(settings), metrics, "FINISHED", span)


LOG = "log10_{}"
"""What the logarithm of a metric is called: MLflow's charts have no such scale."""


def unbounded_metrics(measurement: Measurement) -> set[str]:
    """Return the names of the metrics that a figure's axis has and that have no upper bound: perplexity."""
    unbounded = set()
    for metric in measurement.metrics:
        if metric.get("axis") is not None and not math.isfinite(metric.get("high", math.inf)):
            unbounded.add(metric["name"])
    return unbounded


def _grouped_numbers(measurement: Measurement) -> Iterator[tuple[str, str, float]]:
    """Yield the group, the name and the value of each of a measurement's numbers."""
    groups = {metric["name"]: metric["group"] for metric in measurement.metrics}
    for name, value in measurement.numbers.items():
        yield groups[name], name, value


def _run_name(spec: TrialSpec, strength: Number | None) -> str:
    at = "" if strength is None else f"@{strength:g}"
    return f"{spec.variant}{at} {spec.model.id} seed {spec.seed}"


def _listed(strengths: Sequence[Number | None]) -> str:
    return ", ".join(f"{strength:g}" for strength in strengths if strength is not None) or "none"


def _shared_tags(trial: TrialResults, points: Sequence[PointResults], values: Numbers, span: Span) -> dict[str, str]:
    spec, attempt = trial.spec, trial.attempts[-1] if trial.attempts else None
    definitions = {measurement.definition for point in points for measurement in point.measurements}
    not_finite = []
    for (name, strength), value in values.items():
        if not math.isfinite(value):
            not_finite.append(name if strength is None else f"{name} at {spec.strength_name} {strength}")
    tags = {
        "trial_id": spec.trial_id,
        "sweep": spec.sweep,
        "variant": spec.variant,
        "method": spec.method,
        "model": spec.model.id,
        "forget_digest": spec.forget.digest,
        "definition": ", ".join(sorted(definitions)) or "none",
        "not_finite": ", ".join(sorted(not_finite)) or "none",
        "times": "journaled" if span.ended else "durations only",
        **source_tags(spec.sweep, attempt.commit if attempt else ""),
    }
    return tags | {"node": attempt.node} if attempt and attempt.node else tags


def run_settings(spec: TrialSpec) -> dict[str, Json]:
    """Return what a trial is run with, flat; a model that is measured as it is has no settings of a method."""
    settings: dict[str, Json] = {
        name: getattr(spec, name) for name in ("variant", "method", "method_version", "label", "seed", "strength_name")
    }
    settings |= {"engine": str(spec.engine), "model": spec.model.id, "model_digest": spec.model.digest}
    if not spec.is_reference:
        _add_flat(settings, "settings", spec.settings)
        _add_flat(settings, "training", spec.training.plain())
    return settings


def _add_flat(settings: dict[str, Json], path: str, value: Json) -> None:
    """Add a value under its path in dots, and what is in a dictionary under paths of its own."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            _add_flat(settings, f"{path}.{name}", item)
    else:
        settings[path] = value


def _params(settings: Mapping[str, Json]) -> dict[str, str]:
    return {legal(name): value if isinstance(value, str) else json.dumps(value) for name, value in settings.items()}


def _costs(point: PointResults) -> dict[str, float]:
    if not point.made:
        return {}
    costs = {"erase_seconds": point.made.erase_seconds, "peak_memory_bytes": point.made.peak_memory_bytes}
    return {name: value for name, value in costs.items() if value is not None}


def _finite_metrics(values: Numbers, steps: Mapping[Number | None, int]) -> Metrics:
    finite = {(name, strength): value for (name, strength), value in values.items() if math.isfinite(value)}
    return {(legal(name), steps[strength]): float(value) for (name, strength), value in finite.items()}


def _point_spans(trial: TrialResults) -> list[Span]:
    """Return when each of a trial's points was erased and measured, without the time of those before it."""
    spans, before = [], 0.0
    for point in trial.points:
        erasing = 0.0
        if point.made:  # Its own seconds count from the trial's start.
            total = point.made.erase_seconds
            erasing, before = total - before if total >= before else total, total
        starts, ends = [], []
        for measurement in point.measurements:
            if at := _moment(measurement):
                starts.append(at - timedelta(seconds=measurement.seconds))
                ends.append(at)
        if at := _moment(point.made):
            starts, ends = [at - timedelta(seconds=erasing)], ends or [at]
        seconds = erasing + sum(measurement.seconds for measurement in point.measurements)
        spans.append(Span(started=min(starts, default=None), ended=max(ends, default=None), seconds=seconds))
    return spans


def _moment(record: Journaled | None) -> datetime | None:
    return time_of(record.at) if record and record.at else None


def _type_of(error: str) -> str:
    """Return the exception's type alone: an outside plugin's message may quote what it worked on."""
    exception = re.match(r"[A-Za-z_][\w.]*(?=:|$)", error)
    return exception.group() if exception else "see the journal"
