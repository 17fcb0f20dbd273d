"""Model card of an exported model, without any text of the forget set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.analysis.analysis import Analysis
from harness.analysis.metrics import arrow, lower_title
from harness.base.messages import printable
from harness.contracts import Json
from harness.records.results import PointResults
from harness.reporting.section import fill_template
from harness.settings import ORIGINAL, Source


def model_card(
    point: PointResults, analysis: Analysis, weights: Mapping[str, str], made_by: Mapping[str, str], *, is_adapter: bool
) -> str:
    """Return the README.md of an exported model; `weights` has the sha256 of each file, `made_by` package versions."""
    spec, table = point.spec, analysis.table
    [row] = table[table["point_id"] == spec.point_id(point.strength)].to_dict("records")
    originals = table[(table["model"] == spec.model.id) & (table["method"] == ORIGINAL)]
    original = originals.sort_values("seed", key=lambda seeds: seeds != spec.seed, kind="stable").head(1)
    original_row = original.to_dict("records")[0] if len(original) else {}
    measured: list[tuple[str, ...]] = []
    for measurement in point.measurements:
        for name, value in measurement.numbers.items():
            metric = analysis.info[name]
            if spec.shows(metric.group, metric.items):
                digits = [f"{number:.6g}".replace("inf", "∞") for number in (value, original_row.get(name, math.nan))]
                by = measurement.evaluator, measurement.definition
                measured.append((f"{metric.title} {arrow(metric)}", *digits, *by))
    front: dict[str, Any] = {"library_name": "peft" if is_adapter else "transformers"}
    front |= {"pipeline_tag": "text-generation", "tags": ["lethe", "unlearning", spec.method]}
    if spec.model.revision:
        front |= {"base_model": spec.model.id, "base_model_relation": "adapter" if is_adapter else "finetune"}
    strength = "" if point.strength is None else f", {spec.strength_name} {point.strength:.4g}"
    cost = analysis.info.get(analysis.results.plan.compare.cost)
    ratio = row[cost.name] / original_row[cost.name] if cost and original_row else math.nan
    parts: dict[str, Any] = {"spec": spec, "point": point, "row": row, "measured": measured, "weights": weights}
    parts |= {"made_by": made_by, "source_name": _source_name, "without_folders": _without_folders}
    parts["is_adapter"], parts["front_matter"] = is_adapter, yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    parts["title"] = f"{_without_folders(spec.model.id)}: {spec.label}{strength}"
    parts["paid"] = "" if cost is None or math.isnan(ratio) else f"{lower_title(cost)} ×{ratio:.2f}"
    return printable(fill_template("harness.reporting", "templates/card.md.j2", **parts))


def _without_folders(value: Json) -> Json:
    """Return a setting with paths reduced to their last names, for privacy."""
    is_path = isinstance(value, str) and value.startswith((".", "/", "~"))
    return Path(value).name if is_path else value


def _source_name(source: Source) -> str:
    if source.path is None:
        return source.source
    return source.path if source.source == "hub" and not source.path.startswith("/") else Path(source.path).name
