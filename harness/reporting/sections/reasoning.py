"""Reasoning before and after: a figure and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from matplotlib.figure import Figure

from harness.analysis.metrics import metrics_in
from harness.analysis.reasoning import Answers, lines, signed
from harness.contracts import Metric
from harness.reporting.figures.reasoning import bars
from harness.reporting.section import Section
from harness.reporting.template import text_file


class ReasoningTasks(Section):
    """Each row's accuracy on every task, and how it changed."""

    stems = ("reasoning",)
    needs_points = True

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Grouped bars; none where no task was measured."""
        figure = bars(self.analysis.points, self.analysis.info)
        return {"reasoning": figure} if figure else {}

    def files(self) -> dict[str, str]:
        """Return the accuracies as Markdown."""
        answers = self.analysis.answers
        return (
            {"reasoning.md": reasoning_markdown(answers, metrics_in(self.analysis.info, "reasoning"))}
            if answers
            else {}
        )

    def context(self) -> dict[str, Any]:
        """Return the tasks, and how a change is printed."""
        return {"tasks": metrics_in(self.analysis.info, "reasoning"), "signed": signed}


def reasoning_markdown(by_model: Mapping[str, Sequence[Answers]], tasks: Sequence[Metric]) -> str:
    """Return every model's accuracies on the reasoning tasks, with their errors and changes."""
    tables = {model: lines(rows, tasks) for model, rows in by_model.items()}
    return text_file("reasoning.md.j2", tables=tables)
