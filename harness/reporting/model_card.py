"""The card of an exported model: what was erased how, what was measured, and what that does not show.

It holds names, numbers, settings and digests, and no text of the forget set. The front matter is what the hub calls a
model index.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from harness.analysis.metrics import MetricInfo, arrow, group_title
from harness.base.messages import printable
from harness.contracts import Group, Json, Metric
from harness.records.record import Measurement
from harness.records.results import PointResults
from harness.reporting.markdown import markdown_escape
from harness.specs import Source, TrialSpec

_TASKS: Mapping[Group, tuple[str, str]] = {
    "erasure": ("text-generation", "Reciting the forget set"),
    "generation": ("text-generation", "Writing on from utility prompts"),
    "reasoning": ("multiple-choice", "Answering questions"),
}
"""Of the hub's list, and in words."""
_MODEL_USE = """from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("THIS FOLDER")
tokenizer = AutoTokenizer.from_pretrained("THIS FOLDER")"""
_ADAPTER_USE = """from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

original = AutoModelForCausalLM.from_pretrained("THE ORIGINAL MODEL", dtype="float32")
model = PeftModel.from_pretrained(original, "THIS FOLDER")
tokenizer = AutoTokenizer.from_pretrained("THIS FOLDER")"""
_ABOUT_ADAPTER = (
    "This is a LoRA adapter. What was measured is the original with it merged, in fp32; on an original in bf16 or "
    "fp16, or merged there, it is rounded, and may recite more."
)
_LIMITS = (
    "The figures on erasure are about greedy continuations of these sequences under these metrics. They do not show "
    "that nobody can get the texts out in another way: by sampling, by paraphrase, by training further.",
    "Other texts that the model recites are not looked at, nor is what it says in conversation.",
    "The licence, and the limits, of the original model hold for this one too.",
)


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
    before = {str(name): value for name, value in (original.to_dict("records") or [{}])[0].items()}
    parts = [
        f"---\n{yaml.safe_dump(_front_matter(point, info, is_adapter), sort_keys=False, allow_unicode=True)}---",
        f"# {markdown_escape(_title(point))}",
        _about(spec),
        f"```python\n{_ADAPTER_USE if is_adapter else _MODEL_USE}\n```",
        *([_ABOUT_ADAPTER] if is_adapter else []),
        "## What was measured",
        _rows(["Metric", "This model", "Original", "On", "Definition"], _measured(point, info, before)),
        "An arrow says which way is better; NaN is not measurable, and not 0.",
        "## How it was made",
        _rows(["Setting", "Value"], _settings(point).items()),
        "## Digests",
        _rows(["What", "Digest"], [*_digests(point), *weights.items()]),
        "## Limits",
        "\n".join(f"- {sentence}" for sentence in [*_own_limits(point, row), *_LIMITS]),
        "Made with " + ", ".join(f"{name} {version}" for name, version in made_by.items()) + ".",
    ]
    return printable("\n\n".join(parts)) + "\n"


def _title(point: PointResults) -> str:
    spec = point.spec
    dial = "" if point.strength is None else f", {spec.strength_name} {point.strength:g}"
    return f"{_model_name(spec)}: {spec.label}{dial}"


def _model_name(spec: TrialSpec) -> str:
    """Return the original's name; of a folder its own, without those above it."""
    return str(_without_folders(spec.model.id))


def _without_folders(value: Json) -> Json:
    """Return a setting as it is; of a path its last name: where somebody keeps files is nobody's business."""
    is_path = isinstance(value, str) and value.startswith((".", "/", "~"))
    return Path(value).name if is_path else value


def _about(spec: TrialSpec) -> str:
    if spec.is_reference:
        return f"A reference of the sweep '{markdown_escape(spec.sweep)}': nothing was erased from it by a method."
    forgotten = spec.forget.sequences or spec.forget.rows
    return (
        f"{markdown_escape(spec.label)} was to erase {forgotten} sequences from {markdown_escape(_model_name(spec))}. "
        f"This is row '{markdown_escape(spec.variant)}' of the sweep '{markdown_escape(spec.sweep)}', run with Lethe."
    )


def _front_matter(point: PointResults, info: MetricInfo, is_adapter: bool) -> dict[str, Any]:
    spec = point.spec
    relation = "adapter" if is_adapter else "finetune"
    base = {"base_model": spec.model.id, "base_model_relation": relation} if spec.model.revision else {}
    results = []
    for measurement in point.measurements:
        groups = dict.fromkeys((*_TASKS, *(info[name].group for name in measurement.numbers if name in info)))
        for group in groups:
            task, words = _TASKS.get(group, ("text-generation", group_title(group)))
            metrics = [
                {"type": name, "name": info[name].title, "value": value, "args": _arguments(measurement, spec)}
                for name, value in measurement.numbers.items()
                if name in info and info[name].group == group and math.isfinite(value)
            ]
            if metrics and spec.shows(group):
                dataset = _dataset(group, spec, measurement)
                results.append({"task": {"type": task, "name": words}, "dataset": dataset, "metrics": metrics})
    return {
        "library_name": "peft" if is_adapter else "transformers",
        "pipeline_tag": "text-generation",
        **base,
        "tags": ["lethe", "unlearning", spec.method],
        "model-index": [{"name": _title(point), "results": results}],
    }


