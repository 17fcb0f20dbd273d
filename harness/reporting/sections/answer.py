"""What is read first: the card, the table of twenty seconds, its figure, and what limits them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from matplotlib.figure import Figure

from harness.analysis.tradeoff.curves import styles
from harness.base.csv_text import csv_text
from harness.reporting.figures.answer import answer_figure
from harness.reporting.section import Section
from harness.reporting.summary import WORDS, caption, cards, further_notes, tables_on_page
from harness.reporting.text_tables import recitation_tables


class TheAnswer(Section):
    """What each method pays for erasing to a level; where nothing was erased, what is recited."""

    stems = ("answer",)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Prices and levels; none where nothing got to the level."""
        return self._drawn(is_tall=False)

    @cached_property
    def tall_figures(self) -> dict[str, Figure]:
        """The panels below one another."""
        return self._drawn(is_tall=True)

    def _drawn(self, *, is_tall: bool) -> dict[str, Figure]:
        analysis = self.analysis
        figure = answer_figure(analysis.answer, analysis.results.plan, styles(analysis.points), is_tall=is_tall)
        return {"answer": figure} if figure else {}

    def files(self) -> dict[str, str]:
        """Return the answer's frame as CSV."""
        frame = self.analysis.answer.frame
        return {"answer.csv": csv_text(frame.assign(points=frame["points"].map(" ".join)))} if len(frame) else {}

    def context(self) -> dict[str, Any]:
        """Return cards, tables and words; where nothing was erased, the table of what is recited."""
        analysis = self.analysis
        if not analysis.results.plan.erases:
            return {"recited": recitation_tables(analysis.ranked), "caption": caption(analysis.points)}
        of_models = []
        for model, card in cards(analysis):
            of_models.append((model, card, tables_on_page(model, analysis)))
        words = WORDS if any(tables for _, _, tables in of_models) else {}
        return {"recited": [], "answers": of_models, "notes": further_notes(analysis), "words": words}
