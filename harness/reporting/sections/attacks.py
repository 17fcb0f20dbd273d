"""Does it come back? What attacks get out of each model beyond what the retrained model gives, and how fast."""

from __future__ import annotations

from functools import cached_property

from matplotlib.figure import Figure

from harness.analysis.attacks.excess import attack_frame
from harness.analysis.tradeoff.curves import styles
from harness.base.csv_text import csv_text
from harness.reporting.figures.attacks import curves_figure
from harness.reporting.section import Section
from harness.reporting.template import text_file


class Attacks(Section):
    """The table of attacks, and the curves that they measured."""

    stems = ("attacks", "attack_curves")

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The curves of every attack that has some; none without."""
        figure = curves_figure(self.analysis.measured_curves, styles(self.analysis.points))
        return {"attack_curves": figure} if figure else {}

    @cached_property
    def tall_figures(self) -> dict[str, Figure]:
        """The same, one panel below the other."""
        figure = curves_figure(self.analysis.measured_curves, styles(self.analysis.points), columns=1)
        return {"attack_curves": figure} if figure else {}

    def files(self) -> dict[str, str]:
        """Return the table as CSV and Markdown."""
        tables = self.analysis.attacks
        if not tables:
            return {}
        return {"attacks.csv": csv_text(attack_frame(tables)), "attacks.md": text_file("attacks.md.j2", tables=tables)}
