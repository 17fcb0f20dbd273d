"""The `until`, `tune` and `compare` blocks: levels, and for each model and variant a search, checked before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from typing import Any, Literal

from pydantic import create_model

from harness.base.settings import Strict, allowed, check_settings, fields_of, quoted, repeated
from harness.contracts import Evaluator, Json, Method, Number, Training
from harness.errors import Fault, Faults, unknown
from harness.planning.grid import TrialTemplate
from harness.planning.resolve import ResolvedModel
from harness.planning.texts import Texts
from harness.planning.trials import erasure
from harness.plugins import declared_space
from harness.settings import (
    HOLDOUT,
    OF_TRAINING,
    PROBED_ERASURE,
    RETRAINED,
    SEARCH_SEEDS,
    UNSEEN,
    Choice,
    Dimension,
    Level,
    LogUniform,
    RowLimits,
    StudySpec,
    Sweep,
    TrialSpec,
    Tune,
    end_of,
    nearest,
    replace,
)

MOST_STEPS = 10_000
"""Of a cumulative strength: a candidate is probed at each."""


def study_templates(
    sweep: Sweep, tune: Tune, templates: Sequence[TrialTemplate], faults: Faults
) -> list[TrialTemplate]:
    """Return a template with its space for each variant, in the file's order; faulty rows are left out.

    One that has nothing to search besides its strength is walked: its one strength is then the end of its range.

    Its settings and strength are those that the row fixes, or the method's defaults.
    Two templates of one variant are two strengths, which a tuned sweep refuses.
    """
    for row in tune.space:
        if row not in sweep.methods:
            faults.add(f"tune.space.{row}", unknown("row of this sweep", row, sweep.methods))
    spaces: dict[str, dict[str, Dimension] | None] = {}
    studies: dict[str, TrialTemplate] = {}
    for template in templates:
        key = template.key
        if key not in spaces:
            spaces[key] = _space(key, sweep.methods[key], tune.space.get(key, {}), template.plugin, faults)
        space, strength = spaces[key], template.plugin.strength.field
        if space is not None and space.keys() <= {strength}:
            end = (end_of(space[strength]),) if space else template.strengths[-1:]
            studies[template.variant] = replace(template, space={}, strengths=end)
        elif space is not None:
            studies[template.variant] = replace(template, space=space)
    return list(studies.values())


def _space(
    key: str,
    block: Mapping[str, Any],
    searched: Mapping[str, Any],
    plugin: type[Method],
    faults: Faults,
) -> dict[str, Dimension] | None:
    """Return the space of a row: what is declared and not fixed by the row, and what the file gives; None if faulty."""
    strength, path = plugin.strength.field, f"methods.{key}"
    example = f"tune.space: {{{key}: {{{strength}: {{low: ..., high: ...}}}}}}"
    if isinstance(block.get(strength), list):
        reason = "is a list of strengths, and a tuned sweep searches the strength: remove it, or say where to search"
        faults.add(f"{path}.{strength}", f"{reason}, {example}.")
        return None
    fixed = _by_dimension(block).keys() - {"method", *RowLimits.model_fields}
    given = given_space(searched, plugin, f"tune.space.{key}", faults)
    for name in _by_dimension(searched):
        if name in fixed:
            faults.add(f"tune.space.{key}.{name}", f"is fixed by {path}.{name}: remove one of the two.")
    space = {name: dimension for name, dimension in {**declared_space(plugin), **given}.items() if name not in fixed}
    dimension = space.get(strength)
    if dimension is None and strength not in fixed:
        reason = f"does not declare in which range '{strength}' is to be searched: say so here, {example}, or next to "
        declaration = f"{strength}: Annotated[..., LogUniform(low=..., high=...)]"
        faults.add(path, f"{reason}the setting in the plugin, {declaration}.")
        return None
    if plugin.strength.cumulative and isinstance(dimension, LogUniform) and dimension.high > MOST_STEPS:
        reason = f"each whole step up to {dimension.high:g} would be probed: high may be {MOST_STEPS:,} at most."
        faults.add(f"tune.space.{key}.{strength}", reason)
        return None
    return space


def _by_dimension(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's settings by the names that a search has for them: `training.learning_rate`."""
    named = {name: value for name, value in block.items() if name != "training"}
    training = block.get("training")
    for name, value in training.items() if isinstance(training, dict) else ():
        named[f"{OF_TRAINING}{name}"] = value
    return named


