"""Templates, models and seeds to trials, with the digests that resuming and sharing rest on.

A trial's id holds what decides the erased models' numbers, and nothing else: not the sweep's name, not
the row's, not the order, not later strengths of a cumulative method, not the micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from harness.base.files import digest_of
from harness.contracts import Checkpoint, Evaluator, MoreTexts, Precision
from harness.errors import Fault
from harness.models.resolving import CAUSAL_ROLES
from harness.models.tokenizing import how_it_reads, judges_start_with
from harness.planning.grid import TrialTemplate
from harness.planning.resolve import JudgesByRole, ResolvedModel, judges_of, training_for
from harness.planning.texts import Texts
from harness.plugins import plain_settings
from harness.settings import (
    HOLDOUT,
    ORIGINAL,
    RETRAINED,
    STAND_IN,
    UNSEEN,
    UNSEEN_ROWS,
    EvaluatorSpec,
    Level,
    Measuring,
    Sweep,
    TimeLimit,
    TrialSpec,
    replace,
)
from harness.toolkit.scoring import judge_identity, tokenizer_identity

LABELS = {
    ORIGINAL: "Original",
    RETRAINED: "Retrained",
    HOLDOUT: "Original on unseen texts",
    STAND_IN: "Original on validation texts",
}


def repeated_trials(sweep: Sweep, templates: Sequence[TrialTemplate]) -> Iterator[Fault]:
    """Yield every row that asks for the same trials as one before it, with any model's training."""
    for entry in sweep.models:
        of_model = sweep.training.over(entry.training)
        first: dict[str, str] = {}
        for template in templates:
            strength = None if template.plugin.strength.cumulative else float(template.strengths[0])
            training = training_for(template, of_model).identity()
            identity = digest_of([template.method, template.settings, strength, training])
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
    levels: tuple[Level, ...],
) -> list[TrialSpec]:
    """Return the sweep's trials: the reference rows first, then each model's methods in the file's order.

    `texts` are each model's sources, by its path in the file; `judges` has each role that an evaluator asks for. After
    a model's grid come the walks of each of its rows to each of the levels.
    """
    references: list[TrialSpec] = []
    erasures: list[TrialSpec] = []
    inputs = {key: dict(evaluator.inputs()) for key, evaluator in evaluators.items()}
    of_erasure = {
        key: evaluator
        for key, evaluator in evaluators.items()
        # What compares the forget set with unseen texts would compare those with themselves.
        if "erasure" in {metric.group for metric in evaluator.metrics} and HOLDOUT not in evaluator.reads
    }
    for model in models:
        sources = texts[model.path]
        unmeasured = _unmeasured(name, sweep, model, sources, judges_of(judges, model.checkpoint))
        measured_by = _measured_by(unmeasured, sweep.measuring, evaluators, inputs, sources, model.retrained)
        original = replace(unmeasured, evaluators=measured_by)
        for seed in sweep.seeds:
            seeded = replace(original, seed=seed)
            references.append(_reference(seeded, ORIGINAL))
            if model.retrained is not None:
                references.append(_reference(replace(seeded, retrained=model.retrained), RETRAINED))
            erasures += [erasure(seeded, model, sources, template) for template in templates]
            walks = [] if sweep.tune else walked_templates(templates)
            erasures += walked_trials(walkable(seeded, model, sources, levels), model, sources, walks)
        for kind in UNSEEN_ROWS if of_erasure else ():
            # The retrained model says better than a stand-in what a model says of texts that it never saw.
            if kind in sources and not (kind == STAND_IN and model.retrained is not None):
                # One seed is enough: another would ask the same model the same.
                unseen = replace(unmeasured, forget=sources[kind], measured=None)
                required: set[str] = {role for evaluator in of_erasure.values() for role in evaluator.reads}
                texts_read = {role: source for role, source in sources.items() if role in required}
                measured_by = _measured_by(unseen, sweep.measuring, of_erasure, inputs, texts_read, model.retrained)
                references.append(_reference(replace(unseen, evaluators=measured_by), kind))
    return references + erasures


def _unmeasured(
    name: str, sweep: Sweep, model: ResolvedModel, sources: Texts, judges: Mapping[str, Checkpoint]
) -> TrialSpec:
    """Return what all trials of a model share, as a trial of the original that nothing measures."""
    return TrialSpec(
        trial_id="",
        sweep=name,
        variant=ORIGINAL,
        method=ORIGINAL,
        label=LABELS[ORIGINAL],
        reference="none",
        settings={},
        method_version=1,
        strength_name="",
        strengths=(),
        seed=sweep.seeds[0],
        model=model.checkpoint,
        replicate_of=model.replicate_of,
        training=replace(model.training, lora=None),
        memorization=model.memorization,
        engine=model.engine,
        forget=sources["forget"],
        measured=sources.get("report"),
        retain=None,
        utility=sources["utility"],
        validation=sources["validation"],
        evaluators=(),
        judges=judges,
        cpus=model.resources.cpus,
        gpus=model.resources.gpus,
        time_limit=_time_limit(sweep.timeout_minutes, "timeout_minutes"),
        keep_erased=sweep.keep_erased,
        samples=sweep.report.samples,
        sample_count=sweep.report.sample_count,
        reading={**how_it_reads(model.checkpoint), "judges_start_with": judges_start_with(judges)},
    )


