"""What an executor runs and reports: plain data, and what is journaled of a job that went wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Literal

from harness.base.messages import reason, storable
from harness.base.settings import Strict
from harness.contracts import Json
from harness.execution.environment import NodeInputs
from harness.records.journal import Journal
from harness.records.record import Candidate, Failed
from harness.records.results import Probe
from harness.settings import StudySpec, TrialSpec


@dataclass(frozen=True)
class Folders:
    """Where a sweep's results and the artifacts of all sweeps lie; absolute, and shared in a cluster."""

    results: Path
    """`results/<sweep>`."""
    artifacts: Path
    """`results/artifacts`."""
    inputs: NodeInputs | None = None
    """On a cluster: the driver's versions, code and files, which a node must have too."""

    @classmethod
    def of_sweep(cls, results: str | PathLike[str], sweep: str) -> Folders:
        """Return the folders of a sweep below the folder of all sweeps' results."""
        root = Path(results).resolve()
        return cls(results=root / sweep, artifacts=root / "artifacts")


@dataclass
class Seen:
    """What a candidate has seen so far: kept even if it fails on its way."""

    original: dict[str, float] = field(default_factory=dict)
    targets: dict[str, float] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)


class CandidateTask(Strict):
    """The candidate of a study that a job tries."""

    study: StudySpec
    number: int
    settings: Mapping[str, Json]
    """A value for each dimension of the study's space."""

    def record(self, seen: Seen, end: str, seconds: float) -> Candidate:
        """Return what is journaled of the candidate."""
        return Candidate(
            trial_id=self.study.study_id,
            number=self.number,
            settings=dict(self.settings),
            probes=tuple(seen.probes),
            targets=seen.targets,
            original=seen.original,
            end=end,
            seconds=seconds,
        )


class Job(Strict):
    """One unit that an executor places: plain data."""

    name: str
    """Unique in the sweep, short, fit for a folder: `emso-miniature-m-s0-1f3c`."""
    kind: Literal["prepare", "memorize", "trial", "candidate"]
    spec: TrialSpec
    """The trial; for a candidate, the one that its settings make."""
    candidate: CandidateTask | None = None
    needs: tuple[str, ...] = ()
    """The keys of what other jobs must have made first."""
    provides: str | None = None
    """The key of what is there afterwards: a memorised model's, or one for all that is prepared of an original."""
    node: str = ""
    """The node of a cluster that it runs on: `gpu-3 (10.0.0.7)`."""

    @property
    def trial_id(self) -> str:
        """Return the id of the trial that the job runs; '' if it runs none."""
        return self.spec.trial_id if self.kind == "trial" else ""


class Event(Strict):
    """Something that happened in a job, for the watcher: plain data."""

    job: str
    kind: Literal["started", "progress", "point", "measured", "lost", "finished", "failed"]
    message: str = ""
    """For people: `epoch 2 of 7`, `memorization at 3`, an error's first line."""
    done: int = 0
    """Measurements of this job that exist by now."""
    total: int = 0
    """Measurements that this job is to make."""
    trial_id: str = ""
    """Set in the last event of a trial."""


Watcher = Callable[[Event], None]
Executor = Callable[[Sequence[Job], Folders, Watcher], None]
"""Runs jobs that do not depend on each other; returns when all are over."""


def record_failure(job: Job, folders: Folders, watch: Watcher, error: str, log: Sequence[str]) -> None:
    """Journal a trial that went wrong, and report it to the watcher.

    A candidate whose process died leaves nothing: it is tried again when the sweep is run again.

    Raises:
        StorageError: The journal cannot be written.
    """
    error = storable(error)
    if job.kind == "trial":
        failed = Failed(trial_id=job.spec.trial_id, error=error, log=tuple(log))
        Journal(folders.results / "journal").append(failed)
    watch(Event(job=job.name, kind="failed", message=reason(error), trial_id=job.trial_id))


def record_exceeded(job: Job, folders: Folders, watch: Watcher) -> None:
    """Journal a job that ran longer than it may: a candidate counts as tried, with nothing measured."""
    assert job.spec.time_limit is not None
    minutes, setting = job.spec.time_limit.minutes, job.spec.time_limit.setting
    error = (
        f"TrialError: it ran longer than {setting}: {minutes:g} allows. Raise {setting} (its value is part of no "
        "trial's identity: what is done stays done), or make the trial smaller."
    )
    if job.candidate is not None:
        record = job.candidate.record(Seen(), error, 60 * minutes)
        Journal(folders.results / "journal").append(record)
    record_failure(job, folders, watch, error, ())
