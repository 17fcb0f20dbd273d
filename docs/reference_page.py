"""Writes docs/reference.md, all that a plugin may import, from docstrings: `python docs/reference_page.py`.

A test compares the page with the code.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from harness import contracts, errors, metric, toolkit, training
from harness.models import blocks
from harness.toolkit import finetune, steps

PAGE = Path(__file__).with_name("reference.md")
HEAD = """<!-- Made by docs/reference_page.py from docstrings: edit those. -->
# What plugins are made of

All that a method or an evaluator may import: `harness.contracts`, `harness.toolkit`, `harness.errors` and, to choose
blocks, `harness.models.blocks`. The names here stay; the modules behind them may change.
[add-a-method.md](add-a-method.md) and [add-a-metric.md](add-a-metric.md) show how they are used.

Letters at the end of a name are its shape: N sequences or items, B rows of a batch, S positions of a row, T tokens, V
vocabulary.
"""
PARTS = (
    ("harness.contracts", contracts, "What a plugin declares, what it is given, and what it returns."),
    ("harness.toolkit", toolkit, "Losses, training, decoding, judges and texts."),
    ("harness.models.blocks", blocks, "The attention heads and MLP matrices of a model, by name."),
    ("harness.errors", errors, "What a plugin may raise: the message is shown to the user as it is."),
)
NAMED_TYPES = {contracts: (contracts, metric, training), toolkit: (steps, finetune)}
"""Where the names of types stand that a part's annotations use."""
SECTIONS = ("Args", "Returns", "Yields", "Raises", "Example", "Source")


def page() -> str:
    """Return the whole page."""
    lines = [HEAD]
    for title, module, about in PARTS:
        names = public_names(module)
        listed = ", ".join(f"[`{name}`](#{name.lower()})" for name in names)
        lines += [f"## {title}\n", textwrap.fill(f"{about} {listed}.", 128, break_on_hyphens=False) + "\n"]
        for name in names:
            lines += entry(name, getattr(module, name))
        if module in NAMED_TYPES:
            lines += ["### Types\n", "\n".join(aliases(NAMED_TYPES[module])) + "\n"]
    return "\n".join(lines).rstrip() + "\n"


def public_names(module: ModuleType) -> list[str]:
    """Return a module's classes and functions: of `__all__`, or its own and those that it exports under their names."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    exported = re.findall(r"^from harness\S* import \w+ as (\w+)$", inspect.getsource(module), re.M)
    names = []
    for name, value in vars(module).items():
        source = getattr(value, "__module__", "") or ""
        is_shown = source == module.__name__ or (name in exported and source.startswith("harness."))
        if is_shown and not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
            names.append(name)
    return names


def aliases(modules: Iterable[ModuleType]) -> Iterator[str]:
    """Yield what the names of types stand for that annotations above use."""
    for module in modules:
        body = ast.parse(inspect.getsource(module)).body
        for statement, below in zip(body, [*body[1:], None], strict=True):
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
                continue
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            value, name = ast.unparse(statement.value), ast.unparse(target)
            if name[0].isupper() and not name.isupper() and "TypeVar" not in value:
                meaning = text_of(below)
                yield f"- `{name}`: `{value}`{f'. {meaning}' if meaning else ''}"


def text_of(statement: ast.stmt | None) -> str:
    """Return the text of a statement that is nothing else, as below a field."""
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return " ".join(str(statement.value.value).split()) if is_text else ""


def entry(name: str, value: Any) -> Iterator[str]:
    """Yield the lines of one class or function."""
    yield f"### {name}\n"
    if inspect.isclass(value):
        yield from class_lines(name, value)
    else:
        yield f"```python\n{signature(name, value)}\n```\n"
        yield from docstring_lines(value)


def class_lines(name: str, value: type[Any]) -> Iterator[str]:
    """Yield a class: what it is, its fields, its methods."""
    bases = ", ".join(base.__name__ for base in value.__bases__ if base.__module__.startswith("harness"))
    yield f"```python\nclass {name}{f'({bases})' if bases else ''}\n```\n"
    yield from docstring_lines(value)
    rows = [f"- `{field}`{f': {meaning}' if meaning else ''}" for field, meaning in fields(value)]
    if rows:
        yield "\n".join(rows) + "\n"
    for member, function in vars(value).items():
        function = getattr(function, "fget", function)
        is_public = not member.startswith("_") and inspect.isfunction(function)
        if is_public and inspect.getdoc(function):
            yield f"**`{signature(member, function)}`**\n"
            yield from docstring_lines(function)


def fields(value: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield the declared fields of a class, with type and default as they are written, and the text below each."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    assert isinstance(definition, ast.ClassDef)
    body = definition.body
    for statement, below in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or ast.unparse(statement.target).startswith("_"):
            continue
        default = f" = {ast.unparse(statement.value)}" if statement.value else ""
        yield f"{ast.unparse(statement.target)}: {ast.unparse(statement.annotation)}{default}", text_of(below)


def signature(name: str, function: Any) -> str:
    """Return a call as it is written in the source: types and defaults, without `self`."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    if any(ast.unparse(decorator) == "property" for decorator in definition.decorator_list):
        return f"{name}: {ast.unparse(definition.returns) if definition.returns else 'Any'}"
    arguments = definition.args
    arguments.args = [argument for argument in arguments.args if argument.arg not in ("self", "cls")]
    returns = f" -> {ast.unparse(definition.returns)}" if definition.returns else ""
    return f"{name}({ast.unparse(arguments)}){returns}"


def docstring_lines(value: Any) -> Iterator[str]:
    """Yield a Google docstring as Markdown: sections in bold, arguments as a list, examples as code."""
    text = inspect.getdoc(value) or ""
    parts = re.split(rf"^({'|'.join(SECTIONS)}|Differs from the paper):", text, flags=re.M)
    yield parts[0].strip() + "\n"
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        lines = textwrap.dedent(body.strip("\n")).strip()
        if heading == "Example":
            yield f"```pycon\n{lines}\n```\n"
        elif heading in ("Args", "Raises"):
            items = re.split(r"^(?=[*]*\w+: )", lines, flags=re.M)
            listed = [re.sub(r"^([*]*\w+): ", r"- `\1`: ", " ".join(item.split())) for item in items if item.strip()]
            yield f"**{heading}**\n\n" + "\n".join(listed) + "\n"
        else:
            yield f"**{heading}:** {' '.join(lines.split())}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
