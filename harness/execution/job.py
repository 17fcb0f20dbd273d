"""What an executor runs and tells: plain data, and what is journaled of a job that went wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol

from harness.base.messages import storable
from harness.base.plain_data import PlainData
from harness.contracts import Json
from harness.execution.guard.time_limits import exceeded, seconds_of
from harness.execution.node_inputs import NodeInputs
from harness.plans import StudySpec
from harness.records.journal import Journal
from harness.records.record import Candidate, Failed
from harness.specs import TrialSpec


@dataclass(frozen=True)
class NodeMarker:
    """By what a node of a cluster knows the sweep's folders, and what it must have."""

    name: str
    """Of the file that the driver leaves in both folders, and what is in it."""
    inputs: NodeInputs
    """As the driver has them."""


@dataclass(frozen=True)
class Folders:
    """Where a sweep's results and the artifacts of all sweeps lie; absolute, and shared in a cluster."""

    results: Path
    """`results/<sweep>`."""
    artifacts: Path
    """`results/artifacts`."""
    marker: NodeMarker | None = None
    """On a cluster: what its nodes are checked against."""

    @classmethod
    def of_sweep(cls, results: str | PathLike[str], sweep: str) -> Folders:
        """Return the folders of a sweep below the folder of all sweeps' results."""
        root = Path(results).resolve()
        return cls(results=root / sweep, artifacts=root / "artifacts")


@dataclass(frozen=True, kw_only=True)
class CandidateTask:
    """Which candidate of which study a job is to try."""

    study: StudySpec
    number: int
    settings: Mapping[str, Json]
    """A value for each dimension of the study's space."""


@dataclass(frozen=True, kw_only=True)
class Job(PlainData):
    """One unit that an executor places: plain data."""

    name: str
    """Unique in the sweep, short, fit for a folder: `emso-miniature-m-s0-1f3c`."""
    kind: Literal["memorize", "trial", "candidate"]
    spec: TrialSpec
    """Of a candidate, the trial that its settings make."""
    candidate: CandidateTask | None = None
    needs: str | None = None
    """The artifact key that must exist first."""
    provides: str | None = None
    """The artifact key that exists afterwards."""
    node: str = ""
    """Of a cluster, where it runs: `gpu-3 (10.0.0.7)`."""


@dataclass(frozen=True, kw_only=True)
class Event(PlainData):
    """Something that happened in a job, for whoever watches: plain data."""

    job: str
    kind: Literal["started", "progress", "point", "measured", "lost", "finished", "failed"]
    message: str = ""
    """For people: `epoch 2 of 7`, `memorization at 3`, an error's first line."""
    done: int = 0
    """Measurements of this job that exist by now."""
    total: int = 0
    """Measurements that this job is to make."""
    detail: Json = None


Watcher = Callable[[Event], None]


class Executor(Protocol):
    """Runs jobs and studies; returns when all are over. A failed job is a record and an event, not an exception."""

    def __call__(
        self, jobs: Sequence[Job], folders: Folders, watch: Watcher, studies: Sequence[StudySpec] = ()
    ) -> None:
        """Run every job, respecting `needs`, and every study's candidates; call `watch` in the driver's process."""


def record_failure(job: Job, folders: Folders, watch: Watcher, error: str, log: Sequence[str]) -> None:
    """Journal a trial that went wrong, and tell whoever watches.

    A candidate whose process died leaves nothing: it is tried again when the sweep is run again.

    Raises:
        StorageError: The journal cannot be written.
    """
    error = storable(error)
    if job.kind == "trial":
        failed = Failed(trial_id=job.spec.trial_id, error=error, log=tuple(log))
        Journal(folders.results / "journal").append(failed)
    watch(Event(job=job.name, kind="failed", message=error))


def record_exceeded(job: Job, folders: Folders) -> None:
    """Journal a candidate that was ended since it ran longer than it may: tried, and nothing is known of it."""
    if job.candidate is not None:
        candidate = Candidate(
            trial_id=job.candidate.study.study_id,
            number=job.candidate.number,
            settings=dict(job.candidate.settings),
            probes=(),
            targets={},
            original={},
            end=f"TrialError: {exceeded(job.spec)}",
            seconds=seconds_of(job.spec) or 0.0,
        )
        Journal(folders.results / "journal").append(candidate)
