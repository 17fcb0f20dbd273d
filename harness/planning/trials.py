"""Templates, models and seeds to trials, with the digests that resuming and sharing rest on.

A trial's id holds what decides the erased models' numbers, and nothing else: not the sweep's name, not
the row's, not the order, not later strengths of a cumulative method, not the micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harness.contracts import Checkpoint, Evaluator, Training
from harness.digests import digest_of
from harness.errors import Fault
from harness.planning.grid import TrialTemplate
from harness.planning.resolve import JudgesByRole, ResolvedModel, judges_of
from harness.planning.schema import Sweep
from harness.planning.texts import Texts
from harness.planning.validation import plain_settings
from harness.specs import (
    HOLDOUT,
    ORIGINAL,
    RETRAINED,
    STAND_IN,
    UNSEEN_ROWS,
    EvaluatorSpec,
    Source,
    TrialSpec,
)
from harness.toolkit.keys import judge_key

LABELS = {
    ORIGINAL: "Original",
    RETRAINED: "Retrained",
    HOLDOUT: "Original on unseen texts",
    STAND_IN: "Original on validation texts",
}


def repeated_trials(sweep: Sweep, templates: Sequence[TrialTemplate]) -> Iterator[Fault]:
    """Yield every row that asks for the same trials as one before it, with any model's training."""
    shared = sweep.training.model_dump(exclude_unset=True)
    for entry in sweep.models:
        of_model = {**shared, **entry.training.model_dump(exclude_unset=True)}
        first: dict[str, str] = {}
        for template in templates:
            identity = digest_of(_template_identity(template, Training(**{**of_model, **template.training})))
            key = first.setdefault(identity, template.key)
            if key != template.key:
                reason = f"asks for the same trials as '{key}': the same method, settings and training. "
                yield Fault(f"methods.{template.key}", f"{reason}Change a setting, or remove one of the two.")


def trials_of(
    name: str,
    sweep: Sweep,
    models: Sequence[ResolvedModel],
    texts: Mapping[str, Texts],
    templates: Sequence[TrialTemplate],
    evaluators: Mapping[str, Evaluator],
    judges: JudgesByRole,
) -> list[TrialSpec]:
    """Return the sweep's trials: the reference rows first, then each model's methods in the file's order.

    Args:
        name: Of the sweep.
        sweep: The file.
        models: What methods erase from.
        texts: Each model's sources, by the model's path in the file.
        templates: What erases.
        evaluators: By name.
        judges: By role; there is one for each role that an evaluator asks for.
    """
    inputs = {key: dict(evaluator.inputs()) for key, evaluator in evaluators.items()}

    def measured_by(model: Checkpoint, sources: Texts, *, erasure_alone: bool = False) -> tuple[EvaluatorSpec, ...]:
        tokenizer, own_judges = _tokenizer_identity(model), judges_of(judges, model)
        return tuple(
            _evaluator(key, evaluator, inputs[key], sources, tokenizer, own_judges)
            for key, evaluator in evaluators.items()
            if not erasure_alone or any(metric.group == "erasure" for metric in evaluator.metrics)
        )

    references: list[TrialSpec] = []
    erasures: list[TrialSpec] = []
    for model in models:
        sources = texts[model.path]
        shared = {
            "sweep": name,
            "model": model.checkpoint,
            "memorization": model.memorization,
            "engine": model.engine,
            "forget": sources["forget"],
            "utility": sources["utility"],
            "validation": sources["validation"],
            "evaluators": measured_by(model.checkpoint, sources),
            "judges": judges_of(judges, model.checkpoint),
            "cpus": model.resources.cpus,
            "gpus": model.resources.gpus,
            "keep_erased": sweep.keep_erased,
            "samples": sweep.report.samples,
        }
        for seed in sweep.seeds:
            references.append(_reference(ORIGINAL, model, seed, shared))
            if model.retrained is not None:
                references.append(_reference(RETRAINED, model, seed, shared, model.retrained))
            erasures += [_erasure(model, sources, template, seed, shared) for template in templates]
        for kind in UNSEEN_ROWS:
            # The retrained model says better than a stand-in what a model says of texts that it never saw.
            if kind not in sources or (kind == STAND_IN and model.retrained is not None):
                continue
            asked = measured_by(model.checkpoint, {**sources, "forget": sources[kind]}, erasure_alone=True)
            if asked:
                unseen = {**shared, "forget": sources[kind], "evaluators": asked}
                # One seed is enough: another would ask the same model the same.
                references.append(_reference(kind, model, sweep.seeds[0], unseen))
    return references + erasures


