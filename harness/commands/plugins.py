"""Print every method and evaluator with its settings, defaults and limits, and every metric."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import math
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from harness.base.settings import allowed, fields_of
from harness.base.terminal import tell
from harness.commands.command import Command
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


class PluginsCommand(Command):
    """`lethe plugins`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add nothing: all plugins are printed."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Print the catalogue; a plugin that cannot be imported is listed with the reason."""
        for title, registry in (("Methods", METHODS), ("\nEvaluators", EVALUATORS)):
            tell(title)
            for name in registry.names():
                try:
                    plugin = registry.load(name)
                except PluginError as error:
                    tell("", f"  {name}  (broken: {error})")
                    continue
                if issubclass(plugin, Method):
                    tell("", *_described_method(name, plugin))
                else:
                    tell("", *_described_evaluator(name, plugin))
        return 0


def _described_method(name: str, plugin: type[Method]) -> Iterator[str]:
    strength = plugin.strength
    trials = "one trial goes through its values" if strength.cumulative else "a trial for each value"
    yield f"  {name}  {plugin.label}: {_first_paragraph(plugin)}"
    yield f"    from {plugin.source}; needs {NEEDS[default_reference(plugin)]}; version {plugin.version}"
    yield f"    strength: {strength.field} ({trials}; erases nothing at {strength.off:g})"
    space = declared_space(plugin)
    yield from _described_settings(plugin, space)
    training = [f"{name} {_tried(dimension)}" for name, dimension in space.items() if name.startswith(OF_TRAINING)]
    if training:
        yield f"    also tuned: {', '.join(training)}"


def _described_evaluator(name: str, plugin: type[Evaluator]) -> Iterator[str]:
    declared = default_declaration(plugin)
    metrics, reads = declared or ((), ())
    judges = f"; judges: {', '.join(plugin.judges)}" if plugin.judges else ""
    also = f"; reads {' and '.join(READ[role][0] for role in reads)}" if reads else ""
    yield f"  {name}  {_first_paragraph(plugin)}"
    yield f"    version {plugin.version}{judges}{also}"
    yield from _described_settings(plugin)
    yield "    metrics, with default settings:"
    if declared is None:
        yield "      (they depend on settings without a default)"
        return
    for metric in metrics:
        limits = f"from {metric.low:g}" if math.isinf(metric.high) else f"{metric.low:g} to {metric.high:g}"
        group = metric.group if metric.ranked else f"{metric.group}; shown, not ranked"
        yield f"      {metric.name:<22} {metric.better} is better; {metric.unit}, {limits}; {group}; {metric.source}"


def _described_settings(plugin: type[Any], space: Mapping[str, Dimension] = MappingProxyType({})) -> Iterator[str]:
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


main = PluginsCommand()