def _measured_by(
    spec: TrialSpec,
    measuring: Measuring,
    evaluators: Mapping[str, Evaluator],
    inputs: Mapping[str, Mapping[str, str]],
    sources: Texts,
    retrained: Checkpoint | None,
) -> tuple[EvaluatorSpec, ...]:
    """Return the evaluators of a trial, each with the identity of what it measures on any model."""
    specs = []
    for name, evaluator in evaluators.items():
        settings = plain_settings(evaluator)
        identity = {
            "name": name,
            "version": evaluator.version,
            "settings": settings,
            "forget": (spec.measured or spec.forget).digest,
            "utility": spec.utility.digest,
            "tokenizer": tokenizer_identity(spec.model),
            "judges": {role: judge_identity(role, spec.judges[role]) for role in evaluator.judges},
            "inputs": dict(inputs[name]),
        }
        read = {*evaluator.reads, *evaluator.reads_if_given}
        texts = {role: sources[role] for role in get_args(MoreTexts) if role in read and role in sources}
        if texts:
            identity["texts"] = {role: source.digest for role, source in texts.items()}
        twin = retrained if "retrained" in evaluator.reads else None
        if twin is not None:
            identity["retrained"] = twin.digest
        precision: Precision = "fp32" if evaluator.needs_fp32 else measuring.precision
        judge_precision: Precision = measuring.judges if {*CAUSAL_ROLES} & {*evaluator.judges} else "fp32"
        # What fp32 measured keeps the identity that it had before there was another precision.
        if precision != "fp32":
            identity["precision"] = precision
        if judge_precision != "fp32":
            identity["judge_precision"] = judge_precision
        spec_of = EvaluatorSpec(
            name=name,
            version=evaluator.version,
            settings=settings,
            key=digest_of(identity),
            texts=texts,
            retrained=twin,
            precision=precision,
            judge_precision=judge_precision,
        )
        specs.append(spec_of)
    return tuple(specs)


def _reference(spec: TrialSpec, kind: str) -> TrialSpec:
    """Return a trial that erases nothing; evaluators may compare the retrained model with the original: both count."""
    retrained = spec.retrained.digest if spec.retrained else None
    trial_id = digest_of([kind, spec.model.digest, retrained, spec.seed])
    return replace(spec, trial_id=trial_id, variant=kind, method=kind, label=LABELS[kind])


def walkable(original: TrialSpec, model: ResolvedModel, sources: Texts, levels: tuple[Level, ...]) -> TrialSpec:
    """Return an original with the levels that trials of it may be walked to, and what says some of them in numbers."""
    asked = {level.at for level in levels}
    return replace(
        original,
        levels=levels,
        unseen=sources[HOLDOUT] if UNSEEN in asked else None,
        retrained=model.retrained if RETRAINED in asked else None,
    )


def walked_templates(templates: Sequence[TrialTemplate]) -> list[TrialTemplate]:
    """Return one template for each variant, with the last of its strengths."""
    last: dict[str, TrialTemplate] = {}
    for template in templates:
        before = last.setdefault(template.variant, template)
        last[template.variant] = max(before, template, key=lambda one: max(one.strengths))
    return [replace(template, strengths=template.strengths[-1:]) for template in last.values()]


def walked_trials(
    original: TrialSpec, model: ResolvedModel, sources: Texts, templates: Sequence[TrialTemplate]
) -> Iterator[TrialSpec]:
    """Yield a trial for each template and each level of `original`, walked to the template's strength at most."""
    for template in templates:
        [walk_to] = template.strengths
        spec = replace(erasure(original, model, sources, template), strengths=(), walk_to=walk_to)
        for level in original.levels:
            yield replace(spec, until=level).identified(is_cumulative=template.plugin.strength.cumulative)


def erasure(original: TrialSpec, model: ResolvedModel, sources: Texts, template: TrialTemplate) -> TrialSpec:
    """Return the trial that a template asks for, of the model and with the seed of `original`."""
    plugin, reference = template.plugin, template.strongest.reference
    apart = template.variant.removeprefix(template.method)
    # In tables: `EMSO`, `EMSO (k=4)`, `EMSO (wide)`.
    label = f"{plugin.label} {apart if apart.startswith('(') or not apart else f'({template.variant})'}".strip()
    spec = replace(
        original,
        variant=template.variant,
        method=template.method,
        label=label,
        reference=reference,
        settings=template.settings,
        method_version=plugin.version,
        strength_name=plugin.strength.field,
        strengths=template.strengths,
        training=training_for(template, model.training),
        retain=sources.get("retain") if reference == "retain_data" else None,
    )
    if "timeout_minutes" in template.limits:
        minutes = template.limits["timeout_minutes"]
        spec = replace(spec, time_limit=_time_limit(minutes, f"methods.{template.key}.timeout_minutes"))
    return spec.identified(is_cumulative=plugin.strength.cumulative)


def _time_limit(minutes: float | None, setting: str) -> TimeLimit | None:
    return None if minutes is None else TimeLimit(minutes=float(minutes), setting=setting)
