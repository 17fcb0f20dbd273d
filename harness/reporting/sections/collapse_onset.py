"""At which strength each method collapses, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from harness.analysis.cells import NOTHING
from harness.analysis.collapse_onset import OnsetTable
from harness.reporting.markdown import markdown_escape


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
