"""The `methods` block to rows: every combination of settings that a list asks for, each checked by its plugin."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from harness.contracts import Method, Number, Training
from harness.errors import Fault, PluginError
from harness.planning.config import NAME
from harness.planning.faults import Faults, check, plain
from harness.planning.words import shown
from harness.plugins import METHODS
from harness.specs import REFERENCE_ROWS

Settings = Mapping[str, Any]
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
    settings: Settings
    """All of them, without the strength."""
    strengths: tuple[Number, ...]
    """Several only if the strength is cumulative; rising."""
    training: Settings


def rows(methods: Mapping[str, Settings], *, has_retain: bool, faults: Faults) -> list[Row]:
    """Return the rows of the `methods` block, in the file's order."""
    return [row for key, block in methods.items() for row in _block(key, dict(block), has_retain, faults)]


def _block(key: str, block: dict[str, Any], has_retain: bool, faults: Faults) -> list[Row]:
    path = f"methods.{key}"
    if not re.match(NAME, key) or key in REFERENCE_ROWS:
        taken = "names a row that every sweep has" if key in REFERENCE_ROWS else "is no name for a row"
        faults.add(path, f"'{key}' {taken}: use letters, digits, '-' and '_', and another word.")
        return []
    method, training = block.pop("method", key), block.pop("training", {})
    training_is_sound = check(Training, training, f"{path}.training", faults) is not None
    plugin = _plugin(method, key, faults)
    if plugin is None:
        return []
    if plugin.reference == "retain_data" and not has_retain:
        reason = "needs retain data, and the sweep has none: add data.retain, for instance {source: miniature}."
        faults.add(path, reason)
    wrong = Faults()
    grid = _grid(block, plugin, path, wrong)
    listed = [name for name in grid if isinstance(block.get(name), list)]
    settings = _settings(plugin, grid, listed, path, wrong)
    faults += wrong
    if wrong or not training_is_sound:
        return []
    apart = [name for name, values in grid.items() if len(values) > 1 and name != plugin.strength.field]
    return list(_rows(key, method, plugin, settings, apart, training))


def _plugin(method: Any, key: str, faults: Faults) -> type[Method] | None:
    known = METHODS.names()
    try:
        return METHODS.load(str(method))
    except PluginError as error:
        is_own_name = method == key and key not in known and "Did you mean" not in str(error)
        hint = " A row under a name of its own says which: {method: emso, ...}." if is_own_name else ""
        faults.add(f"methods.{key}" if method == key else f"methods.{key}.method", f"{error}{hint}")
        return None


def _grid(block: Settings, plugin: type[Method], path: str, faults: Faults) -> Grid:
    """Return each setting's values, one or several; the strength's too if the block leaves it at its default."""
    grid: Grid = {name: value if isinstance(value, list) else [value] for name, value in block.items()}
    for name, values in grid.items():
        if not values:
            faults.add(f"{path}.{name}", "is an empty list, which asks for no trial: give at least one value.")
        for index, value in enumerate(values):
            if value in values[:index]:
                faults.add(f"{path}.{name}.{index}", f"{shown(value)} is already in the list.")
    default = default_strength(plugin)
    if plugin.strength.field not in block and default is not None:
        grid[plugin.strength.field] = [default]
    return {name: values for name, values in grid.items() if values}


def default_strength(plugin: type[Method]) -> Number | None:
    """Return the strength that the plugin uses unless told otherwise."""
    default = next(each.default for each in dataclasses.fields(plugin) if each.name == plugin.strength.field)
    return default if isinstance(default, int | float) else None


def _settings(plugin: type[Method], grid: Grid, listed: Sequence[str], path: str, faults: Faults) -> list[Settings]:
    """Return every combination's settings, checked by the plugin; `listed`: those that the file gives as lists."""
    found: list[Settings] = []
    for numbers in product(*(range(len(values)) for values in grid.values())):
        place = dict(zip(grid, numbers, strict=True))
        wrong = Faults()
        instance = check(plugin, {name: grid[name][number] for name, number in place.items()}, path, wrong)
        for fault in wrong:
            name = fault.path.removeprefix(f"{path}.")
            faults.append(Fault(f"{fault.path}.{place[name]}", fault.reason) if name in listed else fault)
        if instance is not None:
            found.append(plain(instance))
    return found


def _rows(
    key: str, method: str, plugin: type[Method], settings: Sequence[Settings], apart: Sequence[str], training: Settings
) -> Iterator[Row]:
    """Yield a row for every combination of what sets variants apart and, unless it is cumulative, of the strength."""
    strength = plugin.strength
    variants: dict[str, list[Settings]] = {}
    for each in settings:
        values = ",".join(f"{name}={each[name]}" for name in apart)
        variants.setdefault(f"{key}({values})" if values else key, []).append(each)
    for variant, members in variants.items():
        others = {name: value for name, value in members[0].items() if name != strength.field}
        rising = sorted(each[strength.field] for each in members)
        for strengths in [tuple(rising)] if strength.cumulative else [(value,) for value in rising]:
            yield Row(key, variant, method, plugin, others, strengths, training)
