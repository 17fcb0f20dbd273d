"""The `evaluators` and `collapse` blocks, checked against the plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.base.settings import check_settings
from harness.contracts import Evaluator, Read, TextsShape
from harness.errors import DataError, Fault, Faults, PluginError, unknown
from harness.metric import check_group
from harness.models.loading import configuration
from harness.planning.resolve import ResolvedModel
from harness.planning.texts import Texts
from harness.plugins import EVALUATORS
from harness.settings import Collapse

READ: Mapping[Read, tuple[str, str]] = {
    "holdout": ("texts of the forget set's kind that the model never saw", "data.holdout"),
    "retain": ("retain texts", "data.retain"),
    "retrained": ("the retrained model", "its folder (models: [{id: ..., retrained: FOLDER}])"),
    "original": ("the original beside every model", ""),
}
"""Description, and setting of a sweep file that provides it; every sweep has the original."""


def configured_evaluators(block: Mapping[str, Mapping[str, Any]], faults: Faults) -> dict[str, Evaluator]:
    """Return the configured plugins of the `evaluators` block, in the file's order."""
    evaluators: dict[str, Evaluator] = {}
    for name, settings in block.items():
        path = f"evaluators.{name}"
        if name not in EVALUATORS.names():
            faults.add(path, unknown("evaluator", name, EVALUATORS.names()))
            continue
        try:
            evaluator = check_settings(EVALUATORS.load(name), settings, path, faults)
        except PluginError as error:
            faults.add(path, str(error))
            continue
        if evaluator is not None:
            evaluators[name] = evaluator
    return evaluators


def evaluator_faults(evaluators: Mapping[str, Evaluator], collapse: Collapse) -> Iterator[Fault]:
    """Yield conflicts between evaluators, inputs that they cannot use, and bounds of unreported metrics."""
    earlier: dict[str, Evaluator] = {}
    for name, evaluator in evaluators.items():
        try:
            evaluator.inputs()
        except DataError as error:
            yield Fault(f"evaluators.{name}", str(error))
        except Exception as error:
            reason = f"its inputs() raised {type(error).__name__} instead of saying what it cannot use: {error}"
            yield Fault(f"evaluators.{name}", reason)
        yield from _mixtures(name, evaluator, earlier)
        earlier[name] = evaluator
        for reason in group_faults(evaluator):
            yield Fault(f"evaluators.{name}", reason)
    reported = [metric.name for evaluator in evaluators.values() for metric in evaluator.metrics]
    for bounded in Collapse.model_fields:
        if bounded in collapse.model_fields_set and bounded not in reported:
            reason = f"no evaluator of this sweep reports '{bounded}'. Reported: {', '.join(reported)}."
            yield Fault(f"collapse.{bounded}", reason)


def group_faults(evaluator: Evaluator) -> Iterator[str]:
    """Yield the reasons why a metric's group or attack is not allowed."""
    for metric in evaluator.metrics:
        try:
            check_group(metric.group)
        except ValueError as error:
            yield f"the group of its metric '{metric.name}': {error}"
        if metric.attack and metric.aggregate != "mean":
            yield (
                f"its metric '{metric.name}' is an attack and an {metric.aggregate}: the table of attacks has "
                "differences of plain means. Declare no attack, or report its logarithm as a mean."
            )


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


def _mixtures(name: str, evaluator: Evaluator, earlier: Mapping[str, Evaluator]) -> Iterator[Fault]:
    defined = next((other for other in earlier if _has_definitions(earlier[other])), None)
    if defined and _has_definitions(evaluator) and earlier[defined].definition != evaluator.definition:
        yield Fault(
            f"evaluators.{name}.definition",
            f"is '{evaluator.definition}' here and '{earlier[defined].definition}' in '{defined}'. The two definitions "
            "measure different things and are never mixed in one sweep: use one for all.",
        )
    for other, plugin in earlier.items():
        reported = {metric.name for metric in plugin.metrics}
        shared = [metric.name for metric in evaluator.metrics if metric.name in reported]
        if shared:
            yield Fault(f"evaluators.{name}", f"reports {', '.join(shared)}, which '{other}' reports too: remove one.")


def _has_definitions(evaluator: Evaluator) -> bool:
    return any(metric.group != "reasoning" for metric in evaluator.metrics)
