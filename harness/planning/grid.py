"""The `methods` block to trial templates: every combination of settings that a list asks for, checked by its plugin."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from harness.contracts import Method, Number
from harness.errors import Fault, PluginError, unknown
from harness.planning.schema import NAME, TrainingSettings
from harness.planning.validation import Checking, collected, plain_settings, quoted, validated
from harness.plugins import METHODS
from harness.specs import REFERENCE_ROWS

Settings = Mapping[str, Any]


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


def trial_templates(methods: Mapping[str, Settings]) -> Checking[list[TrialTemplate]]:
    """Return the templates of the `methods` block in the file's order."""
    templates: list[TrialTemplate] = []
    for key, block in methods.items():
        templates += yield from _row(key, dict(block))
    return templates


def _row(key: str, block: dict[str, Any]) -> Checking[list[TrialTemplate]]:
    path = f"methods.{key}"
    if key in REFERENCE_ROWS or not re.match(NAME, key):
        reason = "is the name of a row that every sweep has" if key in REFERENCE_ROWS else "cannot name a row"
        yield Fault(path, f"'{key}' {reason}: use letters, digits, '-' and '_', and another word.")
        return []
    method, overrides = block.pop("method", key), block.pop("training", None)
    training = yield from validated(TrainingSettings, {} if overrides is None else overrides, f"{path}.training")
    try:
        plugin = METHODS.load(str(method))
    except PluginError as error:
        is_own_name = method == key and key not in METHODS.names() and "Did you mean" not in str(error)
        hint = " A row under a name of its own says which: {method: emso, ...}." if is_own_name else ""
        yield Fault(path if method == key else f"{path}.method", f"{error}{hint}")
        return []
    grid = yield from _grid(block, plugin, path)
    combinations = yield from _combinations(plugin, grid, block, path)
    if training is None:
        return []
    apart = [name for name, values in grid.items() if len(values) > 1 and name != plugin.strength.field]
    return list(_templates(key, str(method), plugin, combinations, apart, training.model_dump(exclude_unset=True)))


def _grid(block: Settings, plugin: type[Method], path: str) -> Checking[dict[str, list[Any]]]:
    """Return each setting's values, one or several; the strength's too if the block leaves it at its default."""
    grid = {name: value if isinstance(value, list) else [value] for name, value in block.items()}
    for name, values in grid.items():
        if not values:
            yield Fault(f"{path}.{name}", "is an empty list, which asks for no trial: give at least one value.")
        for index, value in enumerate(values):
            if value in values[:index]:
                yield Fault(f"{path}.{name}.{index}", f"{quoted(value)} is already in the list.")
    default = default_strength(plugin)
    if plugin.strength.field not in block and default is not None:
        grid[plugin.strength.field] = [default]
    return {name: values for name, values in grid.items() if values}


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
    for numbers in product(*(range(len(values)) for values in grid.values())):
        index = dict(zip(grid, numbers, strict=True))
        given = {name: grid[name][number] for name, number in index.items()}
        instance, wrong = collected(validated(plugin, given, path))
        for fault in wrong:
            name = fault.path.removeprefix(f"{path}.")
            is_listed = isinstance(block.get(name), list)
            faults[Fault(f"{fault.path}.{index[name]}", fault.reason) if is_listed else fault] = None
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
    training: Settings,
) -> Iterator[TrialTemplate]:
    """Yield one for every combination of what sets variants apart and, unless it is cumulative, of the strength."""
    strength = plugin.strength
    variants: dict[str, list[Settings]] = {}
    for settings in combinations:
        values = ",".join(f"{name}={settings[name]}" for name in apart)
        variants.setdefault(f"{key}({values})" if values else key, []).append(settings)
    for variant, members in variants.items():
        others = {name: value for name, value in members[0].items() if name != strength.field}
        rising = sorted(settings[strength.field] for settings in members)
        for strengths in [tuple(rising)] if strength.cumulative else [(value,) for value in rising]:
            yield TrialTemplate(key, variant, method, plugin, others, strengths, training)


def ranked_strengths(
    at: Mapping[str, float], keys: Iterable[str], templates: Sequence[TrialTemplate]
) -> Checking[dict[str, Number]]:
    """Return each variant's ranked strength; a cumulative one is left out unless the file names it.

    `at` is what the file says, by row or variant; `keys` are its rows.
    """
    ranked: dict[str, Number] = {}
    variants = dict.fromkeys(template.variant for template in templates)
    for name in at:
        if name not in {*keys, *variants}:
            yield Fault(f"ranking.at.{name}", unknown("row of this sweep", name, {*keys, *variants}))
    for variant in variants:
        members = [template for template in templates if template.variant == variant]
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
