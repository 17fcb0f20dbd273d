"""The `evaluators` and `collapse` blocks, checked against the plugins."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.base.settings import check_settings
from harness.contracts import Evaluator, Read, TextsShape
from harness.errors import DataError, Fault, Faults, PluginError
from harness.models.loading import configuration
from harness.planning.resolve import ResolvedModel
from harness.planning.texts import Texts
from harness.plugins import EVALUATORS
from harness.settings import Collapse

READ: Mapping[Read, tuple[str, str]] = {
    "holdout": ("texts of the forget set's kind that the model never saw", "data.holdout"),
    "retain": ("retain texts", "data.retain"),
    "retrained": ("the retrained model", "its folder (models: [{id: ..., retrained: FOLDER}])"),
    "original": ("the original next to every model", ""),
}
"""By role: a description, and the setting that provides it. Every sweep has the original."""


def configured_evaluators(block: Mapping[str, Mapping[str, Any]], faults: Faults) -> dict[str, Evaluator]:
    """Return the configured plugins of the `evaluators` block, in the file's order."""
    evaluators: dict[str, Evaluator] = {}
    for name, settings in block.items():
        path = f"evaluators.{name}"
        try:
            if evaluator := check_settings(EVALUATORS.load(name), settings, path, faults):
                evaluators[name] = evaluator
        except PluginError as error:
            faults.add(path, str(error))
    return evaluators


def evaluator_faults(evaluators: Mapping[str, Evaluator], collapse: Collapse) -> Iterator[Fault]:
    """Yield conflicts between evaluators, inputs that they cannot use, and bounds of unreported metrics."""
    name_by_metric: dict[str, str] = {}
    first_defined: tuple[str, Evaluator] | None = None
    for name, evaluator in evaluators.items():
        path = f"evaluators.{name}"
        try:
            evaluator.inputs()
        except DataError as error:
            yield Fault(path, str(error))
        except Exception as error:
            yield Fault(path, f"its inputs() raised {type(error).__name__} instead of a DataError.")
        if any(metric.group != "reasoning" for metric in evaluator.metrics):
            other, defined = first_defined = first_defined or (name, evaluator)
            if defined.definition != evaluator.definition:
                mixed = f"is '{evaluator.definition}' here and '{defined.definition}' in '{other}'"
                remedy = "Definitions are never mixed in one sweep: use one for all."
                yield Fault(f"{path}.definition", f"{mixed}. {remedy}")
        for metric in evaluator.metrics:
            if (other := name_by_metric.setdefault(metric.name, name)) != name:
                yield Fault(path, f"reports {metric.name}, which '{other}' reports too: remove one.")
        for reason in group_faults(evaluator):
            yield Fault(path, reason)
    for bounded in collapse.model_fields_set - {*name_by_metric}:
        reported = f"Reported: {', '.join(name_by_metric)}."
        yield Fault(f"collapse.{bounded}", f"no evaluator of this sweep reports '{bounded}'. {reported}")


def group_faults(evaluator: Evaluator) -> Iterator[str]:
    """Yield the reasons why a metric's group or attack is not allowed."""
    for metric in evaluator.metrics:
        if metric.group == "average" or not re.fullmatch(r"[a-z][a-z0-9_]*", metric.group):
            allowed = "use only lower-case letters, digits and _, and not 'average', which is the rank of two groups"
            yield f"'{metric.group[:60]}' is no name of a group of metrics ('{metric.name}'): {allowed} together."
        if metric.attack and metric.aggregate != "mean":
            reason = "attacks are compared by plain means. Declare no attack, or report its logarithm as a mean."
            yield f"its metric '{metric.name}' is an attack and an {metric.aggregate}: {reason}"


def unmeasurable_faults(
    evaluators: Mapping[str, Evaluator], models: Sequence[ResolvedModel], texts: Mapping[str, Texts]
) -> Iterator[Fault]:
    """Yield evaluators that cannot measure a model or its texts, or read something that the sweep lacks."""
    for name, evaluator in evaluators.items():
        path = f"evaluators.{name}"
        reasons: list[str] = []
        for model in models:
            if reason := evaluator.refuses(configuration(model.checkpoint)):
                reasons.append(f"cannot measure '{model.checkpoint.id}': {reason}")
            sources = texts.get(model.path)
            if sources is None:
                continue
            for role in evaluator.reads:
                description, setting = READ[role]
                is_missing = model.retrained is None if role == "retrained" else role not in sources
                if setting and is_missing:
                    suffix = f" for '{model.checkpoint.id}'" if role == "retrained" else ""
                    reasons.append(f"reads {description}, and the sweep has none{suffix}: add {setting}.")
            forget = sources.get("report", sources["forget"])
            if reason := evaluator.refuses_texts(TextsShape(forget.rows, forget.prefix_tokens, forget.longest)):
                reasons.append(reason)
        for reason in dict.fromkeys(reasons):
            yield Fault(path, reason)
