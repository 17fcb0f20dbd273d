"""What an executor runs: jobs in order, some of which wait for what others provide.

A sweep's jobs are its unfinished trials, and before them one job for each memorised model that
any of them needs. An executor starts a job once its `needs` has been provided, so that no trial
ever waits in a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from harness.contracts import Json
from harness.execution.memorized import MEMORIZED, memorized_key
from harness.execution.node_inputs import NodeInputs
from harness.execution.time_limits import exceeded, longer, seconds_of
from harness.execution.tuned import unfinished_studies
from harness.messages import storable
from harness.plain_data import PlainData
from harness.plans import StudySpec
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.records.record import Candidate, Failed
from harness.records.results import Results
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


def jobs_for(results: Results, folders: Folders) -> list[Job]:
    """Return the jobs that finish a sweep: nothing for what the journal holds, memorised models first.

    What unfinished studies need is among them; their candidates follow from one another, so they are not.

    Args:
        results: What the journal says of every trial and study.
        folders: Where artifacts may exist already.
    """
    artifacts = Artifacts(folders.artifacts)
    memorize: dict[str, Job | None] = {}
    trials: list[Job] = []
    taken: set[str] = set()
    searched = [study.spec.trial for study in unfinished_studies(results)]
    for spec in (*searched, *(trial.spec for trial in results.unfinished)):
        needs = _needs(spec)
        if needs and needs not in memorize:
            name = _unused(f"memorize-{_short(spec.model.id)}", needs, taken)
            is_there = artifacts.find(MEMORIZED, needs) is not None
            memorize[needs] = None if is_there else Job(name=name, kind="memorize", spec=spec, provides=needs)
        elif needs and (builder := memorize[needs]):  # It may run as long as any that needs it.
            longest = longer(builder.spec.time_limit, spec.time_limit)
            memorize[needs] = replace(builder, spec=replace(builder.spec, time_limit=longest))
        if spec in searched:
            continue
        strength = "" if len(spec.strengths) != 1 else f"-{spec.strengths[0]:g}"
        name = _unused(f"{spec.variant}{strength}-{_short(spec.model.id)}-s{spec.seed}", spec.trial_id, taken)
        trials.append(Job(name=name, kind="trial", spec=spec, needs=needs))
    return [*filter(None, memorize.values()), *_in_order(trials)]


def _in_order(trials: Sequence[Job]) -> list[Job]:
    """Return trials in the order to start them: an early table of all variants, and no long one alone at the end.

    The quickest trial of each variant on each model comes first, quick ones before long ones; then the others,
    longest first. A trial is as long as it has points.
    """
    first: dict[tuple[str, str], Job] = {}
    for job in sorted(trials, key=_length):
        first.setdefault((job.spec.model.id, job.spec.variant), job)
    names = {job.name for job in first.values()}
    return [*first.values(), *sorted((job for job in trials if job.name not in names), key=_length, reverse=True)]


def _length(job: Job) -> int:
    return len(job.spec.points())


def _unused(name: str, digest: str, taken: set[str]) -> str:
    """Return a job's name that no other has: with a few digits of a digest, or with all."""
    short = f"{name}-{digest[:4]}"
    unused = f"{name}-{digest}" if short in taken else short
    taken.add(unused)
    return unused


def candidate_job(study: StudySpec, number: int, settings: Mapping[str, Json]) -> Job:
    """Return the job that tries a candidate."""
    spec = study.trial_with(settings, study.strengths(settings))
    # The id is the candidate's own, so that two of a study never write to one place.
    spec = replace(spec, trial_id=f"{study.study_id}-{number}")
    name = f"{spec.variant}-{_short(spec.model.id)}-candidate-{number}-{study.study_id[:4]}"
    task = CandidateTask(study=study, number=number, settings=settings)
    return Job(name=name, kind="candidate", spec=spec, candidate=task, needs=_needs(spec))


def _needs(spec: TrialSpec) -> str | None:
    return memorized_key(spec) if spec.reference == "memorized_model" else None


def _short(model_id: str) -> str:
    return model_id.rstrip("/").rsplit("/", 1)[-1]