def _evaluator(
    name: str,
    plugin: Evaluator,
    inputs: Mapping[str, str],
    sources: Mapping[str, Source],
    tokenizer: str,
    judges: Mapping[str, Checkpoint],
) -> EvaluatorSpec:
    """Return the evaluator with the identity of what it measures on any model."""
    settings = plain_settings(plugin)
    identity = {
        "name": name,
        "version": plugin.version,
        "settings": settings,
        "forget": sources["forget"].digest,
        "utility": sources["utility"].digest,
        "tokenizer": tokenizer,
        "judges": {role: _judge_identity(judges[role]) for role in plugin.judges},
        "inputs": inputs,
    }
    return EvaluatorSpec(name=name, version=plugin.version, settings=settings, key=digest_of(identity))


def _judge_identity(judge: Checkpoint) -> list[str]:
    """Return what decides a judge's numbers: its weights, how it reads a text, and whether it is the model itself."""
    own = [ORIGINAL] if judge.id == ORIGINAL else []
    return [*own, judge_key(judge) if Path(judge.location).is_dir() else judge.digest, _tokenizer_identity(judge)]


def _tokenizer_identity(checkpoint: Checkpoint) -> str:
    """Return a digest of a local tokenizer's files; one of the hub comes with its model's commit, or has a name."""
    folder = checkpoint.tokenizer
    return judge_key(replace(checkpoint, digest="", location=folder)) if Path(folder).is_dir() else folder


def _reference(
    kind: str, model: ResolvedModel, seed: int, shared: Mapping[str, Any], retrained: Checkpoint | None = None
) -> TrialSpec:
    """Return a trial that erases nothing; evaluators may compare the retrained model with the original: both count."""
    return TrialSpec(
        trial_id=digest_of([kind, model.checkpoint.digest, retrained.digest if retrained else None, seed]),
        variant=kind,
        method=kind,
        label=LABELS[kind],
        reference="none",
        settings={},
        method_version=1,
        strength_name="",
        strengths=(),
        seed=seed,
        training=Training(**model.training),
        retrained=retrained,
        retain=None,
        **shared,
    )


def _erasure(
    model: ResolvedModel, sources: Texts, template: TrialTemplate, seed: int, shared: Mapping[str, Any]
) -> TrialSpec:
    training, plugin = Training(**{**model.training, **template.training}), template.plugin
    retain = sources.get("retain") if plugin.reference == "retain_data" else None
    identity = {
        **_template_identity(template, training),
        "model": model.checkpoint.digest,
        "seed": seed,
        "engine": str(model.engine),
        "forget": sources["forget"].digest,
        "retain": retain.digest if retain else None,
        "memorization": asdict(model.memorization) if plugin.reference == "memorized_model" else None,
        "validation": sources["validation"].digest if training.early_stop is not None else None,
    }
    variant, method = template.variant, template.method
    return TrialSpec(
        trial_id=digest_of(identity),
        variant=variant,
        method=method,
        label=plugin.label if variant == method else f"{plugin.label} ({variant})",
        reference=plugin.reference,
        settings=template.settings,
        method_version=plugin.version,
        strength_name=plugin.strength.field,
        strengths=template.strengths,
        seed=seed,
        training=training,
        retain=retain,
        **shared,
    )


def _template_identity(template: TrialTemplate, training: Training) -> dict[str, Any]:
    """Return a template's part in the identity of its trials: two with the same would be the same trials."""
    settings = asdict(training)
    del settings["micro_batch"]
    return {
        "method": template.method,
        "version": template.plugin.version,
        "settings": dict(template.settings),
        "strength": None if template.plugin.strength.cumulative else float(template.strengths[0]),
        "training": settings,
    }
