"""A sweep file to a plan: first the file is checked against its schema, then against files, models and plugins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import miniature
from harness.base.files import usable_name
from harness.base.settings import check_settings, repeated
from harness.contracts import Evaluator, Number
from harness.data.sequences import reading_difference
from harness.errors import DataError, Fault, Faults, ModelError, unknown
from harness.models.loading import architecture, load_tokenizer, positions
from harness.models.resolving import resolve_model, with_own_tokenizer
from harness.planning.evaluators import configured_evaluators, evaluator_faults, unmeasurable_faults
from harness.planning.grid import TrialTemplate, control_variants, ranked_strengths, size_faults, trial_templates
from harness.planning.resolve import (
    JudgesByRole,
    ResolvedModel,
    method_faults,
    override_training,
    resolve_judges,
    resolve_models,
)
from harness.planning.sweep_file import SweepFile, read_sweep_file
from harness.planning.texts import ResolvedTexts, Texts, TextUse, length_limit_faults, resolve_texts
from harness.planning.trials import add_levels, build_trials, repeated_trials, walked_trials
from harness.planning.tuning import (
    build_study,
    compare_faults,
    level_faults,
    list_levels,
    list_searches,
    study_templates,
    tuning_faults,
    walking_faults,
)
from harness.records.published import published_conditions
from harness.settings import ORIGINAL, Level, Plan, StudySpec, Sweep, TrialSpec, Tune, replace

SHARED_FOLDERS = ("artifacts", "pretrained", "published", "mlartifacts", "mlruns")
"""Folders of `results/` that belong to no sweep."""
SELECTABLE: Mapping[str, Callable[[TrialSpec], set[str]]] = {
    "method": lambda spec: {spec.method},
    "model": lambda spec: {spec.model.id},
    "variant": lambda spec: {spec.variant, spec.variant.partition("(")[0]},
    "seed": lambda spec: {str(spec.seed)},
}
"""Keys of `--only`, and the values that select a trial."""


@dataclass(frozen=True)
class CheckedSweep:
    """A sweep file of the right form, with its plugins."""

    sweep: Sweep
    templates: tuple[TrialTemplate, ...]
    evaluators: Mapping[str, Evaluator]
    studies: tuple[TrialTemplate, ...]
    """One for each variant of a tuned sweep."""


def plan(path: Path, overrides: Sequence[str] = (), only: Sequence[str] = ()) -> Plan:
    """Plan a sweep file.

    Args:
        path: The sweep file.
        overrides: Changes to it, `path=value`.
        only: Filters of trials, `method=emso`.

    Raises:
        ConfigError: With all faults of form; or, if there are none, all faults of substance.
    """
    return plan_sweep(read_sweep_file(path, overrides), overrides, only)


def plan_sweep(file: SweepFile, overrides: Sequence[str] = (), only: Sequence[str] = ()) -> Plan:
    """Plan a sweep file that was read already; as `plan`."""
    checked, faults = check_form(file), Faults()
    sweep, tune = checked.sweep, checked.sweep.tune
    name = sweep.name or usable_name(file.path.stem)
    ranked_at, controls, models, judges, texts = _substance(checked, name, faults)
    if faults:
        raise file.refuse(faults)
    templates, levels = () if tune else checked.templates, list_levels(sweep.until)
    trials = build_trials(name, sweep, models, texts.by_model, templates, checked.evaluators, judges, levels)
    studies: list[StudySpec] = []
    if tune:
        walks, studies = _plan_tuning(checked, tune, trials, models, texts, levels)
        trials += walks
    trials, studies = _apply_only(trials, studies, only, faults)
    if faults:
        raise file.refuse(faults)
    return Plan(
        sweep=name,
        question=file.question,
        file=file.text,
        overrides=tuple(overrides),
        trials=tuple(trials),
        ranked_at=ranked_at,
        controls=controls,
        studies=tuple(studies),
        collapse=sweep.collapse,
        samples=sweep.report.samples,
        sample_count=sweep.report.sample_count,
        until=levels,
        compare=sweep.compare,
        reproduces=sweep.reproduces,
        shared_texts=texts.shared,
    )


def _plan_tuning(
    checked: CheckedSweep,
    tune: Tune,
    references: Sequence[TrialSpec],
    models: Sequence[ResolvedModel],
    texts: ResolvedTexts,
    levels: tuple[Level, ...],
) -> tuple[list[TrialSpec], list[StudySpec]]:
    """Return the walks of rows without a space, and the studies of the others."""
    trials: list[TrialSpec] = []
    studies: list[StudySpec] = []
    for model in models:
        sources = texts.by_model[model.path]
        originals = [spec for spec in references if spec.method == ORIGINAL and spec.model == model.checkpoint]
        originals = [add_levels(spec, model, sources, levels) for spec in originals]
        for original in originals:
            walks = [template for template in checked.studies if not template.space]
            trials += walked_trials(original, model, sources, walks)
        for template in checked.studies:
            for number in range(len(list_searches(checked.sweep, tune)) if template.space else 0):
                studies.append(build_study(checked.sweep, tune, template, model, sources, originals[0], number))
    return trials, studies


def check_form(file: SweepFile) -> CheckedSweep:
    """Check the settings of a sweep file and its plugins, without the files and models that they name.

    Raises:
        ConfigError: With every fault of form.
    """
    settings, faults = file.settings, Faults()
    sweep = check_settings(Sweep, settings, "", faults)
    blocks: dict[str, dict[str, dict[str, Any]]] = {"methods": {}, "evaluators": {}}
    for kind, rows in blocks.items():
        given = settings.get(kind)
        for key, block in given.items() if isinstance(given, dict) else ():
            if block is None or isinstance(block, dict):  # The schema refuses the others.
                rows[key] = block or {}
    templates = trial_templates(blocks["methods"], faults)
    evaluators = configured_evaluators(blocks["evaluators"], faults)
    if sweep is None:
        raise file.refuse(faults)
    faults += size_faults(templates, len(sweep.models), len(sweep.seeds))
    faults += compare_faults(sweep, evaluators)
    faults += walking_faults(sweep.until, () if sweep.tune else templates)
    studies: list[TrialTemplate] = []
    if sweep.tune:
        studies = study_templates(sweep, sweep.tune, templates, faults)
        faults += tuning_faults(sweep, sweep.tune)
        if "early_stop" not in sweep.training.model_fields_set:  # Probes stop a candidate's training.
            sweep = replace(sweep, training=replace(sweep.training, early_stop=None))
    if faults:
        raise file.refuse(faults)
    return CheckedSweep(sweep, tuple(templates), evaluators, tuple(studies))


def _substance(
    checked: CheckedSweep, name: str, faults: Faults
) -> tuple[dict[str, Number], tuple[str, ...], list[ResolvedModel], JudgesByRole, ResolvedTexts]:
    """Return the ranked strengths, controls, models, judges and texts of a sweep."""
    sweep, templates, evaluators = checked.sweep, checked.templates, checked.evaluators
    if name in SHARED_FOLDERS:
        faults.add("name", f"'{name}' names a folder that all sweeps share: choose another.")
    if sweep.reproduces is not None and sweep.reproduces not in published_conditions():
        faults.add("reproduces", unknown("published table", sweep.reproduces, published_conditions()))
    for index, seed in repeated(sweep.seeds):
        faults.add(f"seeds.{index}", f"{seed} is already in the list: its trials would be the same.")
    faults += repeated_trials(sweep, templates)
    faults += evaluator_faults(evaluators, sweep.collapse)
    ranked_at = {} if sweep.tune else ranked_strengths(sweep.ranking.at, sweep.methods, templates, faults)
    controls = control_variants(sweep.ranking.controls, templates, faults)
    models = resolve_models(sweep, faults)
    faults += method_faults(models, templates, has_retain=sweep.data.retain is not None)
    judges = resolve_judges(sweep, evaluators, faults)
    texts = resolve_texts(sweep.data, models, _text_use(sweep, templates, models), faults)
    faults += level_faults(sweep.until, models, texts.by_model)
    faults += unmeasurable_faults(evaluators, models, texts.by_model)
    faults += retrained_faults(models, texts.by_model)
    models = group_replicates(models)
    if len(models) == len(sweep.models):
        faults += replicate_faults(sweep, models, texts.by_model)
    return ranked_at, controls, models, judges, texts


def _text_use(sweep: Sweep, templates: Sequence[TrialTemplate], models: Sequence[ResolvedModel]) -> TextUse:
    """Return a sweep's use of its texts: validation texts steer searches, and trainings with an early stop."""
    is_steered = sweep.tune is not None
    for template in templates:
        if template.plugin.searched_training:
            is_steered |= any(override_training(template, model.training).early_stop is not None for model in models)
    return TextUse(bool(sweep.methods), sweep.tune is not None, is_steered)


