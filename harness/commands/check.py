"""A plugin, tested by the conformance suite on the smallest miniature."""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import extract_tb
from types import ModuleType
from typing import Any

from harness.base.messages import shown, tell
from harness.base.settings import check_settings
from harness.contracts import Method
from harness.errors import DataError, Faults, PluginError, unknown
from harness.planning.sweep_file import parse
from harness.plugins import EVALUATORS, METHODS, PluginRegistry

GUIDES = {"method": "docs/add-a-method.md", "evaluator": "docs/add-a-metric.md"}
_SUITES = {"method": "MethodConformance", "evaluator": "EvaluatorConformance"}


def check_plugin(text: str, given: Sequence[str]) -> int:
    """Run the conformance suite on one plugin, named by its file or name, and return the exit code."""
    try:
        import pytest
    except ModuleNotFoundError:
        raise PluginError("the conformance suite needs pytest: pip install 'pytest>=8.4'.") from None
    registry, name = _named_plugin(text)
    plugin, kind = registry.load(name), registry.kind
    settings = _checked_settings(plugin, name, given)
    tell(f"The {kind} '{name}' ({sys.modules[plugin.__module__].__file__}), checked on the smallest miniature.")
    for variable in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):  # Meant for other suites.
        os.environ.pop(variable, None)
    with TemporaryDirectory(prefix="lethe-check-") as folder:
        # A name of its own: Python keeps modules by their names, and a process may check several plugins.
        suite = Path(folder) / f"test_{secrets.token_hex(4)}.py"
        suite.write_text(
            f"from harness.testing import {_SUITES[kind]}\n\n\nclass TestPlugin({_SUITES[kind]}):\n"
            f"    plugin = {name!r}\n    settings = {settings!r}\n",
            encoding="utf-8",
        )
        (Path(folder) / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        alone = ["--noconftest", "--disable-plugin-autoload", "-p", "no:cacheprovider", "--import-mode=importlib"]
        places = ["-c", f"{folder}/pytest.ini", "--rootdir", folder, f"--basetemp={folder}/tmp"]
        output = ["-v", "-rfE", "--tb=short", "--no-header"]
        code = pytest.main([*alone, *output, *places, str(suite)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise PluginError(f"the suite did not run to its end (pytest's exit code {int(code)}).")
    if code:
        tell(f"{GUIDES[kind]} explains each requirement.")
    return int(code)


def _named_plugin(text: str) -> tuple[PluginRegistry[Any], str]:
    """Return the registry and name of the plugin that an argument names, by its file or its name."""
    if not (text.endswith(".py") or "/" in text):
        kinds = [registry for registry in (METHODS, EVALUATORS) if text in registry.names()]
        if not kinds:
            raise PluginError(unknown("method or evaluator", text, [*METHODS.names(), *EVALUATORS.names()]))
        if len(kinds) > 1:
            raise PluginError(f"'{text}' is a method and an evaluator: name its file.")
        return kinds[0], text
    file = Path(text).resolve()
    if not file.is_file():
        raise DataError(f"there is no file {text}. Name a plugin's file, or its name as `lethe plugins` lists it.")
    for registry in (METHODS, EVALUATORS):
        if file.parent == Path(str(import_module(registry.package).__file__)).parent:
            return registry, file.stem
    module = _imported(file)
    kinds = [registry for registry in (METHODS, EVALUATORS) if registry.plugins_in(module)]
    if len(kinds) != 1:
        raise PluginError(
            f"{file} holds {'both a Method and an Evaluator' if kinds else 'no concrete Method or Evaluator'} of "
            f"harness.contracts. One file is one plugin: {' and '.join(GUIDES.values())} show one of each."
        )
    kinds[0].add(file.stem, module)
    return kinds[0], file.stem


def _imported(file: Path) -> ModuleType:
    name = f"checked_{file.stem}"  # Not the file's own: it may be that of a module which others import.
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PluginError(f"{file} is no Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file)]
        where = f" (line {lines[-1]})" if lines else ""
        raise PluginError(f"{file}{where} cannot be imported: {type(error).__name__}: {shown(str(error))}") from error
    return module


def _checked_settings(plugin: type, plugin_name: str, given: Sequence[str]) -> dict[str, Any]:
    settings = {}
    for text in given:
        name, equals, value = text.partition("=")
        try:
            settings[name] = parse(value)
        except DataError:
            equals = ""
        if not (name and equals):
            raise DataError(f"--set {text} is not NAME=VALUE, such as beta=0.1.")
    dial = {plugin.strength.field: plugin.strength.off} if issubclass(plugin, Method) else {}
    faults = Faults()
    check_settings(plugin, {**dial, **settings}, plugin_name, faults)
    if faults:
        reasons = "\n".join(f"  {fault.path}  {fault.reason}" for fault in faults)
        raise DataError(
            f"{plugin_name} cannot be checked with these settings:\n{reasons}\nGive it others: --set NAME=VALUE."
        )
    return settings