def tuning_faults(sweep: Sweep, tune: Tune) -> Iterator[Fault]:
    """Yield what of the file a tuned sweep lacks, or has no use for."""
    if not sweep.methods:
        yield Fault("tune", "searches the settings of methods, and the sweep has none: name one, or remove tune.")
    if not sweep.until:
        yield Fault("tune", "searches settings for levels, and the file names none: add until: {ma: [0.75]}.")
    for name in sweep.ranking.at:
        reason = "names a strength, and a tuned sweep ranks the walk to its first level: remove it."
        yield Fault(f"ranking.at.{name}", reason)
    searched_with = {search_seed(tune.seed, number) for number in range(len(searches(sweep, tune)))}
    for index, seed in enumerate(sweep.seeds):
        if seed in searched_with:
            reason = f"{seed} is a seed of candidates (tune.seed + a multiple of {SEARCH_SEEDS:,}), and what is "
            yield Fault(f"seeds.{index}", f"{reason}reported must not be what was searched with: choose another.")


def walking_faults(until: Mapping[str, Sequence[Any]], templates: Sequence[TrialTemplate]) -> Iterator[Fault]:
    """Yield every metric that no walk looks at, and every row whose dial cannot be walked."""
    for name in until:
        if name != PROBED_ERASURE:
            yield Fault(f"until.{name}", unknown("metric that a dial is walked by", name, [PROBED_ERASURE]))
    for template in templates if until else ():
        if not all(type(value) in (int, float) for value in template.strengths):
            path = f"methods.{template.key}.{template.plugin.strength.field}"
            yield Fault(path, "cannot be walked: it is no number. Remove the row, or until.")


def level_faults(
    until: Mapping[str, Sequence[Any]], models: Sequence[ResolvedModel], texts: Mapping[str, Texts]
) -> Iterator[Fault]:
    """Yield every level of something that the sweep lacks for one of its models: a holdout, a retrained model."""
    for name, levels in until.items():
        for model in models:
            if UNSEEN in levels and model.path in texts and HOLDOUT not in texts[model.path]:
                reason = "asks for what the original has on unseen texts, and the sweep has none: add data.holdout, "
                yield Fault(f"until.{name}", f"{UNSEEN} {reason}or give a number.")
            if RETRAINED in levels and model.retrained is None:
                reason = f"asks for what the retrained model has, and '{model.checkpoint.id}' has none: name it, "
                named = f"{model.path}: {{id: ..., retrained: ...}}"
                yield Fault(f"until.{name}", f"{RETRAINED} {reason}{named}, or give a number.")


def searches(sweep: Sweep, tune: Tune) -> list[tuple[int, ...]]:
    """Return the seeds that each search of a method on a model is for."""
    return [tuple(sweep.seeds)] if tune.per == "model" else [(seed,) for seed in sweep.seeds]


def search_seed(seed: int, number: int) -> int:
    """Return the training seed of the candidates of a model's search `number`, from `tune.seed`.

    Example:
        >>> search_seed(7, 0), search_seed(7, 2)
        (1000007, 3000007)
    """
    return SEARCH_SEEDS * (number + 1) + seed


def levels_of(until: Mapping[str, Sequence[Number | Literal["unseen", "retrained"]]]) -> tuple[Level, ...]:
    """Return the levels of the `until` block in the file's order."""
    return tuple(Level(metric="ma", at=at) for at in until.get(PROBED_ERASURE, ()))


def compare_faults(sweep: Sweep, evaluators: Mapping[str, Evaluator]) -> Iterator[Fault]:
    """Yield what verdicts cannot be about: a metric that nothing reports, a row that is none."""
    compare, groups = sweep.compare, metric_groups(evaluators)
    known = [name for name, group in groups.items() if group != "erasure"]
    if "cost" in compare.model_fields_set and compare.cost not in known:
        yield Fault("compare.cost", unknown("metric of utility in this sweep", compare.cost, known))
    if compare.reference is not None and compare.reference not in sweep.methods:
        yield Fault("compare.reference", unknown("row of this sweep", compare.reference, sweep.methods))


def metric_groups(evaluators: Mapping[str, Evaluator]) -> dict[str, str]:
    """Return the group of each metric that evaluators report, by its name."""
    return {metric.name: metric.group for evaluator in evaluators.values() for metric in evaluator.metrics}


def study_of(
    sweep: Sweep,
    tune: Tune,
    template: TrialTemplate,
    model: ResolvedModel,
    sources: Texts,
    original: TrialSpec,
    number: int = 0,
) -> StudySpec:
    """Return a study of a template on a model, with the texts of the model's reference row.

    Its candidates have a seed of their own, which does not depend on the seeds that are reported.

    Args:
        sweep: What the file says.
        tune: Its block of that name.
        template: The row, with its space.
        model: What is erased from.
        sources: Its texts.
        original: Its reference row, with the levels.
        number: Which of the model's `searches` it is.
    """
    strength, space = template.plugin.strength, template.space
    default = erasure(original, model, sources, template)
    default = replace(default, seed=search_seed(tune.seed, number)).identified(is_cumulative=strength.cumulative)
    settings = {**default.settings, strength.field: template.strengths[0]}
    settings |= {f"{OF_TRAINING}{name}": value for name, value in default.training.model_dump().items()}
    defaults = _within(space, settings, template.plugin)
    recipe = _within(space, {**settings, **published_recipe(template.plugin)}, template.plugin)
    study = StudySpec(
        study_id="",
        trial=replace(
            default,
            trial_id="",
            settings={name: value for name, value in default.settings.items() if name not in space},
            strengths=() if strength.field in space else template.strengths,
        ),
        seeds=searches(sweep, tune)[number],
        per=tune.per,
        space=space,
        defaults=defaults,
        is_cumulative=strength.cumulative,
        is_trained=bool(template.plugin.searched_training),
        search=tune.search,
        trials=tune.budget.trials,
        targets=original.levels,
        utility_bounds=sweep.collapse.perplexity,
        selection=sources["selection"],
        seed=tune.seed,
        published=recipe if recipe != defaults else None,
    )
    return study.identified(default.trial_id)