def _apply_only(
    trials: Sequence[TrialSpec],
    studies: Sequence[StudySpec],
    only: Sequence[str],
    faults: Faults,
) -> tuple[list[TrialSpec], list[StudySpec]]:
    """Return the trials and studies that match any value of every key in `--only`."""
    values_by_key: dict[str, set[str]] = {}
    candidates = [study.trial for study in studies]
    for choice in only:
        key, equals, value = choice.partition("=")
        if not equals or key not in SELECTABLE:
            example = "Say method=, model=, variant= or seed=, for instance --only method=emso."
            faults.add(f"--only {choice}", f"does not say which trials to run. {example}")
            continue
        # A candidate's seed cannot be selected.
        specs = [*trials, *(candidates if key != "seed" else ())]
        values = {value for spec in specs for value in SELECTABLE[key](spec)}
        if value not in values:
            faults.add(f"--only {choice}", unknown(f"{key} of this sweep", value, values))
        values_by_key.setdefault(key, set()).add(value)
    return select_trials(trials, studies, values_by_key)


def select_trials(
    trials: Sequence[TrialSpec], studies: Sequence[StudySpec], values_by_key: Mapping[str, set[str]]
) -> tuple[list[TrialSpec], list[StudySpec]]:
    """Return the trials and studies that match one value of each key of `SELECTABLE`.

    A study keeps the selected seeds, and is left out without any.
    """
    values_of_studies = {key: values for key, values in values_by_key.items() if key != "seed"}
    seeds = values_by_key.get("seed")
    selected_studies: list[StudySpec] = []
    for study in studies:
        if _is_selected(study.trial, values_of_studies):
            study_seeds = tuple(seed for seed in study.seeds if seeds is None or str(seed) in seeds)
            if study_seeds:
                selected_studies.append(replace(study, seeds=study_seeds))
    return [spec for spec in trials if _is_selected(spec, values_by_key)], selected_studies


