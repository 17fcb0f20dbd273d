"""What the models wrote, side by side, and how many texts of it there are."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from harness.analysis.analysis import Analysis
from harness.plans import Plan
from harness.records.record import Measurement
from harness.records.results import PointResults
from harness.reporting.section import Section
from harness.specs import TrialSpec


class Samples(Section):
    """What the original, the retrained and the ranked models wrote."""

    template = "samples.html.j2"

    def context(self) -> dict[str, Any] | None:
        """Return the texts of each prompt side by side."""
        samples, _ = shown_samples(self.analysis)
        if not samples:
            return None
        plan = self.analysis.results.plan
        return {
            "plan": plan,
            "tables": self.analysis.tables,
            "samples": samples,
            "why_fewer_samples": why_fewer(plan, self.analysis.shown.measured, _ranked_points(self.analysis)),
        }


def shown_samples(analysis: Analysis) -> tuple[list[dict[str, Any]], set[str]]:
    """Return what `samples_of` has of the points that are shown."""
    return samples_of(analysis.shown.measured, _ranked_points(analysis))


def _ranked_points(analysis: Analysis) -> set[str]:
    return set(analysis.points.loc[analysis.points["ranked"], "point_id"])


def samples_of(points: Sequence[PointResults], ranked: Set[str]) -> tuple[list[dict[str, Any]], set[str]]:
    """Return what the models wrote, side by side, and the ids of the points that have any of it.

    Each prompt stands there once, with every ranked point's text; a point's first text has an anchor.
    """
    groups: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    sampled: set[str] = set()
    for point in _sampled(points, ranked):
        spec, point_id = point.spec, point.spec.point_id(point.strength)
        for measurement in point.measurements:
            for index, sample in enumerate(measurement.samples):
                key = (spec.model.id, sample["kind"], measurement.evaluator, index)
                group = {"model": spec.model.id, "kind": sample["kind"], "first": sample, "texts": []}
                anchor = "" if point_id in sampled else f"samples-{point_id}"
                groups.setdefault(key, group)["texts"].append((spec.label, sample["generated"], anchor))
                sampled.add(point_id)
    return list(groups.values()), sampled


def why_fewer(plan: Plan, points: Sequence[PointResults], ranked: Set[str]) -> str:
    """Return why a point has fewer texts than the sweep file asks for; '' if none has."""
    shown = [(point.spec, measurement) for point in _sampled(points, ranked) for measurement in point.measurements]
    if not any(_lacks(plan.sample_count, spec, measurement) for spec, measurement in shown):
        return ""
    return (
        f"Some points have fewer than the {plan.sample_count} texts that the sweep file asks for: they were measured "
        "when it asked for fewer, and what is measured is not measured again."
    )


def _sampled(points: Sequence[PointResults], ranked: Set[str]) -> list[PointResults]:
    """Return the points whose texts are shown: references and ranked ones, of one seed."""
    first_seed = min((point.spec.seed for point in points), default=0)
    return [
        point
        for point in points
        if (point.spec.is_reference or point.spec.point_id(point.strength) in ranked)
        and point.spec.seed == first_seed
        and not point.spec.is_of_unseen
    ]


def _lacks(asked: int, spec: TrialSpec, measurement: Measurement) -> bool:
    rows = {"forget": (spec.measured or spec.forget).rows, "utility": spec.utility.rows}
    kinds = [sample["kind"] for sample in measurement.samples]
    return any(kinds.count(kind) < min(asked, rows[kind] or asked) for kind in set(kinds))
