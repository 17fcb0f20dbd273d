"""Live view of a sweep on a terminal; elsewhere a line for each finished job."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from harness.base.messages import shown
from harness.execution.job import Event

_MAX_SILENCE_SECONDS = 60.0


class SweepProgress:
    """A watcher that shows finished and running ones of so many jobs; use it as a context manager."""

    def __init__(self, jobs: int, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        name, message = (TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[message]"))
        columns = name, BarColumn(bar_width=30), MofNCompleteColumn(), TimeRemainingColumn(), message
        self._view = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._sweep = self._view.add_task("jobs", total=jobs, message="")
        self._running: dict[str, TaskID] = {}
        self._over, self._failed, self._jobs = 0, 0, jobs
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        self._view.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._view.stop()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        message = shown(event.message)
        if event.kind in ("finished", "failed"):
            self._over, self._failed = self._over + 1, self._failed + (event.kind == "failed")
            self._jobs = max(self._jobs, self._over)
            if event.job in self._running:
                self._view.remove_task(self._running.pop(event.job))
            failed = f"{self._failed} failed" if self._failed else ""
            self._view.update(self._sweep, completed=self._over, total=self._jobs, message=failed)
        else:
            if event.job not in self._running:
                self._running[event.job] = self._view.add_task(event.job, total=None, message="")
            row, count, total = self._running[event.job], event.done or None, event.total or None
            self._view.update(row, message=message, completed=count, total=total)
        self._say(event, message)

    def _say(self, event: Event, message: str) -> None:
        counted = f"{self._over} of {self._jobs} jobs" + (f" · {self._failed} failed" if self._failed else "")
        if event.kind in ("failed", "lost"):
            line = f"{event.job}: {'failed: ' if event.kind == 'failed' else ''}{message}"
        elif self._console.is_terminal:
            return
        elif event.kind == "finished":
            line = f"{event.job}: {message or 'finished'} · {counted}"
        elif message and time.monotonic() - self._last_line > _MAX_SILENCE_SECONDS:
            position = f" ({event.done} of {event.total})" if event.total else ""
            line = f"{event.job}: {message}{position} · {counted}"
        else:
            return
        self._last_line = time.monotonic()
        self._console.print(line, markup=False, soft_wrap=True)
