"""What the runs of a trial, of its points and of a candidate are to hold.

Nothing here may carry text of the forget set: no notes, no samples, no error messages.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from harness.contracts import Json, Number
from harness.records.record import Candidate, Journaled, time_of
from harness.records.results import PointResults, TrialResults
from harness.records.studies import StudyResults, reaching_probes
from harness.records.tracking.runs import Numbers, RunContent, RunStatus, Span, commit_tag, legal
from harness.specs import TrialSpec

_RUN_STATUS: dict[str, RunStatus] = {"done": "FINISHED", "failed": "FAILED", "missing": "RUNNING"}


def trial_runs(trial: TrialResults) -> list[RunContent]:
    """Return what a trial's run is to hold, and then each of its points', in the order of their strengths."""
    spans = _spans(trial)
    points = [
        _point_run(trial, point, span) for point, span in zip(trial.points, spans, strict=True) if point.measurements
    ]
    return [_trial_run(trial, sum(span.seconds for span in spans)), *points]


def _trial_run(trial: TrialResults, seconds: float) -> RunContent:
    spec = trial.spec
    values: Numbers = {}
    for point in trial.points:
        of_point = _costs(point)
        for measurement in point.measurements:
            groups = {metric["name"]: metric["group"] for metric in measurement.metrics}
            of_point[f"measure_seconds/{measurement.evaluator}"] = measurement.seconds
            of_point |= {f"{groups[name]}/{name}": value for name, value in measurement.numbers.items()}
        values |= {(name, point.strength): value for name, value in of_point.items()}
    versions = trial.versions[-1] if trial.versions else {}
    moments = [time_of(at) for at in trial.written]
    span = Span(started=min(moments, default=None), ended=max(moments, default=None), seconds=seconds)
    tags = {
        "mlflow.runName": _name(spec, spec.strengths[0] if len(spec.strengths) == 1 else None),
        "kind": "trial",
        "reference": spec.reference,
        "status": trial.status,
        "stop_reason": trial.stop.reason if trial.stop else "none",
        "error": _type_of(trial.failure.error) if trial.failure else "none",
        **_tags(trial, trial.points, values, span),
        **{f"version.{name}": version for name, version in versions.items()},
    }
    return RunContent(
        key=spec.trial_id,
        tags=tags,
        params=_params(_settings(spec)),
        numbers=_finite(values),
        status=_RUN_STATUS[trial.status],
        span=span,
        spec=spec,
    )


def _point_run(trial: TrialResults, point: PointResults, span: Span) -> RunContent:
    """Return what a measured point's run is to hold: the row of a table, with all that it was made with.

    MLflow's comparison begins with the first metrics by name, so costs are in a group that comes late.
    """
    spec, strength = point.spec, point.strength
    costs = _costs(point) | {"measure_seconds": sum(measurement.seconds for measurement in point.measurements)}
    of_point = {name if name == "strength" else f"resources/{name}": value for name, value in costs.items()}
    for measurement in point.measurements:
        groups = {metric["name"]: metric["group"] for metric in measurement.metrics}
        for name, value in measurement.numbers.items():
            if name in groups and spec.shows(groups[name]):
                of_point[f"{groups[name]}/{name}"] = value
    values: Numbers = {(name, None): value for name, value in of_point.items()}
    tags = {
        "mlflow.runName": _name(spec, strength),
        "kind": "point",
        "point_id": spec.point_id(strength),
        "stop_reason": point.stop_reason or "none",
        **_tags(trial, (point,), values, span),
    }
    dial = {} if strength is None else {"strength": strength, f"settings.{spec.strength_name}": strength}
    is_whole = all(left != strength for left, _ in trial.remaining)
    return RunContent(
        key=spec.point_id(strength),
        tags=tags,
        params=_params(_settings(spec) | dial),
        numbers=_finite(values),
        status="FINISHED" if is_whole else _RUN_STATUS[trial.status],
        span=span,
    )


def candidate_run(study: StudyResults, candidate: Candidate) -> RunContent:
    """Return what a candidate's run is to hold.

    `least/ma at most 0.9` is the least of the utility among its probes that reach a target: absent where none does.
    """
    spec = study.spec.trial_with(candidate.settings, ())
    values: Numbers = {
        (f"probe/{name}", step): value for step, probe in enumerate(candidate.probes) for name, value in probe.items()
    }
    for target in study.spec.targets:
        reached = [probe[study.spec.utility] for probe in reaching_probes(study.spec, target, candidate)]
        values |= {(f"least/{target}".replace("<=", "at most"), 0): min(reached)} if reached else {}
    ended = _moment(candidate)
    started = ended - timedelta(seconds=candidate.seconds) if ended else None
    key = f"{candidate.trial_id}-{candidate.number}"
    tags = {
        "mlflow.runName": f"{spec.variant} {spec.model.id} candidate {candidate.number}",
        "kind": "candidate",
        "trial_id": key,
        **{name: getattr(spec, name) for name in ("sweep", "variant", "method")},
        "model": spec.model.id,
        "end": _type_of(candidate.end) if ":" in candidate.end else candidate.end,
        "times": "journaled" if ended else "durations only",
    }
    searched = {f"searched.{name}": value for name, value in candidate.settings.items()}
    return RunContent(
        key=key,
        tags=tags,
        params=_params(_settings(spec) | searched),
        numbers=_finite(values),
        status="FINISHED",
        span=Span(started=started, ended=ended, seconds=candidate.seconds),
    )


def _name(spec: TrialSpec, strength: Number | None) -> str:
    dial = "" if strength is None else f"{spec.strength_name}={strength}"
    return " ".join(filter(None, [spec.variant, dial, spec.model.id, f"seed {spec.seed}"]))


def _tags(trial: TrialResults, points: Sequence[PointResults], values: Numbers, span: Span) -> dict[str, str]:
    """Return the tags that a trial's run and its points' share."""
    spec = trial.spec
    definitions = {measurement.definition for point in points for measurement in point.measurements}
    lost = [
        name if strength is None else f"{name} at {spec.strength_name} {strength}"
        for (name, strength), value in values.items()
        if not math.isfinite(value)
    ]
    return {
        **{name: getattr(spec, name) for name in ("trial_id", "sweep", "variant", "method")},
        "model": spec.model.id,
        "forget_digest": spec.forget.digest,
        "definition": ", ".join(sorted(definitions)) or "none",
        "not_finite": ", ".join(sorted(lost)) or "none",
        "times": "journaled" if span.ended else "durations only",
        **commit_tag(trial.attempts[-1].commit if trial.attempts else ""),
        **({"node": trial.attempts[-1].node} if trial.attempts and trial.attempts[-1].node else {}),
    }


def _settings(spec: TrialSpec) -> dict[str, Json]:
    """Return what a trial was run with, flat; a model that is measured as it is has no settings."""
    names = ("variant", "method", "method_version", "label", "seed", "strength_name")
    made_with = {} if spec.is_reference else {"settings": spec.settings, "training": spec.training.plain()}
    return {
        **{name: getattr(spec, name) for name in names},
        "engine": str(spec.engine),
        "model": spec.model.id,
        "model_digest": spec.model.digest,
        **_flat("", made_with),
    }


def _params(settings: Mapping[str, Json]) -> dict[str, str]:
    return {legal(name): value if isinstance(value, str) else json.dumps(value) for name, value in settings.items()}


def _flat(path: str, value: Json) -> dict[str, Json]:
    if not isinstance(value, Mapping):
        return {path: value}
    parts = [_flat(f"{path}.{name}" if path else name, item) for name, item in value.items()]
    return {name: item for part in parts for name, item in part.items()}


def _costs(point: PointResults) -> dict[str, float]:
    """Return a point's strength, and what making its model took."""
    if point.made is None and not point.measurements:
        return {}
    costs = ("erase_seconds", "peak_memory_bytes") if point.made else ()
    values = {"strength": point.strength, **{name: getattr(point.made, name) for name in costs}}
    return {name: value for name, value in values.items() if value is not None}


