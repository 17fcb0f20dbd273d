"""What a person sees while a sweep runs: what is running, how much is done, and when it will end."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.base.messages import shown
from harness.base.terminal import SafeConsole
from harness.execution.job import Event, Job

_FEWEST_FOR_AN_ESTIMATE = 3
_LONGEST_SILENCE_SECONDS = 60.0
_JOBS_SHOWN = 12
"""The most running jobs that the view shows."""


@dataclass
class _JobView:
    """What is known and shown of one job."""

    name: str
    label: str
    total: int
    """Measurements to make, and one for the job itself, so that a job without any counts too."""
    state: str = "waiting"
    message: str = ""
    done: int = 0

    @property
    def units(self) -> int:
        """Return how much of `total` is over; of a failed job, all."""
        return self.total if self.state in ("finished", "failed") else self.done


class Progress:
    """A watcher that shows a live view on a terminal, and elsewhere a plain line for each job that ends.

    Where no job ends for a minute, a line says what was done last.

    Use it as a context manager; it may be called from several threads.

    Args:
        jobs: What will run.
        console: Where to show it.
        clock: Tells the time, in seconds.
        candidates: How many of studies will run besides, at most: they are known by name when they start.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        candidates: int = 0,
    ) -> None:
        self._jobs = {job.name: _JobView(job.name, job_label(job), _expected(job)) for job in jobs}
        self._most = len(jobs) + candidates
        self._units, self._total = 0, sum(job.total for job in self._jobs.values())
        self._failed = self._finished = 0
        self._running: dict[str, _JobView] = {}
        self._console = console or SafeConsole(highlight=False)
        self._clock = clock
        self._made = self._last_line = clock()
        self._began: float | None = None
        self._lock = threading.RLock()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._view, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, event: Event) -> None:
        """Take in an event, and show it."""
        with self._lock:
            if self._began is None:
                self._began = self._clock()
            if event.job not in self._jobs:
                self._jobs[event.job] = _JobView(event.job, _without_id(event.job), 1)
                self._total += 1
            job = self._jobs[event.job]
            self._take(job, event)
            line = self._line(job, event)
        if line:
            self.say(line)

    def say(self, line: str) -> None:
        """Show a line that stays, above what is running."""
        self._console.print(line, markup=False, soft_wrap=True)

    def _take(self, job: _JobView, event: Event) -> None:
        self._count(job, -1)
        if event.kind in ("finished", "failed"):
            job.state = event.kind
        elif job.state == "waiting":
            job.state = "running"
        if event.total:
            job.total = event.total + 1
        job.done = max(job.done, event.done)
        job.message = shown(event.message) or job.message
        self._count(job, 1)

    def _count(self, job: _JobView, sign: int) -> None:
        """Add a job to the totals, or take it out, so that no event has to count all jobs again."""
        self._units += sign * job.units
        self._total += sign * job.total
        self._finished += sign * (job.state == "finished")
        self._failed += sign * (job.state == "failed")
        if job.state == "running":
            self._running[job.name] = job
        else:
            self._running.pop(job.name, None)

    def _line(self, job: _JobView, event: Event) -> str:
        """Return the line that stays on the screen; on a terminal, only failures and losses have one."""
        what = shown(event.message)
        if event.kind == "failed":
            return f"{job.label}: failed: {what}"
        if event.kind == "lost":
            return f"{job.label}: {what}"
        is_quiet = self._clock() - self._last_line < _LONGEST_SILENCE_SECONDS
        if self._live is not None or (event.kind != "finished" and (is_quiet or not what)):
            return ""
        self._last_line = self._clock()
        if event.total and event.kind == "measured":
            what = f"{what} ({event.done} of {event.total})"
        return f"{job.label}: {what or 'finished'} · {self._summary()}"

    def _summary(self) -> str:
        over, jobs = self._failed + self._finished, max(self._most, len(self._jobs))
        parts = [f"{over} of {jobs} jobs"]
        if self._failed:
            parts.append(f"{self._failed} failed")
        units, total = self._counted()
        if self._began is not None and min(_FEWEST_FOR_AN_ESTIMATE, total) <= units < total:
            parts.append(f"{rounded_up((self._clock() - self._began) / units * (total - units))} left")
        return " · ".join(parts)

    def _starting(self) -> str:
        """Return what is about to run: a cluster, or a machine that is busy, may take a minute to begin."""
        first = next((job.label for job in self._jobs.values()), "the first candidate")
        return f"starting {first} · 0 of {self._most} jobs · {self._clock() - self._made:.0f} s"

    def _counted(self) -> tuple[int, int]:
        """Return the units that are done, and the units of all jobs, known or still to come."""
        return self._units, self._total + max(0, self._most - len(self._jobs))

    def _view(self) -> RenderableType:
        with self._lock:
            units, total = self._counted()
            running = list(self._running.values())
            table = Table.grid(padding=(0, 2))
            for job in running[:_JOBS_SHOWN]:
                count = f"{job.done}/{job.total - 1}" if job.total > 1 else ""
                table.add_row(Text(f"  {job.label}"), Text(job.message), Text(count, style="dim"))
            if len(running) > _JOBS_SHOWN:
                table.add_row(Text(f"  and {len(running) - _JOBS_SHOWN} more", style="dim"))
            head = Table.grid(padding=(0, 2))
            bar = ProgressBar(total=max(1, total), completed=units, width=30)
            head.add_row(bar, Text(self._summary() if units or running else self._starting()))
            return Group(head, table)


def job_label(job: Job) -> str:
    """Return what a person calls a job: `emso@1–5 on miniature-m, seed 0`."""
    spec = job.spec
    if job.kind == "prepare":
        texts = " on unseen texts" if spec.is_of_unseen else ""
        return f"what is computed of {spec.model.short_name} alone{texts}"
    if job.kind == "memorize":
        return f"memorised model of {spec.model.short_name}"
    if job.kind == "candidate":
        return _without_id(job.name)
    ends = dict.fromkeys(f"{strength:g}" for strength in (spec.strengths[:1] + spec.strengths[-1:]))
    at = f"@{'–'.join(ends)}" if ends else ""
    return f"{spec.variant}{at} on {spec.model.short_name}, seed {spec.seed}"


def _without_id(name: str) -> str:
    return re.sub(r"-[0-9a-f]{4,16}$", "", name)


def rounded_up(seconds: float) -> str:
    """Return a duration for people, rounded up: `~40 s`, `~2 min`, `~1.5 h`.

    Example:
        >>> rounded_up(61), rounded_up(100), rounded_up(5400), rounded_up(31)
        ('~70 s', '~2 min', '~1.5 h', '~40 s')
    """
    if seconds <= 90:
        return f"~{max(10, math.ceil(seconds / 10) * 10)} s"
    if seconds < 5400:
        return f"~{math.ceil(seconds / 60)} min"
    return f"~{math.ceil(seconds / 360) / 10:g} h"


def _expected(job: Job) -> int:
    if job.kind != "trial":
        return 1
    return 1 + sum(len(job.spec.evaluators_at(strength)) for strength in job.spec.points())
