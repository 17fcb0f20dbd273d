"""The ranking, how sure it is, and the paper's main table."""

from __future__ import annotations

from typing import Any

from harness.reporting.section import Section
from harness.reporting.summary import caption, outcome
from harness.reporting.text_tables import about_evidence, about_groups


class MainTable(Section):
    """Every ranked row with its ranks, its numbers, and their intervals. The tables' files are `reporting.files`'s."""

    needs_points = True

    def context(self) -> dict[str, Any]:
        """Return what stands above the tables; the ranks in words where they are not the report's first sentences."""
        tables, said = self.analysis.tables, []
        compared = {verdicts.matched.model for verdicts in self.analysis.verdicts}
        for model, sentences in outcome(self.analysis.shown_table.ranked):
            said += [(model, sentences)] if model in compared else []
        about = {"evidence": about_evidence(tables), "rank_groups": about_groups(tables)}
        return {"caption": caption(self.analysis.points), "said": said, **about}
