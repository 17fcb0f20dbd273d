"""A study while a sweep runs: what is known of it, what is being tried, and what to try next."""

from __future__ import annotations

from collections.abc import Mapping

from harness.contracts import Json
from harness.execution.job import Folders, Job
from harness.execution.jobs import candidate_job
from harness.execution.search.proposals import next_settings, results_awaited
from harness.plans import StudySpec
from harness.records.journal import Journal
from harness.records.record import Candidate
from harness.records.results import study_results
from harness.records.spending import is_paid


class OpenStudy:
    """Proposes a study's candidates one by one, each once those are over that it learns from.

    A number is tried once in a run. One whose process died leaves nothing in the journal, so it is tried again when
    the sweep is run again; meanwhile those that follow know its settings, and do without its result.
    """

    def __init__(self, study: StudySpec, folders: Folders) -> None:
        self.study = study
        self._journal = Journal(folders.results / "journal")
        self._running: set[int] = set()
        self._started: dict[int, Mapping[str, Json]] = {}
        """The settings of what was tried in this run, by number."""
        self._read()
        self.is_closed = False
        """Whether it will propose no candidate any more."""

    def _read(self) -> None:
        results = study_results(self.study, self._journal.read(self.study.study_id))
        self._known: tuple[Candidate, ...] = results.candidates
        self._tried = self._started.keys() | {candidate.number for candidate in results.candidates}

    @property
    def tried(self) -> int:
        """Return how many candidates are over or running."""
        return len(self._tried)

    def propose(self) -> Job | None:
        """Return the next candidate's job; None if there is none, or none before a running one is over."""
        number = min({*range(self.study.trials)} - self._tried, default=None)
        if self.is_closed or number is None:
            self.is_closed = True
            return None
        if any(running < results_awaited(self.study, number) for running in self._running):
            return None
        if not is_paid(self.study, number, self._known):
            self.is_closed = True
            return None
        others = dict(self._started)
        for candidate in self._known:
            others.pop(candidate.number, None)
        settings = next_settings(self.study, number, self._known, others)
        if settings is None:
            self.is_closed = not self._running
            return None
        return candidate_job(self.study, number, settings)

    def start(self, job: Job) -> None:
        """Note that a proposed candidate is being tried."""
        assert job.candidate is not None
        self._started[job.candidate.number] = job.candidate.settings
        self._tried.add(job.candidate.number)
        self._running.add(job.candidate.number)

    def finish(self, job: Job) -> None:
        """Note that a candidate is over, well or not, and read what the journal says of it."""
        assert job.candidate is not None
        self._running.discard(job.candidate.number)
        self._read()

    def close(self) -> None:
        """Propose nothing any more."""
        self.is_closed = True
