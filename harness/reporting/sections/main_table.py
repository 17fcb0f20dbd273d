"""The ranking, how sure it is, and the paper's main table."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from matplotlib.figure import Figure

from harness.base.csv_text import csv_text
from harness.reporting.figures.rank_probabilities import rank_probabilities
from harness.reporting.section import Section
from harness.reporting.summary import caption, outcome
from harness.reporting.text_tables import about_evidence, about_groups


class MainTable(Section):
    """Every ranked row with its ranks, its numbers, and their intervals. The tables' files are `reporting.files`'s."""

    stems = ("rank_probabilities",)
    needs_points = True

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The shares of draws in which each row has each average rank; none where no rank has an interval."""
        ranked = self.analysis.shown_table.ranked
        figure = rank_probabilities(ranked.ranking, ranked.rank_shares)
        return {"rank_probabilities": figure} if figure else {}

    def files(self) -> dict[str, str]:
        """Return the same as CSV."""
        shares = self.analysis.ranked.rank_shares
        return {"rank_probabilities.csv": csv_text(shares)} if len(shares) else {}

    def context(self) -> dict[str, Any]:
        """Return what stands above the tables; the ranks in words where they are not the report's first sentences."""
        tables, said = self.analysis.tables, []
        compared = {verdicts.matched.model for verdicts in self.analysis.verdicts}
        for model, sentences in outcome(self.analysis.shown_table.ranked):
            said += [(model, sentences)] if model in compared else []
        about = {"evidence": about_evidence(tables), "rank_groups": about_groups(tables)}
        return {"caption": caption(self.analysis.points), "said": said, **about}
