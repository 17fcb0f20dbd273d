"""At which strength each method collapses: in the report, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.analysis.cells import NOTHING
from harness.analysis.collapse_onset import OnsetTable
from harness.analysis.seeds import seed_count
from harness.reporting.markdown import markdown_escape
from harness.reporting.section import Section


class Onsets(Section):
    """The strongest setting at which a method's model still writes, and the weakest at which it no longer does."""

    template = "collapse_onset.html.j2"
    stems = ("collapse",)
    needs_points = True

    def files(self) -> dict[str, str]:
        """Return the tables as Markdown."""
        tables = self.analysis.onsets
        return {"collapse.md": onset_markdown(tables, self.analysis.results.plan.question)} if tables else {}

    def context(self) -> dict[str, Any] | None:
        """Return a table for each model on which anything collapsed."""
        if not self.analysis.onsets:
            return None
        return {"onsets": self.analysis.onsets, "seeds": seed_count(self.analysis.points)}


def onset_markdown(tables: Sequence[OnsetTable], question: str) -> str:
    """Return the tables as Markdown."""
    lines = [f"# {markdown_escape(question)}"]
    for table in tables:
        names = [metric.title for metric in table.axes]
        head = ["Method", "Strengths", "Last healthy", *names, "First collapsed", *names]
        lines += ["", f"## {markdown_escape(table.model)}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        for row in table.rows:
            healthy, collapsed = (
                [stage.strength, *stage.numbers] if stage else [NOTHING] * (1 + len(names))
                for stage in (row.last_healthy, row.first_collapsed)
            )
            collapsed[0] += f" ({row.seeds})" if row.seeds else ""
            cells = [markdown_escape(row.label), row.strengths, *healthy, *collapsed]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
