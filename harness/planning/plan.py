"""A sweep file to a plan, in two stages: the file against its schema; then what files, models and plugins say."""

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
    resolve_judges,
    resolve_models,
    training_for,
)
from harness.planning.sweep_file import SweepFile, read_sweep_file
from harness.planning.texts import ResolvedTexts, Texts, TextUse, overlong, resolve_texts
from harness.planning.trials import repeated_trials, trials_of, walkable, walked_trials
from harness.planning.tuning import (
    compare_faults,
    level_faults,
    levels_of,
    searches,
    study_of,
    study_templates,
    tuning_faults,
    walking_faults,
)
from harness.records.published import published_conditions
from harness.settings import ORIGINAL, Level, Plan, StudySpec, Sweep, TrialSpec, Tune, replace

SHARED_FOLDERS = ("artifacts", "pretrained", "published", "mlartifacts", "mlruns")
"""Folders of `results/` that are no sweep's."""
SELECTABLE: Mapping[str, Callable[[TrialSpec], set[str]]] = {
    "method": lambda spec: {spec.method},
    "model": lambda spec: {spec.model.id},
    "variant": lambda spec: {spec.variant, spec.variant.partition("(")[0]},
    "seed": lambda spec: {str(spec.seed)},
}
"""What `--only` can select trials by, and the words that select one."""


@dataclass(frozen=True)
class CheckedSweep:
    """A sweep file whose form is right, with the plugins that it names."""

    sweep: Sweep
    templates: tuple[TrialTemplate, ...]
    evaluators: Mapping[str, Evaluator]
    studies: tuple[TrialTemplate, ...]
    """Of a tuned sweep: one for each variant of the templates."""


def plan(path: Path, overrides: Sequence[str] = (), only: Sequence[str] = ()) -> Plan:
    """Return every trial that a sweep file asks for.

    Args:
        path: The sweep file.
        overrides: Changes to it, `path=value`.
        only: Which trials to keep, `method=emso`.

    Raises:
        ConfigError: With all faults of form; or, where there are none, all faults of substance.
    """
    return plan_of(read_sweep_file(path, overrides), overrides, only)


def plan_of(file: SweepFile, overrides: Sequence[str] = (), only: Sequence[str] = ()) -> Plan:
    """Return every trial that a sweep file asks for which was read, or made, already; as `plan`."""
    formed, faults = check_form(file), Faults()
    sweep, tune = formed.sweep, formed.sweep.tune
    name = sweep.name or usable_name(file.path.stem)
    ranked_at, controls, models, judges, texts = _substance(formed, name, faults)
    if faults:
        raise file.refuse(faults)
    templates, levels = () if tune else formed.templates, levels_of(sweep.until)
    trials = trials_of(name, sweep, models, texts.by_model, templates, formed.evaluators, judges, levels)
    studies: list[StudySpec] = []
    if tune:
        tuned, found = _tuned(formed, tune, trials, models, texts, levels)
        trials, studies = [*trials, *tuned], found
    trials, studies = _only_chosen(trials, studies, only, faults)
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


def _tuned(
    formed: CheckedSweep,
    tune: Tune,
    references: Sequence[TrialSpec],
    models: Sequence[ResolvedModel],
    texts: ResolvedTexts,
    levels: tuple[Level, ...],
) -> tuple[list[TrialSpec], list[StudySpec]]:
    """Return the walks of rows that have nothing else to search, and the studies of the others."""
    trials: list[TrialSpec] = []
    studies: list[StudySpec] = []
    for model in models:
        sources = texts.by_model[model.path]
        of_model = [spec for spec in references if spec.method == ORIGINAL and spec.model == model.checkpoint]
        originals = [walkable(spec, model, sources, levels) for spec in of_model]
        for original in originals:
            walked = [template for template in formed.studies if not template.space]
            trials += walked_trials(original, model, sources, walked)
        for searched in formed.studies:
            for number in range(len(searches(formed.sweep, tune)) if searched.space else 0):
                studies.append(study_of(formed.sweep, tune, searched, model, sources, originals[0], number))
    return trials, studies


