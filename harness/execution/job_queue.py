"""Which jobs of a sweep wait, run or are over."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from operator import itemgetter

from harness.errors import StorageError
from harness.execution.guard.time_limits import exceeded
from harness.execution.job import Event, Folders, Job, Watcher, record_exceeded, record_failure
from harness.execution.search.open_study import OpenStudy
from harness.plans import StudySpec
from harness.records.artifacts import MEMORIZED, Artifacts
from harness.specs import TrialSpec


class JobQueue:
    """Keeps jobs in order, but holds back each one until what it needs has been provided.

    Where no job can start, the study that has tried least goes on with its next candidate. Asking for a job takes
    equally long with ten jobs and with ten thousand.

    Args:
        jobs: In the order of preference.
        folders: Where the journal and the artifacts are.
        watch: Gets every event.
        capacity: How many `CPU` and `GPU` there are at most; None: nobody knows.
        studies: Whose candidates are to be tried.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        folders: Folders,
        watch: Watcher,
        capacity: Mapping[str, float] | None = None,
        studies: Sequence[StudySpec] = (),
    ) -> None:
        self.jobs = tuple(jobs)
        self.folders = folders
        self._watch = watch
        self.capacity = capacity
        self._studies = {study.study_id: OpenStudy(study, folders) for study in studies}
        self._places = {job.name: place for place, job in enumerate(self.jobs)}
        self._ready: list[tuple[int, Job]] = []
        """A heap of the jobs that wait for no builder, by their place in the order."""
        self._held: dict[str, list[Job]] = {}
        """Jobs that wait, by the first artifact they need that is still coming."""
        self._running: dict[str, Job] = {}
        self._builders = {job.provides: job for job in self.jobs if job.provides}
        """The job that provides each artifact."""
        self._coming = set(self._builders)
        """Artifacts whose builder is not over."""
        self._provided: set[str] = set()
        self._errors: dict[str, str] = {}
        self._unwritable: StorageError | None = None
        self._lost: set[str] = set()
        self._exceeded: set[str] = set()
        for job in self.jobs:
            self._hold_or_release(job)

    @property
    def most_attempts(self) -> int:
        """Return how many starts of jobs and candidates there are at most: two each, if a process dies."""
        return 2 * (len(self.jobs) + sum(study.study.trials for study in self._studies.values()))

    @property
    def specs(self) -> list[TrialSpec]:
        """Return a trial of each job and study."""
        return [*(job.spec for job in self.jobs), *(study.study.trial for study in self._studies.values())]

    def next(self) -> Job | None:
        """Return the first job or candidate that can start now, if any; fail those before it that never can.

        Once the journal cannot be written, no job starts: its measurements would be lost.
        """
        if self._unwritable:
            return None
        while self._ready:
            _, job = heapq.heappop(self._ready)
            problem = self._problem(job)
            if problem is None:
                self._running[job.name] = job
                return job
            self.fail(job, problem)
        for study in sorted(self._studies.values(), key=lambda study: study.tried):
            candidate = study.propose()
            if candidate is None:
                continue
            problem = self._problem(candidate)
            if problem is not None:  # All other candidates have it too.
                study.close()
                self.fail(candidate, problem)
            elif not self._missing(candidate):
                study.start(candidate)
                self._running[candidate.name] = candidate
                return candidate
        return None

    def is_exhausted(self) -> bool:
        """Return whether no job waits, and no candidate will follow."""
        if self._unwritable:
            return True
        return not self._ready and not self._held and all(study.is_closed for study in self._studies.values())

    def is_over(self) -> bool:
        """Return whether every job is over."""
        return self.is_exhausted() and not self._running

    def report(self, event: Event) -> None:
        """Pass on what a job reported."""
        if event.kind == "failed":
            self._errors[event.job] = event.message
        self._watch(event)

    def finish(self, job: Job) -> None:
        """Note that a job ended by itself, well or not. One that its time limit ended before stays failed."""
        if job.name in self._exceeded:
            return
        if job.provides and job.name not in self._errors:
            self._provided.add(job.provides)
        self._over(job)

    def fail(self, job: Job, error: str, log: Sequence[str] = ()) -> None:
        """Record the failure of a job that could not do so itself."""
        self._over(job)
        try:
            record_failure(job, self.folders, self.report, error, log)
        except StorageError as unwritable:
            self._unwritable = unwritable
            self.report(Event(job=job.name, kind="failed", message=str(unwritable)))
        message = error.removeprefix("harness.errors.").removeprefix("StorageError: ")
        if job.candidate is not None and message != error:
            self._unwritable = StorageError(message)

    def check_writable(self) -> None:
        """Raise the error that kept the journal from being written, if any.

        Raises:
            StorageError: The journal cannot be written.
        """
        if self._unwritable:
            raise self._unwritable

    def lose(self, job: Job, error: str, log: Sequence[str] = ()) -> None:
        """Take note that a job's process died: it is tried again, once, from its last finished point."""
        if job.name in self._exceeded:
            return
        if job.name in self._lost:
            self.fail(job, error, log)
            return
        self._lost.add(job.name)
        self._running.pop(job.name, None)
        self._put_first(job)
        self._watch(Event(job=job.name, kind="lost", message="its process died: it is tried once more"))

    def lose_running(self, error: str) -> int:
        """Take note that the processes of all running jobs died, and return how many those are."""
        running = list(self._running.values())
        for job in running:
            self.lose(job, error)
        return len(running)

    def put_running_back(self) -> None:
        """Let all running jobs wait again, before all others: their processes ended through no fault of theirs."""
        for job in self._running.values():
            self._put_first(job)
        self._running.clear()

    def _put_first(self, job: Job) -> None:
        first = min(0, self._ready[0][0]) if self._ready else 0
        heapq.heappush(self._ready, (first - 1, job))

    def exceed(self, job: Job) -> None:
        """Record that a job ran longer than it may. Its process dies next, which is not reported again."""
        self._exceeded.add(job.name)
        try:
            record_exceeded(job, self.folders)
        except StorageError as unwritable:
            self._unwritable = unwritable
        self.fail(job, f"TrialError: {exceeded(job.spec)}")

    def close(self, reason: str) -> None:
        """Fail whatever is not over."""
        for job in list(self._running.values()):
            self.fail(job, reason)
        for held in self._held.values():
            self._ready += [(self._places[job.name], job) for job in held]
        self._held.clear()
        for _, job in [] if self._unwritable else sorted(self._ready, key=itemgetter(0)):
            self.fail(job, reason)
        self._ready.clear()
        for study in self._studies.values():
            study.close()

    def _over(self, job: Job) -> None:
        self._running.pop(job.name, None)
        if job.provides:
            self._coming.discard(job.provides)
            for waiting in self._held.pop(job.provides, ()):
                self._hold_or_release(waiting)
        if job.candidate is not None:
            self._studies[job.candidate.study.study_id].finish(job)

    def _hold_or_release(self, job: Job) -> None:
        """Let a job wait for the first artifact that is still coming, else let it start."""
        for need in job.needs:
            if need in self._coming:
                self._held.setdefault(need, []).append(job)
                return
        # What it needs is on the disk, or the job fails when its turn comes.
        heapq.heappush(self._ready, (self._places[job.name], job))

    def _missing(self, job: Job) -> list[str]:
        artifacts = Artifacts(self.folders.artifacts)
        return [need for need in job.needs if need not in self._provided and not artifacts.has(MEMORIZED, need)]

    def _problem(self, job: Job) -> str | None:
        workers = job.spec.engine.workers
        cpus, gpus = job.spec.cpus * workers, job.spec.gpus * workers
        if self.capacity:
            has_cpus, has_gpus = self.capacity.get("CPU", 0), self.capacity.get("GPU", 0)
            if cpus > has_cpus or gpus > has_gpus:
                return (
                    f"it asks for {cpus} CPUs and {gpus:g} GPUs, and this machine has {has_cpus:g} and {has_gpus:g}. "
                    "Lower `resources` in the sweep file, or the engine's workers."
                )
        for need in self._missing(job):
            if need not in self._coming:
                builder = self._builders.get(need)
                error = self._errors.get(builder.name, "") if builder else "no job builds it"
                if builder and builder.kind == "prepare":
                    return f"what is measured of the original alone could not be computed: {error}"
                return f"the memorised model could not be built: {error}"
        return None