def published_recipe(plugin: type[Method]) -> dict[str, Json]:
    """Return what a method was published with, by dimension: what it declares so, and else its and training's defaults.

    The defaults are those of the EMSO paper, whose appendix C trains every method with them.
    """
    recipe: dict[str, Json] = {}
    for field in fields(plugin):
        if field.default is not MISSING:
            recipe[field.name] = field.default
    for name in plugin.searched_training:
        recipe[f"{OF_TRAINING}{name}"] = getattr(Training(), name)
    return {**recipe, **plugin.published}


def _within(space: Mapping[str, Dimension], settings: Mapping[str, Json], plugin: type[Method]) -> dict[str, Json]:
    """Return the nearest value of each dimension; of a cumulative strength its end, to which each candidate goes."""
    values = {name: nearest(dimension, settings[name]) for name, dimension in space.items()}
    strength = plugin.strength
    if strength.cumulative and strength.field in space:
        values[strength.field] = end_of(space[strength.field])
    return values


def declared_faults(plugin: type[Method]) -> Faults:
    """Return what a method declares that cannot be searched: values that a setting does not allow, no such setting."""
    faults = Faults()
    for name in plugin.searched_training:
        if name not in fields_of(Training):
            faults.add("searched_training", unknown("setting of training", name, fields_of(Training)))
    hints = searchable(plugin)
    for name, dimension in declared_space(plugin).items():
        given = list(dimension.values) if isinstance(dimension, Choice) else asdict(dimension)
        _dimension(given, hints[name], name, faults)
    for name, value in plugin.published.items():
        if name not in hints:
            faults.add(f"published.{name}", unknown("setting", name, hints))
        else:
            check_settings(hints[name], value, f"published.{name}", faults)
    return faults


def searchable(plugin: type[Method]) -> dict[str, Any]:
    """Return the type of every setting that a search may vary, by the name of its dimension."""
    hints = fields_of(plugin)
    for name, hint in fields_of(Training).items() if plugin.searched_training else ():
        if name != "lora":  # Its settings are one mapping, and a dimension is of one value: it is fixed by the row.
            hints[f"{OF_TRAINING}{name}"] = hint
    return hints


def given_space(block: Mapping[str, Any], plugin: type[Method], path: str, faults: Faults) -> dict[str, Dimension]:
    """Return the dimensions that `tune.space` gives for a row; faulty ones are left out."""
    training = block.get("training", {})
    if not isinstance(training, dict):
        faults.add(f"{path}.training", f"must be a mapping (name: value); got {quoted(training)}.")
    hints, space = searchable(plugin), {}
    for name, given in _by_dimension(block).items():
        if name not in hints:
            faults.add(f"{path}.{name}", unknown("setting", name, hints))
        elif dimension := _dimension(given, hints[name], f"{path}.{name}", faults):
            space[name] = dimension
    return space


def _dimension(given: Any, hint: Any, path: str, faults: Faults) -> Dimension | None:
    """Return where a setting of type `hint` is searched, its values as the setting has them; None if any is wrong."""
    if isinstance(given, list):
        values = check_settings(list[hint], given, path, faults)
        for index, value in repeated(given):
            faults.add(f"{path}.{index}", f"{quoted(value)} is already there.")
        if not given:
            faults.add(path, "is an empty list, which leaves nothing to try: give at least one value.")
        return Choice(values=tuple(values)) if values else None
    if not isinstance(given, dict) or given.keys() != {"low", "high"}:
        faults.add(path, f"must be a list of values, or a range {{low: ..., high: ...}}; got {quoted(given)}.")
        return None
    ends = check_settings(
        create_model("Range", __base__=Strict, low=(hint, ...), high=(hint, ...)), given, path, faults
    )
    if ends is None:
        return None
    low, high = ends.model_dump().values()
    if type(low) not in (int, float) or type(high) not in (int, float):
        faults.add(path, f"is a range of what is no number ({allowed(hint)}): give a list of values.")
    elif not 0 < low < high:
        reason = "is searched on a logarithmic scale: low must be above 0 and below high; got"
        faults.add(path, f"{reason} {low:g} to {high:g}.")
    else:
        return LogUniform(low=low, high=high)
    return None
