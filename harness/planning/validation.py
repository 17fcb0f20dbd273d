"""What is wrong with settings, in words: from a type and pydantic's findings to the sentence that a user reads."""

from __future__ import annotations

import inspect
import json
from collections.abc import Generator, Iterator, Mapping
from functools import reduce
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from harness.base.settings import allowed, bare, fields_of, is_settings, quoted, type_at
from harness.base.yaml_text import WHOLE_FILE, join
from harness.errors import MOST_LISTED, Fault, did_you_mean, unknown
from harness.plugins import settings_adapter

S = TypeVar("S")
T = TypeVar("T")
Location = tuple[int | str, ...]
Checking: TypeAlias = Generator[Fault, None, T]
"""Yields all that is wrong, and returns what is sound: `value = yield from check(...)`."""

_OTHER_NAMES = {
    **{"text_column": "field", "text_field": "field", "column": "field", "subset": "name", "config": "name"},
    **{"lr": "learning_rate", "batch_size": "global_batch", "max_length": "sequence_tokens"},
}
"""What other tools call a setting."""
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


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
    hint, parent = type_at(settings_type, location), bare(type_at(settings_type, location[:-1]))
    if kind in _UNKNOWN:
        return _unknown_setting(str(location[-1]), fields_of(parent) if is_settings(parent) else {}, settings_type)
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
    is_choice = get_origin(hint) is Literal and isinstance(given, str)
    near = did_you_mean(given, [str(name) for name in get_args(hint)]) if is_choice else ""
    return f"must be {allowed(hint)}; got {quoted(given)}.{near}"


def _unknown_setting(name: str, known: Mapping[str, Any], settings_type: Any) -> str:
    """Return the sentence for a setting that is not there: with its name here, or with where it is instead."""
    meant = _OTHER_NAMES.get(name, "")
    if meant not in known:
        meant = next(_paths_to(name, settings_type), "")
    if not meant or did_you_mean(name, list(known)):
        return unknown("setting", name, known)
    return f"no setting is called '{name}' here. Did you mean '{meant}'? Known: {', '.join(sorted(known))}."


def _paths_to(name: str, settings_type: Any, path: str = "") -> Iterator[str]:
    """Yield where a sweep file has settings of this name: in mappings of fixed names, then in the entries of lists."""
    fields = fields_of(settings_type) if is_settings(settings_type) else {}
    for field, hint in fields.items():
        if field == name and path:
            yield join(path, field)
        yield from _paths_to(name, bare(hint), join(path, field))
    for field, hint in fields.items():
        yield from _paths_to(name, bare(type_at(hint, [0])), f"{join(path, field)}[]")


def _whole_sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."
