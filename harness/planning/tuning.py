"""The `tune` and `compare` blocks to studies: for each model and variant a search, checked before anything runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from harness.base.digests import digest_of
from harness.contracts import Evaluator, Json, Method, Training
from harness.errors import Fault, unknown
from harness.planning.grid import TrialTemplate
from harness.planning.resolve import ResolvedModel
from harness.planning.schema import RowLimits, Sweep, Tune
from harness.planning.texts import Texts
from harness.planning.trials import erasure
from harness.planning.validation import Checking, allowed, fields_of, quoted
from harness.plans import Compare, StudySpec, Target
from harness.search_space import OF_TRAINING, Choice, Dimension, LogUniform, end_of
from harness.specs import RETRAINED, TrialSpec

MOST_STEPS = 10_000
"""Of a cumulative strength: a candidate is probed at each."""
PROBED_ERASURE = ("ma",)
PROBED_UTILITY = ("perplexity",)
"""What a forward pass over the texts tells. A search that had to generate would cost as much as the table."""


@dataclass(frozen=True)
class StudyTemplate:
    """A search for one variant's settings: a study for each model."""

    template: TrialTemplate
    """With the settings and the strength that the row fixes, or the method's defaults."""
    space: Mapping[str, Dimension]


def study_templates(sweep: Sweep, templates: Sequence[TrialTemplate]) -> Checking[list[StudyTemplate]]:
    """Return what is to be searched for each variant, in the file's order; faulty rows are left out.

    Two templates of one variant are two strengths, which a tuned sweep refuses.
    """
    assert sweep.tune is not None
    for row in sweep.tune.space:
        if row not in sweep.methods:
            yield Fault(f"tune.space.{row}", unknown("row of this sweep", row, sweep.methods))
    spaces: dict[str, dict[str, Dimension] | None] = {}
    studies: list[StudyTemplate] = []
    for template in {template.variant: template for template in templates}.values():
        if template.key not in spaces:
            spaces[template.key] = yield from _space(sweep, template.key, template.plugin)
        space = spaces[template.key]
        if space:
            studies.append(StudyTemplate(template, space))
    return studies


def _space(sweep: Sweep, key: str, plugin: type[Method]) -> Checking[dict[str, Dimension] | None]:
    """Return the space of a row: what is declared and not fixed by the row, and what the file gives; None if faulty."""
    assert sweep.tune is not None
    block, strength, path = sweep.methods[key], plugin.strength.field, f"methods.{key}"
    fixed = {name for name in block if name not in ("method", "training", *RowLimits.model_fields)}
    fixed |= {f"{OF_TRAINING}{name}" for name in _mapping(block.get("training"))}
    if isinstance(block.get(strength), list):
        yield Fault(
            f"{path}.{strength}",
            "is a list of strengths, and a tuned sweep searches the strength: remove it, or say where to search, "
            f"tune.space: {{{key}: {{{strength}: {{low: ..., high: ...}}}}}}.",
        )
        return None
    given = yield from given_space(sweep.tune.space.get(key, {}), plugin, f"tune.space.{key}")
    for name in given.keys() & fixed:
        yield Fault(f"tune.space.{key}.{name}", f"is fixed by {path}.{name}: remove one of the two.")
    space = {name: dimension for name, dimension in {**declared_space(plugin), **given}.items() if name not in fixed}
    if strength not in {*space, *fixed}:
        example = f"tune.space: {{{key}: {{{strength}: {{low: ..., high: ...}}}}}}"
        yield Fault(
            path,
            f"does not declare in which range '{strength}' is to be searched: say so here, {example}, or next to the "
            f"setting in the plugin, {strength}: Annotated[..., LogUniform(low=..., high=...)].",
        )
        return None
    searched = space.get(strength)
    if plugin.strength.cumulative and isinstance(searched, LogUniform) and searched.high > MOST_STEPS:
        reason = f"each whole step up to {searched.high:g} would be probed: high may be {MOST_STEPS:,} at most."
        yield Fault(f"tune.space.{key}.{strength}", reason)
        return None
    if not space:
        names = ", ".join(sorted(fixed & searchable(plugin).keys()))
        yield Fault(path, f"leaves nothing to search, since all of it is fixed ({names}): leave out one of these.")
    return space


def _mapping(block: object) -> Mapping[str, object]:
    """Return a block that is a mapping; what is none has its fault already."""
    return block if isinstance(block, dict) else {}


def tuning_faults(sweep: Sweep, evaluators: Mapping[str, Evaluator]) -> Iterator[Fault]:
    """Yield what a search cannot be steered by, and what of the file a tuned sweep has no use for."""
    tune = sweep.tune
    assert tune is not None
    reported = _groups(evaluators.values())
    if not sweep.methods:
        yield Fault("tune", "searches the settings of methods, and the sweep has none: name one, or remove tune.")
    for name in tune.erasure:
        yield from _probe_faults(f"tune.erasure.{name}", name, PROBED_ERASURE, reported)
    yield from _probe_faults("tune.utility", tune.utility, PROBED_UTILITY, reported)
    for name in sweep.ranking.at:
        reason = "names a strength, and a tuned sweep ranks what was chosen for its first target: remove it."
        yield Fault(f"ranking.at.{name}", reason)


