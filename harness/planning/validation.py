"""What is wrong with settings, in words: from a type and pydantic's findings to the sentence that a user reads."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from annotated_types import DocInfo, Ge, Gt, Le, Lt, MinLen
from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError

from harness.base.paths import path_of
from harness.base.yaml_text import WHOLE_FILE, join
from harness.errors import MOST_LISTED, DataError, Fault, unknown
from harness.plugins import fields_of, settings_adapter

S = TypeVar("S")
T = TypeVar("T")
Location = tuple[int | str, ...]
Checking: TypeAlias = Generator[Fault, None, T]
"""Yields all that is wrong, and returns what is sound: `value = yield from check(...)`."""

MAPPING = "a mapping (name: value)"
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
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


def collected(checking: Checking[T]) -> tuple[T, list[Fault]]:
    """Return what a check returns in the end, and all the faults that it yielded."""
    faults = []
    while True:
        try:
            faults.append(next(checking))
        except StopIteration as end:
            return end.value, faults


def validated(settings_type: type[S], given: object, path: str) -> Checking[S | None]:
    """Return the settings (a plugin, or a part of the sweep file) that were given at `path`; None if any is wrong.

    Text is no number and true is no 1, though Python would take them; a whole number is a number.
    """
    try:
        # As JSON, since only there a strict check takes a mapping for a dataclass and a list for a tuple.
        of: Any = settings_type
        adapter: TypeAdapter[S] = settings_adapter(of) if hasattr(of, "__dataclass_fields__") else TypeAdapter(of)
        return adapter.validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        findings = error.errors(include_url=False)
        for finding in findings[:MOST_LISTED]:
            location = _location(finding["type"], finding["loc"], given)
            yield Fault(reduce(join, location, path) or WHOLE_FILE, _fault_reason(finding, settings_type, location))
        if len(findings) > MOST_LISTED:
            yield Fault(path or WHOLE_FILE, f"has {len(findings) - MOST_LISTED} more faults.")
    except ValueError as error:
        yield Fault(path or WHOLE_FILE, str(error))
    return None


def _location(kind: str, loc: Location, given: Any) -> Location:
    """Return where an error lies in what was given, without the names of types that pydantic adds."""
    location: list[int | str] = []
    for part in loc:
        is_inside = part in given if isinstance(given, dict) else isinstance(given, list) and isinstance(part, int)
        if not is_inside:
            break
        location.append(part)
        given = given[part]
    is_missing = kind in ("missing", "setting_fault") and len(location) < len(loc)
    return (*location, loc[len(location)]) if is_missing else tuple(location)


def _fault_reason(finding: Mapping[str, Any], settings_type: Any, location: Location) -> str:
    kind, given = finding["type"], finding["input"]
    hint, parent = _hint_at(settings_type, location), _bare(_hint_at(settings_type, location[:-1]))
    if kind in _UNKNOWN:
        return unknown("setting", str(location[-1]), fields_of(parent) if _is_settings(parent) else ())
    asked = ""
    if location and inspect.isclass(parent) and issubclass(parent, BaseModel):
        field = parent.model_fields.get(str(location[-1]))
        if field and field.examples:  # The question that a setting answers, with an example of an answer.
            asked = f"{field.description} For instance {field.examples[0]}."
    if kind == "missing" or (asked and given is None):
        return f"is missing{f': {asked}' if asked else f'; it must be {allowed(hint)}.'}"
    if kind == "too_short" and asked:
        return f"is empty: {asked}"
    if kind in ("value_error", "assertion_error"):
        return _whole_sentence(str(finding["ctx"]["error"]))
    if kind == "setting_fault":
        return str(finding["msg"])
    if kind != "literal_error" and hint is Any:
        return _whole_sentence(f"{finding['msg']}; got {quoted(given)}")
    names = [str(name) for name in get_args(hint)] if get_origin(hint) is Literal else []
    near = get_close_matches(given, names, n=1) if isinstance(given, str) else []
    return f"must be {allowed(hint)}; got {quoted(given)}." + (f" Did you mean '{near[0]}'?" if near else "")


def _whole_sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


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
    if _is_settings(hint):
        return f"{MAPPING} of {', '.join(fields_of(hint))}"
    if origin in (dict, Mapping):
        return MAPPING
    return _KIND.get(hint, getattr(hint, "__name__", str(hint)))


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


def _hint_at(hint: Any, location: Iterable[int | str]) -> Any:
    """Return the type of what lies at `location` inside a setting of type `hint`; Any where nobody knows."""
    for part in location:
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


def _bare(hint: Any) -> Any:
    """Return the type without its limits and without `or null`."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        return _bare(kinds[0]) if len(kinds) == 1 else hint
    return hint


def _is_settings(hint: Any) -> bool:
    return inspect.isclass(hint) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint))


def _number_limits(limits: Iterable[Any]) -> str:
    """Return `above 0 and below 1`."""
    bounds = [(_BOUNDS[type(limit)], *dataclasses.astuple(limit)) for limit in limits if type(limit) in _BOUNDS]
    return " and ".join(f"{word} {bound}".removesuffix(".0") for word, bound in bounds)
