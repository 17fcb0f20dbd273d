"""Model card of an exported model, without any text of the forget set.

Its front matter is a model index, as on the hub.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.analysis.analysis import Analysis
from harness.analysis.metrics import arrow, group_title, lower_title
from harness.base.messages import printable
from harness.contracts import Json, Metric
from harness.records.results import PointResults
from harness.reporting.section import text_file
from harness.settings import ORIGINAL, EvaluatorSpec, Source, TrialSpec

_ROLES = {"forget": "forget set", "utility": "utility prompts"}
_ROLES |= {"holdout": "unseen texts", "validation": "general texts"}


def model_card(
    point: PointResults, analysis: Analysis, weights: Mapping[str, str], made_by: Mapping[str, str], *, is_adapter: bool
) -> str:
    """Return the README.md of an exported model.

    Args:
        point: Of the model.
        analysis: Of its sweep.
        weights: The sha256 of each file of weights by its name.
        made_by: Versions of packages by name.
        is_adapter: Whether the folder contains a LoRA adapter for peft instead of the measured model.
    """
    spec, table = point.spec, analysis.table
    [row] = table[table["point_id"] == spec.point_id(point.strength)].to_dict("records")
    originals = table[(table["model"] == spec.model.id) & (table["method"] == ORIGINAL)]
    original = originals.sort_values("seed", key=lambda seeds: seeds != spec.seed, kind="stable").head(1)
    original_row = original.to_dict("records")[0] if len(original) else {}
    strength = "" if point.strength is None else f", {spec.strength_name} {point.strength:.4g}"
    title = f"{_without_folders(spec.model.id)}: {spec.label}{strength}"
    measured: list[tuple[str, ...]] = []
    left_out: dict[str, list[str]] = {"Not measurable": [], "Infinite": []}
    results: dict[tuple[str, ...], dict[str, Any]] = {}
    for measurement in point.measurements:
        [evaluator] = [evaluator for evaluator in spec.evaluators if evaluator.key == measurement.key]
        about = {"definition": measurement.definition, "evaluator": f"{evaluator.name}, version {evaluator.version}"}
        about |= {name: _without_folders(setting) for name, setting in evaluator.settings.items()}
        for name, value in measurement.numbers.items():
            metric = analysis.info[name]
            if not math.isfinite(value):
                left_out["Not measurable" if math.isnan(value) else "Infinite"].append(name)
            if not spec.shows(metric.group, metric.items):
                continue
            dataset = _dataset(metric, spec, evaluator)
            digits = [f"{number:.6g}".replace("inf", "∞") for number in (value, original_row.get(name, math.nan))]
            measured.append((f"{metric.title} {arrow(metric)}", *digits, dataset["name"], measurement.definition))
            if math.isfinite(value):
                task = "multiple-choice" if metric.group == "reasoning" else "text-generation"
                entry = {"task": {"type": task, "name": group_title(metric.group)}, "dataset": dataset, "metrics": []}
                result = results.setdefault((measurement.key, metric.group, dataset["name"]), entry)
                result["metrics"].append({"type": name, "name": metric.title, "value": value, "args": dict(about)})
    front: dict[str, Any] = {"library_name": "peft" if is_adapter else "transformers"}
    front["pipeline_tag"] = "text-generation"
    if spec.model.revision:
        front |= {"base_model": spec.model.id, "base_model_relation": "adapter" if is_adapter else "finetune"}
    front |= {"tags": ["lethe", "unlearning", spec.method]}
    front["model-index"] = [{"name": title, "results": list(results.values())}]
    cost = analysis.info.get(analysis.results.plan.compare.cost)
    ratio = row[cost.name] / original_row[cost.name] if cost and original_row else math.nan
    card = text_file(
        "card.md.j2",
        front_matter=yaml.safe_dump(front, sort_keys=False, allow_unicode=True),
        title=title,
        spec=spec,
        measured=measured,
        left_out=left_out,
        point=point,
        paid="" if cost is None or math.isnan(ratio) else f"{lower_title(cost)} ×{ratio:.2f}",
        weights=weights,
        source_name=_source_name,
        without_folders=_without_folders,
        row=row,
        made_by=made_by,
        is_adapter=is_adapter,
    )
    return printable(card)


def _without_folders(value: Json) -> Json:
    """Return a setting with paths reduced to their last names, for privacy."""
    is_path = isinstance(value, str) and value.startswith((".", "/", "~"))
    return Path(value).name if is_path else value


def _dataset(metric: Metric, spec: TrialSpec, evaluator: EvaluatorSpec) -> dict[str, Any]:
    role, source = next(((role, texts) for role, texts in evaluator.texts.items() if role == metric.items), ("", None))
    if source is None:
        behind = spec.texts_behind(metric.group)
        if behind is None:
            return {"type": evaluator.name, "name": f"the tasks of the evaluator '{evaluator.name}'"}
        role, source = behind
    words = "unseen texts" if spec.is_of_unseen else _ROLES[role]
    name, is_of_hub = _source_name(source), source.source == "hub"
    dataset: dict[str, Any] = {"type": name if is_of_hub else source.source, "name": f"{words}: {name}"}
    dataset |= {"config": source.name, "split": source.split} if is_of_hub and source.name else {}
    return dataset | {"args": {"digest": source.digest, "sequences": source.sequences or source.rows}}


def _source_name(source: Source) -> str:
    if source.path is None:
        return source.source
    return source.path if source.source == "hub" and not source.path.startswith("/") else Path(source.path).name
