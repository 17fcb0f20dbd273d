"""What each trial cost, and which failed."""

from __future__ import annotations

from typing import Any

from harness.analysis.shown import TRIALS, UNFINISHED
from harness.records.results import TrialResults
from harness.reporting.provenance import ran_on
from harness.reporting.section import Section


class Trials(Section):
    """Time and memory of every trial, and the log of each failure."""

    template = "trials.html.j2"

    def context(self) -> dict[str, Any]:
        """Return a row for each trial."""
        return {
            "costs": [_cost(trial) for trial in self.analysis.shown.trials[:TRIALS]],
            "failed": [trial for trial in self.analysis.results.trials if trial.failure][:UNFINISHED],
        }


def _cost(trial: TrialResults) -> dict[str, Any]:
    made = [point.made for point in trial.measured if point.made]
    seconds = [measurement.seconds for point in trial.measured for measurement in point.measurements]
    return {
        "spec": trial.spec,
        "status": trial.status,
        "points": f"{len(trial.measured)} of {len(trial.spec.points())}",
        "erase_seconds": max((point.erase_seconds for point in made), default=None),
        "measure_seconds": sum(seconds) if seconds else None,
        "ran_on": ran_on(trial),
        "memory": max((point.peak_memory_bytes for point in made if point.peak_memory_bytes), default=None),
    }
