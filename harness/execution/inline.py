"""The inline executor: every job in this process, one after the other. For tests and debuggers."""

from __future__ import annotations

from collections.abc import Sequence

from harness.execution.job_queue import JobQueue
from harness.execution.jobs import Folders, Job, Watcher
from harness.execution.trial import run_job


def run_inline(jobs: Sequence[Job], folders: Folders, watch: Watcher) -> None:
    """Run every job in order; one whose need was not provided fails without running."""
    queue = JobQueue(jobs, folders, watch)
    while job := queue.next():
        run_job(job, folders, queue.saw)
        queue.over(job)
