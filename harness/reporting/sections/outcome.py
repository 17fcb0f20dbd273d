"""What is read first: whether there was anything to erase, who ranks where, and what limits the numbers."""

from __future__ import annotations

from typing import Any

from harness.reporting.recitation_table import recitation_tables
from harness.reporting.section import Section
from harness.reporting.sections.matched import matched_sentences
from harness.reporting.summary import caption, outcome


class Outcome(Section):
    """Where nothing was erased it says what is recited instead."""

    def context(self) -> dict[str, Any]:
        """Return sentences, and the table of what is recited."""
        analysis, ranked = self.analysis, self.analysis.ranked
        erases = analysis.results.plan.erases
        sentences = []
        for model, of_ranks in outcome(analysis.shown_table.ranked):
            sentences.append((model, matched_sentences(analysis.matched, model) + of_ranks))
        return {
            "said_first": ranked.said_first if erases else [],
            "left_out": analysis.shown_table.note,
            "recited": [] if erases else recitation_tables(ranked),
            "answers_first": ranked.said_first,
            "outcome": sentences,
            "warnings": analysis.warnings,
            "caption": caption(analysis.points),
        }
