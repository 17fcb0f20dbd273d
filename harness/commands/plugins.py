"""The catalogue of plugins: settings, defaults, limits and metrics."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from harness.base.settings import allowed, fields_of
from harness.contracts import Evaluator, Method
from harness.errors import PluginError
from harness.planning.evaluators import READ
from harness.plugins import EVALUATORS, METHODS, declared_space, default_declaration, default_reference
from harness.search_space import OF_TRAINING, Choice, Dimension

NEEDS = {
    "none": "nothing more",
    "retain_data": "retain data",
    "memorized_model": "a memorized model",
    None: "what its settings say",
}


def catalogue() -> Iterator[str]:
    """Yield the lines of the catalogue; a plugin that cannot be imported is listed with the reason."""
    for title, registry in (("Methods", METHODS), ("\nEvaluators", EVALUATORS)):
        yield title
        for name in registry.names():
            yield ""
            try:
                plugin = registry.load(name)
            except PluginError as error:
                yield f"  {name}  (broken: {error})"
                continue
            yield from _method(name, plugin) if issubclass(plugin, Method) else _evaluator(name, plugin)


def _method(name: str, plugin: type[Method]) -> Iterator[str]:
    strength, space = plugin.strength, declared_space(plugin)
    trials = "one trial goes through its values" if strength.cumulative else "a trial for each value"
    yield f"  {name}  {plugin.label}: {_first_paragraph(plugin)}"
    yield f"    from {plugin.source}; needs {NEEDS[default_reference(plugin)]}; version {plugin.version}"
    yield f"    strength: {strength.field} ({trials}; erases nothing at {strength.off:g})"
    yield from _settings(plugin, space)
    if training := [f"{name} {_tried(space[name])}" for name in space if name.startswith(OF_TRAINING)]:
        yield f"    also tuned: {', '.join(training)}"


def _evaluator(name: str, plugin: type[Evaluator]) -> Iterator[str]:
    declared = default_declaration(plugin)
    metrics, reads = declared or ((), ())
    judges = f"; judges: {', '.join(plugin.judges)}" if plugin.judges else ""
    also = f"; reads {' and '.join(READ[role][0] for role in reads)}" if reads else ""
    yield f"  {name}  {_first_paragraph(plugin)}"
    yield f"    version {plugin.version}{judges}{also}"
    yield from _settings(plugin, {})
    yield "    metrics, with default settings:"
    if declared is None:
        yield "      (they depend on settings without a default)"
    for metric in metrics:
        limits = f"from {metric.low:g}" if math.isinf(metric.high) else f"{metric.low:g} to {metric.high:g}"
        group = metric.group if metric.ranked else f"{metric.group}; shown, not ranked"
        yield f"      {metric.name:<22} {metric.better} is better; {metric.unit}, {limits}; {group}; {metric.source}"


def _settings(plugin: type[Any], space: Mapping[str, Dimension]) -> Iterator[str]:
    about, hints = _field_docs(plugin), fields_of(plugin)
    for field in dataclasses.fields(plugin):
        default = "needed" if field.default is dataclasses.MISSING else f"default {_as_yaml(field.default)}"
        tuned = f"; tuned {_tried(space[field.name])}" if field.name in space else ""
        yield f"    {field.name}: {allowed(hints[field.name])}; {default}{tuned}"
        if field.name in about:
            yield textwrap.fill(about[field.name], 110, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _tried(dimension: Dimension) -> str:
    if isinstance(dimension, Choice):
        return f"among {', '.join(map(_as_yaml, dimension.values))}"
    return f"from {dimension.low:g} to {dimension.high:g}"


def _as_yaml(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _first_paragraph(plugin: type[Any]) -> str:
    return (inspect.getdoc(plugin) or "").partition("\n\n")[0].replace("\n", " ")


def _field_docs(plugin: type[Any]) -> dict[str, str]:
    """Return the string below each field, from the source of the class and of those it inherits from."""
    docs: dict[str, str] = {}
    for owner in filter(dataclasses.is_dataclass, reversed(plugin.__mro__)):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        except (OSError, TypeError, SyntaxError):
            continue
        for field, text in pairwise(body.body if isinstance(body, ast.ClassDef) else []):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                docs[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return docs
