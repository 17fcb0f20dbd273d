"""Check whether a method or evaluator meets every requirement on plugins; each is reported as a sentence.

    lethe check methods/npo.py
    lethe check npo
    lethe check ~/my_metric.py --set definition=table

It runs the conformance suite (harness.testing) on the smallest miniature. Of your files it executes only the one that
you name.

Exit codes: 0 every requirement holds, 1 one does not, 2 there is nothing to check: no such plugin, a file that cannot
be imported, or wrong settings.
"""

from __future__ import annotations

import argparse
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

from harness.base.messages import shown
from harness.base.paths import path_of
from harness.base.settings import check_settings
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.contracts import Method
from harness.errors import DataError, Faults, LetheError, PluginError, unknown
from harness.planning.sweep_file import parse
from harness.plugins import EVALUATORS, METHODS, PluginRegistry

GUIDES = {"method": "docs/add-a-method.md", "evaluator": "docs/add-a-metric.md"}
_SUITES = {"method": "MethodConformance", "evaluator": "EvaluatorConformance"}


class CheckCommand(Command):
    """`lethe check`."""

    input_errors = (LetheError,)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the plugin, its settings and how much is printed."""
        parser.add_argument("plugin", help="its file (methods/npo.py, or one of yours), or its name")
        about = "one of its settings: beta=0.1 (repeatable)"
        parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=about)
        parser.add_argument("--verbose", action="store_true", help="print pytest's whole output, tracebacks too")

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the conformance suite on one plugin."""
        registry, name = _named_plugin(arguments.plugin)
        plugin = registry.load(name)
        settings = _checked_settings(plugin, name, arguments.set)
        file = Path(str(sys.modules[plugin.__module__].__file__))
        return _run_suite(registry.kind, name, file, settings, verbose=arguments.verbose)


def _named_plugin(text: str) -> tuple[PluginRegistry[Any], str]:
    """Return the kind and name of the plugin that an argument names, by its file or its name; import nothing else."""
    if text.endswith(".py") or "/" in text:
        file = path_of(text).resolve()
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
    kinds = [registry for registry in (METHODS, EVALUATORS) if text in registry.names()]
    if not kinds:
        raise PluginError(unknown("method or evaluator", text, [*METHODS.names(), *EVALUATORS.names()]))
    if len(kinds) > 1:
        raise PluginError(f"'{text}' is a method and an evaluator: name its file.")
    return kinds[0], text


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
    """Return the settings that `--set` gives, if the plugin takes them.

    Raises:
        DataError: One is not NAME=VALUE, or the plugin refuses them.
    """
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


def _run_suite(kind: str, name: str, file: Path, settings: dict[str, Any], *, verbose: bool) -> int:
    """Run the suite in this process, print its sentences, and return the exit code."""
    try:
        import pytest
    except ModuleNotFoundError:
        raise PluginError("the conformance suite needs pytest: pip install 'pytest>=8.4'.") from None
    from harness.testing.sentences import Sentences

    for variable in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):  # Meant for other suites.
        os.environ.pop(variable, None)
    tell(f"The {kind} '{name}' ({file}), checked on the smallest miniature. It takes about a minute.", "")
    with TemporaryDirectory(prefix="lethe-check-") as folder:
        # A name of its own: Python keeps modules by their names, and a process may check several plugins.
        suite = Path(folder) / f"test_{secrets.token_hex(4)}.py"
        suite.write_text(
            f"from harness.testing import {_SUITES[kind]}\n\n\nclass TestPlugin({_SUITES[kind]}):\n"
            f"    plugin = {name!r}\n    settings = {settings!r}\n",
            encoding="utf-8",
        )
        (Path(folder) / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        sentences = Sentences(file, at_once=not verbose)
        alone = ["--noconftest", "--disable-plugin-autoload", "-p", "no:cacheprovider", "--import-mode=importlib"]
        shown_by_pytest = ["-v", "--tb=long"] if verbose else ["-p", "no:terminal"]
        places = ["-c", f"{folder}/pytest.ini", "--rootdir", folder, f"--basetemp={folder}/tmp"]
        code = pytest.main([*alone, *shown_by_pytest, *places, str(suite)], plugins=[sentences])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or not sentences.lines:
        raise PluginError(f"the suite did not run to its end (pytest's exit code {int(code)}): --verbose shows why.")
    if verbose:
        tell("", *sentences.lines)
    tell("", sentences.summary(f"the {kind} '{name}'"))
    if sentences.failed:
        tell(f"{GUIDES[kind]} explains each requirement; --verbose shows the tracebacks.")
    return 1 if sentences.failed else 0


main = CheckCommand()
