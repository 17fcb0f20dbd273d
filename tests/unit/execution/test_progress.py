"""The progress view: plain lines off a terminal, without what would control one."""

import io

from rich.console import Console

from harness.execution import jobs as module
from harness.execution.jobs import Event, SweepProgress


def event(job, kind, message="", done=0, total=0):
    return Event(job=job, kind=kind, message=message, done=done, total=total)


def test_off_a_terminal_there_is_a_line_for_each_job_that_ends_and_one_a_minute(monkeypatch):
    clock = [100.0]
    console = Console(file=io.StringIO(), force_terminal=False, width=160, color_system=None, highlight=False)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with SweepProgress(2, console) as progress:
        progress(event("emso", "started"))
        progress(event("emso", "progress", "memorization at 1", done=1, total=4))
        progress(event("emso", "lost", "its process died"))
        progress(event("memorize", "finished"))
        clock[0] += 61
        progress(event("emso", "progress", "memorization at 2", done=2, total=4))
        progress(event("emso", "progress", "generation at 2", done=3, total=4))
        progress(event("emso", "failed", "ValueError: \x1b[31mNaN"))
        progress(event("candidate", "finished", "ma 0.5"))
    assert console.file.getvalue().splitlines() == [
        "emso: its process died",
        "memorize: finished · 1 of 2 jobs",
        "emso: memorization at 2 (2 of 4) · 1 of 2 jobs",
        r"emso: failed: ValueError: \x1b[31mNaN",
        "candidate: ma 0.5 · 3 of 3 jobs · 1 failed",
    ]
