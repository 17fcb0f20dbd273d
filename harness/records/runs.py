"""What the MLflow run of a trial is to hold, as plain data.

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
from harness.records.journal import measurements, reachable, status
from harness.specs import Failed, Point, Record, Started, Stopped, TrialSpec

Metrics = dict[tuple[str, int], float]
"""By name and step."""

_COSTS = ("erase_seconds", "peak_memory_bytes", "measure_seconds/")
"""Metrics that differ each time a point is made; the others are decided by its identity."""


@cache
def commit_tag() -> dict[str, str]:
    """Return Lethe's own commit as a tag; nothing if it was installed from a package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return {}
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"mlflow.source.git.commit": found.stdout.strip()}


def tags_of(spec: TrialSpec, records: Sequence[Record]) -> dict[str, str]:
    """Return the tags of a trial's run: what may change while it runs, and what is searched for."""
    asked = {each.key for each in spec.evaluators}
    definitions = {each.definition for each in measurements(records).values() if each.key in asked}
    starts = [each for each in records if isinstance(each, Started)]
    stops = [each.reason for each in records if isinstance(each, Stopped)]
    errors = [_type_of(each.error) for each in records if isinstance(each, Failed)]
    state = status(spec, records)
    dial = f"{spec.strength_name}={spec.strengths[0]}" if len(spec.strengths) == 1 else ""
    return {
        "mlflow.runName": " ".join(filter(None, [spec.variant, dial, spec.model.id, f"seed {spec.seed}"])),
        **{name: getattr(spec, name) for name in ("trial_id", "sweep", "variant", "method", "reference")},
        "kind": "trial",
        "model": spec.model.id,
        "definition": ", ".join(sorted(definitions)) or "none",
        "status": state,
        "stop_reason": stops[-1] if stops else "none",
        "error": errors[-1] if errors and state == "failed" else "none",
        **{f"version.{name}": version for name, version in (starts[-1].versions if starts else {}).items()},
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
    found = re.match(r"[A-Za-z_][\w.]*(?=:|$)", error)
    return found.group() if found else "see the journal"


def _flat(path: str, value: Json) -> dict[str, Json]:
    if not isinstance(value, Mapping):
        return {path: value}
    parts = [_flat(f"{path}.{name}", each) for name, each in value.items()]
    return {name: each for part in parts for name, each in part.items()}


def _legal(name: str) -> str:
    """Return `name` with what MLflow refuses in a key replaced."""
    return re.sub(r"[^\w\-./: ]", "_", name)


def metrics_of(spec: TrialSpec, records: Sequence[Record], held: Metrics) -> tuple[Metrics, list[str]]:
    """Return what the journal says of a trial, and the names of what is not a finite number."""
    strengths = reachable(spec, records)
    steps = {spec.point_id(each): step for each, step in _steps(strengths, held).items()}
    found: dict[tuple[str, int], float] = {}
    for each in records:
        if isinstance(each, Point) and each.point_id in steps:
            step = steps[each.point_id]
            if each.strength is not None:
                found["strength", step] = each.strength
            found["erase_seconds", step] = each.erase_seconds
            if each.peak_memory_bytes is not None:
                found["peak_memory_bytes", step] = each.peak_memory_bytes
    asked = {each.key for each in spec.evaluators}
    for (point, key), each in measurements(records).items():
        if point in steps and key in asked:
            step = steps[point]
            groups = {metric["name"]: metric["group"] for metric in each.metrics}
            found[f"measure_seconds/{each.evaluator}", step] = each.seconds
            found |= {(f"{groups[name]}/{name}", step): value for name, value in each.numbers.items()}
    lost = [f"{name} at step {step}" for (name, step), value in found.items() if not math.isfinite(value)]
    finite = {(_legal(name), step): float(v) for (name, step), v in found.items() if math.isfinite(v)}
    return finite, sorted(lost)


def _steps(strengths: Sequence[Number | None], held: Metrics) -> dict[Number | None, int]:
    """Return each strength's step: itself if all are whole (epochs), else its place in order of arrival."""
    steps: dict[Number | None, int] = {each: each for each in strengths if isinstance(each, int)}
    if len(steps) == len(strengths):
        return steps
    steps = {value: step for (name, step), value in held.items() if name == "strength"}
    for each in strengths:
        steps.setdefault(each, max(steps.values(), default=-1) + 1)
    return steps


def contradicts(held: Metrics, wanted: Metrics) -> bool:
    """Return whether a number that MLflow holds is not the one that the journal holds."""
    return any(held.get(key, value) != value for key, value in wanted.items() if not key[0].startswith(_COSTS))
