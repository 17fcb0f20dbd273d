"""YAML to plain data, without YAML's traps and within bounds, with the line of every setting.

Three things that PyYAML lets pass are mended here: a key written twice (it keeps the last one,
silently), `1e-3` (which it reads as text) and `off` or `no` (which it reads as false). A text that would take
more than a moment or a few megabytes to read is refused before it is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from harness.base.paths import in_quotes
from harness.errors import Fault

WHOLE_FILE = "(file)"
"""The path of a fault that no one setting has."""
MOST_WRITTEN_OUT = 4_000_000
"""Characters, with what aliases and merge keys repeat."""
MOST_VALUES = 250_000
"""In one file: more than twice the trials that a sweep may have."""
MOST_LEVELS = 60
LARGEST = 2**63 - 1
"""Of a whole number: no count, seed or size is larger, and nothing below knows a larger one."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads scalars as YAML 1.2 does; builds only what JSON could hold too, so no infinity and no NaN either."""


class _Refused(yaml.constructor.ConstructorError):
    """Something that YAML allows and a sweep file does not."""

    def __init__(self, place: yaml.Node | yaml.Event, problem: str) -> None:
        mark: Any = place.start_mark
        super().__init__(None, None, problem, mark)


def _scalar(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    kind, text = node.tag.rpartition(":")[2], node.value
    if kind == "bool":
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise _Refused(node, f"{in_quotes(text)} is neither true nor false")
    if kind == "float":
        number = loader.construct_yaml_float(node)
        if math.isfinite(number):
            return number
        raise _Refused(node, f"{in_quotes(text)} is not a finite number")
    if kind == "int":
        # Of a longer text it would take long to make a number.
        whole = int(loader.construct_yaml_int(node)) if len(text.lstrip("+-0_")) <= len(str(LARGEST)) else math.inf
        if abs(whole) <= LARGEST:
            return whole
        raise _Refused(node, f"{in_quotes(text)} is a whole number beyond {LARGEST}, and none may be")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Refused(node, "this text holds half of a surrogate pair, which is no character") from None
    return loader.construct_yaml_str(node)


_SCALARS = {
    "int": (r"[-+]?(0|[1-9]\d*)$", "-+0123456789"),
    "float": (r"[-+]?(\.\d+|\d+\.\d*)([eE][-+]?\d+)?$|[-+]?\d+[eE][-+]?\d+$", "-+.0123456789"),
    "bool": (r"(true|True|TRUE|false|False|FALSE)$", "tTfF"),
}
_TAG = "tag:yaml.org,2002:"
_REPLACED = [f"{_TAG}{kind}" for kind in (*_SCALARS, "timestamp")]
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag not in _REPLACED]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# The first match counts: a whole number must be seen before the pattern of fractions.
for _kind, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(_pattern), list(_first))
_PLAIN = [None, *(f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map"))]
_Loader.yaml_constructors = {tag: yaml.SafeLoader.yaml_constructors[tag] for tag in _PLAIN}
for _kind in ("bool", "float", "int", "str"):
    _Loader.add_constructor(f"{_TAG}{_kind}", _scalar)


def join(path: str, part: object) -> str:
    """Return the dotted path of `part` below `path`."""
    name = str(part) or "''"
    return f"{path}.{name}" if path else name


def parse(text: str, path: str = "", origins: dict[str, str] | None = None) -> tuple[Any, list[Fault]]:
    """Return the one document in `text` as plain data, and what is wrong with it as YAML.

    Each alias becomes a copy of what it stands for, so a change of one changes no other.

    Args:
        text: YAML.
        path: What the faults' paths begin with.
        origins: Filled with the line of every setting.
    """
    try:
        _check_events(text)
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, []
        faults = list(_key_faults(node, path, (), set(), {} if origins is None else origins))
        if faults:
            return None, faults
        characters, levels = _written_out(node, {})
        if characters > MOST_WRITTEN_OUT or levels > MOST_LEVELS + 1:
            most = f"{MOST_WRITTEN_OUT:,} characters or {MOST_LEVELS} levels"
            return None, [
                Fault(path or WHOLE_FILE, f"is more than {most} with its aliases and merge keys written out.")
            ]
        return json.loads(json.dumps(loader.construct_document(node))), []
    except yaml.YAMLError as error:
        return None, [_syntax_fault(error, text, path)]
    except ValueError as error:
        return None, [Fault(path or WHOLE_FILE, f"holds a value that cannot be read: {error}.")]
    except RecursionError:
        return None, [Fault(path or WHOLE_FILE, "is nested too deeply to be read.")]


def _check_events(text: str) -> None:
    """Refuse a text whose values are too many or nested too deeply, before any of them is made."""
    level = 0
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > MOST_LEVELS:
            raise _Refused(event, f"more than {MOST_LEVELS} levels inside each other are too many")
        if number > MOST_VALUES:
            raise _Refused(event, f"more than {MOST_VALUES:,} values in one file are too many")


def _written_out(node: yaml.Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return how many characters a node has when every alias is written out, about, and how many levels."""
    if id(node) not in known:
        characters, deepest = 2 + len(node.value) * isinstance(node, yaml.ScalarNode), 0
        for child in node.value if isinstance(node, yaml.CollectionNode) else ():
            for inside in child if isinstance(child, tuple) else (child,):
                more, levels = _written_out(inside, known)
                characters, deepest = characters + more, max(deepest, levels)
        known[id(node)] = characters, deepest + 1
    return known[id(node)]


def _syntax_fault(error: yaml.YAMLError, text: str, path: str) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else path or WHOLE_FILE
    before = "\n".join(text.split("\n")[mark.line : mark.line + 1])[: mark.column + 1] if mark else ""
    if "\t" in before and not before.strip():
        return Fault(path or where, "is indented with a tab, which YAML does not take: use spaces.")
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    context = getattr(error, "context", None)
    return Fault(path or where, f"is not valid YAML: {f'{context}, ' if context else ''}{problem}.")


def _key_faults(
    node: yaml.Node, path: str, above: tuple[yaml.Node, ...], seen: set[int], origins: dict[str, str]
) -> Iterator[Fault]:
    """Yield faults for keys that are no names or written twice and for what holds itself; note each setting's line."""
    if node in above:
        yield Fault(path, "refers to itself.")
    if id(node) in seen:
        return
    seen.add(id(node))
    children: list[tuple[str, int, yaml.Node]] = []
    if isinstance(node, yaml.SequenceNode):
        children = [(str(index), child.start_mark.line + 1, child) for index, child in enumerate(node.value)]
    elif isinstance(node, yaml.MappingNode):
        children = [(_key_name(key), key.start_mark.line + 1, child) for key, child in node.value]
        for key, _ in node.value:
            if key.tag not in (f"{_TAG}str", f"{_TAG}merge"):
                kind = key.tag.rpartition(":")[2]
                yield Fault(join(path, _key_name(key)), f"has a key that is not a name but {kind}: put it in quotes.")
    lines: dict[str, int] = {}
    for name, line, child in children:
        inside = join(path, name)
        if name in lines and name != "<<":
            yield Fault(inside, f"is written twice, in lines {lines[name]} and {line}. Keep one of them.")
        origins[inside] = f"line {lines.setdefault(name, line)}"
        yield from _key_faults(child, inside, (*above, node), seen, origins)


def _key_name(key: yaml.Node) -> str:
    return str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
