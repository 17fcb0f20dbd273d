"""Section with generated texts, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from harness.analysis.seeds import strength_text
from harness.contracts import Json
from harness.records.record import Measurement
from harness.records.results import PointResults, Results
from harness.reporting.section import Section, embedded
from harness.settings import Plan

MAX_VIEWER_POINTS = 300
"""Points in the viewer: more would open slowly."""


class Samples(Section):
    """Texts of the original, the retrained and the ranked models, and a viewer for any two points."""

    def context(self) -> dict[str, Any]:
        """Return the texts by prompt; a point's first text has an anchor for the table of points."""
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
        return {
            "samples": list(prompts.values()),
            "why_fewer_samples": explain_fewer_texts(plan, points),
            "viewer": embedded(_viewer_data(self.analysis.results)),
            "viewer_lacks": max(0, len(self.analysis.results.measured) - MAX_VIEWER_POINTS),
        }


def _viewer_data(results: Results) -> dict[str, Json]:
    """Return every prompt, and each point's texts by the prompt's place."""
    places: dict[tuple[str, str, str], int] = {}
    texts: list[dict[str, str]] = []
    points: list[dict[str, Json]] = []
    has_models = len({trial.spec.model.id for trial in results.trials}) > 1
    has_seeds = len({trial.spec.seed for trial in results.trials}) > 1
    for point in results.measured[:MAX_VIEWER_POINTS]:
        spec = point.spec
        written: dict[int, str] = {}
        for measurement in point.measurements:
            for sample in measurement.samples:
                key = sample["kind"], sample["prompt"], sample["reference"]
                if key not in places:
                    places[key] = len(texts)
                    texts.append({name: sample[name] for name in ("kind", "prompt", "reference")})
                written[places[key]] = sample["generated"]
        words = [strength_text(spec.strength_name, point.strength) if point.strength is not None else ""]
        words += [spec.model.short_name if has_models else "", f"seed {spec.seed}" if has_seeds else ""]
        if written:
            points.append({"label": spec.label, "at": ", ".join(filter(None, words)), "written": written})
    return {"texts": texts, "points": points}


def explain_fewer_texts(plan: Plan, points: Sequence[PointResults]) -> str:
    """Return why a point has fewer texts than the sweep file asks for; '' if none has."""
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