def _probe_faults(path: str, name: str, probed: Sequence[str], reported: Iterable[str]) -> Iterator[Fault]:
    if name in probed:
        return
    if name in reported:
        reason = f"'{name}' is measured, but not at every epoch of every candidate: that would cost too much. "
        yield Fault(path, f"{reason}Steer the search by {' or '.join(probed)}; the table has '{name}' all the same.")
    else:
        yield Fault(path, unknown("metric that a search can be steered by", name, probed))


def retrained_faults(tune: Tune, models: Sequence[ResolvedModel]) -> Iterator[Fault]:
    """Yield every model that has no retrained twin where a target asks for what that has."""
    asking = [name for name, targets in tune.erasure.items() if RETRAINED in targets]
    for model in models if asking else ():
        if model.retrained is None:
            yield Fault(
                f"tune.erasure.{asking[0]}",
                f"asks for what the retrained model has, and '{model.checkpoint.id}' has none: name it, {model.path}: "
                "{id: ..., retrained: ...}, or give a number.",
            )


def compared(sweep: Sweep, evaluators: Mapping[str, Evaluator]) -> Checking[Compare]:
    """Return the axes of the matched comparison; where the file names none, what is measured of the defaults."""
    groups = _groups(evaluators.values())
    axes: dict[str, tuple[str, ...]] = {}
    for axis in ("utility", "erasure"):
        others = ("generation", "reasoning") if axis == "erasure" else ("erasure",)
        known = [name for name, group in groups.items() if group not in others]
        names = tuple(getattr(sweep.compare, axis))
        if axis not in sweep.compare.model_fields_set:
            names = tuple(name for name in names if name in known)
        for name in names:
            if name not in known:
                yield Fault(f"compare.{axis}", unknown(f"metric of {axis} in this sweep", name, known))
        axes[axis] = names
    return Compare(**axes)


def _groups(evaluators: Iterable[Evaluator]) -> dict[str, str]:
    return {metric.name: metric.group for evaluator in evaluators for metric in evaluator.metrics}


def studies_of(
    sweep: Sweep,
    models: Sequence[ResolvedModel],
    texts: Mapping[str, Texts],
    templates: Sequence[StudyTemplate],
    originals: Sequence[TrialSpec],
) -> list[StudySpec]:
    """Return a study for each model and template; candidates have the first seed.

    Args:
        sweep: The file.
        models: What methods erase from.
        texts: Each model's sources, by the model's path in the file.
        templates: What is searched.
        originals: Each model's reference row, with the first seed.
    """
    return [
        _study(sweep, model, texts[model.path], template, original)
        for model, original in zip(models, originals, strict=True)
        for template in templates
    ]


def _study(
    sweep: Sweep, model: ResolvedModel, sources: Texts, searched: StudyTemplate, original: TrialSpec
) -> StudySpec:
    tune, template, space = sweep.tune, searched.template, searched.space
    assert tune is not None
    targets = tuple(Target(metric=name, at_most=at) for name, ats in tune.erasure.items() for at in ats)
    default = erasure(original, model, sources, template)
    strength = template.plugin.strength
    settings = {**default.settings, strength.field: template.strengths[0]}
    if strength.cumulative and strength.field in space:
        settings[strength.field] = end_of(space[strength.field])
    settings |= {f"{OF_TRAINING}{name}": value for name, value in asdict(default.training).items()}
    study = StudySpec(
        study_id="",
        trial=replace(
            default,
            trial_id="",
            settings={name: value for name, value in default.settings.items() if name not in space},
            strengths=() if strength.field in space else template.strengths,
        ),
        seeds=tuple(sweep.seeds),
        space=space,
        defaults={name: _within(dimension, settings[name]) for name, dimension in space.items()},
        is_cumulative=strength.cumulative,
        is_trained=bool(template.plugin.searched_training),
        search=tune.search,
        trials=tune.trials,
        targets=targets,
        utility=tune.utility,
        utility_bounds=sweep.collapse.perplexity,
        selection=sources["selection"],
        retrained=model.retrained if any(target.at_most == RETRAINED for target in targets) else None,
    )
    return _identified(study, default.trial_id)


def _identified(study: StudySpec, default_id: str) -> StudySpec:
    """Return a study under its id; the trial of the defaults stands for all that every candidate shares."""
    identity = {
        "default": default_id,
        "space": {name: asdict(dimension) for name, dimension in study.space.items()},
        "defaults": dict(study.defaults),
        "strengths": list(study.trial.strengths),
        "search": study.search,
        "targets": [str(target) for target in study.targets],
        "retrained": study.retrained.digest if study.retrained else None,
        "utility": [study.utility, *study.utility_bounds],
        "selection": study.selection.digest,
        "validation": study.trial.validation.digest,
    }
    study_id = digest_of(identity)
    return replace(study, study_id=study_id, trial=replace(study.trial, trial_id=study_id))


