"""Jobs, the queue from which executors take those that can begin, and the terminal's view of their events."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from harness.base.files import digest_of
from harness.base.messages import reason, shown, storable
from harness.base.settings import Strict
from harness.execution.search import next_settings, results_awaited
from harness.plugins import METHODS, plugin_digest
from harness.records.artifacts import MEMORIZED, Artifacts, is_prepared, memorized_key, prepared_key
from harness.records.journal import Candidate, Failed, Journal
from harness.records.results import Results, TrialResults, study_results
from harness.settings import Json, Study, Trial, replace

_MAX_SILENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Folders:
    """Absolute folders of a sweep, shared in a cluster."""

    results: Path
    artifacts: Path
    inputs: Mapping[str, str] | None = None
    """Inputs of a cluster's driver, which every node must share."""

    @classmethod
    def locate(cls, results: str | PathLike[str], sweep: str) -> Self:
        root = Path(results).resolve()
        return cls(results=root / sweep, artifacts=root / "artifacts")

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.results / "journal")


class CandidateTask(Strict):
    """A candidate of a study."""

    study: Study
    number: int
    settings: Mapping[str, Json]
    """A value for each dimension of the search space."""

    def record(self, end: str, seconds: float, **findings: Any) -> Candidate:
        findings = {"original": {}, "targets": {}, "probes": ()} | findings
        id, settings = self.study.study_id, dict(self.settings)
        findings |= {"seconds": seconds, "code": plugin_digest(METHODS.load(self.study.trial.method))}
        return Candidate(trial_id=id, number=self.number, settings=settings, end=end, **findings)


class Job(Strict):
    """A unit of work for an executor."""

    name: str
    """`emso-miniature-m-s0-1f3c`."""
    kind: Literal["prepare", "memorize", "trial", "candidate"]
    spec: Trial
    candidate: CandidateTask | None = None
    needs: tuple[str, ...] = ()
    """Jobs that make the parts it shares with others."""
    node: str = ""
    """Cluster node: `gpu-3 (10.0.0.7)`."""
    then: "Job | None" = None
    """A walk of the same erasure to another level, which goes on in this process where this one ends."""

    def chain(self) -> "list[Job]":
        """Return this job and those that go on after it."""
        return [self, *(self.then.chain() if self.then else ())]

    @property
    def trial_id(self) -> str:
        """Return the trial's id; '' if the job is no trial."""
        return self.spec.trial_id if self.kind == "trial" else ""


class Event(Strict):
    """Progress of a job."""

    job: str
    kind: Literal["started", "progress", "lost", "finished", "failed"]
    message: str = ""
    """`epoch 2 of 7`, `memorization at 3` or an error's first line."""
    done: int = 0
    total: int = 0
    trial_id: str = ""
    """Set in a trial's last event."""


Watcher = Callable[[Event], None]


def record_failure(job: Job, folders: Folders, watch: Watcher, error: str, log: Sequence[str]) -> None:
    """Journal a failed trial and report it.

    A candidate whose process died leaves no record and is tried again by the next run.
    """
    error = storable(error)
    if job.kind == "trial":
        folders.journal.append(Failed(trial_id=job.spec.trial_id, error=error, log=tuple(log)))
    watch(Event(job=job.name, kind="failed", message=reason(error), trial_id=job.trial_id))


def record_exceeded(job: Job, folders: Folders, watch: Watcher) -> None:
    """Journal a job that exceeded its time limit; a candidate counts as tried."""
    assert job.spec.time_limit is not None
    minutes = job.spec.time_limit
    remedy = "Raise timeout_minutes (part of no trial's identity: finished points stay), or make the trial smaller."
    error = f"TrialError: it ran longer than timeout_minutes: {minutes:g} allows. {remedy}"
    if job.candidate is not None:
        folders.journal.append(job.candidate.record(error, 60 * minutes))
    record_failure(job, folders, watch, error, ())


WALKED_POINTS = 10
"""Points of a grid that take as long as a walk."""


