"""The inline executor: every job in this process, one after the other. For tests and debuggers."""

from __future__ import annotations

from collections.abc import Sequence

from harness.execution.board import Board
from harness.execution.jobs import Folders, Job, Watcher
from harness.execution.trial import run_job


def run_inline(jobs: Sequence[Job], folders: Folders, watch: Watcher) -> None:
    """Run every job in order; one whose need was not provided fails without running."""
    board = Board(jobs, folders, watch)
    while job := board.next():
        run_job(job, folders, board.saw)
        board.over(job)
