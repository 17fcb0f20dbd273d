"""Templates, models and seeds to trials.

A trial's id is a digest of everything that decides its erased models' numbers: not of names, order, the micro-batch or
later strengths of a cumulative method.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, get_args

from harness import errors, plugins, settings as names
from harness.base.files import digest_of
from harness.contracts import Checkpoint, Evaluator, MoreTexts, Precision
from harness.models import resolving, tokenizing
from harness.planning import grid, resolve
from harness.planning.texts import Texts
from harness.settings import At, EvaluatorSpec, Level, Measuring, Sweep, Trial, replace
from harness.toolkit.scoring import judge_identity, tokenizer_identity

LABELS = {
    names.ORIGINAL: "Original",
    names.RETRAINED: "Retrained",
    names.HOLDOUT: "Original on unseen texts",
    names.VALIDATION_ROW: "Original on validation texts",
}


def repeated_trials(sweep: Sweep, templates: Sequence[grid.TrialTemplate]) -> Iterator[errors.Fault]:
    """Yield every row with the same trials as an earlier one, under any model's training, or another's label."""
    method_by_label: dict[str, str] = {}
    for template in templates:
        other = method_by_label.setdefault(template.plugin.label, template.method)
        if other != template.method:
            reason = f"has the label '{template.plugin.label}', as '{other}' has, and reports name rows by it."
            yield errors.Fault(f"methods.{template.key}", f"{reason} Change `label` in one of the two files.")
    key_by_identity: dict[str, str] = {}
    for entry, template in product(sweep.models, templates):
        strength = None if template.plugin.strength.cumulative else float(template.strengths[0])
        training = resolve.override_training(template, sweep.training.over(entry.training)).identity()
        identity = digest_of([entry.id, template.method, template.settings, strength, training])
        key = key_by_identity.setdefault(identity, template.key)
        if key != template.key:
            reason = f"asks for the same trials as '{key}': the same method, settings and training. "
            yield errors.Fault(f"methods.{template.key}", f"{reason}Change a setting, or remove one of the two.")


def list_levels(until: Mapping[str, Sequence[At]]) -> tuple[Level, ...]:
    """Return the levels of the `until` block in the file's order."""
    return tuple(Level(metric="ma", at=at) for at in until.get(names.PROBED_ERASURE, ()))


def build_trials(
    name: str,
    sweep: Sweep,
    models: Sequence[resolve.ResolvedModel],
    texts: Mapping[str, Texts],
    templates: Sequence[grid.TrialTemplate],
    walks: Sequence[grid.TrialTemplate],
    evaluators: Mapping[str, Evaluator],
    judges: resolve.JudgesByRole,
) -> list[Trial]:
    """Return the sweep's trials: reference rows first, then each model's grid and walks in the file's order."""
    references: list[Trial] = []
    erasures: list[Trial] = []
    levels = list_levels(sweep.until)
    inputs = {key: dict(evaluator.inputs()) for key, evaluator in evaluators.items()}
    erasure_evaluators: dict[str, Evaluator] = {}
    for key, evaluator in evaluators.items():
        # Readers of the holdout would compare unseen texts with themselves.
        if "erasure" in {metric.group for metric in evaluator.metrics} and names.HOLDOUT not in evaluator.reads:
            erasure_evaluators[key] = evaluator
    required: set[str] = {role for evaluator in erasure_evaluators.values() for role in evaluator.reads}
    for model in models:
        sources = texts[model.path]
        own_judges = {role: judge or replace(model.checkpoint, id=names.ORIGINAL) for role, judge in judges.items()}
        unmeasured = _unmeasured(name, sweep, model, sources, own_judges)
        specs = _evaluator_specs(unmeasured, sweep.measuring, evaluators, inputs, sources, model.retrained)
        original = replace(unmeasured, evaluators=specs)
        for seed in sweep.seeds:
            seeded = replace(original, seed=seed)
            references.append(_reference(seeded, names.ORIGINAL))
            if model.retrained is not None:
                references.append(_reference(replace(seeded, retrained=model.retrained), names.RETRAINED))
            erasures += [erasure_trial(seeded, model, sources, template) for template in templates]
            erasures += walked_trials(add_levels(seeded, model, sources, levels), model, sources, walks)
        for kind in names.UNSEEN_ROWS if erasure_evaluators else ():
            # A retrained model is better evidence of unseen texts than validation texts.
            if kind in sources and not (kind == names.VALIDATION_ROW and model.retrained is not None):
                # Seeds make no difference here.
                unseen = replace(unmeasured, forget=sources[kind], measured=None)
                reads = {role: source for role, source in sources.items() if role in required}
                specs = _evaluator_specs(unseen, sweep.measuring, erasure_evaluators, inputs, reads, model.retrained)
                references.append(_reference(replace(unseen, evaluators=specs), kind))
    return references + erasures


