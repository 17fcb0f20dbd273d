"""The `methods` block to rows: every combination of settings that a list asks for, each checked by its plugin."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from harness.contracts import Method, Number, Strength, Training
from harness.errors import Fault, PluginError, unknown
from harness.planning.config import NAME
from harness.planning.faults import check, plain
from harness.planning.words import keys_at, shown
from harness.plugins import METHODS
from harness.specs import REFERENCE_ROWS

Grid = dict[str, list[Any]]


@dataclass(frozen=True)
class Row:
    """One method with one combination of settings; a trial for each model and seed."""

    key: str
    """Its name in the file."""
    variant: str
    """The key, and what sets it apart where the file gives several values: `emso(k=4)`."""
    method: str
    plugin: type[Method]
    settings: Mapping[str, Any]
    """All of them, without the strength."""
    strengths: tuple[Number, ...]
    """Several only if the strength is cumulative; rising."""
    training: Mapping[str, Any]


def rows(methods: Mapping[str, Mapping[str, Any]], *, has_retain: bool, faults: list[Fault]) -> list[Row]:
    """Return the rows of the `methods` block in the file's order; what is wrong is added to `faults`.

    Args:
        methods: The block: settings by row.
        has_retain: Whether the sweep names retain data, without which some methods cannot run.
        faults: Grows.
    """
    found = []
    for key, block in methods.items():
        found += _block(key, dict(block), f"methods.{key}", has_retain, faults)
    return found


def _block(key: str, block: dict[str, Any], path: str, has_retain: bool, faults: list[Fault]) -> list[Row]:
    if not re.match(NAME, key) or key in REFERENCE_ROWS:
        taken = "names a row that every sweep has" if key in REFERENCE_ROWS else "is no name for a row"
        faults.append(Fault(path, f"'{key}' {taken}: use letters, digits, '-' and '_', and another word."))
        return []
    method, training = block.pop("method", key), block.pop("training", {})
    training_faults = _training_faults(training, f"{path}.training")
    faults += training_faults
    plugin = _plugin(method, key, path, faults)
    if plugin is None:
        return []
    if plugin.reference == "retain_data" and not has_retain:
        reason = "needs retain data, and the sweep has none: add data.retain, for instance {source: miniature}."
        faults.append(Fault(path, reason))
    grid, grid_faults = _grid(block, plugin, path)
    listed = {name for name, value in block.items() if isinstance(value, list)}
    configured, setting_faults = _configured(plugin, grid, listed, path)
    faults += [*grid_faults, *setting_faults]
    if grid_faults or setting_faults or training_faults:
        return []
    return list(_rows(key, method, plugin, grid, configured, training))


def _training_faults(training: Any, path: str) -> list[Fault]:
    if not isinstance(training, dict):
        return [
            Fault(path, f"must be settings (name: value): {', '.join(keys_at(Training, ()))}; got {shown(training)}.")
        ]
    return check(Training, training, path)[1]


def _plugin(method: Any, key: str, path: str, faults: list[Fault]) -> type[Method] | None:
    where = path if method == key else f"{path}.method"
    if method not in METHODS.names():
        about = unknown("method", str(method), METHODS.names())
        is_own_name = method == key and "Did you mean" not in about
        hint = " A row under a name of its own says which: {method: emso, ...}." if is_own_name else ""
        faults.append(Fault(where, about + hint))
        return None
    try:
        return METHODS.load(method)
    except PluginError as error:
        faults.append(Fault(where, str(error)))
        return None


def _grid(block: Mapping[str, Any], plugin: type[Method], path: str) -> tuple[Grid, list[Fault]]:
    """Return each setting's values, one or several; the strength's too if the block leaves it at its default."""
    grid: Grid = {name: value if isinstance(value, list) else [value] for name, value in block.items()}
    faults = []
    for name, values in grid.items():
        if not values:
            faults.append(
                Fault(f"{path}.{name}", "is an empty list, which asks for no trial: give at least one value.")
            )
        for index, value in enumerate(values):
            if value in values[:index]:
                faults.append(Fault(f"{path}.{name}.{index}", f"{shown(value)} is already in the list."))
    default = default_strength(plugin)
    if plugin.strength.field not in block and default is not None:
        grid[plugin.strength.field] = [default]
    return {name: values for name, values in grid.items() if values}, faults


def default_strength(plugin: type[Method]) -> Number | None:
    """Return the strength that the plugin uses unless told otherwise."""
    fields = {each.name: each for each in dataclasses.fields(plugin)}
    default = fields[plugin.strength.field].default
    return default if isinstance(default, int | float) else None


def _configured(
    plugin: type[Method], grid: Grid, listed: Collection[str], path: str
) -> tuple[dict[tuple[Any, ...], Mapping[str, Any]], list[Fault]]:
    """Return every combination's settings, checked by the plugin, by the values' numbers in the grid."""
    configured: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    faults: dict[Fault, None] = {}
    for numbers in product(*(range(len(values)) for values in grid.values())):
        given = {name: grid[name][number] for name, number in zip(grid, numbers, strict=True)}
        instance, wrong = check(plugin, given, path)
        for fault in wrong:
            faults[_at_value(fault, path, zip(grid, numbers, strict=True), listed)] = None
        if instance is not None:
            configured[numbers] = plain(instance)
    return configured, list(faults)


def _at_value(fault: Fault, path: str, place: Iterable[tuple[str, int]], listed: Collection[str]) -> Fault:
    """Return the fault with the number of the value in its list, if the file gives a list there."""
    for name, number in place:
        if fault.path == f"{path}.{name}" and name in listed:
            return Fault(f"{fault.path}.{number}", fault.reason)
    return fault


def _rows(
    key: str,
    method: str,
    plugin: type[Method],
    grid: Grid,
    configured: Mapping[tuple[Any, ...], Mapping[str, Any]],
    training: Mapping[str, Any],
) -> Iterator[Row]:
    strength: Strength = plugin.strength
    axes = [name for name, values in grid.items() if len(values) > 1 and name != strength.field]
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for settings in configured.values():
        apart = ",".join(f"{name}={settings[name]}" for name in axes)
        grouped.setdefault(f"{key}({apart})" if apart else key, []).append(settings)
    for variant, members in grouped.items():
        others = {name: value for name, value in members[0].items() if name != strength.field}
        values = sorted(each[strength.field] for each in members)
        for strengths in [tuple(values)] if strength.cumulative else [(value,) for value in values]:
            yield Row(key, variant, method, plugin, others, strengths, training)
