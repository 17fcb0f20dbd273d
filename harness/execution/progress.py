"""What a person sees while a sweep runs: what is running, how much is done, and when it will end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.execution.jobs import Event, Job

_FEWEST_FOR_AN_ESTIMATE = 3
_ROWS = 12
"""Running jobs shown at once."""


@dataclass
class _Seen:
    """What is known of one job."""

    name: str
    total: int
    """Measurements to make, and one for the job itself, so that a job without any counts too."""
    state: str = "waiting"
    message: str = ""
    done: int = 0

    @property
    def units(self) -> int:
        """Return how much of `total` is behind us; a failed job is, all of it."""
        return self.total if self.state in ("finished", "failed") else self.done


class Progress:
    """A watcher that shows a live view on a terminal, and elsewhere a plain line for each measurement.

    Use it as a context manager; it may be called from several threads.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = {job.name: _Seen(job.name, _expected(job)) for job in jobs}
        self._console = console or Console(highlight=False)
        self._clock = clock
        self._began: float | None = None
        self._lock = threading.RLock()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._view, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, event: Event) -> None:
        """Take in an event, and show it."""
        with self._lock:
            if self._began is None:
                self._began = self._clock()
            seen = self._jobs.setdefault(event.job, _Seen(event.job, 1))
            self._take(seen, event)
            line = self._line(seen, event)
        if line:
            self._console.print(line, markup=False, soft_wrap=True)

    def _take(self, seen: _Seen, event: Event) -> None:
        if event.kind in ("finished", "failed"):
            seen.state = event.kind
        elif seen.state == "waiting":
            seen.state = "running"
        if event.total:
            seen.total = event.total + 1
        seen.done = max(seen.done, event.done)
        seen.message = event.message or seen.message

    def _line(self, seen: _Seen, event: Event) -> str:
        """Return what is to stay on the screen; on a terminal only failures do."""
        if event.kind == "failed":
            return f"{seen.name}: failed: {event.message}"
        if self._live is not None or event.kind in ("started", "progress"):
            return ""
        count = f" ({event.done} of {event.total})" if event.total else ""
        what = "finished" if event.kind == "finished" else f"{event.message}{count}"
        return " · ".join(filter(None, [f"{seen.name}: {what}", self._summary()]))

    def _summary(self) -> str:
        jobs = self._jobs.values()
        failed = sum(seen.state == "failed" for seen in jobs)
        over = failed + sum(seen.state == "finished" for seen in jobs)
        parts = [f"{over} of {len(jobs)} jobs", f"{failed} failed" if failed else "", self._left()]
        return " · ".join(filter(None, parts))

    def _left(self) -> str:
        units, total = self._units()
        if self._began is None or units < min(_FEWEST_FOR_AN_ESTIMATE, total) or units == total:
            return ""
        return f"{duration((self._clock() - self._began) / units * (total - units))} left"

    def _units(self) -> tuple[int, int]:
        jobs = self._jobs.values()
        return sum(seen.units for seen in jobs), sum(seen.total for seen in jobs)

    def _view(self) -> RenderableType:
        with self._lock:
            units, total = self._units()
            running = [seen for seen in self._jobs.values() if seen.state == "running"]
            table = Table.grid(padding=(0, 2))
            for seen in running[:_ROWS]:
                count = f"{seen.done}/{seen.total - 1}" if seen.total > 1 else ""
                table.add_row(Text(f"  {seen.name}"), Text(seen.message), Text(count, style="dim"))
            if len(running) > _ROWS:
                table.add_row(Text(f"  and {len(running) - _ROWS} more", style="dim"))
            head = Table.grid(padding=(0, 2))
            bar = ProgressBar(total=max(1, total), completed=units, width=30)
            head.add_row(bar, Text(self._summary() if units or running else "starting"))
            return Group(head, table)


def duration(seconds: float) -> str:
    """Return a duration for people, rounded up: `~40 s`, `~2 min`, `~1.5 h`.

    Example:
        >>> duration(61), duration(100), duration(5400), duration(31)
        ('~70 s', '~2 min', '~1.5 h', '~40 s')
    """
    if seconds <= 90:
        return f"~{max(10, math.ceil(seconds / 10) * 10)} s"
    if seconds < 5400:
        return f"~{math.ceil(seconds / 60)} min"
    return f"~{math.ceil(seconds / 360) / 10:g} h"


def _expected(job: Job) -> int:
    points = len(job.spec.points()) * len(job.spec.evaluators)
    return 1 + (points if job.kind == "trial" else 0)
