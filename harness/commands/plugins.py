"""Catalogue of plugins, and the conformance suite for one plugin."""

import ast
import dataclasses
import importlib.util
import inspect
import math
import os
import re
import secrets
import sys
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import extract_tb
from types import ModuleType
from typing import Any

from harness.base.files import write_whole
from harness.base.messages import shown, tell
from harness.base.settings import allowed, check_settings, field_types, settings_adapter
from harness.contracts import Evaluator, Method
from harness.errors import ConfigError, DataError, Faults, PluginError, unknown
from harness.planning import evaluators, sweep_file
from harness.plugins import EVALUATORS, METHODS, PluginRegistry, declared_space, default_declaration, describe_needs
from harness.reporting.render import fill_template
from harness.settings import TRAINING_PATH, Choice, Dimension, Sweep


def catalogue() -> str:
    """Return the catalogue; a plugin that cannot be imported is listed with the reason."""
    registries: dict[str, list[dict[str, Any]]] = {}
    for title, registry in (("Methods", METHODS), ("Evaluators", EVALUATORS)):
        plugins = registries[title] = []
        for name in registry.names():
            try:
                plugin = registry.load(name)
            except PluginError as error:
                plugins.append({"name": name, "broken": str(error)})
                continue
            space = declared_space(plugin) if issubclass(plugin, Method) else {}
            facts: dict[str, Any] = {"name": name, "plugin": plugin, "settings": _settings(plugin, space)}
            facts["about"] = (inspect.getdoc(plugin) or "").partition("\n\n")[0].replace("\n", " ")
            if issubclass(plugin, Method):
                facts["needs"] = describe_needs(plugin)
                facts["tuned"] = [f"{name} {_tried(space[name])}" for name in space if name.startswith(TRAINING_PATH)]
            else:
                facts["metrics"], reads = default_declaration(plugin) or (None, ())
                facts["reads"] = [evaluators.READ[role][0] for role in reads]
            plugins.append(facts)
    return fill_template("harness.commands", "catalogue.txt.j2", registries=registries, inf=math.inf)


def _settings(plugin: type[Any], space: Mapping[str, Dimension]) -> list[tuple[str, str]]:
    about, hints, lines = _field_docs(plugin), field_types(plugin), []
    for field in dataclasses.fields(plugin):
        default = "needed" if field.default is dataclasses.MISSING else f"default {_format_yaml(field.default)}"
        tuned = f"; tuned {_tried(space[field.name])}" if field.name in space else ""
        meaning = textwrap.fill(about.get(field.name, ""), 110, initial_indent=" " * 6, subsequent_indent=" " * 6)
        lines.append((f"{field.name}: {allowed(hints[field.name])}; {default}{tuned}", meaning))
    return lines


def _tried(dimension: Dimension) -> str:
    if isinstance(dimension, Choice):
        return f"among {', '.join(map(_format_yaml, dimension.values))}"
    return f"from {dimension.low:g} to {dimension.high:g}"


