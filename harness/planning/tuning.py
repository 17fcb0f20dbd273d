"""The `until`, `tune` and `compare` blocks: levels, and the searches of a tuned sweep."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from typing import Any

from harness import settings as names
from harness.base.settings import check_settings, field_types, quoted, repeated
from harness.contracts import Evaluator, Json, Method, Training
from harness.errors import Fault, Faults, unknown
from harness.planning import grid, resolve, trials
from harness.planning.texts import Texts
from harness.plugins import declared_space
from harness.settings import Choice, Dimension, LogUniform, Source, Study, Sweep, Trial, Tune, end_of, nearest, replace


def study_templates(
    sweep: Sweep, tune: Tune, templates: Sequence[grid.TrialTemplate], faults: Faults
) -> list[grid.TrialTemplate]:
    """Return each variant's template with its space, in the file's order; faulty rows are left out.

    A template with nothing but its strength to search has no space: it is walked to the end of the strength's range.
    """
    for row in tune.space:
        if row not in sweep.methods:
            faults.add(f"tune.space.{row}", unknown("row of this sweep", row, sweep.methods))
    spaces: dict[str, dict[str, Dimension] | None] = {}
    for key, plugin in {template.key: template.plugin for template in templates}.items():
        spaces[key] = _space(key, sweep.methods[key], tune.space.get(key, {}), plugin, faults)
    studies: dict[str, grid.TrialTemplate] = {}
    for template in templates:
        space, dial = spaces[template.key], template.plugin.strength.field
        if space is None:
            continue
        studies[template.variant] = replace(template, space=space)
        if space.keys() <= {dial}:
            end = (end_of(space[dial]),) if space else template.strengths[-1:]
            studies[template.variant] = replace(template, space={}, strengths=end)
    return list(studies.values())


def _space(
    key: str, block: Mapping[str, Any], entries: Mapping[str, Any], plugin: type[Method], faults: Faults
) -> dict[str, Dimension] | None:
    strength, path = plugin.strength.field, f"methods.{key}"
    example = f"tune.space: {{{key}: {{{strength}: {{low: ..., high: ...}}}}}}"
    if isinstance(block.get(strength), list):
        reason = "is a list of strengths, and a tuned sweep searches the strength: remove it. To say where to search"
        faults.add(f"{path}.{strength}", f"{reason}: {example}.")
        return None
    fixed_names, hints = _by_dimension(block).keys() - {"method"}, searchable_types(plugin)
    fixed_names |= {"retain_weight"} if block.get("retain") is False else set()  # It would do nothing.
    space = {name: dimension for name, dimension in declared_space(plugin).items() if name not in fixed_names}
    for name, values in _by_dimension(entries).items():
        where = f"tune.space.{key}.{name}"
        if name not in hints:
            faults.add(where, unknown("setting", name, hints))
        elif name in fixed_names:
            faults.add(where, f"is fixed by {path}.{name}: remove one of the two.")
        elif dimension := _dimension(values, hints[name], where, faults):
            space[name] = dimension
    if strength not in {*space, *fixed_names}:
        reason = f"does not declare in which range '{strength}' is to be searched: say so here, {example}"
        faults.add(path, f"{reason}, or in the plugin, Annotated[..., LogUniform(low=..., high=...)].")
        return None
    return space


def _by_dimension(block: Mapping[str, Any]) -> dict[str, Any]:
    training = block.get("training")
    if not isinstance(training, dict):
        return dict(block)
    settings = {name: value for name, value in block.items() if name != "training"}
    return settings | {f"{names.TRAINING_PATH}{name}": value for name, value in training.items()}


def tuning_faults(sweep: Sweep, tune: Tune) -> Iterator[Fault]:
    """Yield settings that a tuned sweep lacks or cannot have."""
    if not sweep.methods:
        yield Fault("tune", "searches the settings of methods, and the sweep has none: name one, or remove tune.")
    if not sweep.until:
        yield Fault("tune", "searches settings for levels, and the file names none: add until: {ma: [0.75]}.")
    for name in sweep.ranking.at:
        reason = "names a strength, and a tuned sweep ranks the walk to its first level: remove it."
        yield Fault(f"ranking.at.{name}", reason)
    search_seeds = {search_seed(tune.seed, number) for number in range(len(list_searches(sweep, tune)))}
    for index, seed in enumerate(sweep.seeds):
        if seed in search_seeds:
            reason = f"{seed} is a seed of candidates (tune.seed + a multiple of {names.SEARCH_SEEDS:,}), and no "
            yield Fault(f"seeds.{index}", f"{reason}reported trial may be one of the search: choose another.")


def level_faults(
    until: Mapping[str, Sequence[Any]], models: Sequence[resolve.ResolvedModel], texts: Mapping[str, Texts]
) -> Iterator[Fault]:
    """Yield levels that need a holdout or a retrained model where a model has none."""
    for name, levels in until.items():
        for model in models:
            if names.UNSEEN in levels and model.path in texts and names.HOLDOUT not in texts[model.path]:
                reason = "asks for the original's MA on unseen texts, and the sweep has none: add data.holdout."
                yield Fault(f"until.{name}", f"{names.UNSEEN} {reason}")
            if names.RETRAINED in levels and model.retrained is None:
                reason = f"asks for the retrained model's MA, and '{model.checkpoint.id}' has none: name it"
                yield Fault(f"until.{name}", f"{names.RETRAINED} {reason}, {model.path}: {{id: ..., retrained: ...}}.")


def list_searches(sweep: Sweep, tune: Tune) -> list[tuple[int, ...]]:
    """Return the reported seeds of each search of a method on a model."""
    return [tuple(sweep.seeds)] if tune.per == "model" else [(seed,) for seed in sweep.seeds]


def search_seed(seed: int, number: int) -> int:
    """Return the training seed of the candidates in a model's search.

    Example:
        >>> search_seed(7, 0), search_seed(7, 2)
        (1000007, 3000007)
    """
    return names.SEARCH_SEEDS * (number + 1) + seed


def compare_faults(sweep: Sweep, evaluators: Mapping[str, Evaluator]) -> Iterator[Fault]:
    """Yield a metric that no walk follows, a cost that no evaluator reports, and a reference that is no row."""
    for name in sweep.until:
        if name != names.PROBED_ERASURE:
            yield Fault(f"until.{name}", unknown("metric that a dial is walked by", name, [names.PROBED_ERASURE]))
    compare, reported = sweep.compare, [metric for evaluator in evaluators.values() for metric in evaluator.metrics]
    costs = [metric.name for metric in reported if (metric.aggregate, metric.better) == ("exp_mean", "lower")]
    if "cost" in compare.model_fields_set and compare.cost not in costs:
        yield Fault("compare.cost", unknown("perplexity of this sweep", compare.cost, costs))
    if compare.reference is not None and compare.reference not in sweep.methods:
        yield Fault("compare.reference", unknown("row of this sweep", compare.reference, sweep.methods))


def dial_faults(until: Mapping[str, Sequence[Any]], templates: Sequence[grid.TrialTemplate]) -> Iterator[Fault]:
    """Yield every row whose dial cannot be walked to a level."""
    for template in templates if until else ():
        if not all(type(value) in (int, float) for value in template.strengths):
            path = f"methods.{template.key}.{template.plugin.strength.field}"
            yield Fault(path, "cannot be walked: it is no number. Remove the row, or until.")


def build_studies(
    sweep: Sweep,
    tune: Tune,
    templates: Sequence[grid.TrialTemplate],
    models: Sequence[resolve.ResolvedModel],
    texts: Mapping[str, Texts],
    references: Sequence[Trial],
) -> list[Study]:
    """Return the studies of each model: for every row with a space, one for each of its searches."""
    studies: list[Study] = []
    for model in models:
        sources = texts[model.path]
        original = next(spec for spec in references if spec.method == names.ORIGINAL and spec.model == model.checkpoint)
        original = trials.add_levels(original, model, sources, trials.list_levels(sweep.until))
        for template in templates:
            for number, seeds in enumerate(list_searches(sweep, tune) if template.space else ()):
                seeded = replace(original, seed=search_seed(tune.seed, number))
                default = trials.erasure_trial(seeded, model, sources, template)
                studies.append(_study(sweep, tune, template, default, sources["selection"], seeds))
    return studies


def _study(
    sweep: Sweep, tune: Tune, template: grid.TrialTemplate, default: Trial, selection: Source, seeds: tuple[int, ...]
) -> Study:
    plugin, space, dial = template.plugin, template.space, template.plugin.strength.field
    settings = {**default.settings, dial: template.strengths[0]}
    settings |= {f"{names.TRAINING_PATH}{name}": value for name, value in default.training.model_dump().items()}
    defaults = _within(space, settings, plugin)
    # Training's defaults are those of the EMSO paper's appendix C, which trains every method with them.
    recipe = {field.name: field.default for field in fields(plugin) if field.default is not MISSING}
    recipe |= {f"{names.TRAINING_PATH}{name}": getattr(Training(), name) for name in plugin.searched_training}
    recipe = _within(space, {**settings, **recipe, **plugin.published}, plugin)
    fixed = {name: value for name, value in default.settings.items() if name not in space}
    trial = replace(default, trial_id="", settings=fixed, strengths=() if dial in space else template.strengths)
    about: dict[str, Any] = {"seeds": seeds, "space": space, "defaults": defaults, "targets": default.levels}
    about |= {"is_cumulative": plugin.strength.cumulative, "is_trained": bool(plugin.searched_training)}
    about |= {"trials": tune.budget.trials, "utility_bounds": sweep.collapse.perplexity, "selection": selection}
    about |= {"published": recipe if recipe != defaults else None, **tune.model_dump(include={"per", "search", "seed"})}
    return Study(study_id="", trial=trial, **about).identified(default.trial_id)


def _within(space: Mapping[str, Dimension], settings: Mapping[str, Json], plugin: type[Method]) -> dict[str, Json]:
    # A cumulative strength has the end of its range.
    values = {name: nearest(dimension, settings[name]) for name, dimension in space.items()}
    strength = plugin.strength
    if strength.cumulative and strength.field in space:
        values[strength.field] = end_of(space[strength.field])
    return values


def declared_faults(plugin: type[Method]) -> Faults:
    """Return faults of a method's declared space and published settings."""
    faults = Faults()
    for name in plugin.searched_training:
        if name not in field_types(Training):
            faults.add("searched_training", unknown("setting of training", name, field_types(Training)))
    hints = searchable_types(plugin)
    for name, dimension in declared_space(plugin).items():
        entry = list(dimension.values) if isinstance(dimension, Choice) else asdict(dimension)
        _dimension(entry, hints[name], name, faults)
    for name, value in plugin.published.items():
        if name not in hints:
            faults.add(f"published.{name}", unknown("setting", name, hints))
        else:
            check_settings(hints[name], value, f"published.{name}", faults)
    return faults


