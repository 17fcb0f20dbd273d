"""What a setting may be, in words: from the type that declares it to the sentence that a user reads."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import DocInfo, Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel

_PLAIN = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Any: "anything",
    type(None): "null",
}


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
        return _either(str(each) for each in inner)
    if origin in (Union, types.UnionType):
        kinds = [allowed(each) for each in inner if each is not type(None)]
        return " or ".join(dict.fromkeys(kinds)) + (", or null" if type(None) in inner else "")
    if origin in (list, tuple, Sequence):
        items = [each for each in inner if each is not Ellipsis]
        return f"a list of {allowed(items[0])}" if items else "a list"
    if origin in (dict, Mapping) or _is_settings(hint):
        return "settings (name: value)" + (f": {', '.join(fields_of(hint))}" if _is_settings(hint) else "")
    return _PLAIN.get(hint, getattr(hint, "__name__", str(hint)))


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
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [each for each in get_args(hint) if each is not type(None)]
        return _bare(kinds[0]) if len(kinds) == 1 else hint
    return hint


def _is_settings(hint: Any) -> bool:
    return inspect.isclass(hint) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint))


def _with_limits(hint: Any, limits: Iterable[Any]) -> str:
    words = []
    for limit in limits:
        if isinstance(limit, DocInfo):
            return limit.documentation
        if isinstance(limit, Ge):
            words.append(f"at least {limit.ge}".removesuffix(".0"))
        elif isinstance(limit, Gt):
            words.append(f"above {limit.gt}".removesuffix(".0"))
        elif isinstance(limit, Le):
            words.append(f"at most {limit.le}".removesuffix(".0"))
        elif isinstance(limit, Lt):
            words.append(f"below {limit.lt}".removesuffix(".0"))
        elif isinstance(limit, MinLen):
            words.append("with at least one entry")
    joined = " and ".join(words)
    return f"{allowed(hint)} {'of ' if joined.startswith('at ') else ''}{joined}" if words else allowed(hint)


def _either(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
