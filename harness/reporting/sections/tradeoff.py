"""The trade-off figure."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from matplotlib.figure import Figure

from harness.analysis.collapse import rules_in_words
from harness.reporting.figures.tradeoff import tradeoff
from harness.reporting.section import Section
from harness.specs import RETRAINED


class Tradeoff(Section):
    """Memorization against fluency, a curve for each method."""

    stems = ("tradeoff",)
    needs_points = True

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The paper's Figure 4; none where nothing was erased."""
        if not self.analysis.results.plan.erases:
            return {}
        return {"tradeoff": tradeoff(self.analysis.points, self.analysis.info)}

    def context(self) -> dict[str, Any]:
        """Return what stands below the figure."""
        analysis = self.analysis
        return {
            "has_retrained": bool((analysis.points["method"] == RETRAINED).any()),
            "collapse": rules_in_words(analysis.info, analysis.results.plan.collapse),
        }
