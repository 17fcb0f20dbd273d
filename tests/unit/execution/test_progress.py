"""The progress view: what is running, how much is done, when it will end; plain lines off a terminal."""

import io
import threading

import pytest
from rich.console import Console

from harness.execution.job import Event
from harness.execution.progress import Progress, rounded_up


@pytest.fixture
def make_job(make_job):
    """Return a maker of jobs whose rows have their names."""
    return lambda name, **changes: make_job(name, variant=name, **changes)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def screen(terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=160, color_system=None, highlight=False)


def shown(progress):
    """What the live view says now."""
    console = screen(terminal=False)
    console.print(progress._view())
    return console.file.getvalue()


def event(job, kind, message="", done=0, total=0):
    return Event(job=job, kind=kind, message=message, done=done, total=total)


def test_off_a_terminal_there_is_a_line_for_each_job_that_ends_and_one_a_minute(make_job):
    console, clock = screen(terminal=False), Clock()
    with Progress([make_job("emso"), make_job("mem", kind="memorize")], console, clock) as progress:
        progress(event("emso", "started"))
        progress(event("emso", "progress", "epoch 1 of 2", total=4))
        progress(event("emso", "measured", "memorization at [1]", done=1, total=4))
        progress(event("emso", "lost", "its process died"))
        progress(event("mem", "finished"))
        progress(event("cd-miniature-m-candidate-1-017b", "finished", "ma 0.5"))
        clock.now += 61
        progress(event("emso", "started"))
        progress(event("emso", "measured", "memorization at [2]", done=2, total=4))
        progress(event("emso", "measured", "generation at [2]", done=3, total=4))
        progress(event("emso", "failed", "ValueError: NaN loss"))
    assert console.file.getvalue().splitlines() == [
        "emso@1–2 on miniature-m, seed 0: its process died",
        "memorised model of miniature-m: finished · 1 of 2 jobs",
        "cd-miniature-m-candidate-1: ma 0.5 · 2 of 3 jobs · ~10 s left",
        "emso@1–2 on miniature-m, seed 0: memorization at [2] (2 of 4) · 2 of 3 jobs · ~50 s left",
        "emso@1–2 on miniature-m, seed 0: failed: ValueError: NaN loss",
    ]


def test_the_view_shows_what_is_running_and_only_that(make_job):
    clock = Clock()
    progress = Progress([make_job("emso"), make_job("ta"), make_job("cd")], screen(terminal=False), clock)
    clock.now += 12
    assert "starting emso@1–2 on miniature-m, seed 0 · 0 of 3 jobs · 12 s" in shown(progress)
    progress(event("emso", "progress", "epoch 2 of 7", done=1, total=4))
    progress(event("ta", "started"))
    view = shown(progress)
    assert "0 of 3 jobs" in view
    assert "epoch 2 of 7" in view
    assert "1/4" in view
    assert "ta" in view
    assert "cd" not in view
    progress(event("emso", "finished"))
    progress(event("ta", "failed", "E: e"))
    view = shown(progress)
    assert "2 of 3 jobs · 1 failed" in view
    assert "emso" not in view


def test_the_end_is_estimated_from_the_measured_pace(make_job):
    clock = Clock()
    progress = Progress([make_job("a"), make_job("b")], screen(terminal=False), clock)
    progress(event("a", "started"))
    clock.now += 60
    progress(event("a", "measured", done=2, total=4))
    assert "left" not in shown(progress)  # Two measurements are too few to tell.
    clock.now += 40
    progress(event("a", "measured", done=4, total=4))
    assert "~3 min left" in shown(progress)  # 4 of 10 in 100 s: 150 s for the other 6.
    progress(event("a", "finished"))
    progress(event("b", "measured", done=1, total=1))  # It lacked only one: now 6 of 7.
    assert "~20 s left" in shown(progress)
    progress(event("b", "finished"))
    assert "left" not in shown(progress)


def test_a_job_nobody_announced_and_events_out_of_order_do_no_harm():
    progress = Progress([], screen(terminal=False), Clock())
    progress(event("new", "measured", done=3, total=4))
    progress(event("new", "measured", done=2, total=4))
    assert "3/4" in shown(progress)


def test_many_running_jobs_are_cut_to_what_fits(make_job):
    jobs = [make_job(f"job{index:02}") for index in range(30)]
    progress = Progress(jobs, screen(terminal=False), Clock())
    for job in jobs:
        progress(event(job.name, "started"))
    view = shown(progress)
    assert "job11" in view
    assert "job12" not in view
    assert "and 18 more" in view


def test_on_a_terminal_only_failures_stay(make_job):
    console = screen(terminal=True)
    with Progress([make_job("emso")], console, Clock()) as progress:
        progress(event("emso", "measured", "memorization", done=1, total=4))
        progress(event("emso", "failed", "E: e"))
    text = console.file.getvalue()
    assert "emso@1–2 on miniature-m, seed 0: failed: E: e\n" in text
    assert "memorization (1 of 4)" not in text


def test_the_view_ends_when_the_sweep_raises(make_job):
    console = screen(terminal=True)
    with pytest.raises(KeyboardInterrupt), Progress([make_job("emso")], console, Clock()):
        raise KeyboardInterrupt
    text = console.file.getvalue()
    hidden, back = "\x1b[?25l", "\x1b[?25h"
    assert text.rindex(back) > text.rindex(hidden)


def test_it_may_be_called_from_several_threads(make_job):
    jobs = [make_job(f"job{index}") for index in range(4)]
    with Progress(jobs, screen(terminal=True), Clock()) as progress:

        def report(job):
            for done in range(1, 101):
                progress(event(job.name, "measured", done=done, total=100))
            progress(event(job.name, "finished"))

        threads = [threading.Thread(target=report, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "4 of 4 jobs" in shown(progress)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "~10 s"), (10, "~10 s"), (11, "~20 s"), (90, "~90 s"), (91, "~2 min"), (5399, "~90 min"), (7201, "~2.1 h")],
)
def test_durations_are_rounded_up(seconds, text):
    assert rounded_up(seconds) == text
