"""Section on reasoning tasks."""

from __future__ import annotations

from markupsafe import Markup

from harness.analysis.metrics import select_metrics
from harness.reporting.render import Column, render
from harness.reporting.section import PageContext, Section, paragraph

_MEANS = (
    "Zero-shot accuracy of the references and of the ranked points; small: the 95 % interval, over questions and "
    "seeds. Change: against the original. † collapsed."
)


class ReasoningTasks(Section):
    """Accuracy of each row on every task, and its change."""

    title = "Reasoning"
    needs_points = True

    def html(self, page: PageContext) -> Markup:
        frame = self.analysis.answers
        if frame.empty:
            return Markup("")
        columns = [Column("model", "Model", "heading"), Column("label", "Method"), Column("strength", "Strength")]
        for task in select_metrics(self.analysis.info, "reasoning"):
            columns.append(Column(task.name, task.title, "number", task))
            columns.append(Column(f"{task.name}_change", "change", "change"))
        return paragraph(_MEANS) + render(frame, columns, "html")
