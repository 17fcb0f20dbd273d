"""A sweep file to a plan, in two stages: the file against its schema; then what files, models and plugins say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from harness.base.paths import usable_name
from harness.base.plain_data import repeated
from harness.contracts import Evaluator, Number
from harness.errors import Fault, unknown
from harness.planning.evaluators import configured_evaluators, evaluator_faults, unmeasurable_faults
from harness.planning.grid import TrialTemplate, control_variants, ranked_strengths, size_faults, trial_templates
from harness.planning.replicates import grouped_replicates, replicate_faults, twin_faults
from harness.planning.resolve import (
    JudgesByRole,
    ResolvedModel,
    method_faults,
    resolve_judges,
    resolve_models,
    training_for,
)
from harness.planning.schema import Sweep
from harness.planning.sweep_file import SweepFile, read_sweep_file
from harness.planning.texts import ResolvedTexts, TextUse, resolve_texts
from harness.planning.trials import repeated_trials, trials_of
from harness.planning.tuning import (
    compared,
    searches,
    study_of,
    study_templates,
    tuning_faults,
    unsearchable_faults,
)
from harness.planning.validation import Checking, collected, validated
from harness.plans import SELECTABLE, Compare, Plan, StudySpec, selected
from harness.records.published import published_conditions
from harness.specs import ORIGINAL, CollapseBounds, TrialSpec

T = TypeVar("T")
SHARED_FOLDERS = ("artifacts", "pretrained", "published", "mlartifacts", "mlruns")
"""Folders of `results/` that are no sweep's."""


@dataclass(frozen=True)
class CheckedSweep:
    """A sweep file whose form is right, with the plugins that it names."""

    sweep: Sweep
    templates: tuple[TrialTemplate, ...]
    evaluators: Mapping[str, Evaluator]
    studies: tuple[TrialTemplate, ...]
    """Of a tuned sweep: one for each variant of the templates."""
    compare: Compare


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
    checked = check_form(file)
    sweep, tune = checked.sweep, checked.sweep.tune
    name = sweep.name or usable_name(file.path.stem)
    ranked_at, controls, models, judges, texts = _or_refuse(file, _substance(checked, name))
    templates = () if tune else checked.templates
    trials = trials_of(name, sweep, models, texts.by_model, templates, checked.evaluators, judges, checked.compare)
    studies: list[StudySpec] = []
    if tune:
        originals = [spec for spec in trials if spec.method == ORIGINAL and spec.seed == sweep.seeds[0]]
        for model, original in zip(models, originals, strict=True):
            for searched in checked.studies:
                for number in range(len(searches(sweep, tune))):
                    sources = texts.by_model[model.path]
                    studies.append(study_of(sweep, tune, searched, model, sources, original, number))
    trials, studies = _or_refuse(file, _only_chosen(trials, studies, only))
    return Plan(
        sweep=name,
        question=file.question,
        file=file.text,
        overrides=tuple(overrides),
        trials=tuple(trials),
        ranked_at=ranked_at,
        controls=controls,
        studies=tuple(studies),
        collapse=CollapseBounds(**sweep.collapse.model_dump()),
        samples=sweep.report.samples,
        sample_count=sweep.report.sample_count,
        compare=checked.compare,
        reproduces=sweep.reproduces,
        shared_texts=texts.shared,
    )


def check_form(file: SweepFile) -> CheckedSweep:
    """Return what a sweep file says, its own settings and those of each plugin, without looking for what they name.

    Raises:
        ConfigError: With every fault of form.
    """
    return _or_refuse(file, _formed_sweep(file.settings))


def _or_refuse(file: SweepFile, checking: Checking[T | None]) -> T:
    value, faults = collected(checking)
    if faults or value is None:
        raise file.refuse(faults)
    return value