def _arguments(measurement: Measurement, spec: TrialSpec) -> dict[str, Json]:
    evaluator = next(each for each in spec.evaluators if each.key == measurement.key)
    return {
        "definition": measurement.definition,
        "evaluator": f"{evaluator.name}, version {evaluator.version}",
        **{name: _without_folders(value) for name, value in evaluator.settings.items()},
    }


def _dataset(group: Group, spec: TrialSpec, measurement: Measurement) -> dict[str, Any]:
    if group == "reasoning":
        return {"type": measurement.evaluator, "name": f"the tasks of the evaluator '{measurement.evaluator}'"}
    source = _source(group, spec)
    role = "utility prompts" if group == "generation" else "forget set"
    role = "unseen texts" if spec.is_of_unseen else role
    of_hub = {"config": source.name, "split": source.split} if source.source == "hub" else {}
    return {
        "type": _source_name(source) if source.source == "hub" else source.source,
        "name": f"{role}: {_source_name(source)}",
        **{name: value for name, value in of_hub.items() if value},
        "args": {"digest": source.digest, "sequences": source.sequences or source.rows, "start": source.start},
    }


def _source(group: Group, spec: TrialSpec) -> Source:
    return spec.utility if group == "generation" else spec.measured or spec.forget


def _source_name(source: Source) -> str:
    """Return what a source is called, without the folders above a file of the user's."""
    if source.path is None:
        return source.source
    return source.path if source.source == "hub" and not source.path.startswith("/") else Path(source.path).name


def _measured(point: PointResults, info: MetricInfo, before: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for measurement in point.measurements:
        for name, value in measurement.numbers.items():
            metric = info[name]
            if not point.spec.shows(metric.group):
                continue
            dataset = _dataset(metric.group, point.spec, measurement)["name"]
            yield _heading(metric), f"{value:.6g}", f"{before.get(name, math.nan):.6g}", dataset, measurement.definition


def _heading(metric: Metric) -> str:
    return f"{metric.title} {arrow(metric)}"


def _settings(point: PointResults) -> dict[str, object]:
    spec = point.spec
    dial = {} if point.strength is None else {spec.strength_name: point.strength}
    training = {} if spec.is_reference else spec.training.in_words()
    trained = {f"training.{name}": value for name, value in training.items()}
    return {
        "sweep": spec.sweep,
        "method": f"{spec.method}, version {spec.method_version}",
        **dial,
        **{name: _without_folders(value) for name, value in spec.settings.items()},
        **trained,
        "engine": spec.engine,
        "seed": spec.seed,
    }


def _digests(point: PointResults) -> Iterator[tuple[str, str]]:
    spec = point.spec
    yield "point", spec.point_id(point.strength)
    yield "trial", spec.trial_id
    yield f"original model ({_model_name(spec)})", spec.model.digest
    if spec.retrained:
        yield "retrained model", spec.retrained.digest
    texts = {"forget set": spec.forget, "measured half of it": spec.measured, "retain set": spec.retain}
    for name, source in {**texts, "utility prompts": spec.utility}.items():
        if source is not None:
            yield f"{name} ({_source_name(source)})", source.digest
    for role, judge in spec.judges.items():
        yield f"judge of {role} ({Path(judge.id).name})", judge.digest


def _own_limits(point: PointResults, row: Mapping[Any, Any]) -> Iterator[str]:
    """Yield what is to be known of this point before it is used."""
    if row["collapsed"] is True:
        yield f"**It has collapsed** ({markdown_escape(str(row['collapse_reason'] or row['collapse_class']))})."
    if point.stop_reason:
        yield f"Its trajectory ended here, early: {markdown_escape(point.stop_reason)}."
    if not point.spec.is_reference and row["collapsed"] is not True and not bool(row["ranked"]):
        yield "It is not the point of its row that the sweep ranks."
    missing = [name for each in point.measurements for name, value in each.numbers.items() if not math.isfinite(value)]
    if missing:
        yield f"Not measurable, and so left out of the model index: {', '.join(missing)}."
    yield f"One erasure, with seed {point.spec.seed}: another seed gives other numbers."


def _rows(heads: list[str], rows: Any) -> str:
    lines = [heads, ["---"] * len(heads), *([markdown_escape(str(cell)) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
