"""What each trial cost, and which failed."""

from __future__ import annotations

from typing import Any

from harness.records.results import TrialResults
from harness.reporting.provenance import ran_on
from harness.reporting.section import Section

TRIALS = 2000
UNFINISHED = 40
"""At most: whose costs are listed, and whose failures."""


class Trials(Section):
    """Time and memory of every trial, and the log of each failure."""

    def context(self) -> dict[str, Any]:
        """Return a row for each trial."""
        failed = [trial for trial in self.analysis.results.trials if trial.failure]
        costs = [_cost(trial) for trial in self.analysis.results.trials[:TRIALS]]
        return {"costs": costs, "failed": failed[:UNFINISHED]}


def _cost(trial: TrialResults) -> dict[str, Any]:
    """Return what a trial took, in seconds and bytes; None where nothing is known."""
    erasing, measuring, memory = [], [], []
    for point in trial.measured:
        measuring += [measurement.seconds for measurement in point.measurements]
        if point.made:
            erasing.append(point.made.erase_seconds)
            memory.append(point.made.peak_memory_bytes or 0)
    return {
        "trial": trial,
        "erase_seconds": max(erasing, default=None),
        "measure_seconds": sum(measuring) if measuring else None,
        "ran_on": ran_on(trial),
        "memory": max(memory, default=0) or None,
    }