def _within(dimension: Dimension, default: Json) -> Json:
    """Return a setting's default where it may be searched: the nearest end of a range, the first of other choices."""
    if isinstance(dimension, Choice):
        return default if default in dimension.values else dimension.values[0]
    return min(max(default, dimension.low), dimension.high)


def without_early_stop(sweep: Sweep) -> Sweep:
    """Return a tuned sweep whose training goes on unless the file says when to stop: probes end a candidate's walk."""
    if "early_stop" in sweep.training.model_fields_set:
        return sweep
    return sweep.model_copy(update={"training": sweep.training.model_copy(update={"early_stop": None})})


def declared_space(plugin: type[Method]) -> dict[str, Dimension]:
    """Return the dimension of each setting that a method, or the training for it, declares one of."""
    of_method = {name: _annotated(hint) for name, hint in fields_of(plugin).items()}
    hints = fields_of(Training)
    of_training = {f"{OF_TRAINING}{name}": _annotated(hints.get(name)) for name in plugin.searched_training}
    return {name: dimension for name, dimension in {**of_method, **of_training}.items() if dimension is not None}


def _annotated(hint: Any) -> Dimension | None:
    metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((part for part in metadata if isinstance(part, LogUniform | Choice)), None)


def declared_faults(plugin: type[Method]) -> Checking[None]:
    """Yield what a method declares that cannot be searched: values that a setting does not allow, no such setting."""
    for name in plugin.searched_training:
        if name not in fields_of(Training):
            yield Fault("searched_training", unknown("setting of training", name, fields_of(Training)))
    hints = searchable(plugin)
    for name, dimension in declared_space(plugin).items():
        yield from allowed_dimension(dimension, hints[name], name)


def searchable(plugin: type[Method]) -> dict[str, Any]:
    """Return the type of every setting that a search may vary, by the name of its dimension."""
    of_training = fields_of(Training).items() if plugin.searched_training else ()
    # LoRA's settings are one mapping, and a dimension is of one value: it is fixed by the row.
    named = {f"{OF_TRAINING}{name}": hint for name, hint in of_training if name != "lora"}
    return {**fields_of(plugin), **named}


def given_space(block: Mapping[str, Any], plugin: type[Method], path: str) -> Checking[dict[str, Dimension]]:
    """Return the dimensions that `tune.space` gives for a row; faulty ones are left out."""
    training = block.get("training", {})
    if not isinstance(training, dict):
        yield Fault(f"{path}.training", f"must be a mapping (name: value); got {quoted(training)}.")
        training = {}
    named = {name: value for name, value in block.items() if name != "training"}
    named |= {f"{OF_TRAINING}{name}": value for name, value in training.items()}
    hints, space = searchable(plugin), {}
    for name, value in named.items():
        if name not in hints:
            yield Fault(f"{path}.{name}", unknown("setting", name, hints))
            continue
        dimension = yield from _dimension(value, f"{path}.{name}")
        checked = dimension and (yield from allowed_dimension(dimension, hints[name], f"{path}.{name}"))
        if checked:
            space[name] = checked
    return space


def _dimension(value: Any, path: str) -> Checking[Dimension | None]:
    if isinstance(value, list):
        return Choice(values=tuple(value))
    if isinstance(value, dict) and value.keys() == {"low", "high"}:
        return LogUniform(low=value["low"], high=value["high"])
    yield Fault(path, f"must be a list of values, or a range {{low: ..., high: ...}}; got {quoted(value)}.")
    return None


def allowed_dimension(dimension: Dimension, hint: Any, path: str) -> Checking[Dimension | None]:
    """Return a dimension with its values as a setting of type `hint` has them; None if that does not allow them."""
    if isinstance(dimension, Choice):
        values = yield from _allowed_values(
            dimension.values, hint, [f"{path}.{n}" for n in range(len(dimension.values))]
        )
        if not dimension.values:
            yield Fault(path, "is an empty list, which leaves nothing to try: give at least one value.")
        return Choice(values=values) if values else None
    ends = yield from _allowed_values((dimension.low, dimension.high), hint, [f"{path}.low", f"{path}.high"])
    if len(ends) < 2:
        return None
    low, high = ends
    if any(type(end) not in (int, float) for end in ends):
        yield Fault(path, f"is a range of what is no number ({allowed(hint)}): give a list of values.")
    elif not 0 < low < high:
        yield Fault(
            path, f"is searched on a logarithmic scale: low must be above 0 and below high; got {low:g} to {high:g}."
        )
    else:
        return LogUniform(low=low, high=high)
    return None


def _allowed_values(values: Sequence[Any], hint: Any, paths: Sequence[str]) -> Checking[tuple[Any, ...]]:
    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    found: list[Any] = []
    for value, path in zip(values, paths, strict=True):
        try:
            # As the sweep file's own settings are read: text is no number, and a whole number is one.
            known = adapter.validate_json(json.dumps(value), strict=True)
        except (ValidationError, TypeError):
            yield Fault(path, f"must be {allowed(hint)}; got {quoted(value)}.")
            continue
        if known in found:
            yield Fault(path, f"{quoted(value)} is already there.")
            continue
        found.append(known)
    return tuple(found)
