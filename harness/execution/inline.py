"""The inline executor: every job in this process, one after the other. For tests and debuggers."""

from __future__ import annotations

from collections.abc import Sequence

from harness.execution.jobs import Event, Folders, Job, Watcher
from harness.execution.trial import fail, run_job
from harness.records.artifacts import Artifacts


def run_inline(jobs: Sequence[Job], folders: Folders, watch: Watcher) -> None:
    """Run every job in order; one whose need was not provided fails without running."""
    artifacts = Artifacts(folders.artifacts)
    for job in jobs:
        if job.needs and artifacts.find("memorized", job.needs) is None:
            watch(Event(job=job.name, kind="started"))
            fail(job, folders, watch, "TrialError: the memorised model that it needs could not be built.", [])
        else:
            run_job(job, folders, watch)