def _finite(values: Numbers) -> Numbers:
    return {(legal(name), strength): float(value) for (name, strength), value in values.items() if math.isfinite(value)}


def _spans(trial: TrialResults) -> list[Span]:
    """Return when each of a trial's points was erased and measured, without the time of those before it."""
    spans, before = [], 0.0
    for point in trial.points:
        erasing = 0.0
        if point.made:  # Its own seconds count from the trial's start.
            total = point.made.erase_seconds
            erasing, before = total - before if total >= before else total, total
        measured = [(at, each.seconds) for each in point.measurements if (at := _moment(each))]
        erased = [(at, erasing)] if (at := _moment(point.made)) else []
        spans.append(
            Span(
                started=min((at - timedelta(seconds=took) for at, took in erased or measured), default=None),
                ended=max((at for at, _ in measured or erased), default=None),
                seconds=erasing + sum(measurement.seconds for measurement in point.measurements),
            )
        )
    return spans


def _moment(record: Journaled | None) -> datetime | None:
    return time_of(record.at) if record and record.at else None


def _type_of(error: str) -> str:
    """Return the exception's type alone: an outside plugin's message may quote what it worked on."""
    exception = re.match(r"[A-Za-z_][\w.]*(?=:|$)", error)
    return exception.group() if exception else "see the journal"
