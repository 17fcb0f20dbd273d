"""The report beside a running sweep: a thread of its own writes it again, now and then, as trials end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from harness.execution.guard.interruption import INTERRUPTION
from harness.plans import Plan
from harness.records.journal import Journal
from harness.records.tuned import read_tuned

SECONDS_BETWEEN = 30.0
"""The least time from one report to the next."""
MOST_OF_THE_TIME = 0.05
"""The largest share of the time that writing takes: after a report of 3 seconds there is none for a minute."""


class LiveReport:
    """Keeps a sweep's tables and report up to date while it runs; use it as a context manager.

    An error ends it silently: the report at the sweep's end meets the same error, and reports it. Leaving waits for a
    report that is being written, so that it never takes the place of a later one. The thread is a daemon: a process
    that ends at once does not wait for it.

    Args:
        plan: The sweep's plan.
        journal: Its journal.
        folder: `results/<sweep>`.
        say: Called once, with a sentence that says where the first report is.
        seconds: The least time from one report to the next.
    """

    def __init__(
        self, plan: Plan, journal: Journal, folder: Path, say: Callable[[str], None], seconds: float = SECONDS_BETWEEN
    ) -> None:
        self._plan, self._journal, self._folder = plan, journal, folder
        self._say = say
        self._seconds = seconds
        self._is_news = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="report", daemon=True)

    def __enter__(self) -> LiveReport:
        with suppress(RuntimeError):  # Without another thread there is only the report at the end.
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._is_news.set()
        if self._thread.is_alive():
            with INTERRUPTION.deferred():
                self._thread.join()

    def refresh(self) -> None:
        """Have the report written again when it is due; returns at once."""
        self._is_news.set()

    def _work(self) -> None:
        pause = self._seconds
        is_told = False
        while not self._is_over.wait(pause):
            self._is_news.wait()
            if self._is_over.is_set():
                return
            self._is_news.clear()
            began = time.monotonic()
            try:
                from harness.analysis.analysis import Analysis  # These take a second, and Ray starts before.
                from harness.reporting.files import write

                measured = read_tuned(self._plan, self._journal)
                if not measured.measured:
                    continue
                write(Analysis(measured), self._folder)
            except Exception:
                return
            if not is_told:
                self._say(f"The report so far, written again as trials end: {self._folder / 'report.html'}")
                is_told = True
            pause = pause_after(time.monotonic() - began, self._seconds)


def pause_after(writing: float, least: float) -> float:
    """Return how many seconds to wait after a report that took `writing` seconds, `least` at least.

    Example:
        >>> pause_after(1.5, least=30.0), pause_after(3.0, least=30.0)
        (30.0, 60.0)
    """
    return max(least, writing / MOST_OF_THE_TIME)