def searchable_types(plugin: type[Method]) -> dict[str, Any]:
    """Return the types of all settings that a search may vary, by dimension."""
    hints = field_types(plugin)
    for name, hint in field_types(Training).items() if plugin.searched_training else ():
        if name != "lora":  # A mapping, which no dimension can vary.
            hints[f"{names.TRAINING_PATH}{name}"] = hint
    return hints


def _dimension(entry: Any, hint: Any, path: str, faults: Faults) -> Dimension | None:
    if isinstance(entry, list):
        values = check_settings(list[hint], entry, path, faults)
        for index, value in repeated(entry):
            faults.add(f"{path}.{index}", f"{quoted(value)} is already there.")
        if not entry:
            faults.add(path, "is an empty list, which leaves nothing to try: give at least one value.")
        return Choice(values=tuple(values)) if values else None
    if not isinstance(entry, dict) or entry.keys() != {"low", "high"}:
        faults.add(path, f"must be a list of values, or a range {{low: ..., high: ...}}; got {quoted(entry)}.")
        return None
    ends = check_settings(dict[str, hint], entry, path, faults)
    if ends is None:
        return None
    low, high = ends["low"], ends["high"]
    if {type(low), type(high)} <= {int, float} and 0 < low < high:
        return LogUniform(low=low, high=high)
    faults.add(path, f"is searched on a logarithmic scale: low must be above 0 and below high; got {low} to {high}.")
    return None
