"""Strict settings: checks of given values against types, and descriptions of a type's values."""

import dataclasses
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from annotated_types import DocInfo, Ge, Gt, Le, Lt
from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError, with_config

from harness.base.files import parse_path
from harness.errors import Faults, did_you_mean, unknown


def repeated(values: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield index and value of each repeated value.

    Example:
        >>> list(repeated([1, [2], 1.0, [2]]))
        [(2, 1.0), (3, [2])]
    """
    keys = set[str]()
    for index, value in enumerate(values):
        key = repr(float(value)) if isinstance(value, int | float) else json.dumps(value, sort_keys=True, default=repr)
        if key in keys:
            yield index, value
        keys.add(key)


S = TypeVar("S")
WHOLE_FILE = "(file)"
"""Path of a fault of the whole file."""
MAPPING = "a mapping (name: value)"
_KIND: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_KIND |= {Any: "anything", NoneType: "null"}
_LIST_OF = {int: "a list of whole numbers", float: "a list of numbers", str: "a list of texts"}
_BOUNDS = {Ge: "at least", Gt: "above", Le: "at most", Lt: "below"}


Place = Annotated[str, AfterValidator(lambda text: parse_path(text, ValueError) and text)]
"""A path, existing or not, or an id on the hub."""


class Strict(BaseModel):
    """Settings without unknown names or values of other types."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


@cache
def settings_adapter(plugin: type[Any]) -> TypeAdapter[Any]:
    """Return a plugin's pydantic adapter, which refuses unknown settings."""
    if "__pydantic_config__" not in vars(plugin):
        with_config(ConfigDict(extra="forbid", strict=False, allow_inf_nan=False))(plugin)
    return TypeAdapter(plugin)


def check_settings(settings_type: type[S], value: object, path: str, faults: Faults) -> S | None:
    """Return the value given at `path` as settings of a type; None, with faults added, if any is wrong.

    Text is no number and true is no 1; a whole number is a number.
    """
    is_plugin = dataclasses.is_dataclass(settings_type)
    adapter: TypeAdapter[S] = settings_adapter(cast(Any, settings_type)) if is_plugin else TypeAdapter(settings_type)
    try:
        # Only a strict check of JSON accepts a mapping as a dataclass and a list as a tuple.
        return adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        for finding in error.errors(include_url=False):
            location: list[int | str] = []
            inside: Any = value
            for part in finding["loc"]:
                keys = inside if isinstance(inside, dict) else range(len(inside)) if isinstance(inside, list) else ()
                if part in keys:  # Other parts are names of types.
                    location.append(part)
                    inside = inside[part]
            if finding["type"] == "missing":
                location.append(finding["loc"][-1])
            dotted_path = ".".join(map(str, [path, *location] if path else location))
            faults.add(dotted_path or WHOLE_FILE, _fault_reason(finding, settings_type, location))
    return None


def _fault_reason(finding: Mapping[str, Any], settings_type: Any, location: Sequence[int | str]) -> str:
    kind, value = finding["type"], finding["input"]
    hint, parent = find_type(settings_type, location), _bare(find_type(settings_type, location[:-1]))
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return unknown("setting", str(location[-1]), field_types(parent))
    field = getattr(parent, "model_fields", {}).get(str(location[-1])) if location else None
    if field and field.examples and (kind in ("missing", "too_short") or value is None):
        lack = "empty" if kind == "too_short" else "missing"
        return f"is {lack}: {field.description} For instance {field.examples[0]}."
    if kind == "missing":
        return f"is missing; it must be {allowed(hint)}."
    if kind in ("value_error", "assertion_error"):
        reason = str(finding["ctx"]["error"])
        return reason if reason.endswith((".", "?", "!")) else f"{reason}."
    if hint is Any:
        return f"{finding['msg']}; got {quoted(value)}."
    names = [str(name) for name in get_args(_bare(hint))] if kind == "literal_error" else []
    return f"must be {allowed(hint)}; got {quoted(value)}.{did_you_mean(str(value), names)}"


def allowed(hint: Any) -> str:
    """Describe the values that a type allows.

    Example:
        >>> allowed(Annotated[float, Gt(1.0)] | None)
        'a number above 1, or null'
        >>> allowed(Literal["em", "nll"]), allowed(list[Annotated[int, Ge(0)]])
        ('em or nll', 'a list of whole numbers, each at least 0')
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        documented = [limit.documentation for limit in inner[1:] if isinstance(limit, DocInfo)]
        bounds = _bounds(inner[1:])
        kind = f"{allowed(inner[0])} {'of ' if bounds.startswith('at ') else ''}{bounds}".strip()
        return documented[0] if documented else kind
    if origin is Literal:
        *first, last = map(str, inner)
        return f"{', '.join(first)} or {last}" if first else last
    if origin in (Union, UnionType):
        kinds = [allowed(kind) for kind in inner if kind is not NoneType]
        return " or ".join(dict.fromkeys(kinds)) + (", or null" if NoneType in inner else "")
    if origin in (list, tuple, Sequence) and inner:
        entry, *limits = get_args(inner[0]) if get_origin(inner[0]) is Annotated else inner
        bounds = _bounds(limits)
        return _LIST_OF.get(entry, f"a list, each {allowed(inner[0])}") + (f", each {bounds}" if bounds else "")
    if origin in (dict, Mapping) or field_types(hint):
        names = ", ".join(field_types(hint))
        return f"{MAPPING} of {names}" if names else MAPPING
    return _KIND.get(hint, getattr(hint, "__name__", str(hint)))


def _bounds(limits: Iterable[Any]) -> str:
    bounds = [(_BOUNDS[type(limit)], *dataclasses.astuple(limit)) for limit in limits if type(limit) in _BOUNDS]
    return " and ".join(f"{word} {bound}".removesuffix(".0") for word, bound in bounds)


def quoted(value: Any) -> str:
    """Quote a value in a message.

    Example:
        >>> quoted("3"), quoted(True), quoted(None), quoted([1, 2])
        ("the text '3'", 'true', 'nothing (null)', 'a list')
    """
    if isinstance(value, str):
        return f"the text '{value if len(value) <= 60 else value[:57] + '...'}'"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, dict):
        return MAPPING
    return "nothing (null)" if value is None else str(value).lower()


def field_types(settings_type: Any) -> dict[str, Any]:
    """Return the types of a dataclass's or pydantic model's fields by name; other types have none."""
    is_plain = inspect.isclass(settings_type) and dataclasses.is_dataclass(settings_type)
    fields = [field.name for field in dataclasses.fields(settings_type)] if is_plain else []
    names: Iterable[str] = fields or getattr(settings_type, "model_fields", {})
    hints = get_type_hints(settings_type, include_extras=True) if names else {}
    return {name: hints[name] for name in names}


def find_type(hint: Any, location: Iterable[int | str]) -> Any:
    """Return the type at `location` inside a setting of type `hint`; Any if undeclared."""
    for part in location:
        hint = _bare(hint)
        origin, inner = get_origin(hint), get_args(hint)
        if origin in (dict, Mapping):
            hint = inner[1]
        elif origin in (list, tuple, Sequence) and inner:
            hint = inner[0]
        else:
            hint = field_types(hint).get(str(part), Any)
    return hint


def _bare(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return _bare(kinds[0]) if get_origin(hint) in (Union, UnionType) and len(kinds) == 1 else hint


def flatten_texts(value: Any, path: str = "") -> dict[str, str]:
    """Return each value's text by dotted path; items of a list of mappings have their index as name."""
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return {path: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)}
    texts: dict[str, str] = {}
    for name, item in value.items():
        texts |= flatten_texts(item, f"{path}.{name}" if path else str(name))
    return texts