class JobQueue:
    """Jobs in order; an executor sends their events to `watch`."""

    def __init__(self, jobs: Sequence[Job], studies: Sequence[Study], folders: Folders, watch: Watcher) -> None:
        self.folders = folders
        self.specs = [*(job.spec for job in jobs), *(study.trial for study in studies)]
        """Later ones differ in settings only."""
        self._waiting, self._studies, self._report = list(jobs), studies, watch
        self._unfinished = {each.name for job in jobs for each in job.chain()}
        self._reason_by_job: dict[str, str] = {}
        self._job_by_number: dict[str, dict[int, Job]] = {study.study_id: {} for study in studies}
        self._propose_candidates()

    def watch(self, event: Event) -> None:
        if event.kind == "failed":
            self._reason_by_job[event.job] = f"a part it shares with others could not be made: {event.message}"
        if event.kind in ("finished", "failed"):
            self._unfinished.discard(event.job)
            self._propose_candidates()
        self._report(event)

    def next_job(self, is_possible: Callable[[Job], bool] = lambda job: True) -> Job | None:
        """Take a job that can begin; None if none can now, or any more."""
        for job in list(self._waiting):
            if not self._unfinished.isdisjoint(job.needs):
                continue
            if reasons := [self._reason_by_job[name] for name in job.needs if name in self._reason_by_job]:
                self._waiting.remove(job)
                for each in job.chain():
                    record_failure(each, self.folders, self.watch, reasons[0], ())
            elif is_possible(job):
                self._waiting.remove(job)
                return job
        return None

    def first_left(self, job: Job) -> Job | None:
        """Return a chain's first job that is not over."""
        return next((each for each in job.chain() if each.name in self._unfinished), None)

    def return_job(self, job: Job) -> None:
        """Put back the rest of a chain whose process ended, after all others."""
        if left := self.first_left(job):
            self._waiting.append(left)

    def _propose_candidates(self) -> None:
        for study in self._studies:
            if self._reason_by_job.keys().isdisjoint(_memorizing_jobs(study.trial)):
                jobs = next_candidates(study, self.folders, self._job_by_number[study.study_id], self._unfinished)
                self._unfinished |= {job.name for job in jobs}
                self._waiting += jobs


Executor = Callable[[JobQueue], None]
"""Runs all jobs and returns after the last."""


def missing_jobs(results: Results, folders: Folders, watch: Watcher) -> JobQueue:
    """Return a queue of all unfinished trials and studies."""
    studies = [study.spec for study in results.unfinished_studies]
    return JobQueue([*shared_jobs(results, folders), *trial_jobs(results, folders)], studies, folders, watch)


def shared_jobs(results: Results, folders: Folders) -> list[Job]:
    """Return a job for each memorised model and each set of arrays that unfinished trials lack."""
    artifacts, job_by_name = Artifacts(folders.artifacts), dict[str, Job]()
    for trial in results.unfinished:
        for name in _preparing_jobs(trial, artifacts):
            job_by_name.setdefault(name, Job(name=name, kind="prepare", spec=trial.spec))
    specs = [study.spec.trial for study in results.unfinished_studies] + [trial.spec for trial in results.unfinished]
    for name, spec in {name: each for each in specs for name in _memorizing_jobs(each)}.items():
        if artifacts.find(MEMORIZED, memorized_key(spec)) is None:
            job_by_name[name] = Job(name=name, kind="memorize", spec=spec)
    return [*job_by_name.values()]


def count_jobs(results: Results, folders: Folders) -> int:
    """Return the number of jobs left, with trials that follow from unfinished studies."""
    ahead = [one.spec.trials - len(one.candidates) + len(one.spec.targets) for one in results.unfinished_studies]
    return len(shared_jobs(results, folders)) + len(results.unfinished) + sum(ahead)


def trial_jobs(results: Results, folders: Folders) -> list[Job]:
    """Return the unfinished trials as jobs: references first, then the longest first.

    Walks of one erasure to several levels are a chain.
    """
    artifacts, job_by_erasure, points = Artifacts(folders.artifacts), dict[str, Job](), dict[str, int]()
    for trial in reversed(results.unfinished):  # A chain is made from its end.
        spec = trial.spec
        strength = f"-{spec.strengths[0]:g}" if len(spec.strengths) == 1 else ""
        strength = f"-to-{spec.until.at}" if spec.until else strength
        name = f"{spec.variant}{strength}-{spec.model.short_name}-s{spec.seed}-{spec.trial_id[:8]}"
        needs = (*_preparing_jobs(trial, artifacts), *_memorizing_jobs(spec))
        erasure = replace(spec, trial_id="", until=None).model_dump_json() if spec.until else spec.trial_id
        then = job_by_erasure.get(erasure)
        job_by_erasure[erasure] = Job(name=name, kind="trial", spec=spec, needs=needs, then=then)
        points[name] = (WALKED_POINTS if spec.until else len(spec.points())) + (points[then.name] if then else 0)
    jobs = [*job_by_erasure.values()][::-1]
    return sorted(jobs, key=lambda job: (not job.spec.is_reference, -points[job.name]))


