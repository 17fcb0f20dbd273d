"""What an executor runs and reports: plain data, and what is journaled of a job that went wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Literal

from harness.base.messages import reason, storable
from harness.base.plain_data import PlainData
from harness.contracts import Json
from harness.execution.environment import NodeInputs
from harness.execution.guard.time_limits import exceeded, seconds_of
from harness.plans import StudySpec
from harness.records.journal import Journal
from harness.records.record import Candidate, Failed
from harness.records.results import Probe
from harness.specs import TrialSpec


@dataclass(frozen=True)
class NodeMarker:
    """What a node of a cluster must see in the sweep's folders, and what it must have."""

    name: str
    """The name, and the content, of the file that the driver leaves in both folders."""
    inputs: NodeInputs
    """The inputs as the driver has them."""


@dataclass(frozen=True)
class Folders:
    """Where a sweep's results and the artifacts of all sweeps lie; absolute, and shared in a cluster."""

    results: Path
    """`results/<sweep>`."""
    artifacts: Path
    """`results/artifacts`."""
    marker: NodeMarker | None = None
    """What the nodes are checked against, on a cluster."""

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
    flops: float = 0.0
    memorized: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CandidateTask:
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
            flops=seen.flops,
            memorized=seen.memorized,
        )


@dataclass(frozen=True, kw_only=True)
class Job(PlainData):
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


@dataclass(frozen=True, kw_only=True)
class Event(PlainData):
    """Something that happened in a job, for the watcher: plain data."""

    job: str
    kind: Literal["started", "progress", "point", "measured", "lost", "finished", "failed"]
    message: str = ""
    """For people: `epoch 2 of 7`, `memorization at 3`, an error's first line."""
    done: int = 0
    """Measurements of this job that exist by now."""
    total: int = 0
    """Measurements that this job is to make."""


Watcher = Callable[[Event], None]


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
    watch(Event(job=job.name, kind="failed", message=reason(error)))


def record_exceeded(job: Job, folders: Folders) -> None:
    """Journal a candidate that ran longer than it may: it was tried, and nothing was measured."""
    if job.candidate is not None:
        record = job.candidate.record(Seen(), f"TrialError: {exceeded(job.spec)}", seconds_of(job.spec) or 0.0)
        Journal(folders.results / "journal").append(record)
