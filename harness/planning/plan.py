"""A sweep file to a plan, in two stages: what the file says, against its schema; then what only the world can tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from harness.contracts import Evaluator, Number
from harness.errors import Fault, unknown
from harness.planning.evaluators import configured_evaluators, evaluator_faults, unread_faults
from harness.planning.grid import (
    TrialTemplate,
    control_variants,
    ranked_strengths,
    repeated,
    size_faults,
    trial_templates,
)
from harness.planning.replicates import grouped_replicates, replicate_faults, twin_faults
from harness.planning.resolve import (
    JudgesByRole,
    ResolvedModel,
    method_faults,
    resolve_judges,
    resolve_models,
    training_faults,
)
from harness.planning.schema import Sweep
from harness.planning.sweep_file import SweepFile, read_sweep_file
from harness.planning.texts import Texts, resolve_texts
from harness.planning.trials import repeated_trials, trials_of
from harness.planning.tuning import (
    StudyTemplate,
    compared,
    retrained_faults,
    studies_of,
    study_templates,
    tuning_faults,
    without_early_stop,
)
from harness.planning.validation import Checking, collected, validated
from harness.plans import Compare, Plan, StudySpec
from harness.records.published import published_conditions
from harness.specs import ORIGINAL, CollapseBounds, TrialSpec

T = TypeVar("T")
SHARED_FOLDERS = ("artifacts", "pretrained", "published", "mlartifacts", "mlruns")
"""Folders of `results/` that are no sweep's."""
CHOICES: Mapping[str, Callable[[TrialSpec], set[str]]] = {
    "method": lambda spec: {spec.method},
    "model": lambda spec: {spec.model.id},
    "variant": lambda spec: {spec.variant, spec.variant.partition("(")[0]},
    "seed": lambda spec: {str(spec.seed)},
}
"""What `--only` can choose trials by, and the words that choose one."""
ABOUT_METHODS = ("method", "variant")
ABOUT_RUNS = (*ABOUT_METHODS, "seed")


@dataclass(frozen=True)
class CheckedSweep:
    """A sweep file whose form is right, with the plugins that it names."""

    sweep: Sweep
    templates: tuple[TrialTemplate, ...]
    evaluators: Mapping[str, Evaluator]
    studies: tuple[StudyTemplate, ...]
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
    name = checked.sweep.name or usable_name(file.path.stem)
    sweep, evaluators = checked.sweep, checked.evaluators
    ranked_at, controls, models, judges, texts = _or_refuse(file, _substance(checked, name))
    templates = () if sweep.tune else checked.templates
    trials = trials_of(name, sweep, models, texts, templates, evaluators, judges)
    originals = [spec for spec in trials if spec.method == ORIGINAL and spec.seed == sweep.seeds[0]]
    studies = studies_of(sweep, models, texts, checked.studies, originals) if sweep.tune else []
    chosen, searched = _or_refuse(file, _chosen(trials, studies, only))
    return Plan(
        sweep=name,
        question=file.question,
        file=file.text,
        overrides=tuple(overrides),
        trials=tuple(chosen),
        ranked_at=ranked_at,
        controls=controls,
        studies=tuple(searched),
        collapse=CollapseBounds(**sweep.collapse.model_dump()),
        samples=sweep.report.samples,
        sample_count=sweep.report.sample_count,
        compare=checked.compare,
        reproduces=sweep.reproduces,
    )


