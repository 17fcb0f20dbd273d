"""What is read first: whether there was anything to erase, who ranks where, and what limits the numbers."""

from __future__ import annotations

from typing import Any

from harness.reporting.recitation_table import recitation_tables
from harness.reporting.section import Section
from harness.reporting.sections.matched import matched_sentences
from harness.reporting.summary import caption, outcome


class Outcome(Section):
    """Where nothing was erased it says what is recited instead."""

    template = "outcome.html.j2"

    def context(self) -> dict[str, Any]:
        """Return sentences, and the table of what is recited."""
        analysis, ranked = self.analysis, self.analysis.ranked
        erases = analysis.results.plan.erases
        return {
            "said_first": ranked.said_first if erases else [],
            "left_out": analysis.shown_table.note,
            "recited": [] if erases else recitation_tables(ranked),
            "answers_first": ranked.said_first,
            "outcome": [
                (model, matched_sentences(analysis.matched, model) + sentences)
                for model, sentences in outcome(analysis.shown_table.ranked)
            ],
            "warnings": analysis.warnings,
            "caption": caption(analysis.points),
        }
