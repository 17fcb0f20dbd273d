"""What a setting may be, in words: from the type that declares it to the sentence that a user reads."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import DocInfo, Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel

_KIND = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Any: "anything",
    NoneType: "null",
}
_BOUNDS = {Ge: "at least", Gt: "above", Le: "at most", Lt: "below"}


def allowed(hint: Any) -> str:
    """Return what a setting of this type may be.

    Example:
        >>> allowed(Annotated[float, Gt(1.0)] | None)
        'a number above 1, or null'
        >>> allowed(Literal["em", "nll"])
        'em or nll'
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _with_limits(inner[0], inner[1:])
    if origin is Literal:
        *first, last = map(str, inner)
        return f"{', '.join(first)} or {last}" if first else last
    if origin in (Union, UnionType):
        kinds = [allowed(each) for each in inner if each is not NoneType]
        return " or ".join(dict.fromkeys(kinds)) + (", or null" if NoneType in inner else "")
    if origin in (list, tuple, Sequence):
        return f"a list of {allowed(inner[0])}" if inner else "a list"
    if _is_settings(hint):
        return f"settings (name: value): {', '.join(fields_of(hint))}"
    if origin in (dict, Mapping):
        return "settings (name: value)"
    return _KIND.get(hint, getattr(hint, "__name__", str(hint)))


def shown(value: Any) -> str:
    """Return what a user wrote, as a message quotes it.

    Example:
        >>> shown("3"), shown(True), shown(None), shown([1, 2])
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
    return "settings (name: value)" if isinstance(value, dict) else str(value)


def fields_of(hint: Any) -> dict[str, Any]:
    """Return the settings of a dataclass or pydantic model, name to type."""
    names = hint.model_fields if issubclass(hint, BaseModel) else [each.name for each in dataclasses.fields(hint)]
    hints = get_type_hints(hint, include_extras=True)
    return {name: hints[name] for name in names}


def hint_at(hint: Any, place: Iterable[int | str]) -> Any:
    """Return the type of what lies at `place` inside a setting of type `hint`; Any where nobody knows."""
    for part in place:
        hint = _bare(hint)
        origin, inner = get_origin(hint), get_args(hint)
        if _is_settings(hint):
            hint = fields_of(hint).get(str(part), Any)
        elif origin in (dict, Mapping):
            hint = inner[1]
        elif origin in (list, tuple, Sequence) and inner:
            hint = inner[0]
        else:
            return Any
    return hint


def keys_at(hint: Any, place: Iterable[int | str]) -> tuple[str, ...]:
    """Return the names of the settings that may stand at `place`."""
    found = _bare(hint_at(hint, place))
    return tuple(fields_of(found)) if _is_settings(found) else ()


def _bare(hint: Any) -> Any:
    """Return the type without its limits and without `or null`."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        kinds = [each for each in get_args(hint) if each is not NoneType]
        return _bare(kinds[0]) if len(kinds) == 1 else hint
    return hint


def _is_settings(hint: Any) -> bool:
    return inspect.isclass(hint) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint))


def _with_limits(hint: Any, limits: Iterable[Any]) -> str:
    words = []
    for limit in limits:
        if isinstance(limit, DocInfo):
            return limit.documentation
        if isinstance(limit, MinLen):
            words.append("with at least one entry")
        elif type(limit) in _BOUNDS:
            (bound,) = dataclasses.astuple(limit)
            words.append(f"{_BOUNDS[type(limit)]} {bound}".removesuffix(".0"))
    joined = " and ".join(words)
    return f"{allowed(hint)} {'of ' if joined.startswith('at ') else ''}{joined}" if words else allowed(hint)
