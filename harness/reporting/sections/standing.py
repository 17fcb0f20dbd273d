"""Where each method stands as a whole, against the retrained model."""

from __future__ import annotations

from typing import Any

from harness.reporting.section import Section


class Standings(Section):
    """The share of the trade-off that a method covers, and how far its ranked point is from retraining."""

    needs_points = True

    def context(self) -> dict[str, Any] | None:
        """Return a table for each model that has a retrained one."""
        return {"standings": self.analysis.standings} if self.analysis.standings else None
