"""The `methods` block to trial templates: every combination of settings that a list asks for, checked by its plugin."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from harness.contracts import Method, Number
from harness.errors import Fault, PluginError, unknown
from harness.planning.schema import NAME, RowLimits, TrainingSettings
from harness.planning.validation import Checking, collected, plain_settings, quoted, validated
from harness.plugins import METHODS
from harness.specs import REFERENCE_ROWS

Settings = Mapping[str, Any]
MOST_TRIALS = 100_000
"""In one sweep: what runs a minute each would take ten weeks."""
_TOO_MANY = f"A sweep has at most {MOST_TRIALS:,}: shorten a list, or write several sweeps."


@dataclass(frozen=True)
class TrialTemplate:
    """One method with one combination of settings: a trial for each model and seed."""

    key: str
    """The row's name in the file."""
    variant: str
    """The key, and what sets it apart where the file gives several values: `emso(k=4)`."""
    method: str
    plugin: type[Method]
    settings: Settings
    """All of them, without the strength."""
    strengths: tuple[Number, ...]
    """Several only if the strength is cumulative; rising."""
    training: Settings
    """What the row sets of it."""
    limits: Settings = dataclasses.field(default_factory=dict)
    """What the row sets of `RowLimits`."""


def trial_templates(methods: Mapping[str, Settings]) -> Checking[list[TrialTemplate]]:
    """Return the templates of the `methods` block in the file's order."""
    templates: list[TrialTemplate] = []
    asked = {key: _asked(block) for key, block in methods.items()}
    if sum(asked.values()) > MOST_TRIALS:
        largest = max(asked, key=lambda key: asked[key])
        yield Fault(f"methods.{largest}", f"its lists ask for {asked[largest]:,} combinations. {_TOO_MANY}")
        return []
    for key, block in methods.items():
        templates += yield from _row(key, dict(block))
    return templates


def _asked(block: Settings) -> int:
    """Return how many combinations a row asks for, without making one."""
    training = block.get("training")
    settings = [*block.values(), *(flat(training).values() if isinstance(training, dict) else ())]
    return math.prod(len(values) for values in settings if isinstance(values, list))


def size_faults(templates: Sequence[TrialTemplate], models: int, seeds: int) -> Iterator[Fault]:
    """Yield why a sweep is too large to be planned: its rows, times models, times seeds."""
    if (trials := len(templates) * models * seeds) > MOST_TRIALS:
        asked = f"{len(templates):,} rows and variants × {models:,} models × {seeds:,} seeds ask for {trials:,} trials"
        yield Fault("methods", f"{asked}. {_TOO_MANY}")


def _row(key: str, block: dict[str, Any]) -> Checking[list[TrialTemplate]]:
    path = f"methods.{key}"
    if key in REFERENCE_ROWS or not re.fullmatch(NAME.strip("^$"), key):
        reason = "is the name of a row that every sweep has" if key in REFERENCE_ROWS else "cannot name a row"
        yield Fault(path, f"'{key}' {reason}: use letters, digits, '-' and '_', and another word.")
        return []
    method, training = block.pop("method", key), block.pop("training", None)
    trainings = yield from _trainings({} if training is None else training, f"{path}.training")
    given = {name: block.pop(name) for name in RowLimits.model_fields if name in block}
    limits = yield from validated(RowLimits, given, path)
    try:
        plugin = METHODS.load(str(method))
    except PluginError as error:
        is_own_name = method == key and key not in METHODS.names() and "Did you mean" not in str(error)
        hint = " A row under a name of its own says which: {method: emso, ...}." if is_own_name else ""
        yield Fault(path if method == key else f"{path}.method", f"{error}{hint}")
        return []
    grid = yield from _listed(block, path)
    default = default_strength(plugin)
    if plugin.strength.field not in block and default is not None:
        grid[plugin.strength.field] = [default]
    combinations = yield from _combinations(plugin, grid, block, path)
    apart = [name for name, values in grid.items() if len(values) > 1 and name != plugin.strength.field]
    templates = list(_templates(key, str(method), plugin, combinations, apart, trainings))
    dial = plugin.strength
    if templates and {strength for template in templates for strength in template.strengths} == {dial.off}:
        reason = f"{dial.off:g} alone erases nothing, and the original is measured in every sweep. "
        yield Fault(f"{path}.{dial.field}", f"{reason}Give a value above it, or remove the row.")
    set_limits = limits.model_dump(exclude_unset=True) if limits else {}
    return [dataclasses.replace(template, limits=set_limits) for template in templates]


