"""The ranking and the paper's main table."""

from __future__ import annotations

from typing import Any

from harness.reporting.section import Section
from harness.reporting.summary import caption
from harness.reporting.text_tables import about_evidence


class MainTable(Section):
    """Every ranked row with its ranks, its numbers, and their intervals. Its files are `reporting.files`'s."""

    needs_points = True

    def context(self) -> dict[str, Any]:
        """Return what stands above the tables."""
        return {"caption": caption(self.analysis.points), "evidence": about_evidence(self.analysis.tables)}
