"""What an executor runs: jobs in order, some of which wait for what others provide.

A sweep's jobs are its unfinished trials, and before them one job for each memorised model that
any of them needs. An executor starts a job once its `needs` has been provided, so that no trial
ever waits in a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from harness.contracts import Json
from harness.execution.memorized import KIND, memorized_key
from harness.records.artifacts import Artifacts
from harness.records.results import Results
from harness.specs import TrialSpec


@dataclass(frozen=True)
class Folders:
    """Where a sweep's results and the artifacts of all sweeps lie; absolute, and shared in a cluster."""

    results: Path
    """`results/<sweep>`."""
    artifacts: Path
    """`results/artifacts`."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One unit that an executor places: plain data."""

    name: str
    """Unique in the sweep, short, fit for a folder: `emso-miniature-m-s0-1f3c`."""
    kind: Literal["memorize", "trial"]
    spec: TrialSpec
    needs: str | None = None
    """The artifact key that must exist first."""
    provides: str | None = None
    """The artifact key that exists afterwards."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a worker."""
        return {**asdict(self), "spec": self.spec.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Job:
        """Return the job that `to_json` wrote."""
        return cls(**{**data, "spec": TrialSpec.from_json(data["spec"])})


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a job, for whoever watches: plain data."""

    job: str
    kind: Literal["started", "progress", "point", "measured", "finished", "failed"]
    message: str = ""
    """For people: `epoch 2 of 7`, `memorization at 3`, an error's first line."""
    done: int = 0
    """Measurements of this job that exist by now."""
    total: int = 0
    """Measurements that this job is to make."""
    detail: Json = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


Watcher = Callable[[Event], None]


class Executor(Protocol):
    """Runs jobs; returns when all are over. A failed job is a record and an event, not an exception."""

    def __call__(self, jobs: Sequence[Job], folders: Folders, watch: Watcher) -> None:
        """Run every job, respecting `needs`; call `watch` in the driver's process."""


def jobs_for(results: Results, folders: Folders) -> list[Job]:
    """Return the jobs that finish a sweep: nothing for what the journal holds, memorised models first.

    Args:
        results: What the journal says of every trial.
        folders: Where artifacts may exist already.
    """
    artifacts = Artifacts(folders.artifacts)
    unfinished = [trial.spec for trial in results.unfinished]
    memorize: dict[str, Job] = {}
    trials = []
    for spec in unfinished:
        needs = memorized_key(spec) if spec.reference == "memorized_model" else None
        trials.append(Job(name=_name(spec), kind="trial", spec=spec, needs=needs))
        if needs and needs not in memorize and artifacts.find(KIND, needs) is None:
            name = f"memorize-{_short(spec.model.id)}-{needs[:4]}"
            memorize[needs] = Job(name=name, kind="memorize", spec=spec, provides=needs)
    return [*memorize.values(), *sorted(trials, key=lambda job: -_size(job.spec))]


def _size(spec: TrialSpec) -> int:
    """Return how much a trial has to do, roughly: long ones start first, so that none is left alone at the end."""
    return len(spec.points())


def _name(spec: TrialSpec) -> str:
    strength = "" if len(spec.strengths) != 1 else f"-{spec.strengths[0]:g}"
    return f"{spec.variant}{strength}-{_short(spec.model.id)}-s{spec.seed}-{spec.trial_id[:4]}"


def _short(model_id: str) -> str:
    return model_id.rstrip("/").rsplit("/", 1)[-1]
