"""Tracking beside a sweep: in a thread of its own, so that MLflow can neither stop a sweep nor keep it waiting.

No failure of MLflow reaches the sweep. The first one ends the tracking of that sweep and is reported in one warning,
nowhere else: `lethe collate` fills in what is missing. `Tracker` decides what is written.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from queue import SimpleQueue
from traceback import extract_tb
from types import TracebackType

from harness.base.files import locked
from harness.errors import DataError, LetheError
from harness.plans import Plan
from harness.records.results import Results, TrialResults
from harness.records.tracking.tracker import Tracker

_LOG = logging.getLogger(__name__)
END_SECONDS = 30.0
"""A sweep that has ended, its report written, waits at most this long for its tracking."""


class LiveTracking:
    """Keeps MLflow up to date with one sweep while it runs: each call returns at once, except the last.

    The thread is a daemon: a process that ends does not wait for it, and SQLite undoes what was half written.
    """

    def __init__(self, folder: Path) -> None:
        """Make a tracking of the sweep whose results are in `folder`, `results/<sweep>`, that has not begun."""
        self._folder = folder
        self._tracker = Tracker(folder.parent)
        self._steps: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_over = threading.Event()
        self._is_given_up = False
        self._giving_up = threading.Lock()

    def __enter__(self) -> LiveTracking:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let the thread end when it may; a sweep that was interrupted waits for nothing."""
        with self._giving_up:
            self._is_given_up = True
        self._steps.put(None)

    def start(self) -> None:
        """Begin: import MLflow and create the database, which takes several seconds."""
        self._steps.put(self._tracker.prepare)
        try:
            threading.Thread(target=self._work, name="mlflow", daemon=True).start()
        except RuntimeError as error:
            self._give_up(error)
            self._is_over.set()

    def log_trial(self, plan: Plan, trial: TrialResults) -> None:
        """Have what is new in one trial written."""
        self._put(lambda: self._tracker.log_trial(plan, trial))

    def finish(
        self, results: Results, point_tags: Mapping[str, Mapping[str, str]], paths: Iterable[Path], answer: str = ""
    ) -> None:
        """Have everything written and the sweep's run ended, and wait for that, but not for long.

        Args:
            results: What the journal says of the sweep.
            point_tags: What the whole table says of each point, by its id.
            paths: Files to attach.
            answer: What the sweep found, as Markdown.
        """
        self._put(lambda: self._tracker.sync(results, point_tags))
        self._put(lambda: self._tracker.finish(paths, answer))
        self._steps.put(None)
        if not self._is_over.wait(END_SECONDS):
            place = self._tracker.place
            self._give_up(DataError(f"MLflow at {place} was not done {END_SECONDS:g} seconds after the sweep's end."))

    def _put(self, step: Callable[[], None]) -> None:
        if not self._is_given_up:
            self._steps.put(step)

    def _work(self) -> None:
        try:
            with only_tracking(self._folder, wait=math.inf):
                while (step := self._steps.get()) is not None and not self._is_given_up:
                    step()
        except BaseException as error:
            self._give_up(error)
        finally:
            self._is_over.set()

    def _give_up(self, error: BaseException) -> None:
        with self._giving_up:
            if not self._is_given_up:
                self._is_given_up = True
                reason = reason_of(error, self._tracker.place)
                _LOG.warning("%s The sweep needs no MLflow: lethe collate %s fills it in later.", reason, self._folder)


def only_tracking(folder: Path, *, wait: float = 0) -> AbstractContextManager[None]:
    """Keep others from tracking the sweep in `folder` until the block, or the process, ends.

    Args:
        folder: Of the sweep's results.
        wait: For how many seconds, while another process tracks it.

    Raises:
        DataError: Another process still tracks it then.
    """
    busy = f"a run of this sweep, or lethe collate, is writing {folder} to MLflow. Wait until it ends."
    return locked(folder / "journal" / ".tracking", wait=wait, busy=busy)


def reason_of(error: BaseException, place: str) -> str:
    """Return what failed and where, as a sentence without a foreign message: that may quote anything.

    An error of Lethe's own is shown as it is. Of others: the types, the system's or SQLite's name of the cause,
    and the position in the code.
    """
    if isinstance(error, LetheError):
        return str(error)
    last, name, seen = error, "", set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        last = cause if cause.__traceback__ else last
        name = _system_name(cause) or name
        cause = cause.__cause__ or cause.__context__
    kinds = " from ".join(dict.fromkeys([type(error).__name__, type(last).__name__]))
    position = "an unknown place"
    if frames := extract_tb(last.__traceback__):
        file = Path(frames[-1].filename)
        position = f"{file.parent.name}/{file.name}:{frames[-1].lineno}"
    return f"MLflow at {place} failed: {kinds}{f' ({name})' if name else ''}, raised at {position}."


def _system_name(error: BaseException) -> str:
    """Return what the system or SQLite call an error: `SQLITE_FULL`, `No space left on device`."""
    if isinstance(error, OSError) and isinstance(error.errno, int):
        return os.strerror(error.errno)
    return str(getattr(error, "sqlite_errorname", ""))
