"""Which jobs of a sweep wait, run or are over, and the executor that runs them one by one in this process."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from operator import itemgetter

from harness.errors import StorageError
from harness.execution.guard.time_limits import exceeded
from harness.execution.job import Event, Folders, Job, Watcher, record_exceeded, record_failure
from harness.execution.search.open_study import OpenStudy
from harness.plans import StudySpec
from harness.records.artifacts import Artifacts
from harness.records.memorized_key import MEMORIZED
from harness.specs import TrialSpec


class JobQueue:
    """Keeps jobs in order, but holds back each one until what it needs has been provided.

    Where no job can start, the study that has tried least goes on with its next candidate. Asking for a job takes as
    long of ten thousand as of ten.

    Args:
        jobs: In the order of preference.
        folders: Where the journal and the artifacts are.
        watch: Told of every event.
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
        """A heap: jobs whose need is there, by their place in the order."""
        self._held: dict[str, list[Job]] = {}
        """Jobs that wait, by their need."""
        self._running: dict[str, Job] = {}
        self._provided: set[str] = set()
        self._errors: dict[str, str] = {}
        self._unwritable: StorageError | None = None
        self._lost: set[str] = set()
        self._exceeded: set[str] = set()
        self._builders: dict[str, list[str]] = {}
        """The names of the jobs that provide a need."""
        for job in self.jobs:
            self._wait(job)
            if job.provides:
                self._builders.setdefault(job.provides, []).append(job.name)
        self._coming = {need: len(names) for need, names in self._builders.items()}
        """How many of a need's builders are not over."""
        self._undecided = {need for need in self._held if need not in self._coming}
        """Needs of held jobs that no builder provides any more: they are there already, or never will be."""

    @property
    def most_attempts(self) -> int:
        """Return how often a job is begun at most, candidates among them: twice, where its process dies."""
        return 2 * (len(self.jobs) + sum(study.study.trials for study in self._studies.values()))

    @property
    def specs(self) -> list[TrialSpec]:
        """Return what its jobs and candidates run on: a trial of each job and study."""
        return [*(job.spec for job in self.jobs), *(study.study.trial for study in self._studies.values())]

    def next(self) -> Job | None:
        """Return the first job or candidate that can start now, if any; fail those before it that never can.

        Once the journal cannot be written there is none: whatever it measured would be lost.
        """
        if self._unwritable:
            return None
        self._decide()
        while self._ready:
            _, job = heapq.heappop(self._ready)
            problem = self._problem(job)
            if problem is None:
                self._running[job.name] = job
                return job
            self.fail(job, problem)
            self._decide()
        return self._next_candidate()

    def _wait(self, job: Job) -> None:
        if job.needs is None or job.needs in self._provided:
            heapq.heappush(self._ready, (self._places[job.name], job))
        else:
            self._held.setdefault(job.needs, []).append(job)

    def _decide(self) -> None:
        """Let go of jobs whose need is there, or on the disk if anywhere; who lacks it fails when it is to start."""
        for need in self._undecided:
            for job in self._held.pop(need, ()):
                heapq.heappush(self._ready, (self._places[job.name], job))
        self._undecided.clear()

    def _next_candidate(self) -> Job | None:
        for study in sorted(self._studies.values(), key=lambda study: study.tried):
            job = study.propose()
            if job is None:
                continue
            problem = self._problem(job)
            if problem is not None:  # So have all of its candidates.
                study.close()
                self.fail(job, problem)
            elif self._is_ready(job):
                study.start(job)
                self._running[job.name] = job
                return job
        return None

    def is_exhausted(self) -> bool:
        """Return whether no job is waiting any more, and no candidate will follow."""
        if self._unwritable:
            return True
        return not self._ready and not self._held and all(study.is_closed() for study in self._studies.values())

    def is_over(self) -> bool:
        """Return whether every job is over."""
        return self.is_exhausted() and not self._running

    def report(self, event: Event) -> None:
        """Pass on what a job reported."""
        if event.kind == "failed":
            self._errors[event.job] = event.message
        self._watch(event)

    def finish(self, job: Job) -> None:
        """Note that a job ended by itself, well or not; one that was over before, by its time limit, stays so."""
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
        told = error.removeprefix("harness.errors.").removeprefix("StorageError: ")
        if job.candidate is not None and told != error:
            self._unwritable = StorageError(told)

    def check_writable(self) -> None:
        """Raise what kept the journal from being written, if anything did.

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
        """Let a job wait before all others: half of it may be done."""
        first = min(0, self._ready[0][0]) if self._ready else 0
        heapq.heappush(self._ready, (first - 1, job))

    def exceed(self, job: Job) -> None:
        """Record that a job ran longer than it may; its process dies next, and that is no news."""
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
        for job in [] if self._unwritable else self._waiting():
            self.fail(job, reason)
        self._ready.clear()
        self._held.clear()
        for study in self._studies.values():
            study.close()

    def _waiting(self) -> list[Job]:
        """Return the jobs that were not started, in their order."""
        held = ((self._places[job.name], job) for jobs in self._held.values() for job in jobs)
        return [job for _, job in sorted([*self._ready, *held], key=itemgetter(0))]

    def _over(self, job: Job) -> None:
        self._running.pop(job.name, None)
        if job.provides:
            self._coming[job.provides] -= 1
            if job.provides in self._provided or not self._coming[job.provides]:
                self._undecided.add(job.provides)
        if job.candidate is not None:
            self._studies[job.candidate.study.study_id].finish(job)

    def _is_ready(self, job: Job) -> bool:
        if job.needs is None or job.needs in self._provided:
            return True
        return Artifacts(self.folders.artifacts).has(MEMORIZED, job.needs)

    def _problem(self, job: Job) -> str | None:
        """Return why a job can never start."""
        workers = job.spec.engine.workers
        cpus, gpus = job.spec.cpus * workers, job.spec.gpus * workers
        has = {kind: float(self.capacity.get(kind, 0)) for kind in ("CPU", "GPU")} if self.capacity else None
        if has and (cpus > has["CPU"] or gpus > has["GPU"]):
            return (
                f"it asks for {cpus} CPUs and {gpus:g} GPUs, and this machine has {has['CPU']:g} and "
                f"{has['GPU']:g}. Lower `resources` in the sweep file, or the engine's workers."
            )
        if self._is_ready(job) or self._coming.get(job.needs or ""):
            return None
        errors = [self._errors[name] for name in self._builders.get(job.needs or "", ()) if name in self._errors]
        return f"the memorised model could not be built: {errors[0] if errors else 'no job builds it'}"
