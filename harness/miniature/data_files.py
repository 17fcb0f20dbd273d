"""Reads the data files of the miniature (words, templates, facts) as the types that the code asks for.

They are YAML of which every scalar is a text, whatever it looks like: `on`, `no` and `1e3` are words.
"""

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin

from harness.errors import DataError

Content = TypeVar("Content")
Node = Any
"""A part of a YAML file that knows its line, as PyYAML has it."""
Tables = dict[str, tuple[str, ...]]
"""The alternatives of every table, by the table's name."""


def read(file: str, kind: type[Content]) -> Content:
    """Return the content of a data file.

    Args:
        file: Its name in the folder `templates`.
        kind: What it holds: a dataclass, `dict[str, ...]`, `tuple[..., ...]` or `str`, nested as it may be.

    Raises:
        DataError: The file is no YAML, or holds something else; the message names file and line.

    Example:
        >>> read("roles.yaml", dict[str, str])["home"]
        'town'
    """
    # Imported here, because both together take longer than the rest of the room, and who plans may need no text at all.
    from importlib import resources

    import yaml

    # libyaml reads ten times faster, but not every build of PyYAML has it.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    with (resources.files("harness.miniature") / "templates" / file).open(encoding="utf-8") as stream:
        try:
            node = yaml.compose(stream, Loader=loader)
        except yaml.YAMLError as error:
            raise DataError(f"{file} is no YAML: {error}") from error
    if node is None:
        raise DataError(f"{file} is empty.")
    return _convert(node, kind)


def read_tables(*files: str) -> Tables:
    """Return the tables of several files together.

    Raises:
        DataError: A file holds something else than tables, or a table that an earlier file has.
    """
    tables: Tables = {}
    for file in files:
        for name, alternatives in read(file, Tables).items():
            if name in tables:
                raise DataError(f"{file} has a table '{name}', and so has one of {', '.join(files)}: rename it.")
            tables[name] = alternatives
    return tables


def _convert(node: Node, kind: Any) -> Any:
    if get_origin(kind) is dict:
        return {name: _convert(value, get_args(kind)[1]) for name, value in _entries(node).items()}
    if get_origin(kind) is tuple:
        return _convert_list(node, get_args(kind)[0])
    if isinstance(kind, type) and is_dataclass(kind):
        kinds, entries = {field.name: field.type for field in fields(kind)}, _entries(node)
        if entries.keys() != kinds.keys():
            raise _error(node, f"this entry has {', '.join(entries)}; it must have just {', '.join(kinds)}.")
        return kind(**{name: _convert(value, kinds[name]) for name, value in entries.items()})
    if node.id != "scalar" or not node.value:
        raise _error(node, "a text is wanted here; one that begins with { or [ needs quotes around it.")
    return node.value


def _convert_list(node: Node, kind: Any) -> tuple[Any, ...]:
    if node.id == "sequence":
        entries = tuple(_convert(entry, kind) for entry in node.value)
    elif node.id == "scalar" and node.style == "|" and kind is str:
        entries = tuple(line.strip() for line in node.value.splitlines() if line.strip())
    else:
        raise _error(node, "a list is wanted here: [one, two], or after `|` one entry on each line.")
    if not entries:
        raise _error(node, "this list is empty; it needs one entry or more.")
    return entries


def _entries(node: Node) -> dict[str, Node]:
    if node.id != "mapping":
        raise _error(node, "a mapping is wanted here: `name: value`, one on each line.")
    entries: dict[str, Node] = {}
    for key, value in node.value:
        if key.id != "scalar":
            raise _error(key, "a name is wanted in front of the colon.")
        if key.value in entries:
            raise _error(key, f"'{key.value}' is there twice; remove one or rename it.")
        entries[key.value] = value
    return entries


def _error(node: Node, problem: str) -> DataError:
    return DataError(f"{node.start_mark.name}, line {node.start_mark.line + 1}: {problem}")