def _listed(block: Settings, path: str) -> Checking[dict[str, list[Any]]]:
    """Return each setting's values, one or several; those without any are left out."""
    grid = {name: value if isinstance(value, list) else [value] for name, value in block.items()}
    for name, values in grid.items():
        if not values:
            yield Fault(f"{path}.{name}", "is an empty list, which asks for no trial: give at least one value.")
        for index, value in repeated(values):
            yield Fault(f"{path}.{name}.{index}", f"{quoted(value)} is already in the list.")
    return {name: values for name, values in grid.items() if values}


def repeated(values: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield each value that is equal to one before it, with its place.

    Example:
        >>> list(repeated([1, [2], 1.0, [2]]))
        [(2, 1.0), (3, [2])]
    """
    seen = set()
    for index, value in enumerate(values):
        key = _hashable(value)
        if key in seen:
            yield index, value
        seen.add(key)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return frozenset((name, _hashable(item)) for name, item in value.items())
    return value if isinstance(value, Hashable) else repr(value)


def _trainings(block: object, path: str) -> Checking[dict[str, Settings]]:
    """Return every combination of a row's `training`, by what sets it apart: `learning_rate=1e-05`."""
    if not isinstance(block, dict):
        yield from validated(TrainingSettings, block, path)
        return {}
    block = flat(block)
    grid = yield from _listed(block, path)
    apart = [name for name, values in grid.items() if len(values) > 1]
    if "micro_batch" in apart:
        reason = "decides how much memory a step takes, and no number: give one value, no list."
        yield Fault(f"{path}.micro_batch", reason)
    combinations: dict[str, Settings] = {}
    faults: dict[Fault, None] = {}
    for index, given in _indexed_product(grid):
        training, wrong = collected(validated(TrainingSettings, nested(given), path))
        faults |= dict.fromkeys(_in_list(fault, path, index, block) for fault in wrong)
        if training is not None:
            settings = training.model_dump(exclude_unset=True)
            combinations[_told_apart({**flat(settings), **mappings_in_words(given)}, apart)] = settings
    yield from faults
    return combinations


def _told_apart(settings: Settings, names: Iterable[str]) -> str:
    """Return the settings that set a variant apart, as the file writes them: `k=4,early_stop=null`."""
    words = {name: value if isinstance(value, str) else json.dumps(value) for name, value in settings.items()}
    return ",".join(f"{name}={words[name]}" for name in names)


def _indexed_product(grid: Mapping[str, list[Any]]) -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
    """Yield every combination of a grid: each setting's place in its list, and its value."""
    for numbers in product(*(range(len(values)) for values in grid.values())):
        index = dict(zip(grid, numbers, strict=True))
        yield index, {name: grid[name][number] for name, number in index.items()}


def _in_list(fault: Fault, path: str, index: Mapping[str, int], block: Settings) -> Fault:
    """Return a fault at its place in a setting's list, if the file gives that setting one."""
    name = fault.path.removeprefix(f"{path}.")
    return Fault(f"{fault.path}.{index[name]}", fault.reason) if isinstance(block.get(name), list) else fault


def default_strength(plugin: type[Method]) -> Number | None:
    """Return the strength that the plugin uses unless told otherwise."""
    default = next(field.default for field in dataclasses.fields(plugin) if field.name == plugin.strength.field)
    return default if isinstance(default, int | float) else None


def _combinations(
    plugin: type[Method], grid: Mapping[str, list[Any]], block: Settings, path: str
) -> Checking[list[Settings]]:
    """Return every combination's settings, checked by the plugin; each fault once."""
    combinations: list[Settings] = []
    faults: dict[Fault, None] = {}
    for index, given in _indexed_product(grid):
        instance, wrong = collected(validated(plugin, given, path))
        faults |= dict.fromkeys(_in_list(fault, path, index, block) for fault in wrong)
        if instance is not None:
            combinations.append(plain_settings(instance))
    yield from faults
    return combinations


def _templates(
    key: str,
    method: str,
    plugin: type[Method],
    combinations: Sequence[Settings],
    apart: Sequence[str],
    trainings: Mapping[str, Settings],
) -> Iterator[TrialTemplate]:
    """Yield one for every combination of what sets variants apart and, unless it is cumulative, of the strength."""
    strength = plugin.strength
    variants: dict[str, list[Settings]] = {}
    for settings in combinations:
        variants.setdefault(_told_apart(settings, apart), []).append(settings)
    for (values, members), (of_training, training) in product(variants.items(), trainings.items()):
        named = ",".join(part for part in (values, of_training) if part)
        others = {name: value for name, value in members[0].items() if name != strength.field}
        rising = sorted(settings[strength.field] for settings in members)
        for strengths in [tuple(rising)] if strength.cumulative else [(value,) for value in rising]:
            variant = f"{key}({named})" if named else key
            yield TrialTemplate(key, variant, method, plugin, others, strengths, training)


def control_variants(controls: Sequence[str], templates: Sequence[TrialTemplate]) -> Checking[tuple[str, ...]]:
    """Return the variants that `ranking.controls` names, by row or variant; not all may be."""
    rows = {name for template in templates for name in (template.key, template.variant)}
    for index, name in enumerate(controls):
        if name not in rows:
            yield Fault(f"ranking.controls.{index}", unknown("row of this sweep", name, rows))
    variants = dict.fromkeys(
        template.variant for template in templates if {template.key, template.variant} & {*controls}
    )
    if templates and len(variants) == len({template.variant for template in templates}):
        yield Fault("ranking.controls", "names every row, so nothing is left to be ranked: leave out what is a method.")
    return tuple(variants)


def ranked_strengths(
    at: Mapping[str, float], keys: Iterable[str], templates: Sequence[TrialTemplate]
) -> Checking[dict[str, Number]]:
    """Return each variant's ranked strength; a cumulative one is left out unless the file names it.

    `at` is what the file says, by row or variant; `keys` are its rows.
    """
    ranked: dict[str, Number] = {}
    variants: dict[str, list[TrialTemplate]] = {}
    for template in templates:
        variants.setdefault(template.variant, []).append(template)
    for name in at:
        if name not in {*keys, *variants}:
            yield Fault(f"ranking.at.{name}", unknown("row of this sweep", name, {*keys, *variants}))
    for variant, members in variants.items():
        strengths = [strength for template in members for strength in template.strengths]
        listed = ", ".join(f"{strength:g}" for strength in strengths)
        name = variant if variant in at else members[0].key
        default = default_strength(members[0].plugin)
        if name not in at and members[0].plugin.strength.cumulative:
            continue
        choice = at[name] if name in at else strengths[0] if len(strengths) == 1 else default
        if choice in strengths:
            ranked[variant] = strengths[strengths.index(choice)]
        elif name in at:
            yield Fault(f"ranking.at.{name}", f"{choice:g} is not among the strengths of '{variant}': {listed}.")
        else:
            about = "" if default is None else f", and the default ({default:g}) is not among them"
            reason = f"is missing: '{variant}' has several strengths ({listed}){about}. Say which one is ranked."
            yield Fault(f"ranking.at.{variant}", reason)
    return ranked


def flat(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's training with LoRA's settings beside the others, as axes of their own; targets are a list anyway.

    Example:
        >>> flat({"learning_rate": 0.1, "lora": {"rank": [4, 16], "targets": ["q_proj", "v_proj"]}})
        {'learning_rate': 0.1, 'lora.rank': [4, 16], 'lora.targets': [['q_proj', 'v_proj']]}
    """
    lora = training.get("lora")
    if not isinstance(lora, dict) or not lora:
        return dict(training)
    others = {name: value for name, value in training.items() if name != "lora"}
    return others | {f"lora.{name}": [value] if name == "targets" else value for name, value in lora.items()}


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `flat` was made of, for one combination."""
    lora = {name.removeprefix("lora."): value for name, value in flat.items() if name.startswith("lora.")}
    others = {name: value for name, value in flat.items() if not name.startswith("lora.")}
    return {**others, "lora": lora} if lora else others


def mappings_in_words(given: Mapping[str, Any]) -> dict[str, str]:
    """Return settings that are given as mappings, in words."""
    mappings = {name: value for name, value in given.items() if isinstance(value, dict)}
    return {name: " ".join(f"{key} {value[key]}" for key in value) for name, value in mappings.items()}