def check_form(file: SweepFile) -> CheckedSweep:
    """Return what a sweep file says, its own settings and those of each plugin, without looking for what they name.

    Raises:
        ConfigError: With every fault of form.
    """
    settings, faults = file.settings, Faults()
    sweep = check_settings(Sweep, settings, "", faults)
    blocks: dict[str, dict[str, dict[str, Any]]] = {"methods": {}, "evaluators": {}}
    for kind, named in blocks.items():
        given = settings.get(kind)
        for key, block in given.items() if isinstance(given, dict) else ():
            if block is None or isinstance(block, dict):  # The schema refuses the others.
                named[key] = block or {}
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
        if "early_stop" not in sweep.training.model_fields_set:  # Probes end a candidate's training.
            sweep = replace(sweep, training=replace(sweep.training, early_stop=None))
    if faults:
        raise file.refuse(faults)
    return CheckedSweep(sweep, tuple(templates), evaluators, tuple(studies))


def _substance(
    formed: CheckedSweep, name: str, faults: Faults
) -> tuple[dict[str, Number], tuple[str, ...], list[ResolvedModel], JudgesByRole, ResolvedTexts]:
    """Return each variant's ranked strength, the controls, and the models, judges and texts that the sweep names."""
    sweep, templates, evaluators = formed.sweep, formed.templates, formed.evaluators
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
    faults += twin_faults(models, texts.by_model)
    models = grouped_replicates(models)
    if len(models) == len(sweep.models):
        faults += replicate_faults(sweep, models, texts.by_model)
    return ranked_at, controls, models, judges, texts


def _text_use(sweep: Sweep, templates: Sequence[TrialTemplate], models: Sequence[ResolvedModel]) -> TextUse:
    """Return what a sweep does with its texts: a training watches validation texts unless its early stop is null."""
    is_steered = sweep.tune is not None
    for template in templates:
        if template.plugin.searched_training:
            is_steered |= any(training_for(template, model.training).early_stop is not None for model in models)
    return TextUse(bool(sweep.methods), sweep.tune is not None, is_steered)


def _only_chosen(
    trials: Sequence[TrialSpec],
    studies: Sequence[StudySpec],
    only: Sequence[str],
    faults: Faults,
) -> tuple[list[TrialSpec], list[StudySpec]]:
    """Return the trials and studies that every key of `--only` allows; of one key, any of its values."""
    wanted: dict[str, set[str]] = {}
    searched = [study.trial for study in studies]
    for choice in only:
        key, equals, value = choice.partition("=")
        if not equals or key not in SELECTABLE:
            example = "Say method=, model=, variant= or seed=, for instance --only method=emso."
            faults.add(f"--only {choice}", f"does not say which trials to run. {example}")
            continue
        # The seed of candidates is nobody's to choose.
        known = set().union(*(SELECTABLE[key](spec) for spec in (*trials, *(searched if key != "seed" else ()))))
        if value not in known:
            faults.add(f"--only {choice}", unknown(f"{key} of this sweep", value, known))
        wanted.setdefault(key, set()).add(value)
    return selected(trials, studies, wanted)


def selected(
    trials: Sequence[TrialSpec], studies: Sequence[StudySpec], wanted: Mapping[str, set[str]]
) -> tuple[list[TrialSpec], list[StudySpec]]:
    """Return the trials and studies that have, of each key of `SELECTABLE` in `wanted`, one of its words.

    The settings that a study chooses are run with the seeds that are wanted; its candidates have their own seed all
    the same. A study of other seeds alone is left out.
    """
    of_studies = {key: words for key, words in wanted.items() if key != "seed"}
    seeds = wanted.get("seed")
    selected_studies: list[StudySpec] = []
    for study in studies:
        if _is_selected(study.trial, of_studies):
            wanted_seeds = tuple(seed for seed in study.seeds if seeds is None or str(seed) in seeds)
            if wanted_seeds:
                selected_studies.append(replace(study, seeds=wanted_seeds))
    return [spec for spec in trials if _is_selected(spec, wanted)], selected_studies


