"""The `methods` block to trial templates: every combination of listed settings, checked by its plugin."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeVar

from harness import contracts, plugins
from harness.base.settings import check_settings, quoted, repeated
from harness.errors import Fault, Faults, PluginError, unknown
from harness.settings import MEMORY_SETTINGS, NAME, REFERENCE_ROWS, Dimension, Training

MAX_COMBINATIONS = 10_000
"""Limit of one row's lists: each combination would run for every model and seed."""

S = TypeVar("S")
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class TrialTemplate:
    """One method with one combination of settings."""

    key: str
    variant: str
    """The key with the settings of which the file lists several values: `emso(k=4)`."""
    method: str
    plugin: type[contracts.Method]
    settings: Settings
    strengths: tuple[contracts.Number, ...]
    """Rising; several only if the strength is cumulative."""
    training: Training
    space: Mapping[str, Dimension] = field(default_factory=dict)

    @property
    def strongest(self) -> contracts.Method:
        """Return the method at its largest strength."""
        return self.plugin(**{**self.settings, self.plugin.strength.field: max(self.strengths)})


def row_templates(key: str, block: dict[str, Any], faults: Faults) -> list[TrialTemplate]:
    """Return a row's templates: one for each variant and, unless the strength is cumulative, each strength."""
    path = f"methods.{key}"
    if key in REFERENCE_ROWS or not re.fullmatch(NAME.strip("^$"), key):
        is_reference = "is reserved for a reference row: choose another name"
        has_others = "cannot name a row: use letters, digits, '-' and '_'"
        faults.add(path, f"'{key}' {is_reference if key in REFERENCE_ROWS else has_others}.")
        return []
    method, training = str(block.pop("method", key)), block.pop("training", None)
    trainings = _trainings({} if training is None else training, f"{path}.training", faults)
    try:
        plugin = plugins.METHODS.load(method)
    except PluginError as error:
        is_own_name = method == key and key not in plugins.METHODS.names() and "Did you mean" not in str(error)
        hint = " A row under another name says which: {method: emso, ...}." if is_own_name else ""
        faults.add(path if method == key else f"{path}.method", f"{error}{hint}")
        return []
    dial, default = plugin.strength.field, plugins.default_strength(plugin)
    if default is not None:
        block.setdefault(dial, default)
    variants: dict[str, list[Settings]] = {}
    for _, instance in _combinations(plugin, block, path, faults):
        settings = plugins.plain_settings(instance)
        variants.setdefault(_named_values(settings, _variant_axes(block, dial)), []).append(settings)
    off = plugin.strength.off
    if trainings and {settings[dial] for members in variants.values() for settings in members} == {off}:
        reason = f"{off:g} by itself erases nothing, and the original is measured in every sweep. "
        faults.add(f"{path}.{dial}", f"{reason}Give a value above it, or remove the row.")
    templates: list[TrialTemplate] = []
    for (settings_name, members), (training_name, row_training) in product(variants.items(), trainings.items()):
        suffix = ",".join(filter(None, (settings_name, training_name)))
        variant = f"{key}({suffix})" if suffix else key
        others = {name: value for name, value in members[0].items() if name != dial}
        values = sorted(settings[dial] for settings in members)
        for strengths in [tuple(values)] if plugin.strength.cumulative else [(value,) for value in values]:
            templates.append(TrialTemplate(key, variant, method, plugin, others, strengths, row_training))
    return templates


