"""Every point with all its numbers."""

from __future__ import annotations

from typing import Any

from harness.analysis.cells import NOTHING, strength_text
from harness.analysis.collapse import verdict
from harness.analysis.metrics import first_axes, in_sentence
from harness.analysis.seeds import seed_count
from harness.reporting.section import Section
from harness.specs import REFERENCE_ROWS

_MOST_MARKED = 0.8
POINTS = 2000
"""Listed of each model."""


class Points(Section):
    """A row for each point; those that stand for their method are marked."""

    needs_points = True

    def context(self) -> dict[str, Any]:
        """Return the rows of each model."""
        analysis = self.analysis
        axes = first_axes(analysis.info, analysis.results.plan.compare)
        sampled = set()
        for point in analysis.sampled:
            if any(measurement.samples for measurement in point.measurements):
                sampled.add(point.spec.point_id(point.strength))
        listed = analysis.points.groupby("model", sort=False).head(POINTS)
        of_methods = listed[~listed["method"].isin(REFERENCE_ROWS)]
        return {
            # A mark on nearly every row tells nothing.
            "has_beaten": bool(of_methods["frontier"].mean() < _MOST_MARKED),
            "has_stopped": bool(listed["stop_reason"].any()),
            "points": {str(model): rows for model, rows in listed.groupby("model", sort=False)},
            "axes": " and ".join(in_sentence(metric) if metric else NOTHING for metric in axes),
            "metrics": list(analysis.info.values()),
            "seeds": seed_count(analysis.points),
            "sampled": sampled,
            "strength_text": strength_text,
            "verdict": verdict,
        }
