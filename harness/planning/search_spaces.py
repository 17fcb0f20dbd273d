"""What a search may vary of a row: what its method declares next to its settings, and what `tune.space` says of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from harness.contracts import Method, Training
from harness.errors import Fault, unknown
from harness.planning.validation import Checking, allowed, fields_of, quoted
from harness.search_space import OF_TRAINING, Choice, Dimension, LogUniform


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
