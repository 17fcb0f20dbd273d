"""The progress view: plain lines off a terminal, and on one what is running and how much is over."""

import io

from rich.console import Console

from harness.execution import progress as module
from harness.execution.job import Event
from harness.execution.progress import SweepProgress


def screen(is_terminal):
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=160, color_system=None, highlight=False)


def event(job, kind, message="", done=0, total=0):
    return Event(job=job, kind=kind, message=message, done=done, total=total)


def test_off_a_terminal_there_is_a_line_for_each_job_that_ends_and_one_a_minute(monkeypatch):
    console, clock = screen(is_terminal=False), [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with SweepProgress(2, console) as progress:
        progress(event("emso", "started"))
        progress(event("emso", "measured", "memorization at 1", done=1, total=4))
        progress(event("emso", "lost", "its process died"))
        progress(event("memorize", "finished"))
        clock[0] += 61
        progress(event("emso", "measured", "memorization at 2", done=2, total=4))
        progress(event("emso", "measured", "generation at 2", done=3, total=4))
        progress(event("emso", "failed", "ValueError: \x1b[31mNaN"))
        progress(event("candidate", "finished", "ma 0.5"))
    assert console.file.getvalue().splitlines() == [
        "emso: its process died",
        "memorize: finished · 1 of 2 jobs",
        "emso: memorization at 2 (2 of 4) · 1 of 2 jobs",
        r"emso: failed: ValueError: \x1b[31mNaN",
        "candidate: ma 0.5 · 3 of 3 jobs · 1 failed",
    ]


def test_on_a_terminal_the_view_shows_what_is_running_and_how_much_is_over():
    console = screen(is_terminal=True)
    with SweepProgress(3, console) as progress:
        progress(event("emso", "measured", "generation at 2", done=3, total=4))
        progress(event("memorize", "finished"))
        shown = screen(is_terminal=False)
        shown.print(progress._view.get_renderable())
        rows = shown.file.getvalue().splitlines()
    assert "1/3" in rows[0]
    assert "emso" in rows[1]
    assert "3/4" in rows[1]
    assert "generation at 2" in rows[1]
    assert len(rows) == 2, "what is over is no row"
