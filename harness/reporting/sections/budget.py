"""What the searches of a tuned sweep were worth: price against budget, which settings mattered, values at edges."""

from __future__ import annotations

from functools import cached_property

from matplotlib.figure import Figure

from harness.analysis.tradeoff.curves import styles
from harness.reporting.figures.budget import budget_figure
from harness.reporting.section import Section


class Budget(Section):
    """The expected price against candidates and seconds, and a table of what is to be known of each search."""

    stems = ("budget",)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """A row of panels for each model and target; none where no study has three candidates."""
        figure = budget_figure(self.analysis.search_worth.panels, styles(self.analysis.points))
        return {"budget": figure} if figure else {}
