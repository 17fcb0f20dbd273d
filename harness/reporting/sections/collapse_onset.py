"""At which strength each method collapses: in the report, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.analysis.collapse_onset import OnsetTable
from harness.analysis.seeds import seed_count
from harness.reporting.section import Section
from harness.reporting.template import text_file


class Onsets(Section):
    """The strongest setting at which a method's model still writes, and the weakest at which it no longer does."""

    stems = ("collapse",)
    needs_points = True

    def files(self) -> dict[str, str]:
        """Return the tables as Markdown."""
        tables = self.analysis.onsets
        return {"collapse.md": onset_markdown(tables, self.analysis.results.plan.question)} if tables else {}

    def context(self) -> dict[str, Any]:
        """Return how many seeds the tables are over."""
        return {"seeds": seed_count(self.analysis.points)}


def onset_markdown(tables: Sequence[OnsetTable], question: str) -> str:
    """Return the tables as Markdown."""
    return text_file("collapse.md.j2", tables=tables, question=question)
