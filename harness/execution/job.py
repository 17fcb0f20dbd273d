"""Jobs, their events and the terminal's view of them, and records of failed ones."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from harness.base.messages import reason, shown, storable
from harness.base.settings import Strict
from harness.plugins import METHODS, plugin_digest
from harness.records.journal import Candidate, Failed, Journal
from harness.settings import Json, Study, Trial

_MAX_SILENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Folders:
    """Absolute folders of a sweep, shared in a cluster."""

    results: Path
    artifacts: Path
    inputs: Mapping[str, str] | None = None
    """Inputs of a cluster's driver, which every node must share."""

    @classmethod
    def of_sweep(cls, results: str | PathLike[str], sweep: str) -> Self:
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