def _formed_sweep(settings: Mapping[str, Any]) -> Checking[CheckedSweep | None]:
    sweep = yield from validated(Sweep, settings, "")
    blocks: dict[str, dict[str, dict[str, Any]]] = {"methods": {}, "evaluators": {}}
    for kind, named in blocks.items():
        given = settings.get(kind)
        for key, block in given.items() if isinstance(given, dict) else ():
            if block is None or isinstance(block, dict):  # The schema refuses the others.
                named[key] = block or {}
    templates = yield from trial_templates(blocks["methods"])
    evaluators = yield from configured_evaluators(blocks["evaluators"])
    if sweep is None:
        return None
    yield from size_faults(templates, len(sweep.models), len(sweep.seeds))
    compare = yield from compared(sweep, evaluators)
    studies: list[TrialTemplate] = []
    if sweep.tune:
        studies = yield from study_templates(sweep, sweep.tune, templates)
        yield from tuning_faults(sweep, sweep.tune, evaluators)
        if "early_stop" not in sweep.training.model_fields_set:  # Probes end a candidate's training.
            sweep = sweep.model_copy(update={"training": sweep.training.model_copy(update={"early_stop": None})})
    return CheckedSweep(sweep, tuple(templates), evaluators, tuple(studies), compare)


def _substance(
    checked: CheckedSweep, name: str
) -> Checking[tuple[dict[str, Number], tuple[str, ...], list[ResolvedModel], JudgesByRole, ResolvedTexts]]:
    """Return each variant's ranked strength, the controls, and the models, judges and texts that the sweep names."""
    sweep, templates, evaluators = checked.sweep, checked.templates, checked.evaluators
    if name in SHARED_FOLDERS:
        yield Fault("name", f"'{name}' names a folder that all sweeps share: choose another.")
    if sweep.reproduces is not None and sweep.reproduces not in published_conditions():
        yield Fault("reproduces", unknown("published table", sweep.reproduces, published_conditions()))
    for index, seed in repeated(sweep.seeds):
        yield Fault(f"seeds.{index}", f"{seed} is already in the list: its trials would be the same.")
    yield from repeated_trials(sweep, templates)
    yield from evaluator_faults(evaluators, sweep.collapse)
    ranked_at = {} if sweep.tune else (yield from ranked_strengths(sweep.ranking.at, sweep.methods, templates))
    controls = yield from control_variants(sweep.ranking.controls, templates)
    models = yield from resolve_models(sweep)
    if sweep.tune:
        yield from unsearchable_faults(sweep.tune, models)
    yield from method_faults(models, templates, has_retain=sweep.data.retain is not None)
    judges = yield from resolve_judges(sweep, evaluators)
    texts = yield from resolve_texts(sweep.data, models, _text_use(sweep, templates, models))
    yield from unmeasurable_faults(evaluators, models, texts.by_model)
    yield from twin_faults(models, texts.by_model)
    models = grouped_replicates(models)
    if len(models) == len(sweep.models):
        yield from replicate_faults(sweep, models, texts.by_model)
    return ranked_at, controls, models, judges, texts


def _text_use(sweep: Sweep, templates: Sequence[TrialTemplate], models: Sequence[ResolvedModel]) -> TextUse:
    """Return what a sweep does with its texts: a training watches validation texts unless its early stop is null."""
    is_steered = sweep.tune is not None
    for template in templates:
        if template.plugin.searched_training:
            is_steered |= any(training_for(template, model.training).early_stop is not None for model in models)
    return TextUse(bool(sweep.methods), sweep.tune is not None, is_steered)


def _only_chosen(
    trials: Sequence[TrialSpec], studies: Sequence[StudySpec], only: Sequence[str]
) -> Checking[tuple[list[TrialSpec], list[StudySpec]]]:
    """Return the trials and studies that every key of `--only` allows; of one key, any of its values."""
    wanted: dict[str, set[str]] = {}
    searched = [study.trial for study in studies]
    for choice in only:
        key, equals, value = choice.partition("=")
        if not equals or key not in SELECTABLE:
            example = "Say method=, model=, variant= or seed=, for instance --only method=emso."
            yield Fault(f"--only {choice}", f"does not say which trials to run. {example}")
            continue
        # The seed of candidates is nobody's to choose.
        known = set().union(*(SELECTABLE[key](spec) for spec in (*trials, *(searched if key != "seed" else ()))))
        if value not in known:
            yield Fault(f"--only {choice}", unknown(f"{key} of this sweep", value, known))
        wanted.setdefault(key, set()).add(value)
    return selected(trials, studies, wanted)
