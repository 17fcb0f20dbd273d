"""What is read first: whether there was anything to erase, and what erasing it costs, in words and as a picture."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from matplotlib.figure import Figure

from harness.analysis.analysis import Analysis
from harness.analysis.curves import styles
from harness.analysis.main_table import recited_frame
from harness.reporting.figures.answer.matched import matched_figure
from harness.reporting.render import Column, render
from harness.reporting.section import Section
from harness.reporting.sections.main_table import recited_columns
from harness.reporting.sections.matched import matched_sentences
from harness.reporting.summary import caption, outcome


class Outcome(Section):
    """Where nothing is compared at equal erasure it has the ranks, and where nothing was erased what is recited."""

    stems = ("matched",)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """A panel for each level of erasure; none where nothing is compared."""
        return self._matched(is_tall=False)

    @cached_property
    def tall_figures(self) -> dict[str, Figure]:
        """The panels below one another."""
        return self._matched(is_tall=True)

    def _matched(self, *, is_tall: bool) -> dict[str, Figure]:
        points = self.analysis.points
        figure = matched_figure(self.analysis.matched, points, styles(points), is_tall=is_tall)
        return {"matched": figure} if figure else {}

    def context(self) -> dict[str, Any]:
        """Return sentences, and the table of what is recited."""
        analysis = self.analysis
        recited = ""
        if not analysis.results.plan.erases and len(analysis.points):
            frame = recited_frame(analysis.ranked)
            about = Column("unit", "Unit", "note"), Column("source", "Source", "note")
            recited = render(frame, [*recited_columns(frame), *about], "html")
        return {"recited": recited, "outcome": first_sentences(analysis), "caption": caption(analysis.points)}


def first_sentences(analysis: Analysis) -> list[tuple[str, list[str]]]:
    """Return what is said first of each model: of the matched comparison, else of the ranks."""
    sentences = []
    for model, of_ranks in outcome(analysis.head):
        margin = analysis.results.plan.compare.margin
        sentences.append((model, matched_sentences(analysis.verdicts, model, margin) or of_ranks))
    return sentences


def answer_markdown(analysis: Analysis) -> str:
    """Return the sweep's question and what is said first, as Markdown."""
    lines = [analysis.results.plan.question]
    lines += [f"**{sentence}**" for sentence in analysis.ranked.said_first]
    for model, sentences in first_sentences(analysis):
        lines.append("\n".join([f"**{model}**", "", *(f"- {sentence}" for sentence in sentences)]))
    return "\n\n".join(filter(None, lines))