def next_candidates(
    study: Study, folders: Folders, job_by_number: dict[int, Job], unfinished: Collection[str] = ()
) -> list[Job]:
    """Return the candidates that can be proposed now; none at the end of the search.

    They are added to `job_by_number`. Died ones are tried again by the next run.
    """
    candidates = study_results(study, folders.journal.read(study.study_id)).candidates
    recorded = {candidate.number for candidate in candidates}
    running = {number for number, job in job_by_number.items() if job.name in unfinished}
    proposed: list[Job] = []
    for number in range(study.trials):
        if number in recorded or number in job_by_number:
            continue
        if any(other < results_awaited(study, number) for other in running):
            break
        tasks = [job.candidate for other, job in job_by_number.items() if job.candidate and other not in recorded]
        settings = next_settings(study, number, candidates, {task.number: task.settings for task in tasks})
        if settings is None:
            break
        running.add(number)
        job_by_number[number] = candidate_job(study, number, settings)
        proposed.append(job_by_number[number])
    return proposed


def candidate_job(study: Study, number: int, settings: Mapping[str, Json]) -> Job:
    """Return the job of a candidate."""
    spec = study.trial_with(settings, study.strengths(settings))
    # The id is the candidate's own, so that two of a study never write to one place.
    spec = replace(spec, trial_id=f"{study.study_id}-{number}")
    name = f"{spec.variant}-{spec.model.short_name}-candidate-{number}-{study.study_id[:8]}"
    task = CandidateTask(study=study, number=number, settings=settings)
    return Job(name=name, kind="candidate", spec=spec, candidate=task, needs=_memorizing_jobs(spec))


def _preparing_jobs(trial: TrialResults, artifacts: Artifacts) -> tuple[str, ...]:
    model, remaining = trial.spec.model, [each for _, evaluators in trial.remaining for each in evaluators]
    lacking = [each for each in trial.spec.evaluators if not is_prepared(model, each, artifacts)]
    if trial.spec.is_of_original or not any(each in remaining for each in lacking):
        return ()
    return (f"prepare-{model.short_name}-{digest_of([prepared_key(model, each) for each in lacking])[:8]}",)


def _memorizing_jobs(spec: Trial) -> tuple[str, ...]:
    key = memorized_key(spec)[:8]
    return (f"memorize-{spec.model.short_name}-{key}",) if spec.reference == "memorized_model" else ()


class SweepProgress:
    """A watcher that shows finished and running ones of so many jobs; use it as a context manager."""

    def __init__(self, jobs: int, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        name, message = (TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[message]"))
        columns = name, BarColumn(bar_width=30), MofNCompleteColumn(), TimeRemainingColumn(), message
        self._view = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._sweep = self._view.add_task("jobs", total=jobs, message="")
        self._running: dict[str, TaskID] = {}
        self._over, self._failed, self._jobs = 0, 0, jobs
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        self._view.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._view.stop()

    def __call__(self, event: Event) -> None:
        message = shown(event.message)
        if event.kind in ("finished", "failed"):
            self._over, self._failed = self._over + 1, self._failed + (event.kind == "failed")
            self._jobs = max(self._jobs, self._over)
            if event.job in self._running:
                self._view.remove_task(self._running.pop(event.job))
            failed = f"{self._failed} failed" if self._failed else ""
            self._view.update(self._sweep, completed=self._over, total=self._jobs, message=failed)
        else:
            if event.job not in self._running:
                self._running[event.job] = self._view.add_task(event.job, total=None, message="")
            row, count, total = self._running[event.job], event.done or None, event.total or None
            self._view.update(row, message=message, completed=count, total=total)
        counted = f"{self._over} of {self._jobs} jobs" + (f" · {self._failed} failed" if self._failed else "")
        if event.kind in ("failed", "lost"):
            line = f"{event.job}: {'failed: ' if event.kind == 'failed' else ''}{message}"
        elif self._console.is_terminal:
            return
        elif event.kind == "finished":
            line = f"{event.job}: {message or 'finished'} · {counted}"
        elif message and time.monotonic() - self._last_line > _MAX_SILENCE_SECONDS:
            position = f" ({event.done} of {event.total})" if event.total else ""
            line = f"{event.job}: {message}{position} · {counted}"
        else:
            return
        self._last_line = time.monotonic()
        self._console.print(line, markup=False, soft_wrap=True)
