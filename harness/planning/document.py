"""A sweep file's text to plain data, without YAML's traps.

Three things that PyYAML lets pass are mended here: a key written twice (it keeps the last one,
silently), `1e-3` (which it reads as text) and `off` or `no` (which it reads as false).
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from harness.errors import Fault
from harness.planning.faults import Faults, join

_FLOAT = re.compile(
    r"[-+]?(\.\d+|\d+\.\d*)([eE][-+]?\d+)?$|[-+]?\d+[eE][-+]?\d+$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
)
_INT = re.compile(r"[-+]?(0|[1-9]\d*)$")
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)$")
_REPLACED = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("float", "int", "bool", "timestamp"))

ITSELF = "refers to itself."
_ODD = object()
"""Stands for a value that is no plain data."""


class _Loader(yaml.SafeLoader):
    """Reads scalars as YAML 1.2 does; builds nothing but plain data."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag not in _REPLACED]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# The first match counts: a whole number must be seen before the pattern of fractions.
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))


def parse(text: str, path: str = "") -> tuple[Any, list[Fault]]:
    """Return the one document in `text` as plain data, and what is wrong with it as YAML.

    Args:
        text: YAML.
        path: What the faults' paths begin with.
    """
    faults = Faults()
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            _check_keys(node, path, (), set(), faults)
        if node is None or any(fault.reason == ITSELF for fault in faults):
            return None, faults
        value = _plain(loader.construct_document(node), path, faults)
    except yaml.YAMLError as error:
        return None, [_no_yaml(error, path)]
    except ValueError as error:
        return None, [Fault(path or "(file)", f"holds a value that cannot be read: {error}.")]
    except RecursionError:
        return None, [Fault(path or "(file)", "is nested too deeply to be read.")]
    return (None if value is _ODD else value), faults


def question(text: str) -> str:
    r"""Return what a sweep file asks: its first line, if that is a comment.

    Example:
        >>> question("# What does forgetting cost?\nname: tradeoff")
        'What does forgetting cost?'
    """
    first = text.lstrip("\ufeff").partition("\n")[0].strip()
    return first.lstrip("#").strip() if first.startswith("#") else ""


def _no_yaml(error: yaml.YAMLError, path: str) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else path or "(file)"
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    context = getattr(error, "context", None)
    return Fault(path or where, f"is not valid YAML: {f'{context}, ' if context else ''}{problem}.")


def _check_keys(node: yaml.Node, path: str, above: tuple[yaml.Node, ...], seen: set[int], faults: Faults) -> None:
    """Add faults for keys that are written twice, and for what holds itself."""
    if node in above:
        faults.add(path, ITSELF)
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            _check_keys(child, join(path, index), (*above, node), seen, faults)
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, child in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            inside = join(path, name)
            if name in lines and name != "<<":
                faults.add(inside, f"is written twice, in lines {lines[name]} and {line}. Keep one of them.")
            lines.setdefault(name, line)
            _check_keys(child, inside, (*above, node), seen, faults)


def _plain(value: Any, path: str, faults: Faults) -> Any:
    """Return what JSON could hold too; the rest is left out, and a fault.

    A list with such an entry is left out whole, so that no other entry changes its number.
    """
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                faults.add(join(path, key), f"has a key that is not a name but {type(key).__name__}: put it in quotes.")
        kept = {key: _plain(each, join(path, key), faults) for key, each in value.items() if isinstance(key, str)}
        return {key: each for key, each in kept.items() if each is not _ODD}
    if isinstance(value, list):
        items = [_plain(each, join(path, index), faults) for index, each in enumerate(value)]
        return _ODD if any(each is _ODD for each in items) else items
    if isinstance(value, float) and not math.isfinite(value):
        faults.add(path, f"must be a finite number; got {value}.")
        return _ODD
    if value is None or isinstance(value, str | bool | int | float):
        return value
    kinds = "text, a number, true, false, null, a list or settings"
    faults.add(path, f"must be {kinds}; got {type(value).__name__}.")
    return _ODD