def _combinations(settings_type: type[S], block: Settings, path: str, faults: Faults) -> list[tuple[Settings, S]]:
    grid: dict[str, list[Any]] = {}
    for name, value in block.items():
        values = value if isinstance(value, list) else [value]
        if values:
            grid[name] = values
        else:
            faults.add(f"{path}.{name}", "is an empty list, which asks for no trial: give at least one value.")
        for index, again in repeated(values):
            faults.add(f"{path}.{name}.{index}", f"{quoted(again)} is already in the list.")
    if (count := math.prod(map(len, grid.values()))) > MAX_COMBINATIONS:
        faults.add(path, f"its lists ask for {count:,} combinations, and at most {MAX_COMBINATIONS:,} are planned.")
        return []
    combinations: list[tuple[Settings, S]] = []
    setting_faults: list[Fault] = []
    for numbers in product(*(range(len(values)) for values in grid.values())):
        indices = dict(zip(grid, numbers, strict=True))
        combination = {name: grid[name][number] for name, number in indices.items()}
        new_faults = Faults()
        settings = check_settings(settings_type, combination, path, new_faults)
        for fault in new_faults:
            name = fault.path.removeprefix(f"{path}.")
            is_axis = isinstance(block.get(name), list)
            setting_faults.append(Fault(f"{fault.path}.{indices[name]}", fault.reason) if is_axis else fault)
        if settings is not None:
            combinations.append((combination, settings))
    faults += dict.fromkeys(setting_faults)
    return combinations


def _variant_axes(block: Settings, strength: str = "") -> list[str]:
    return [name for name, value in block.items() if isinstance(value, list) and len(value) > 1 and name != strength]


def _trainings(block: object, path: str, faults: Faults) -> dict[str, Training]:
    if not isinstance(block, dict):
        check_settings(Training, block, path, faults)
        return {}
    for name in MEMORY_SETTINGS:
        if name in _variant_axes(block):
            faults.add(f"{path}.{name}", "decides the memory of a step, and no number: give one value, no list.")
    trainings: dict[str, Training] = {}
    for combination, training in _combinations(Training, block, path, faults):
        settings = training.model_dump(exclude_unset=True)
        for name, value in combination.items():
            if isinstance(value, dict):
                settings[name] = " ".join(f"{key} {value[key]}" for key in value)
        trainings[_named_values(settings, _variant_axes(block))] = training
    return trainings


def _named_values(settings: Settings, axes: Iterable[str]) -> str:
    values = [(name, settings[name]) for name in axes]
    return ",".join(f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in values)


def control_variants(controls: Sequence[str], templates: Sequence[TrialTemplate], faults: Faults) -> tuple[str, ...]:
    """Return the variants that `ranking.controls` names, by row or variant."""
    rows = {name for template in templates for name in (template.key, template.variant)}
    for index, name in enumerate(controls):
        if name not in rows:
            faults.add(f"ranking.controls.{index}", unknown("row of this sweep", name, rows))
    variants = [template.variant for template in templates if {template.key, template.variant} & {*controls}]
    if templates and {*variants} == {template.variant for template in templates}:
        faults.add("ranking.controls", "names every row, so nothing is left to be ranked: leave out the methods.")
    return tuple(dict.fromkeys(variants))


def ranked_strengths(
    at: Mapping[str, float], keys: Iterable[str], templates: Sequence[TrialTemplate], faults: Faults
) -> dict[str, contracts.Number]:
    """Return each variant's ranked strength; cumulative ones only if the file's `ranking.at` names row or variant."""
    ranked: dict[str, contracts.Number] = {}
    variants: dict[str, list[TrialTemplate]] = {}
    for template in templates:
        variants.setdefault(template.variant, []).append(template)
    for name in at:
        if name not in {*keys, *variants}:
            faults.add(f"ranking.at.{name}", unknown("row of this sweep", name, {*keys, *variants}))
    for variant, members in variants.items():
        strengths = [strength for template in members for strength in template.strengths]
        name = variant if variant in at else members[0].key
        if name in at:
            choice: contracts.Number | None = at[name]
        elif members[0].plugin.strength.cumulative:
            continue
        else:
            choice = strengths[0] if len(strengths) == 1 else plugins.default_strength(members[0].plugin)
        if choice in strengths:
            ranked[variant] = strengths[strengths.index(choice)]
        else:
            listed = ", ".join(f"{strength:g}" for strength in strengths)
            faults.add(f"ranking.at.{name}", f"must say which strength of '{variant}' is ranked, one of {listed}.")
    return ranked
