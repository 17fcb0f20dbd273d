"""What the MLflow run of a trial, or of a candidate, is to hold, as plain data.

Nothing here may carry text of the forget set: no notes, no samples, no error messages.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from harness.contracts import Json, Number
from harness.records.record import DIRTY, Candidate
from harness.records.results import TrialResults
from harness.records.studies import StudyResults, reaching_probes
from harness.specs import TrialSpec

Metrics = dict[tuple[str, int], float]
"""By name and step."""

_COSTS = ("erase_seconds", "peak_memory_bytes", "measure_seconds/")
"""Metrics that differ each time a point is made; the others are decided by its identity."""


@cache
def own_commit() -> str:
    """Return Lethe's own commit, with `-dirty` where files differ from it; '' if it was installed from a package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    describe = ["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    command = ["git", "--no-optional-locks", "-C", str(root), *describe]  # Other workers ask at the same time.
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


def commit_tag(commit: str | None = None) -> dict[str, str]:
    """Return a commit of Lethe as a tag, by default its own; nothing where there is none."""
    known = (own_commit() if commit is None else commit).removesuffix(DIRTY)
    return {"mlflow.source.git.commit": known} if known else {}


def tags_of(trial: TrialResults) -> dict[str, str]:
    """Return the tags of a trial's run: what may change while it runs, and what is searched for."""
    spec = trial.spec
    definitions = {measurement.definition for point in trial.points for measurement in point.measurements}
    versions = trial.versions[-1] if trial.versions else {}
    dial = f"{spec.strength_name}={spec.strengths[0]}" if len(spec.strengths) == 1 else ""
    return {
        "mlflow.runName": " ".join(filter(None, [spec.variant, dial, spec.model.id, f"seed {spec.seed}"])),
        **{name: getattr(spec, name) for name in ("trial_id", "sweep", "variant", "method", "reference")},
        "kind": "trial",
        "model": spec.model.id,
        "definition": ", ".join(sorted(definitions)) or "none",
        "status": trial.status,
        "stop_reason": trial.stop.reason if trial.stop else "none",
        "error": _type_of(trial.failure.error) if trial.failure else "none",
        **{f"version.{name}": version for name, version in versions.items()},
    }


def params_of(spec: TrialSpec) -> dict[str, str]:
    """Return the params of a trial's run: what it was run with, flat."""
    names = ("variant", "method", "method_version", "label", "seed", "strength_name")
    params = {
        **{name: getattr(spec, name) for name in names},
        "engine": str(spec.engine),
        "model": spec.model.id,
        "model_digest": spec.model.digest,
        **_flat("settings", spec.settings),
        **_flat("training", asdict(spec.training)),
    }
    return {_legal(name): value if isinstance(value, str) else json.dumps(value) for name, value in params.items()}


def _type_of(error: str) -> str:
    """Return the exception's type alone: an outside plugin's message may quote what it worked on."""
    exception = re.match(r"[A-Za-z_][\w.]*(?=:|$)", error)
    return exception.group() if exception else "see the journal"


def _flat(path: str, value: Json) -> dict[str, Json]:
    if not isinstance(value, Mapping):
        return {path: value}
    parts = [_flat(f"{path}.{name}", item) for name, item in value.items()]
    return {name: item for part in parts for name, item in part.items()}


def _legal(name: str) -> str:
    """Return `name` with what MLflow refuses in a key replaced."""
    return re.sub(r"[^\w\-./: ]", "_", name)


def candidate_run(study: StudyResults, candidate: Candidate) -> tuple[Metrics, dict[str, str], dict[str, str]]:
    """Return the metrics, params and tags of a candidate's run.

    `least/ma at most 0.9` is the least of the utility among its probes that reach a target: absent where none does.
    """
    spec = study.spec.trial_with(candidate.settings, ())
    values = {
        (f"probe/{name}", step): value for step, probe in enumerate(candidate.probes) for name, value in probe.items()
    }
    for target in study.spec.targets:
        reached = [probe[study.spec.utility] for probe in reaching_probes(study.spec, target, candidate)]
        values |= {(f"least/{target}".replace("<=", "at most"), 0): min(reached)} if reached else {}
    finite = {(_legal(name), step): float(v) for (name, step), v in values.items() if math.isfinite(v)}
    searched = {f"searched.{name}": value for name, value in candidate.settings.items()}
    params = {_legal(name): value if isinstance(value, str) else json.dumps(value) for name, value in searched.items()}
    tags = {
        "mlflow.runName": f"{spec.variant} {spec.model.id} candidate {candidate.number}",
        "kind": "candidate",
        "trial_id": candidate_id(candidate),
        **{name: getattr(spec, name) for name in ("sweep", "variant", "method")},
        "model": spec.model.id,
        "end": _type_of(candidate.end) if ":" in candidate.end else candidate.end,
    }
    return finite, params_of(spec) | params, tags


def candidate_id(candidate: Candidate) -> str:
    """Return what names a candidate among all runs."""
    return f"{candidate.trial_id}-{candidate.number}"


def metrics_of(trial: TrialResults, held: Metrics) -> tuple[Metrics, list[str]]:
    """Return what the journal says of a trial, and the names of what is not a finite number."""
    steps = _steps([point.strength for point in trial.points], held)
    values: dict[tuple[str, int], float] = {}
    for point in trial.points:
        step = steps[point.strength]
        if point.made:
            costs = {name: getattr(point.made, name) for name in ("strength", "erase_seconds", "peak_memory_bytes")}
            values |= {(name, step): cost for name, cost in costs.items() if cost is not None}
        for measurement in point.measurements:
            groups = {metric["name"]: metric["group"] for metric in measurement.metrics}
            values[f"measure_seconds/{measurement.evaluator}", step] = measurement.seconds
            values |= {(f"{groups[name]}/{name}", step): value for name, value in measurement.numbers.items()}
    lost = [f"{name} at step {step}" for (name, step), value in values.items() if not math.isfinite(value)]
    finite = {(_legal(name), step): float(v) for (name, step), v in values.items() if math.isfinite(v)}
    return finite, sorted(lost)


def _steps(strengths: Sequence[Number | None], held: Metrics) -> dict[Number | None, int]:
    """Return each strength's step: itself if all are whole (epochs), else its rank in order of arrival."""
    steps: dict[Number | None, int] = {strength: strength for strength in strengths if isinstance(strength, int)}
    if len(steps) == len(strengths):
        return steps
    steps = {value: step for (name, step), value in held.items() if name == "strength"}
    for strength in strengths:
        steps.setdefault(strength, max(steps.values(), default=-1) + 1)
    return steps


def contradicts(held: Metrics, wanted: Metrics) -> bool:
    """Return whether a number that MLflow holds is not the one that the journal holds."""
    return any(held.get(key, value) != value for key, value in wanted.items() if not key[0].startswith(_COSTS))
