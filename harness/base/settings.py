"""Settings: the base of those that are checked strictly, and what any type of settings allows, in words.

The words are for messages, `lethe plugins` and the table of a sweep's keys.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import DocInfo, Ge, Gt, Le, Lt, MinLen
from pydantic import AfterValidator, BaseModel, ConfigDict

from harness.base.paths import path_of
from harness.errors import DataError

MAPPING = "a mapping (name: value)"
_KIND = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Any: "anything",
    NoneType: "null",
}
_LIST_OF = {int: "a list of whole numbers", float: "a list of numbers", str: "a list of texts"}
_BOUNDS = {Ge: "at least", Gt: "above", Le: "at most", Lt: "below"}


def _checked_place(text: str) -> str:
    try:
        path_of(text)
    except DataError as error:
        raise ValueError(str(error)) from error
    return text


Place = Annotated[str, AfterValidator(_checked_place)]
"""What may be a path, whether or not something is there, or an id on the hub."""


class Strict(BaseModel):
    """Settings of which none may be unknown, and none of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def allowed(hint: Any) -> str:
    """Return what a setting of this type may be.

    Example:
        >>> allowed(Annotated[float, Gt(1.0)] | None)
        'a number above 1, or null'
        >>> allowed(Literal["em", "nll"]), allowed(list[Annotated[int, Ge(0)]])
        ('em or nll', 'a list of whole numbers, each at least 0')
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        limits = inner[1:]
        for limit in limits:
            if isinstance(limit, DocInfo):
                return limit.documentation
        if any(isinstance(limit, MinLen) for limit in limits):
            return f"{allowed(inner[0])}, with at least one entry"
        bounds = _number_limits(limits)
        return f"{allowed(inner[0])} {'of ' if bounds.startswith('at ') else ''}{bounds}".strip()
    if origin is Literal:
        *first, last = map(str, inner)
        return f"{', '.join(first)} or {last}" if first else last
    if origin in (Union, UnionType):
        kinds = [allowed(kind) for kind in inner if kind is not NoneType]
        return " or ".join(dict.fromkeys(kinds)) + (", or null" if NoneType in inner else "")
    if origin in (list, tuple, Sequence):
        if not inner:
            return "a list"
        entry, *limits_of_each = get_args(inner[0]) if get_origin(inner[0]) is Annotated else inner
        bounds = _number_limits(limits_of_each)
        return _LIST_OF.get(entry, f"a list, each {allowed(inner[0])}") + (f", each {bounds}" if bounds else "")
    if is_settings(hint):
        return f"{MAPPING} of {', '.join(fields_of(hint))}"
    if origin in (dict, Mapping):
        return MAPPING
    return _KIND.get(hint, getattr(hint, "__name__", str(hint)))


def _number_limits(limits: Iterable[Any]) -> str:
    bounds = [(_BOUNDS[type(limit)], *dataclasses.astuple(limit)) for limit in limits if type(limit) in _BOUNDS]
    return " and ".join(f"{word} {bound}".removesuffix(".0") for word, bound in bounds)


def quoted(value: Any) -> str:
    """Return what a user wrote, as a message quotes it.

    Example:
        >>> quoted("3"), quoted(True), quoted(None), quoted([1, 2])
        ("the text '3'", 'true', 'nothing (null)', 'a list')
    """
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text '{value if len(value) <= 60 else value[:57] + '...'}'"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    return MAPPING if isinstance(value, dict) else str(value)


def fields_of(settings_type: type[Any]) -> dict[str, Any]:
    """Return the settings of a dataclass or pydantic model, name to type."""
    is_model = issubclass(settings_type, BaseModel)
    names = settings_type.model_fields if is_model else [field.name for field in dataclasses.fields(settings_type)]
    hints = get_type_hints(settings_type, include_extras=True)
    return {name: hints[name] for name in names}


def is_settings(hint: Any) -> bool:
    """Return whether a type has settings of its own, as a dataclass and a pydantic model have."""
    return inspect.isclass(hint) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint))


def type_at(hint: Any, location: Iterable[int | str]) -> Any:
    """Return the type of what lies at `location` inside a setting of type `hint`; Any where nobody knows."""
    for part in location:
        hint = bare(hint)
        origin, inner = get_origin(hint), get_args(hint)
        if is_settings(hint):
            hint = fields_of(hint).get(str(part), Any)
        elif origin in (dict, Mapping):
            hint = inner[1]
        elif origin in (list, tuple, Sequence) and inner:
            hint = inner[0]
        else:
            return Any
    return hint


def bare(hint: Any) -> Any:
    """Return the type without its limits and without `or null`."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        return bare(kinds[0]) if len(kinds) == 1 else hint
    return hint
