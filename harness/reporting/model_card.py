"""The card of an exported model: what was erased how, what was measured, and what that does not show.

It holds names, numbers, settings and digests, and no text of the forget set. The front matter is what the hub calls a
model index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from harness.analysis.damage import point_state
from harness.analysis.metrics import MetricInfo, arrow, group_title
from harness.base.messages import printable
from harness.contracts import Group, Json, Metric
from harness.records.record import Measurement
from harness.records.results import PointResults
from harness.reporting.template import text_file
from harness.specs import Source, TrialSpec

_TASKS: Mapping[Group, tuple[str, str]] = {
    "erasure": ("text-generation", "Reciting the forget set"),
    "generation": ("text-generation", "Writing on from utility prompts"),
    "reasoning": ("multiple-choice", "Answering questions"),
}
"""Of the hub's list, and in words."""
_ROLES = {
    "forget": "forget set",
    "utility": "utility prompts",
    "holdout": "unseen texts",
    "validation": "general texts",
}


def model_card(
    point: PointResults,
    table: pd.DataFrame,
    info: MetricInfo,
    weights: Mapping[str, str],
    made_by: Mapping[str, str],
    *,
    is_adapter: bool = False,
) -> str:
    """Return the README.md of an exported model.

    Args:
        point: Whose model it is.
        table: The sweep's, for what became of the point and for the original's numbers beside its own.
        info: What was declared of each metric.
        weights: The sha256 of each file of weights by its name.
        made_by: Versions of packages by name.
        is_adapter: Whether the folder holds a LoRA adapter for peft, and not the model that was measured.
    """
    spec = point.spec
    [row] = table[table["point_id"] == spec.point_id(point.strength)].to_dict("records")
    originals = table[(table["model"] == spec.model.id) & (table["method"] == "original")]
    original = originals.sort_values("seed", key=lambda seeds: seeds != spec.seed, kind="stable").head(1)
    measured: list[tuple[str, ...]] = []
    left_out: dict[str, list[str]] = {"Not measurable": [], "Infinite": []}
    for measurement in point.measurements:
        for name, value in measurement.numbers.items():
            if not math.isfinite(value):
                left_out["Not measurable" if math.isnan(value) else "Infinite"].append(name)
        for metric, value in _numbers_of_model(measurement, spec, info):
            before = original.iloc[0].get(metric.name, math.nan) if len(original) else math.nan
            dataset = _dataset(metric, spec, measurement)["name"]
            heading = f"{metric.title} {arrow(metric)}"
            digits = [f"{each:.6g}".replace("inf", "∞") for each in (value, before)]
            measured.append((heading, *digits, dataset, measurement.definition))
    card = text_file(
        "card.md.j2",
        front_matter=yaml.safe_dump(_front_matter(point, info, is_adapter), sort_keys=False, allow_unicode=True),
        title=_title(point),
        spec=spec,
        measured=measured,
        left_out=left_out,
        point=point,
        weights=weights,
        source_name=_source_name,
        without_folders=_without_folders,
        row=row,
        state=point_state(row),
        made_by=made_by,
        is_adapter=is_adapter,
    )
    return printable(card)


def _title(point: PointResults) -> str:
    spec = point.spec
    strength = "" if point.strength is None else f", {spec.strength_name} {point.strength:g}"
    return f"{_without_folders(spec.model.id)}: {spec.label}{strength}"


def _without_folders(value: Json) -> Json:
    """Return a setting as it is; of a path its last name: where somebody keeps files is nobody's business."""
    is_path = isinstance(value, str) and value.startswith((".", "/", "~"))
    return Path(value).name if is_path else value


def _numbers_of_model(measurement: Measurement, spec: TrialSpec, info: MetricInfo) -> list[tuple[Metric, float]]:
    """Return what was measured of the model; on unseen texts what is recited, and nothing else."""
    numbers = [(info[name], value) for name, value in measurement.numbers.items()]
    return [pair for pair in numbers if spec.shows(pair[0].group, pair[0].items)]


def _front_matter(point: PointResults, info: MetricInfo, is_adapter: bool) -> dict[str, Any]:
    spec = point.spec
    front: dict[str, Any] = {"library_name": "peft" if is_adapter else "transformers"}
    front["pipeline_tag"] = "text-generation"
    if spec.model.revision:
        front |= {"base_model": spec.model.id, "base_model_relation": "adapter" if is_adapter else "finetune"}
    results = []
    for measurement in point.measurements:
        evaluator = next(evaluator for evaluator in spec.evaluators if evaluator.key == measurement.key)
        measured_by = f"{evaluator.name}, version {evaluator.version}"
        arguments: dict[str, Json] = {"definition": measurement.definition, "evaluator": measured_by}
        for name, setting in evaluator.settings.items():
            arguments[name] = _without_folders(setting)
        by_texts: dict[tuple[Group, bool], tuple[Metric, list[dict[str, Any]]]] = {}
        for metric, value in _numbers_of_model(measurement, spec, info):
            if math.isfinite(value):
                shown = {"type": metric.name, "name": metric.title, "value": value, "args": dict(arguments)}
                by_texts.setdefault((metric.group, metric.items == "validation"), (metric, []))[1].append(shown)
        for metric, metrics in by_texts.values():
            task, words = _TASKS.get(metric.group, ("text-generation", group_title(metric.group)))
            dataset = _dataset(metric, spec, measurement)
            results.append({"task": {"type": task, "name": words}, "dataset": dataset, "metrics": metrics})
    front["tags"] = ["lethe", "unlearning", spec.method]
    front["model-index"] = [{"name": _title(point), "results": results}]
    return front


def _dataset(metric: Metric, spec: TrialSpec, measurement: Measurement) -> dict[str, Any]:
    more = {
        role: source for each in spec.evaluators if each.key == measurement.key for role, source in each.texts.items()
    }
    if metric.items in ("holdout", "validation") and metric.items in more:
        behind: tuple[str, Source] | None = (metric.items, more[metric.items])
    else:
        behind = spec.texts_behind(metric.group)
    if behind is None:
        return {"type": measurement.evaluator, "name": f"the tasks of the evaluator '{measurement.evaluator}'"}
    role, source = behind
    name, is_of_hub = _source_name(source), source.source == "hub"
    words = "unseen texts" if spec.is_of_unseen else _ROLES[role]
    dataset: dict[str, Any] = {"type": name if is_of_hub else source.source, "name": f"{words}: {name}"}
    if is_of_hub and source.name:
        dataset["config"] = source.name
    if is_of_hub and source.split:
        dataset["split"] = source.split
    read = {"digest": source.digest, "sequences": source.sequences or source.rows, "start": source.start}
    return {**dataset, "args": read}


def _source_name(source: Source) -> str:
    """Return what a source is called, without the folders above a file of the user's."""
    if source.path is None:
        return source.source
    return source.path if source.source == "hub" and not source.path.startswith("/") else Path(source.path).name