def _format_yaml(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _field_docs(plugin: type[Any]) -> dict[str, str]:
    docs: dict[str, str] = {}
    for owner in filter(dataclasses.is_dataclass, reversed(plugin.__mro__)):
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        for field, text in pairwise(body.body if isinstance(body, ast.ClassDef) else []):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                docs[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return docs


def sweep_schema() -> dict[str, Any]:
    """Return the JSON schema of a sweep file, with the settings of every plugin that can be imported."""
    schema: dict[str, Any] = Sweep.model_json_schema()
    definitions = schema["$defs"]
    row = {"training": _with_axes(definitions["Training"])}
    evaluator_rows, methods, rows = dict[str, Any](), dict[str, Any](), list[dict[str, str]]()
    for registry in (METHODS, EVALUATORS):
        for name in registry.names():
            try:
                plugin = registry.load(name)
            except PluginError:
                continue
            settings = settings_adapter(plugin).json_schema()
            definitions |= settings.pop("$defs", {})
            for field, text in _field_docs(plugin).items():
                settings["properties"].get(field, {}).setdefault("description", text)
            if issubclass(plugin, Evaluator):
                evaluator_rows[name] = {"anyOf": [settings, {"type": "null"}]}
            else:
                settings = _with_axes(settings)
                settings["properties"] |= {"method": {"const": name}, **row}
                definitions[f"row of {name}"] = settings
                rows.append({"$ref": f"#/$defs/row of {name}"})
                methods[name] = {"anyOf": [rows[-1], {"$ref": "#/$defs/named row"}, {"type": "null"}]}
    definitions["named row"] = {"type": "object", "required": ["method"], "anyOf": rows}
    blocks = schema["properties"]
    blocks["methods"] |= {"properties": methods, "additionalProperties": {"$ref": "#/$defs/named row"}}
    blocks["evaluators"] |= {"properties": evaluator_rows, "additionalProperties": False}
    return schema


def _with_axes(settings: Mapping[str, Any]) -> dict[str, Any]:
    properties = {}
    for name, one in settings["properties"].items():
        properties[name] = {"anyOf": [one, {"type": "array", "items": one}]}
        properties[name] |= {"description": one["description"]} if "description" in one else {}
    return {**settings, "properties": properties}


GUIDES = {"method": "docs/add-a-method.md", "evaluator": "docs/add-a-metric.md"}
_SUITES = {"method": "MethodConformance", "evaluator": "EvaluatorConformance"}


def check_plugin(text: str, overrides: Sequence[str]) -> int:
    """Run the conformance suite on one plugin, named by its file or name; return the exit code."""
    try:
        import pytest
    except ModuleNotFoundError:
        raise PluginError("the conformance suite needs pytest: pip install 'pytest>=8.4'.") from None
    registry, name = _named_plugin(text)
    plugin, kind = registry.load(name), registry.kind
    settings = sweep_file.parse_sweep_file("{}", Path(name), overrides).settings
    dial = {plugin.strength.field: plugin.strength.off} if issubclass(plugin, Method) else {}
    faults = Faults()
    check_settings(plugin, {**dial, **settings}, name, faults)
    if faults:
        raise ConfigError(name, faults)
    tell(f"The {kind} '{name}' ({sys.modules[plugin.__module__].__file__}), checked on the smallest miniature.")
    for variable in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):  # Meant for other suites.
        os.environ.pop(variable, None)
    with TemporaryDirectory(prefix="lethe-check-") as folder:
        # A name of its own: Python keeps modules by their names, and a process may check several plugins.
        suite = Path(folder) / f"test_{secrets.token_hex(4)}.py"
        content = f"from harness.testing import {_SUITES[kind]}\n\n\nclass TestPlugin({_SUITES[kind]}):\n"
        suite.write_text(f"{content}    plugin = {name!r}\n    settings = {settings!r}\n", encoding="utf-8")
        (Path(folder) / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        isolated = ["--noconftest", "--disable-plugin-autoload", "-p", "no:cacheprovider", "--import-mode=importlib"]
        places = ["-c", f"{folder}/pytest.ini", "--rootdir", folder, f"--basetemp={folder}/tmp"]
        code = pytest.main([*isolated, "-v", "-rfE", "--tb=short", "--no-header", *places, str(suite)])
    if code:
        tell(f"{GUIDES[kind]} explains each requirement.")
    return int(code)


def write_method(name: str) -> int:
    """Write methods/NAME.py, to begin from; return the exit code."""
    file = Path("methods") / f"{name}.py"
    is_free = name not in METHODS.names() and not file.exists() and file.parent.is_dir()
    if not (is_free and re.fullmatch("[a-z][a-z0-9_]*", name)):
        rule = "of a-z, 0-9 and _, beginning with a letter, that `lethe plugins` does not list"
        raise DataError(f"{file} is not written. In the folder that has methods/, choose a name {rule}.")
    write_whole(file, fill_template("harness.commands", "method.py.j2", name=name), "the method")
    tell(f"{file} is written. Replace its loss, then: lethe check {file}")
    return 0


def _named_plugin(text: str) -> tuple[PluginRegistry[Any], str]:
    if not (text.endswith(".py") or "/" in text):
        if text not in (names := [*METHODS.names(), *EVALUATORS.names()]):
            raise PluginError(unknown("method or evaluator", text, names))
        return METHODS if text in METHODS.names() else EVALUATORS, text
    file = Path(text).resolve()
    if not file.is_file() or file.suffix != ".py":
        remedy = "Name a plugin's file, or its name as `lethe plugins` lists it."
        raise DataError(f"there is no Python file {text}. {remedy}")
    for registry in (METHODS, EVALUATORS):
        if file.parent == Path(str(importlib.import_module(registry.package).__file__)).parent:
            return registry, file.stem
    module = _imported(file)
    kinds = [registry for registry in (METHODS, EVALUATORS) if registry.plugins_in(module)]
    if len(kinds) != 1:
        content = "both a Method and an Evaluator" if kinds else "no concrete Method or Evaluator"
        raise PluginError(f"{file} holds {content} of harness.contracts. One file is one plugin.")
    kinds[0].add(file.stem, module)
    return kinds[0], file.stem


def _imported(file: Path) -> ModuleType:
    name = f"checked_{file.stem}"  # Not the file's own: it may be that of a module which others import.
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        frame = extract_tb(error.__traceback__)[-1]
        reason = f"({Path(frame.filename).name}, line {frame.lineno}): {type(error).__name__}: {shown(str(error))}"
        raise PluginError(f"{file} cannot be imported {reason}") from error
    return module
