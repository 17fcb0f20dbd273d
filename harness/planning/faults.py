"""What is wrong with a sweep file, and settings against the type that declares them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, reduce
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from harness.errors import Fault, unknown
from harness.planning.words import allowed, hint_at, keys_at, shown
from harness.plugins import settings_adapter

S = TypeVar("S")
Place = tuple[int | str, ...]

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


class Faults(list[Fault]):
    """All that is wrong so far; whoever reads a part of the file adds to it and returns what is sound."""

    def add(self, path: str, reason: str) -> None:
        """Add a fault."""
        self.append(Fault(path, reason))


def join(path: str, part: object) -> str:
    """Return the dotted path of `part` below `path`."""
    return f"{path}.{part}" if path else str(part)


def check(settings_type: type[S], given: Mapping[str, Any], path: str, faults: Faults) -> S | None:
    """Return the settings (a plugin, or `Training`) that were given at `path`, or None if any of them is wrong.

    Text is no number and true is no 1, though Python would take them; a whole number is a number.
    """
    try:
        # As JSON, since only there a strict check takes a mapping for a dataclass and a list for a tuple.
        settings: S = _adapter(cast(Any, settings_type)).validate_json(json.dumps(given), strict=True)
        return settings
    except ValidationError as error:
        faults += faults_in(error, settings_type, given, path)
    except ValueError as error:
        faults.add(path, str(error))
    return None


def plain(settings: object) -> dict[str, Any]:
    """Return a plugin's settings as plain data, those left at their defaults too."""
    return dict(_adapter(cast(Any, type(settings))).dump_python(settings, mode="json"))


@cache
def _adapter(settings_type: type[Any]) -> TypeAdapter[Any]:
    return settings_adapter(settings_type)


def faults_in(error: ValidationError, settings_type: Any, given: Any, path: str) -> list[Fault]:
    """Return pydantic's findings as faults, with what is allowed and the nearest right name."""
    found = []
    for each in error.errors(include_url=False):
        place = place_of(each["type"], each["loc"], given)
        found.append(Fault(reduce(join, place, path), _reason(each, settings_type, place)))
    return found


def place_of(kind: str, loc: Place, given: Any) -> Place:
    """Return where an error lies in what was given, without the names of types that pydantic adds."""
    place: list[int | str] = []
    for part in loc:
        inside = isinstance(given, dict) and part in given
        if not inside and not (isinstance(given, list) and isinstance(part, int)):
            break
        place.append(part)
        given = given[part]
    return (*place, loc[len(place)]) if kind == "missing" and len(place) < len(loc) else tuple(place)


def _reason(error: Mapping[str, Any], settings_type: Any, place: Place) -> str:
    kind, value = error["type"], error["input"]
    hint = hint_at(settings_type, place)
    if kind in _UNKNOWN:
        return unknown("setting", str(place[-1]), keys_at(settings_type, place[:-1]))
    if kind == "missing":
        return f"is missing; it must be {allowed(hint)}."
    if kind in ("value_error", "assertion_error"):
        return _sentence(str(error["ctx"]["error"]))
    if kind != "literal_error" and hint is Any:
        return _sentence(f"{error['msg']}; got {shown(value)}")
    names = [str(each) for each in get_args(hint)] if get_origin(hint) is Literal else []
    near = get_close_matches(value, names, n=1) if isinstance(value, str) else []
    return f"must be {allowed(hint)}; got {shown(value)}." + (f" Did you mean '{near[0]}'?" if near else "")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."