def _unmeasured(
    name: str, sweep: Sweep, model: resolve.ResolvedModel, sources: Texts, judges: Mapping[str, Checkpoint]
) -> Trial:
    reading = tokenizing.describe_reading(model.checkpoint)
    return Trial(
        sweep=name,
        variant=names.ORIGINAL,
        method=names.ORIGINAL,
        label=LABELS[names.ORIGINAL],
        seed=sweep.seeds[0],
        model=model.checkpoint,
        replicate_of=model.replicate_of,
        training=replace(model.training, lora=None),
        memorization=model.memorization,
        engine=model.engine,
        forget=sources["forget"],
        measured=sources.get("report"),
        utility=sources["utility"],
        validation=sources["validation"],
        judges=judges,
        time_limit=sweep.timeout_minutes,
        keep_erased=sweep.keep_erased,
        reading={**reading, "judges_start_with": tokenizing.judges_start_with(judges)},
        **model.resources.model_dump(),
        **sweep.report.model_dump(),
    )


def _evaluator_specs(
    spec: Trial,
    measuring: Measuring,
    evaluators: Mapping[str, Evaluator],
    inputs: Mapping[str, Mapping[str, str]],
    sources: Texts,
    retrained: Checkpoint | None,
) -> tuple[EvaluatorSpec, ...]:
    specs = []
    for name, evaluator in evaluators.items():
        settings = plugins.plain_settings(evaluator)
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
        roles = {*evaluator.reads, *evaluator.reads_if_given}
        texts = {role: sources[role] for role in get_args(MoreTexts) if role in roles and role in sources}
        if texts:
            identity["texts"] = {role: source.digest for role, source in texts.items()}
        twin = retrained if "retrained" in evaluator.reads else None
        if twin is not None:
            identity["retrained"] = twin.digest
        precision: Precision = "fp32" if evaluator.needs_fp32 else measuring.precision
        judge_precision: Precision = measuring.judges if {*resolving.CAUSAL_ROLES} & {*evaluator.judges} else "fp32"
        precisions: dict[str, Any] = {"precision": precision, "judge_precision": judge_precision}
        # Keys of fp32 are older than this setting.
        identity |= {name: value for name, value in precisions.items() if value != "fp32"}
        fields = {"key": digest_of(identity), "texts": texts, "retrained": twin, **precisions}
        specs.append(EvaluatorSpec(name=name, version=evaluator.version, settings=settings, **fields))
    return tuple(specs)


def _reference(spec: Trial, kind: str) -> Trial:
    # Its id has both digests, since evaluators may compare the two models.
    trial_id = digest_of([kind, spec.model.digest, spec.retrained.digest if spec.retrained else None, spec.seed])
    return replace(spec, trial_id=trial_id, variant=kind, method=kind, label=LABELS[kind])


def add_levels(original: Trial, model: resolve.ResolvedModel, sources: Texts, levels: tuple[Level, ...]) -> Trial:
    """Return an original with levels, and the holdout or retrained model whose numbers define them."""
    targets = {level.at for level in levels}
    return replace(
        original,
        levels=levels,
        unseen=sources[names.HOLDOUT] if names.UNSEEN in targets else None,
        retrained=model.retrained if names.RETRAINED in targets else None,
    )


def walked_templates(templates: Sequence[grid.TrialTemplate]) -> list[grid.TrialTemplate]:
    """Return one template for each variant, with its largest strength."""
    strongest = {template.variant: template for template in templates}  # Strengths rise.
    return [replace(template, strengths=template.strengths[-1:]) for template in strongest.values()]


def walked_trials(
    original: Trial, model: resolve.ResolvedModel, sources: Texts, templates: Sequence[grid.TrialTemplate]
) -> Iterator[Trial]:
    """Yield a trial for each template and level of `original`, walked up to the template's strength."""
    for template in templates:
        [walk_to] = template.strengths
        spec = replace(erasure_trial(original, model, sources, template), strengths=(), walk_to=walk_to)
        for level in original.levels:
            yield replace(spec, until=level).identified(is_cumulative=template.plugin.strength.cumulative)


def erasure_trial(original: Trial, model: resolve.ResolvedModel, sources: Texts, template: grid.TrialTemplate) -> Trial:
    """Return a template's trial, with the model and seed of `original`."""
    plugin, reference = template.plugin, template.strongest.reference
    suffix = template.variant.removeprefix(template.method)
    spec = replace(
        original,
        variant=template.variant,
        method=template.method,
        # In tables: `EMSO`, `EMSO (k=4)`, `EMSO (wide)`.
        label=f"{plugin.label} {suffix if suffix.startswith('(') or not suffix else f'({template.variant})'}".strip(),
        reference=reference,
        settings=template.settings,
        method_version=plugin.version,
        strength_name=plugin.strength.field,
        strengths=template.strengths,
        training=resolve.override_training(template, model.training),
        retain=sources.get("retain") if reference == "retain_data" else None,
    )
    return spec.identified(is_cumulative=plugin.strength.cumulative)