def _is_selected(spec: TrialSpec, values_by_key: Mapping[str, set[str]]) -> bool:
    """Return True if a trial is selected.

    Comparisons need reference rows, so those stay for any method, and holdout rows, which have one seed, for any seed.
    """
    for key, values in values_by_key.items():
        is_exempt = (spec.is_reference and key in ("method", "variant")) or (spec.is_of_unseen and key == "seed")
        if not is_exempt and values.isdisjoint(SELECTABLE[key](spec)):
            return False
    return True


def group_replicates(models: Sequence[ResolvedModel]) -> list[ResolvedModel]:
    """Return the models, each with the name of its group of replicates, or None.

    A model whose id is the name of a group belongs to it.
    """
    groups = {model.replicate_of for model in models}
    names = [model.replicate_of or (model.checkpoint.id if model.checkpoint.id in groups else None) for model in models]
    members = Counter(names)
    grouped = []
    for model, name in zip(models, names, strict=True):
        grouped.append(replace(model, replicate_of=name if members[name] > 1 else None))
    return grouped


def replicate_faults(sweep: Sweep, models: Sequence[ResolvedModel], texts: Mapping[str, Texts]) -> Iterator[Fault]:
    """Yield the reasons why grouped models cannot be averaged as replicates."""
    groups: dict[str, list[ResolvedModel]] = {}
    for model, entry in zip(models, sweep.models, strict=True):
        if model.replicate_of is not None:
            groups.setdefault(model.replicate_of, []).append(model)
        elif entry.replicate_of is not None:
            names = sorted({other.replicate_of or other.id for other in sweep.models if other is not entry})
            hint = f"What the others are called or replicate: {', '.join(names)}." if names else "It is the only model."
            reason = f"no other model of this sweep is a replicate of '{entry.replicate_of}', so nothing is averaged."
            yield Fault(f"{model.path}.replicate_of", f"{reason} {hint}")
    for model in models:
        own = model.checkpoint.id
        if own in groups and model.replicate_of != own:
            reason = f"others are replicates of '{own}' itself, so it cannot be one of '{model.replicate_of}'."
            yield Fault(f"{model.path}.replicate_of", f"{reason} Leave this out, or say the same name for all of them.")
    for name, members in groups.items():
        yield from _group_faults(name, members, texts)


