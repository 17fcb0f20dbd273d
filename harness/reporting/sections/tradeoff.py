"""The trade-off figure, as a picture and as one whose axes a reader chooses."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from harness.analysis.collapse import rules_in_words
from harness.reporting.figures.choosable import choosable_figure, embedded
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

    @cached_property
    def script_data(self) -> Markup | None:
        """The figure with choosable axes."""
        figure = choosable_figure(self.analysis.shown, self.analysis.listed, self.analysis.info)
        return embedded(figure) if figure else None

    def context(self) -> dict[str, Any]:
        """Return what stands below the figure."""
        analysis = self.analysis
        return {
            "choosable": self.script_data,
            "has_retrained": bool((analysis.points["method"] == RETRAINED).any()),
            "collapse": rules_in_words(analysis.info, analysis.results.plan.collapse),
        }
