"""The executor without Ray: every job in this process, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.job import Folders, Job, Watcher
from harness.execution.job_queue import JobQueue
from harness.execution.trial.run import run_job
from harness.plans import StudySpec


def run_inline(jobs: Sequence[Job], folders: Folders, watch: Watcher, studies: Sequence[StudySpec] = ()) -> None:
    """Run every job and candidate here, in order, for tests and debuggers; one whose need is missing fails at once.

    Raises:
        StorageError: The journal cannot be written.
    """
    queue = JobQueue(jobs, folders, watch, studies=studies)
    with INTERRUPTION.watched():
        while job := queue.next():
            run_job(job, folders, queue.report)
            queue.finish(job)
    queue.check_writable()
