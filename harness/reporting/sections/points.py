"""Every point with all its numbers."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.analysis.analysis import Analysis
from harness.analysis.cells import NOTHING, strength_text
from harness.analysis.collapse import verdict
from harness.analysis.metrics import first_axes, in_sentence
from harness.analysis.seeds import seed_count
from harness.analysis.shown import POINTS
from harness.reporting.section import Section
from harness.reporting.sections.samples import shown_samples


class Points(Section):
    """A row for each point; those that stand for their method are marked."""

    template = "points.html.j2"
    needs_points = True

    def context(self) -> dict[str, Any]:
        """Return the rows of each model."""
        analysis = self.analysis
        axes = first_axes(analysis.info, analysis.results.plan.compare)
        _, sampled = shown_samples(analysis)
        return {
            "points": {str(model): rows for model, rows in listed_points(analysis).groupby("model", sort=False)},
            "axes": " and ".join(in_sentence(metric) if metric else NOTHING for metric in axes),
            "metrics": list(analysis.info.values()),
            "seeds": seed_count(analysis.points),
            "sampled": sampled,
            "strength_text": strength_text,
            "verdict": verdict,
        }


def listed_points(analysis: Analysis) -> pd.DataFrame:
    """Return the points that the report lists: of each model as many as a page holds."""
    return analysis.points.groupby("model", sort=False).head(POINTS)
