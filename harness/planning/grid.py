"""The `methods` block to trial templates: every combination of listed settings, checked by its plugin."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeVar

from harness.base.settings import check_settings, quoted, repeated
from harness.contracts import Method, Number
from harness.errors import Fault, Faults, PluginError, unknown
from harness.plugins import METHODS, default_strength, plain_settings
from harness.settings import MEMORY_SETTINGS, NAME, REFERENCE_ROWS, Dimension, RowLimits, Training

S = TypeVar("S")
Settings = Mapping[str, Any]
MAX_TRIALS = 100_000
"""Limit of one sweep: at a minute each, ten weeks."""
_TOO_MANY = f"A sweep has at most {MAX_TRIALS:,}: shorten a list, or write several sweeps."


@dataclass(frozen=True)
class TrialTemplate:
    """One method with one combination of settings: a trial for each model and seed."""

    key: str
    """Name of the row in the file."""
    variant: str
    """The key with the settings of which the file lists several values: `emso(k=4)`."""
    method: str
    plugin: type[Method]
    settings: Settings
    """All settings except the strength."""
    strengths: tuple[Number, ...]
    """Rising; several only if the strength is cumulative."""
    training: Training
    """The row's settings of it."""
    limits: Settings
    """The row's settings of `RowLimits`."""
    space: Mapping[str, Dimension] = field(default_factory=dict)
    """Dimensions that a tuned sweep searches."""

    @property
    def strongest(self) -> Method:
        """Return the method at its largest strength."""
        return self.plugin(**{**self.settings, self.plugin.strength.field: max(self.strengths)})


def trial_templates(methods: Mapping[str, Settings], faults: Faults) -> list[TrialTemplate]:
    """Return the templates of the `methods` block in the file's order."""
    combinations: dict[str, int] = {}
    for key, block in methods.items():
        training = block.get("training")
        settings = [*block.values(), *(flatten_training(training).values() if isinstance(training, dict) else ())]
        combinations[key] = math.prod(len(values) for values in settings if isinstance(values, list))
    if sum(combinations.values()) > MAX_TRIALS:
        largest = max(combinations, key=lambda key: combinations[key])
        faults.add(f"methods.{largest}", f"its lists ask for {combinations[largest]:,} combinations. {_TOO_MANY}")
        return []
    templates: list[TrialTemplate] = []
    for key, block in methods.items():
        templates += _row_templates(key, dict(block), faults)
    return templates


def size_faults(templates: Sequence[TrialTemplate], models: int, seeds: int) -> Iterator[Fault]:
    """Yield a fault if rows times models times seeds are too many trials."""
    if (trials := len(templates) * models * seeds) > MAX_TRIALS:
        size = f"{len(templates):,} rows and variants × {models:,} models × {seeds:,} seeds ask for {trials:,} trials"
        yield Fault("methods", f"{size}. {_TOO_MANY}")


def _row_templates(key: str, block: dict[str, Any], faults: Faults) -> list[TrialTemplate]:
    path = f"methods.{key}"
    if key in REFERENCE_ROWS or not re.fullmatch(NAME.strip("^$"), key):
        reason = "is the name of a row that every sweep has" if key in REFERENCE_ROWS else "cannot name a row"
        faults.add(path, f"'{key}' {reason}: use letters, digits, '-' and '_', and another word.")
        return []
    method, training = block.pop("method", key), block.pop("training", None)
    trainings = _trainings({} if training is None else training, f"{path}.training", faults)
    given = {name: block.pop(name) for name in RowLimits.model_fields if name in block}
    limits = check_settings(RowLimits, given, path, faults)
    try:
        plugin = METHODS.load(str(method))
    except PluginError as error:
        is_own_name = method == key and key not in METHODS.names() and "Did you mean" not in str(error)
        hint = " A row under another name says which: {method: emso, ...}." if is_own_name else ""
        faults.add(path if method == key else f"{path}.method", f"{error}{hint}")
        return []
    strength = plugin.strength
    default = default_strength(plugin)
    if default is not None:
        block.setdefault(strength.field, default)
    variants: dict[str, list[Settings]] = {}
    for _, instance in _combinations(plugin, block, path, faults):
        settings = plain_settings(instance)
        variants.setdefault(_named_values(settings, _variant_axes(block, strength.field)), []).append(settings)
    strengths = {settings[strength.field] for members in variants.values() for settings in members}
    if strengths == {strength.off} and trainings:
        reason = f"{strength.off:g} alone erases nothing, and the original is measured in every sweep. "
        faults.add(f"{path}.{strength.field}", f"{reason}Give a value above it, or remove the row.")
    row_limits = limits.model_dump(exclude_unset=True) if limits else {}
    return _templates(key, str(method), plugin, variants, trainings, row_limits)


def _templates(
    key: str,
    method: str,
    plugin: type[Method],
    variants: Mapping[str, list[Settings]],
    trainings: Mapping[str, Training],
    limits: Settings,
) -> list[TrialTemplate]:
    """Return a template for each variant and, unless the strength is cumulative, for each strength."""
    templates: list[TrialTemplate] = []
    strength = plugin.strength
    for (settings_name, members), (training_name, training) in product(variants.items(), trainings.items()):
        suffix = ",".join(part for part in (settings_name, training_name) if part)
        variant = f"{key}({suffix})" if suffix else key
        others = {name: value for name, value in members[0].items() if name != strength.field}
        values = sorted(settings[strength.field] for settings in members)
        for strengths in [tuple(values)] if strength.cumulative else [(value,) for value in values]:
            templates.append(TrialTemplate(key, variant, method, plugin, others, strengths, training, limits))
    return templates


