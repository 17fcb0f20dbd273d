"""Tries one method or evaluator against all that it must keep, and says in sentences what holds and what does not.

    lethe check methods/npo.py
    lethe check npo
    lethe check ~/my_metric.py --set definition=table

It runs the conformance suite (harness.testing) on the smallest miniature; of your files it executes the one that you
name, and no other.

Exit codes: 0 all of it holds, 1 something does not, 2 there is nothing to try: no such plugin, a file that cannot be
imported, or wrong settings.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import extract_tb
from typing import Any

import yaml

from harness.base.messages import shown
from harness.base.paths import path_of
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.contracts import Method
from harness.errors import DataError, PluginError, unknown
from harness.planning.validation import collected, validated
from harness.plugins import EVALUATORS, METHODS, PluginRegistry

GUIDES = {"method": "docs/add-a-method.md", "evaluator": "docs/add-a-metric.md"}
_SUITES = {"method": "MethodConformance", "evaluator": "EvaluatorConformance"}


@dataclass(frozen=True)
class _Checked:
    """The plugin that is tried."""

    registry: PluginRegistry[Any]
    name: str
    plugin: type

    @property
    def file(self) -> Path:
        """Return its source."""
        return Path(str(sys.modules[self.plugin.__module__].__file__))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plugin", help="its file (methods/npo.py, or one of yours), or its name")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="one of its settings: beta=0.1 (repeatable)"
    )
    parser.add_argument("--verbose", action="store_true", help="show all that pytest says, tracebacks too")


def _run(arguments: argparse.Namespace) -> int:
    """Run the conformance suite on one plugin."""
    checked = _find(arguments.plugin)
    settings = _settings(checked, arguments.set)
    return _run_suite(checked, settings, verbose=arguments.verbose)


def _find(text: str) -> _Checked:
    """Return the plugin that an argument names, by its file or by its name; nothing else is imported."""
    if text.endswith(".py") or "/" in text:
        file = path_of(text).resolve()
        if not file.is_file():
            raise DataError(f"there is no file {text}. Name a plugin's file, or its name as `lethe plugins` lists it.")
        ours = {Path(str(import_module(each.package).__file__)).parent: each for each in (METHODS, EVALUATORS)}
        registry = ours.get(file.parent) or _add(file)
        return _Checked(registry, file.stem, registry.load(file.stem))
    kinds = [registry for registry in (METHODS, EVALUATORS) if text in registry.names()]
    if len(kinds) != 1:
        known = [*METHODS.names(), *EVALUATORS.names()]
        both = f"'{text}' is a method and an evaluator: name its file."
        raise PluginError(both if kinds else unknown("method or evaluator", text, known))
    return _Checked(kinds[0], text, kinds[0].load(text))


def _add(file: Path) -> PluginRegistry[Any]:
    """Import a file from outside of our folders, make it a plugin of this process, and return of which kind."""
    name = f"checked_{file.stem}"  # Not the file's own: it may be that of a module which others import.
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PluginError(f"{file} is no Python file: its name ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file)]
        where = f" (line {lines[-1]})" if lines else ""
        raise PluginError(f"{file}{where} cannot be imported: {type(error).__name__}: {shown(str(error))}") from error
    kinds = [registry for registry in (METHODS, EVALUATORS) if registry.plugins_in(module)]
    if len(kinds) != 1:
        raise PluginError(
            f"{file} holds {'both a Method and an Evaluator' if kinds else 'no concrete Method or Evaluator'} of "
            f"harness.contracts. One file is one plugin: {' and '.join(GUIDES.values())} show one of each."
        )
    kinds[0].add(file.stem, module)
    return kinds[0]


def _settings(checked: _Checked, given: Sequence[str]) -> dict[str, Any]:
    """Return the settings that `--set` gives, sure to be ones that the plugin takes.

    Raises:
        DataError: One is not NAME=VALUE, or the plugin refuses them.
    """
    settings = {}
    for each in given:
        name, equals, value = each.partition("=")
        try:
            settings[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            equals = ""
        if not (name and equals):
            raise DataError(f"--set {each} is not NAME=VALUE, such as beta=0.1.")
    plugin = checked.plugin
    dial = {plugin.strength.field: plugin.strength.off} if issubclass(plugin, Method) else {}
    _, faults = collected(validated(plugin, {**dial, **settings}, checked.name))
    if faults:
        reasons = "\n".join(f"  {fault.path}  {fault.reason}" for fault in faults)
        raise DataError(
            f"{checked.name} cannot be tried with these settings:\n{reasons}\nGive it others: --set NAME=VALUE."
        )
    return settings


def _run_suite(checked: _Checked, settings: dict[str, Any], *, verbose: bool) -> int:
    try:
        import pytest
    except ModuleNotFoundError:
        raise PluginError("the conformance suite needs pytest: pip install 'pytest>=8.4'.") from None
    from harness.testing.sentences import Sentences

    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):  # Meant for other suites.
        os.environ.pop(name, None)
    kind = checked.registry.kind
    tell(f"The {kind} '{checked.name}' ({checked.file}), tried on the smallest miniature. It takes a minute or so.", "")
    with TemporaryDirectory(prefix="lethe-check-") as folder:
        # A name of its own: Python keeps modules by their names, and a process may check several plugins.
        suite = Path(folder) / f"test_{secrets.token_hex(4)}.py"
        suite.write_text(
            f"from harness.testing import {_SUITES[kind]}\n\n\nclass TestPlugin({_SUITES[kind]}):\n"
            f"    plugin = {checked.name!r}\n    settings = {settings!r}\n",
            encoding="utf-8",
        )
        (Path(folder) / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        sentences = Sentences(checked.file, at_once=not verbose)
        alone = ["--noconftest", "--disable-plugin-autoload", "-p", "no:cacheprovider", "--import-mode=importlib"]
        shown_by_pytest = ["-v", "--tb=long"] if verbose else ["-p", "no:terminal"]
        places = ["-c", f"{folder}/pytest.ini", "--rootdir", folder, f"--basetemp={folder}/tmp"]
        code = pytest.main([*alone, *shown_by_pytest, *places, str(suite)], plugins=[sentences])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or not sentences.told:
        raise PluginError(f"the suite did not run to its end (pytest's exit code {int(code)}): --verbose shows why.")
    if verbose:
        tell("", *sentences.told)
    tell("", sentences.summary(f"the {kind} '{checked.name}'"))
    if sentences.failed:
        tell(f"{GUIDES[kind]} says what each of these is about; --verbose shows the tracebacks.")
    return 1 if sentences.failed else 0


main = Command("check", __doc__, _add_arguments, _run, error_code=2)