def _is_selected(spec: TrialSpec, wanted: Mapping[str, set[str]]) -> bool:
    """Return whether `--only` keeps a trial.

    Reference rows stay whatever the method, and those of unseen texts whatever the seed, since there is one for all:
    nothing can be compared without them.
    """
    for key, values in wanted.items():
        is_kept = (spec.is_reference and key in ("method", "variant")) or (spec.is_of_unseen and key == "seed")
        if not is_kept and values.isdisjoint(SELECTABLE[key](spec)):
            return False
    return True


def grouped_replicates(models: Sequence[ResolvedModel]) -> list[ResolvedModel]:
    """Return the models, each with the name that it shares with other models, or with none.

    A model whose id is a name that others have said belongs to them.
    """
    said = {model.replicate_of for model in models}
    names = [model.replicate_of or (model.checkpoint.id if model.checkpoint.id in said else None) for model in models]
    members = Counter(names)
    grouped = []
    for model, name in zip(models, names, strict=True):
        grouped.append(replace(model, replicate_of=name if members[name] > 1 else None))
    return grouped


def replicate_faults(sweep: Sweep, models: Sequence[ResolvedModel], texts: Mapping[str, Texts]) -> Iterator[Fault]:
    """Yield why models, all of the sweep's and grouped, cannot be averaged as replicates."""
    groups: dict[str, list[ResolvedModel]] = {}
    for model, entry in zip(models, sweep.models, strict=True):
        if model.replicate_of is not None:
            groups.setdefault(model.replicate_of, []).append(model)
        elif entry.replicate_of is not None:
            known = sorted({other.replicate_of or other.id for other in sweep.models if other is not entry})
            hint = f"What the others are called or replicate: {', '.join(known)}." if known else "It is the only model."
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
    wanted, seen = architecture(first.checkpoint), {first.retrained.digest if first.retrained else None: first.path}
    for model in others:
        if model.checkpoint.digest == first.checkpoint.digest:
            continue  # That is a fault already.
        reasons = [_difference(architecture(model.checkpoint), wanted)]
        if not reasons[0] and _tokenizer_reading(model, texts) != _tokenizer_reading(first, texts):
            reasons.append("its tokenizer is another, so it would not be measured on the same tokens.")
        if (model.training, model.engine) != (first.training, first.engine):
            reasons.append("its training or engine is another. Say both once, for all of them.")
        if (model.retrained is None) != (first.retrained is None):
            reasons.append("one has a retrained model and the other has none. Name it for all of them, or for none.")
        elif model.retrained and (before := seen.setdefault(model.retrained.digest, model.path)) != model.path:
            reasons.append(f"its retrained model is that of {before}, which would count twice. Name its own, or none.")
        for reason in filter(None, reasons):
            yield Fault(model.path, f"cannot be averaged with {first.path} as replicates of '{name}': {reason}")


def _difference(shapes: Mapping[str, object], wanted: Mapping[str, object]) -> str:
    differing = [f"{key} is {shapes[key]}, not {wanted[key]}" for key in shapes if shapes[key] != wanted[key]]
    return f"its {', '.join(differing)}." if differing else ""


def _tokenizer_reading(model: ResolvedModel, texts: Mapping[str, Texts]) -> tuple[object, ...]:
    """Return what shows how a model's tokenizer reads: its vocabulary, and what it made of the sweep's texts."""
    digests = {role: source.digest for role, source in texts.get(model.path, {}).items()}
    return load_tokenizer(model.checkpoint).get_vocab(), digests


def twin_faults(models: Sequence[ResolvedModel], texts: Mapping[str, Texts]) -> Iterator[Fault]:
    """Yield why a retrained model cannot be measured on the token ids of the model that it is compared with."""
    for model in models:
        if model.retrained is None or model.path not in texts:
            continue
        path, sources = f"{model.path}.retrained", texts[model.path]
        try:
            twin = with_own_tokenizer(model.retrained)
            if positions(twin) < positions(model.checkpoint):
                yield from overlong(sources, twin)
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
