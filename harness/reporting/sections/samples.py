"""What the models wrote, side by side, and how many texts of it there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from harness.plans import Plan
from harness.records.record import Measurement
from harness.records.results import PointResults
from harness.reporting.section import Section


class Samples(Section):
    """What the original, the retrained and the ranked models wrote."""

    def context(self) -> dict[str, Any]:
        """Return the texts of each prompt side by side: each prompt once, with every point's text.

        A point's first text has an anchor, to which the table of points links.
        """
        plan, points = self.analysis.results.plan, self.analysis.sampled
        prompts: dict[tuple[str, str, str, int], dict[str, Any]] = {}
        anchored = set()
        for point, measurement in _measurements(points):
            model, point_id = point.spec.model.id, point.spec.point_id(point.strength)
            for index, sample in enumerate(measurement.samples):
                key = (model, sample["kind"], measurement.evaluator, index)
                prompt = {"model": model, "kind": sample["kind"], "first": sample, "texts": []}
                anchor = "" if point_id in anchored else f"samples-{point_id}"
                prompts.setdefault(key, prompt)["texts"].append((point.spec.label, sample["generated"], anchor))
                anchored.add(point_id)
        return {"samples": list(prompts.values()), "why_fewer_samples": why_fewer(plan, points)}


def why_fewer(plan: Plan, points: Sequence[PointResults]) -> str:
    """Return why one of these points has fewer texts than the sweep file asks for; '' if none has."""
    for point, measurement in _measurements(points):
        spec = point.spec
        rows = {"forget": (spec.measured or spec.forget).rows, "utility": spec.utility.rows}
        for kind, count in Counter(sample["kind"] for sample in measurement.samples).items():
            if count < min(plan.sample_count, rows[kind] or plan.sample_count):
                return (
                    f"Some points have fewer than the {plan.sample_count} texts that the sweep file asks for: they "
                    "were measured when it asked for fewer, and what is measured is not measured again."
                )
    return ""


def _measurements(points: Sequence[PointResults]) -> Iterator[tuple[PointResults, Measurement]]:
    for point in points:
        for measurement in point.measurements:
            yield point, measurement