def usable_name(text: str) -> str:
    """Return the name of a sweep that a text makes.

    Example:
        >>> usable_name("my letters.v2"), usable_name("...")
        ('my-letters-v2', 'sweep')
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_") or "sweep"


def check_form(file: SweepFile) -> CheckedSweep:
    """Return what a sweep file says, its own settings and those of each plugin; nothing that they name is looked for.

    Raises:
        ConfigError: With every fault of form.
    """
    return _or_refuse(file, _form(file))


def _or_refuse(file: SweepFile, checking: Checking[T]) -> T:
    value, faults = collected(checking)
    if faults:
        raise file.refuse(faults)
    return value


def _form(file: SweepFile) -> Checking[CheckedSweep]:
    sweep = yield from validated(Sweep, file.settings, "")
    templates = yield from trial_templates(_blocks(file.settings, "methods"))
    evaluators = yield from configured_evaluators(_blocks(file.settings, "evaluators"))
    if sweep is None:  # There is a fault, so nobody sees the empty one.
        return CheckedSweep(Sweep.model_construct(), tuple(templates), evaluators, (), Compare())
    yield from size_faults(templates, len(sweep.models), len(sweep.seeds))
    compare = yield from compared(sweep, evaluators)
    if sweep.tune is None:
        return CheckedSweep(sweep, tuple(templates), evaluators, (), compare)
    studies = yield from study_templates(sweep, templates)
    yield from tuning_faults(sweep, evaluators)
    return CheckedSweep(without_early_stop(sweep), tuple(templates), evaluators, tuple(studies), compare)


def _blocks(settings: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """Return the blocks of `methods` or `evaluators` that are mappings; the schema refuses the others."""
    blocks = settings.get(name)
    named = blocks.items() if isinstance(blocks, dict) else ()
    return {key: block or {} for key, block in named if block is None or isinstance(block, dict)}


def _substance(
    checked: CheckedSweep, name: str
) -> Checking[tuple[dict[str, Number], tuple[str, ...], list[ResolvedModel], JudgesByRole, dict[str, Texts]]]:
    """Return each variant's ranked strength, the controls, and the models, judges and texts that the sweep names."""
    sweep, templates, evaluators = checked.sweep, checked.templates, checked.evaluators
    yield from _naming_faults(sweep, name)
    yield from _retain_faults(sweep, templates)
    yield from repeated_trials(sweep, templates)
    yield from evaluator_faults(evaluators, sweep.collapse)
    ranked_at = {} if sweep.tune else (yield from ranked_strengths(sweep.ranking.at, sweep.methods, templates))
    controls = yield from control_variants(sweep.ranking.controls, templates)
    models = yield from resolve_models(sweep)
    yield from retrained_faults(sweep.tune, models) if sweep.tune else ()
    yield from method_faults(models, templates)
    yield from training_faults([(model.checkpoint, model.training) for model in models], templates)
    judges = yield from resolve_judges(sweep, evaluators)
    erases, are_halved = bool(sweep.methods), sweep.tune is not None
    texts = yield from resolve_texts(sweep.data, models, erases=erases, are_halved=are_halved)
    yield from unread_faults(evaluators, texts.values())
    yield from twin_faults(models, texts)
    models = grouped_replicates(models)
    if len(models) == len(sweep.models):
        yield from replicate_faults(sweep, models, texts)
    return ranked_at, controls, models, judges, texts


def _naming_faults(sweep: Sweep, name: str) -> Iterator[Fault]:
    if name in SHARED_FOLDERS:
        yield Fault("name", f"'{name}' names a folder that all sweeps share: choose another.")
    if sweep.reproduces is not None and sweep.reproduces not in published_conditions():
        yield Fault("reproduces", unknown("published table", sweep.reproduces, published_conditions()))
    for index, seed in repeated(sweep.seeds):
        yield Fault(f"seeds.{index}", f"{seed} is already in the list: its trials would be the same.")


def _retain_faults(sweep: Sweep, templates: Sequence[TrialTemplate]) -> Iterator[Fault]:
    needing = {template.key for template in templates if template.plugin.reference == "retain_data"}
    for key in needing if sweep.data.retain is None else ():
        reason = "needs retain data, and the sweep has none: add data.retain, for instance {source: miniature}."
        yield Fault(f"methods.{key}", reason)


def _chosen(
    trials: Sequence[TrialSpec], studies: Sequence[StudySpec], only: Sequence[str]
) -> Checking[tuple[list[TrialSpec], list[StudySpec]]]:
    """Return the trials and studies that every key of `--only` allows; of one key, any of its values.

    What a study chooses is run with the seeds that are allowed; its candidates have the sweep's first all the same.

    Reference rows stay whatever the method, and those of unseen texts whatever the seed, since there is one for all:
    nothing can be compared without them.
    """
    wanted: dict[str, set[str]] = {}
    for choice in only:
        key, equals, value = choice.partition("=")
        if not equals or key not in CHOICES:
            example = "Say method=, model=, variant= or seed=, for instance --only method=emso."
            yield Fault(f"--only {choice}", f"is nothing that trials can be chosen by. {example}")
            continue
        known = {word for spec in (*trials, *(study.trial for study in studies)) for word in CHOICES[key](spec)}
        if value not in known:
            yield Fault(f"--only {choice}", unknown(f"{key} of this sweep", value, known))
        wanted.setdefault(key, set()).add(value)
    seeds = wanted.get("seed")
    of_rows = {key: values for key, values in wanted.items() if key != "seed"}
    searched = [
        replace(study, seeds=tuple(seed for seed in study.seeds if seeds is None or str(seed) in seeds))
        for study in studies
        if _is_chosen(study.trial, of_rows)
    ]
    return [spec for spec in trials if _is_chosen(spec, wanted)], searched


def _is_chosen(spec: TrialSpec, wanted: Mapping[str, set[str]]) -> bool:
    return all(
        (spec.is_of_unseen and key in ABOUT_RUNS)
        or (spec.is_reference and key in ABOUT_METHODS)
        or not values.isdisjoint(CHOICES[key](spec))
        for key, values in wanted.items()
    )
