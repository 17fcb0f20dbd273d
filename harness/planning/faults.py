"""Settings against the type that declares them: every mismatch becomes a fault that a user can act on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from harness.errors import Fault, unknown
from harness.planning.document import join
from harness.planning.words import allowed, hint_at, keys_at, shown
from harness.plugins import settings_adapter

S = TypeVar("S")
Place = tuple[int | str, ...]

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")


def check(settings_type: type[S], given: Mapping[str, Any], path: str) -> tuple[S | None, list[Fault]]:
    """Return the settings that were given, or None and everything that is wrong with them.

    Text is no number and true is no 1, though Python would take them; a whole number is a number.

    Args:
        settings_type: A frozen dataclass: a plugin, or `Training`.
        given: Settings by name, of plain data; those left out keep their defaults.
        path: Where they are written.
    """
    try:
        # As JSON, since only there a strict check takes a mapping for a dataclass and a list for a tuple.
        return cast(S, _adapter(cast(Any, settings_type)).validate_json(json.dumps(given), strict=True)), []
    except ValidationError as error:
        return None, faults_in(error, settings_type, given, path)
    except ValueError as error:
        return None, [Fault(path, str(error))]


def plain(settings: object) -> dict[str, Any]:
    """Return a plugin's settings as plain data, those left at their defaults too."""
    return cast(dict[str, Any], _adapter(cast(Any, type(settings))).dump_python(settings, mode="json"))


@cache
def _adapter(settings_type: type[Any]) -> TypeAdapter[Any]:
    return settings_adapter(settings_type)


def faults_in(error: ValidationError, settings_type: Any, given: Any, path: str) -> list[Fault]:
    """Return pydantic's findings as faults, with what is allowed and the nearest right name."""
    found = []
    for each in error.errors(include_url=False):
        place = place_of(each["type"], each["loc"], given)
        dotted = path
        for part in place:
            dotted = join(dotted, part)
        found.append(Fault(dotted, _reason(each, settings_type, place)))
    return list(dict.fromkeys(found))


def place_of(kind: str, loc: Place, given: Any) -> Place:
    """Return where an error lies in what was given, without the names of types that pydantic adds."""
    place: list[int | str] = []
    for part in loc:
        inside = isinstance(given, dict) and part in given
        if not inside and not (isinstance(given, list) and isinstance(part, int)):
            break
        place.append(part)
        given = given[part]
    return (*place, loc[len(place)]) if kind in _MISSING and len(place) < len(loc) else tuple(place)


def _reason(error: Mapping[str, Any], settings_type: Any, place: Place) -> str:
    kind, value = error["type"], error["input"]
    hint = hint_at(settings_type, place)
    if kind in _UNKNOWN:
        return unknown("setting", str(place[-1]), keys_at(settings_type, place[:-1]))
    if kind in _MISSING:
        return f"is missing; it must be {allowed(hint)}."
    if kind in ("value_error", "assertion_error"):
        return _sentence(str(error["ctx"]["error"]))
    if kind == "literal_error":
        return f"must be {allowed(hint)}; got {shown(value)}.{_nearest(value, hint)}"
    if hint is Any:
        return _sentence(f"{error['msg']}; got {shown(value)}")
    return f"must be {allowed(hint)}; got {shown(value)}."


def _nearest(value: Any, hint: Any) -> str:
    names = [str(each) for each in get_args(hint)] if get_origin(hint) is Literal else []
    near = get_close_matches(value, names, n=1) if isinstance(value, str) else []
    return f" Did you mean '{near[0]}'?" if near else ""


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."
