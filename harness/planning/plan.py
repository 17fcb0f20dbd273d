"""A sweep file to a plan: first the file is checked against its schema, then against files, models and plugins."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.base import files, settings
from harness.contracts import Evaluator
from harness.data.sequences import reading_difference
from harness.errors import DataError, Fault, Faults, ModelError, unknown
from harness.models import loading, resolving
from harness.planning import grid, published, resolve, sweep_file, tuning
from harness.planning.evaluators import configured_evaluators, evaluator_faults, unmeasurable_faults
from harness.planning.texts import Texts, judge_length_faults, length_faults, length_limit_faults, resolve_texts
from harness.planning.trials import build_trials, list_levels, repeated_trials, walked_templates
from harness.settings import Plan, Study, Sweep, Trial, replace

SHARED_FOLDERS = ("artifacts", "pretrained", "published", "mlartifacts", "mlruns")
"""Folders of `results/` that belong to no sweep."""
SELECTABLE: Mapping[str, Callable[[Trial], set[str]]] = {
    "method": lambda spec: {spec.method},
    "model": lambda spec: {spec.model.id},
    "variant": lambda spec: {spec.variant, spec.variant.partition("(")[0]},
    "seed": lambda spec: {str(spec.seed)},
}
"""Keys of `--only`, and the values that select a trial."""


class CheckedSweep(NamedTuple):
    """A sweep file of the right form, with its plugins."""

    sweep: Sweep
    templates: tuple[grid.TrialTemplate, ...]
    evaluators: Mapping[str, Evaluator]
    studies: tuple[grid.TrialTemplate, ...]
    """One for each variant of a tuned sweep."""


def plan(path: Path, overrides: Sequence[str] = (), only: Sequence[str] = ()) -> Plan:
    """Plan a sweep file with `overrides` (`path=value`), for `only` some trials (`method=emso`).

    Raises:
        ConfigError: With all faults of form; or, if there are none, all faults of substance.
    """
    file = sweep_file.read_sweep_file(path, overrides)
    return choose_trials(plan_sweep(file, overrides), only, file)


def plan_sweep(file: sweep_file.SweepFile, overrides: Sequence[str] = ()) -> Plan:
    """Plan a sweep file that was read already; as `plan`."""
    checked, faults = check_form(file), Faults()
    sweep, templates, evaluators, tune = checked.sweep, checked.templates, checked.evaluators, checked.sweep.tune
    name = sweep.name or files.usable_name(file.path.stem)
    if name in SHARED_FOLDERS:
        faults.add("name", f"'{name}' names a folder that all sweeps share: choose another.")
    if sweep.reproduces is not None and sweep.reproduces not in published.published_conditions():
        faults.add("reproduces", unknown("published table", sweep.reproduces, published.published_conditions()))
    for index, seed in settings.repeated(sweep.seeds):
        faults.add(f"seeds.{index}", f"{seed} is already in the list: its trials would be the same.")
    faults += repeated_trials(sweep, templates)
    faults += evaluator_faults(evaluators, sweep.collapse)
    ranked_at = {} if tune else grid.ranked_strengths(sweep.ranking.at, sweep.methods, templates, faults)
    controls = grid.control_variants(sweep.ranking.controls, templates, faults)
    models = resolve.resolve_models(sweep, faults)
    faults += resolve.method_faults(models, templates, has_retain=sweep.data.retain is not None)
    judges = resolve.resolve_judges(sweep, evaluators, faults)
    trained = [template for template in templates if template.plugin.searched_training]
    trainings = [resolve.override_training(template, model.training) for template in trained for model in models]
    is_steered = tune is not None or any(training.early_stop is not None for training in trainings)
    texts, shared_texts, text_names = resolve_texts(sweep, models, is_steered, faults)
    faults += tuning.dial_faults(sweep.until, templates)
    faults += tuning.level_faults(sweep.until, models, texts)
    faults += unmeasurable_faults(evaluators, models, texts)
    faults += retrained_faults(models, texts)
    faults += judge_length_faults(judges, texts)
    models = group_replicates(models)
    if len(models) == len(sweep.models):
        faults += replicate_faults(sweep, models, texts)
    if faults:
        raise file.refuse(faults)
    walks = [template for template in checked.studies if not template.space] if tune else walked_templates(templates)
    is_curve = sum(len(template.strengths) for template in templates) > len({each.variant for each in templates})
    has_grid = not (tune or (sweep.until and not sweep.ranking.at and not is_curve))
    trials = build_trials(name, sweep, models, texts, templates if has_grid else (), walks, evaluators, judges)
    return Plan(
        sweep=name,
        question=file.question,
        file=file.text,
        overrides=tuple(overrides),
        trials=tuple(trials),
        ranked_at=ranked_at,
        controls=controls,
        rows=tuple(template.variant for template in checked.studies or templates),
        studies=tuple(tuning.build_studies(sweep, tune, checked.studies, models, texts, trials) if tune else ()),
        collapse=sweep.collapse,
        until=list_levels(sweep.until),
        compare=sweep.compare,
        reproduces=sweep.reproduces,
        shared_texts=shared_texts,
        text_names=text_names,
        **sweep.report.model_dump(),
    )


def check_form(file: sweep_file.SweepFile) -> CheckedSweep:
    """Check the settings of a sweep file and its plugins, without the files and models that they name."""
    faults = Faults()
    sweep = settings.check_settings(Sweep, file.settings, "", faults)

    def rows_of(kind: str) -> dict[str, dict[str, Any]]:
        section = file.settings.get(kind)
        rows = section.items() if isinstance(section, dict) else ()
        # The schema refuses the others.
        return {key: row or {} for key, row in rows if row is None or isinstance(row, dict)}

    methods = rows_of("methods").items()
    templates = [template for key, row in methods for template in grid.row_templates(key, dict(row), faults)]
    evaluators = configured_evaluators(rows_of("evaluators"), faults)
    if sweep is None:
        raise file.refuse(faults)
    faults += length_faults(sweep.data)
    faults += tuning.compare_faults(sweep, evaluators)
    studies: list[grid.TrialTemplate] = []
    if sweep.tune:
        studies = tuning.study_templates(sweep, sweep.tune, templates, faults)
        faults += tuning.tuning_faults(sweep, sweep.tune)
        if "early_stop" not in sweep.training.model_fields_set:  # Probes stop a candidate's training.
            sweep = replace(sweep, training=replace(sweep.training, early_stop=None))
    if faults:
        raise file.refuse(faults)
    return CheckedSweep(sweep, tuple(templates), evaluators, tuple(studies))


def choose_trials(planned: Plan, only: Sequence[str], file: sweep_file.SweepFile) -> Plan:
    """Return a plan of the trials that match any value of every key in `--only`, or refuse it."""
    values_by_key, faults = dict[str, set[str]](), Faults()
    for choice in only:
        key, value = choice.split("=", 1) if "=" in choice else ("variant", choice)
        if key not in SELECTABLE:
            example = "Say method=, model=, variant= or seed=, for instance --only method=emso."
            faults.add(f"--only {choice}", f"does not say which trials to run. {example}")
            continue
        specs = [*planned.trials, *(study.trial for study in planned.studies if key != "seed")]
        values = {value for spec in specs for value in SELECTABLE[key](spec)}
        if value not in values:
            faults.add(f"--only {choice}", unknown(f"{key} of this sweep", value, values))
        values_by_key.setdefault(key, set()).add(value)
    if faults:
        raise file.refuse(faults)
    seeds = values_by_key.get("seed")
    values_of_studies = {key: values for key, values in values_by_key.items() if key != "seed"}
    studies: list[Study] = []
    for study in planned.studies:
        study_seeds = tuple(seed for seed in study.seeds if seeds is None or str(seed) in seeds)
        if study_seeds and _is_selected(study.trial, values_of_studies):
            studies.append(replace(study, seeds=study_seeds))
    trials = tuple(spec for spec in planned.trials if _is_selected(spec, values_by_key))
    if not studies and not any(_is_selected(spec, values_by_key, is_strict=True) for spec in trials):
        raise file.refuse(
            [Fault(f"--only {' --only '.join(only)}", "no trial of this sweep is all of these: leave one out.")]
        )
    return replace(planned, trials=trials, studies=tuple(studies))


def _is_selected(spec: Trial, values_by_key: Mapping[str, set[str]], *, is_strict: bool = False) -> bool:
    # Comparisons need reference rows for any method, and holdout rows for any seed.
    for key, values in values_by_key.items():
        is_needed = spec.is_reference and key in ("method", "variant") and not is_strict
        if not is_needed and not (spec.is_unseen_row and key == "seed") and values.isdisjoint(SELECTABLE[key](spec)):
            return False
    return True


def group_replicates(models: Sequence[resolve.ResolvedModel]) -> list[resolve.ResolvedModel]:
    """Return the models, each with the name of its group of replicates, or None.

    A model whose id is the name of a group belongs to it.
    """
    groups = {model.replicate_of for model in models}
    names = [model.replicate_of or (model.checkpoint.id if model.checkpoint.id in groups else None) for model in models]
    members = Counter(names)
    pairs = zip(models, names, strict=True)
    return [replace(model, replicate_of=name if members[name] > 1 else None) for model, name in pairs]


def replicate_faults(
    sweep: Sweep, models: Sequence[resolve.ResolvedModel], texts: Mapping[str, Texts]
) -> Iterator[Fault]:
    """Yield the reasons why grouped models cannot be averaged as replicates."""
    firsts: dict[str, resolve.ResolvedModel] = {}
    twins: dict[str, str] = {}
    for model, entry in zip(models, sweep.models, strict=True):
        name = model.replicate_of
        if name is None:
            if entry.replicate_of is not None:
                others = f"no other model of this sweep is a replicate of '{entry.replicate_of}'"
                yield Fault(f"{model.path}.replicate_of", f"{others}, so nothing is averaged.")
            continue
        first = firsts.setdefault(name, model)
        theirs = _shared_parts(first, texts)
        different = [part for part, value in _shared_parts(model, texts).items() if value != theirs[part]]
        if model.retrained and twins.setdefault(model.retrained.digest, model.path) != model.path:
            earlier = twins[model.retrained.digest]
            different.append(f"not the retrained model, which is that of {earlier} and would count twice")
        if different:
            reason = f"cannot be averaged with {first.path} as replicates of '{name}'. Differences:"
            yield Fault(model.path, f"{reason} {', '.join(different)}.")


def _shared_parts(model: resolve.ResolvedModel, texts: Mapping[str, Texts]) -> dict[str, object]:
    digests = {role: source.digest for role, source in texts.get(model.path, {}).items()}
    config = loading.read_config(model.checkpoint)
    return {
        "architecture": [getattr(config, name, None) for name in loading.ARCHITECTURE],
        "tokenizer": (loading.load_tokenizer(model.checkpoint).get_vocab(), digests),
        "training or engine": (model.training, model.engine),
        "retrained model or none": model.retrained is None,
    }


def retrained_faults(models: Sequence[resolve.ResolvedModel], texts: Mapping[str, Texts]) -> Iterator[Fault]:
    """Yield the reasons why a retrained model cannot be measured on its model's token ids."""
    for model in models:
        if model.retrained is None or model.path not in texts:
            continue
        path, sources = f"{model.path}.retrained", texts[model.path]
        try:
            twin = resolving.with_own_tokenizer(model.retrained)
            if loading.positions(twin) < loading.positions(model.checkpoint):
                yield from length_limit_faults(sources, twin)
            difference = reading_difference(model.checkpoint, twin, sources)
        except (DataError, ModelError) as error:
            yield Fault(path, f"cannot read the sweep's texts: {error}")
            continue
        if difference:
            where = f"has another tokenizer (in {twin.tokenizer}) than '{model.checkpoint.id}' (in "
            remedy = "Name a model that was retrained with the same tokenizer, or leave retrained out."
            yield Fault(path, f"{where}{model.checkpoint.tokenizer}): {difference}. {remedy}")