def _combinations(settings_type: type[S], block: Settings, path: str, faults: Faults) -> list[tuple[Settings, S]]:
    """Return every combination of a block's lists, as given and as checked settings; each fault once."""
    grid: dict[str, list[Any]] = {}
    for name, value in block.items():
        values = value if isinstance(value, list) else [value]
        if values:
            grid[name] = values
        else:
            faults.add(f"{path}.{name}", "is an empty list, which asks for no trial: give at least one value.")
        for index, again in repeated(values):
            faults.add(f"{path}.{name}.{index}", f"{quoted(again)} is already in the list.")
    combinations: list[tuple[Settings, S]] = []
    setting_faults: list[Fault] = []
    for numbers in product(*(range(len(values)) for values in grid.values())):
        indices = dict(zip(grid, numbers, strict=True))
        given = {name: grid[name][number] for name, number in indices.items()}
        new_faults = Faults()
        row = nest_training(given) if settings_type is Training else given
        settings = check_settings(settings_type, row, path, new_faults)
        for fault in new_faults:
            name = fault.path.removeprefix(f"{path}.")
            is_axis = isinstance(block.get(name), list)
            setting_faults.append(Fault(f"{fault.path}.{indices[name]}", fault.reason) if is_axis else fault)
        if settings is not None:
            combinations.append((given, settings))
    faults += dict.fromkeys(setting_faults)
    return combinations


def _variant_axes(block: Settings, strength: str = "") -> list[str]:
    return [name for name, value in block.items() if isinstance(value, list) and len(value) > 1 and name != strength]


def _trainings(block: object, path: str, faults: Faults) -> dict[str, Training]:
    if not isinstance(block, dict):
        check_settings(Training, block, path, faults)
        return {}
    block = flatten_training(block)
    for name in MEMORY_SETTINGS:
        if name in _variant_axes(block):
            reason = "decides how much memory a step takes, and no number: give one value, no list."
            faults.add(f"{path}.{name}", reason)
    trainings: dict[str, Training] = {}
    for given, training in _combinations(Training, block, path, faults):
        settings = flatten_training(training.model_dump(exclude_unset=True))
        for name, value in given.items():
            if isinstance(value, dict):
                settings[name] = " ".join(f"{key} {value[key]}" for key in value)
        trainings[_named_values(settings, _variant_axes(block))] = training
    return trainings


def _named_values(settings: Settings, axes: Iterable[str]) -> str:
    """Return a variant's settings as the file writes them: `k=4,early_stop=null`."""
    parts = []
    for name in axes:
        value = settings[name]
        parts.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    return ",".join(parts)


def control_variants(controls: Sequence[str], templates: Sequence[TrialTemplate], faults: Faults) -> tuple[str, ...]:
    """Return the variants that `ranking.controls` names, by row or variant; one must be left."""
    rows = {name for template in templates for name in (template.key, template.variant)}
    for index, name in enumerate(controls):
        if name not in rows:
            faults.add(f"ranking.controls.{index}", unknown("row of this sweep", name, rows))
    variants = dict.fromkeys(
        template.variant for template in templates if {template.key, template.variant} & {*controls}
    )
    if templates and len(variants) == len({template.variant for template in templates}):
        faults.add("ranking.controls", "names every row, so nothing is left to be ranked: leave out what is a method.")
    return tuple(variants)


def ranked_strengths(
    at: Mapping[str, float],
    keys: Iterable[str],
    templates: Sequence[TrialTemplate],
    faults: Faults,
) -> dict[str, Number]:
    """Return each variant's ranked strength; cumulative ones only if the file names it.

    Args:
        at: The file's `ranking.at`, by row or variant.
        keys: The file's rows.
        templates: The rows' templates.
        faults: Extended.
    """
    ranked: dict[str, Number] = {}
    variants: dict[str, list[TrialTemplate]] = {}
    for template in templates:
        variants.setdefault(template.variant, []).append(template)
    for name in at:
        if name not in {*keys, *variants}:
            faults.add(f"ranking.at.{name}", unknown("row of this sweep", name, {*keys, *variants}))
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
            faults.add(f"ranking.at.{name}", f"{choice:g} is not among the strengths of '{variant}': {listed}.")
        else:
            about = "" if default is None else f", and the default ({default:g}) is not among them"
            reason = f"is missing: '{variant}' has several strengths ({listed}){about}. Say which one is ranked."
            faults.add(f"ranking.at.{variant}", reason)
    return ranked


def flatten_training(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's training with each of LoRA's settings as an axis; its targets are one value.

    Example:
        >>> flatten_training({"learning_rate": 0.1, "lora": {"rank": [4, 16], "targets": ["q_proj", "v_proj"]}})
        {'learning_rate': 0.1, 'lora.rank': [4, 16], 'lora.targets': [['q_proj', 'v_proj']]}
    """
    lora = training.get("lora")
    if not isinstance(lora, dict) or not lora:
        return dict(training)
    others = {name: value for name, value in training.items() if name != "lora"}
    return others | {f"lora.{name}": [value] if name == "targets" else value for name, value in lora.items()}


def nest_training(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Invert `flatten_training` for one combination."""
    lora = {name.removeprefix("lora."): value for name, value in settings.items() if name.startswith("lora.")}
    others = {name: value for name, value in settings.items() if not name.startswith("lora.")}
    return {**others, "lora": lora} if lora else others
