"""How long a trial may run: the message for one that ran longer, and clocks for those in other processes."""

from __future__ import annotations

import time
from collections.abc import Callable

from harness.execution.guard.interruption import LONGEST_TICK_SECONDS
from harness.specs import TimeLimit, TrialSpec


def seconds_of(spec: TrialSpec) -> float | None:
    """Return how long a trial may run; None means without limit."""
    return None if spec.time_limit is None else spec.time_limit.minutes * 60


def exceeded(spec: TrialSpec) -> str:
    """Return the sentence about a trial that ran longer than it may."""
    if spec.time_limit is None:
        return "it was ended as one that ran too long."
    minutes, setting = spec.time_limit.minutes, spec.time_limit.setting
    return (
        f"it ran longer than {setting}: {minutes:g} allows. Raise {setting} (its value is part of no trial's identity: "
        "what is done stays done), or make the trial smaller."
    )


def longer(one: TimeLimit | None, other: TimeLimit | None) -> TimeLimit | None:
    """Return the limit that allows more; None allows all.

    Example:
        >>> longer(TimeLimit(minutes=1, setting="timeout_minutes"), TimeLimit(minutes=2, setting="timeout_minutes"))
        TimeLimit(minutes=2, setting='timeout_minutes')
        >>> longer(None, TimeLimit(minutes=2, setting="timeout_minutes")) is None
        True
    """
    return None if one is None or other is None else max(one, other, key=lambda limit: limit.minutes)


class Clocks:
    """Clocks that show which of several jobs ran longer than they may.

    Time in which the process itself was stopped does not count.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._looked_at = now()
        self._left: dict[str, float] = {}

    def start(self, job: str, seconds: float | None) -> None:
        """Start counting, unless the job has no limit."""
        if seconds is not None:
            self.overdue()
            self._left[job] = seconds

    def stop(self, job: str) -> None:
        """Stop counting."""
        self._left.pop(job, None)

    def overdue(self) -> list[str]:
        """Return the jobs that ran longer than they may."""
        now = self._now()
        passed, self._looked_at = min(now - self._looked_at, LONGEST_TICK_SECONDS), now
        self._left = {job: left - passed for job, left in self._left.items()}
        return [job for job, left in self._left.items() if left <= 0]
