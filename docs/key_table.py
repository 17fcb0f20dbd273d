"""Writes the table of keys in docs/sweeps.md from the schema: `python docs/key_table.py`. A test compares the two."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from harness.base.settings import allowed, fields_of
from harness.planning.schema import Sweep, TrainingSettings
from harness.training import Training

PAGE = Path(__file__).with_name("sweeps.md")
BEGIN = "<!-- keys: begin. Made by docs/key_table.py; edit planning/schema.py or data/sections.py instead. -->"
END = "<!-- keys: end -->"


class Key(NamedTuple):
    """One line of the table."""

    parents: str
    name: str
    meaning: str
    allowed: str
    default: str


def keys(settings: type[Any], parents: str = "") -> Iterator[Key]:
    """Yield the keys of `settings`, those of a block where the block stands.

    Raises:
        KeyError: A field has no text below it that says what it means.
    """
    meanings = described(Training if settings is TrainingSettings else settings)
    for name, hint in fields_of(settings).items():
        block = block_in(hint)
        if block is None:
            yield Key(parents, name, meanings[name], allowed(hint), default_of(settings, name))
        else:
            is_list = get_origin(hint) is not None and "list[" in str(hint)
            yield from keys(block, f"{parents}{name}{'[]' if is_list else ''}.")


def block_in(hint: Any) -> type[Any] | None:
    """Return the settings that a key's mapping has; None for a plain value."""
    if inspect.isclass(hint) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint)):
        return hint if fields_of(hint) else None
    if get_origin(hint) in (Annotated, Union, UnionType, list):
        inner = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
        blocks = [block_in(kind) for kind in inner if kind is not NoneType]
        return blocks[0] if blocks else None
    return None


def described(settings: type[Any]) -> dict[str, str]:
    """Return the text below each field of a class and of its bases."""
    meanings: dict[str, str] = {}
    for owner in reversed(settings.__mro__):
        if owner.__module__.startswith("harness."):
            [definition] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
            assert isinstance(definition, ast.ClassDef)
            for statement, text in zip(definition.body, definition.body[1:], strict=False):
                is_field = isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
                if is_field and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                    meanings[statement.target.id] = " ".join(str(text.value.value).split())
    return meanings


def default_of(settings: type[Any], name: str) -> str:
    """Return a setting's default as YAML has it; nothing where there is none."""
    if dataclasses.is_dataclass(settings):
        [default] = [field.default for field in dataclasses.fields(settings) if field.name == name]
        if default is dataclasses.MISSING:
            return "required"
    else:
        default = settings.model_fields[name].get_default(call_default_factory=True)
        if default is PydanticUndefined:
            return "required"
    if isinstance(default, BaseModel):
        return str(next(iter(default.model_dump().values())))
    text = default if isinstance(default, str) else json.dumps(default)
    return f"`{text}`"


def table() -> str:
    """Return the table: keys that mean the same below several parents are one line."""
    merged: dict[tuple[str, ...], list[str]] = {}
    for key in keys(Sweep):
        merged.setdefault((key.name, key.meaning, key.allowed, key.default), []).append(key.parents)
    lines = ["| key | what it says | allowed | default |", "|---|---|---|---|"]
    for (name, meaning, what, default), parents in merged.items():
        places = ", ".join(f"`{path}`" for path in paths(parents, name))
        cells = [text.replace("|", "\\|") for text in (places, meaning, what, default)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def paths(parents: list[str], name: str) -> list[str]:
    """Return a key's dotted paths, those below one block as one.

    Example:
        >>> paths(["data.forget.", "data.holdout.", "training."], "start")
        ['data.{forget,holdout}.start', 'training.start']
    """
    blocks: dict[str, list[str]] = {}
    for parent in parents:
        block, _, rest = parent.partition(".")
        blocks.setdefault(block, []).append(rest)
    joined = []
    for block, below in blocks.items():
        if len(below) > 1:
            inner = ",".join(part.removesuffix(".") for part in below)
            joined.append(f"{block}.{{{inner}}}.{name}")
        else:
            joined.append(f"{block}.{below[0]}{name}" if block else name)
    return joined


def page(text: str) -> str:
    """Return the page with the table of today between its two marks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