def _group_faults(name: str, members: Sequence[ResolvedModel], texts: Mapping[str, Texts]) -> Iterator[Fault]:
    first, *others = members
    if name in miniature.names() and name not in {model.checkpoint.id for model in members}:
        reason = _difference(architecture(first.checkpoint), architecture(resolve_model(name)))
        if reason:
            yield Fault(first.path, f"is no replicate of '{name}': {reason}")
    shapes = architecture(first.checkpoint)
    path_by_twin = {first.retrained.digest if first.retrained else None: first.path}
    for model in others:
        if model.checkpoint.digest == first.checkpoint.digest:
            continue  # Already a fault.
        reasons = [_difference(architecture(model.checkpoint), shapes)]
        if not reasons[0] and _tokenizer_reading(model, texts) != _tokenizer_reading(first, texts):
            reasons.append("its tokenizer is another, so it would not be measured on the same tokens.")
        if (model.training, model.engine) != (first.training, first.engine):
            reasons.append("its training or engine is another. Say both once, for all of them.")
        if (model.retrained is None) != (first.retrained is None):
            reasons.append("one has a retrained model and the other has none. Name it for all of them, or for none.")
        elif model.retrained and (path := path_by_twin.setdefault(model.retrained.digest, model.path)) != model.path:
            reasons.append(f"its retrained model is that of {path}, which would count twice. Name its own, or none.")
        for reason in filter(None, reasons):
            yield Fault(model.path, f"cannot be averaged with {first.path} as replicates of '{name}': {reason}")


def _difference(shapes: Mapping[str, object], expected: Mapping[str, object]) -> str:
    differing = [f"{key} is {shapes[key]}, not {expected[key]}" for key in shapes if shapes[key] != expected[key]]
    return f"its {', '.join(differing)}." if differing else ""


def _tokenizer_reading(model: ResolvedModel, texts: Mapping[str, Texts]) -> tuple[object, ...]:
    """Return a tokenizer's vocabulary, and the digests of the sweep's texts as it cuts them."""
    digests = {role: source.digest for role, source in texts.get(model.path, {}).items()}
    return load_tokenizer(model.checkpoint).get_vocab(), digests


def retrained_faults(models: Sequence[ResolvedModel], texts: Mapping[str, Texts]) -> Iterator[Fault]:
    """Yield the reasons why a retrained model cannot be measured on its model's token ids."""
    for model in models:
        if model.retrained is None or model.path not in texts:
            continue
        path, sources = f"{model.path}.retrained", texts[model.path]
        try:
            twin = with_own_tokenizer(model.retrained)
            if positions(twin) < positions(model.checkpoint):
                yield from length_limit_faults(sources, twin)
            difference = reading_difference(model.checkpoint, twin, sources)
        except (DataError, ModelError) as error:
            yield Fault(path, f"cannot read the sweep's texts: {error}")
            continue
        if difference:
            yield Fault(
                path,
                f"has another tokenizer (in {twin.tokenizer}) than '{model.checkpoint.id}' (in "
                f"{model.checkpoint.tokenizer}): {difference}. It would be measured on token ids that are other texts "
                "to it. Name a model that was retrained with the same tokenizer, or leave retrained out.",
            )
