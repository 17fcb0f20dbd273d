"""Registries of plugins: files in `methods/` and `evaluators/`, and entry points.

A file's name is the plugin's name. Files are listed without importing them, and imported one at a time, so a broken
plugin affects only its own users.
"""

import ast
import importlib
import importlib.util
import inspect
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from harness.base.files import digest_of
from harness.base.settings import field_types, settings_adapter
from harness.contracts import Choice, Evaluator, LogUniform, Method, Metric, Number, Read, Training
from harness.errors import PluginError, unknown
from harness.settings import TRAINING_PATH, Dimension

P = TypeVar("P", Method, Evaluator)
NEEDS = {"none": "nothing more", "retain_data": "data.retain", "memorized_model": "a memorised model, made first"}
"""A method's `reference` in words."""


@dataclass(frozen=True)
class PluginRegistry(Generic[P]):
    """All plugins of one kind: `METHODS` or `EVALUATORS`."""

    kind: str
    package: str
    """Import name of the folder of our own plugins."""
    group: str
    """Entry-point group of external plugins."""
    contract: type[P]
    _clashes: dict[str, str] = field(default_factory=dict, compare=False)

    def names(self) -> tuple[str, ...]:
        """Return every plugin's name, sorted, importing none."""
        return tuple(sorted({*self._files, *self._entry_points}))

    @cached_property
    def _files(self) -> frozenset[str]:
        modules = pkgutil.iter_modules(importlib.import_module(self.package).__path__)
        return frozenset(module.name for module in modules if not module.ispkg)

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        entries: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            other = entries.get(entry.name)
            defined_in = f"{self.package}/{entry.name}.py" if entry.name in self._files else other and other.value
            if defined_in:
                self._clashes[entry.name] = f"is defined in {defined_in} and in {entry.value}. Uninstall or rename one."
            entries[entry.name] = entry
        return entries

    def load(self, name: str) -> type[P]:
        """Return the plugin class called `name`.

        Raises:
            PluginError: There is no such plugin, its import fails, or its module lacks exactly one class of the
            contract.
        """
        if name not in self.names():
            raise PluginError(unknown(self.kind, name, self.names()))
        if name in self._clashes:
            raise PluginError(f"the {self.kind} '{name}' {self._clashes[name]}")
        entry = self._entry_points.get(name)
        module_name = entry.module if entry else f"{self.package}.{name}"
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise PluginError(f"the {self.kind} '{name}' ({module_name}) cannot be imported: {reason}") from error
        plugins = self.plugins_in(module)
        if len(plugins) != 1:
            names = ", ".join(plugin.__name__ for plugin in plugins) or "none"
            contract = self.contract.__name__
            raise PluginError(f"{module_name} must hold exactly one concrete {contract}, and holds: {names}.")
        return plugins[0]

    def plugins_in(self, module: ModuleType) -> list[type[P]]:
        """Return the concrete classes of the contract that a module defines."""
        own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
        classes = [value for value in own if inspect.isclass(value) and issubclass(value, self.contract)]
        return [plugin for plugin in classes if not inspect.isabstract(plugin)]

    def add(self, name: str, module: ModuleType) -> None:
        """Register a loaded module as a plugin of this process.

        Raises:
            PluginError: Another plugin has this name.
        """
        if name in self.names():
            raise PluginError(f"the {self.kind} '{name}' is there already: rename {module.__file__}.")
        self._entry_points[name] = EntryPoint(name, module.__name__, self.group)

    def configure(self, name: str, settings: dict[str, Any]) -> P:
        """Return the plugin `name` with validated settings.

        Raises:
            PluginError: There is no such plugin.
            pydantic.ValidationError: Settings have wrong names, types or ranges; all are listed.
        """
        plugin: P = settings_adapter(self.load(name)).validate_json(json.dumps(settings), strict=True)
        return plugin


@cache
def plugin_digest(plugin: type[Any]) -> str:
    """Return 16 hex digits of a plugin's code, without comments and docstrings.

    They cover its file, the modules of its own package that it imports, directly or indirectly, and a method's losses.
    """
    package, unread = plugin.__module__.partition(".")[0], [plugin.__module__]
    unread += ["harness.toolkit.losses", "harness.toolkit.finetune"] if issubclass(plugin, Method) else []
    code_by_module: dict[str, str] = {}
    while unread:
        name = unread.pop()
        if name in code_by_module or (spec := _found_module(name)) is None or spec.origin is None:
            continue
        tree = ast.parse(Path(spec.origin).read_bytes())
        unread += [each for each in _imported_modules(tree, spec.parent or "") if each.partition(".")[0] == package]
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                node.body = [one for one in body if not _is_bare_text(one)] or [ast.Pass()]  # type: ignore[attr-defined]
        code_by_module[name] = ast.unparse(tree)
    return digest_of(code_by_module)


def _found_module(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):  # A name that is imported from a module, and none itself.
        return None


def _imported_modules(tree: ast.Module, parent: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), parent)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _is_bare_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def plain_settings(plugin: Method | Evaluator) -> dict[str, Any]:
    """Return a plugin's settings as plain data, defaults included."""
    return dict(settings_adapter(type(plugin)).dump_python(plugin, mode="json"))


def default_strength(plugin: type[Method]) -> Number | None:
    """Return the default strength; None if the plugin declares none."""
    default = plugin.__dataclass_fields__[plugin.strength.field].default
    return default if isinstance(default, int | float) else None


def describe_needs(plugin: type[Method]) -> str:
    """Return the needs of a method with its default settings, in words."""
    declared = inspect.getattr_static(plugin, "reference")
    try:
        is_fixed = not isinstance(declared, property)
        return NEEDS[declared if is_fixed else plugin(**{plugin.strength.field: plugin.strength.off}).reference]
    except (TypeError, ValueError):
        return "as its settings say"


def prepares(plugin: type[Evaluator]) -> bool:
    """Return whether an evaluator overrides `prepare`, which computes values of the original."""
    return plugin.prepare is not Evaluator.prepare


def default_declaration(plugin: type[Evaluator]) -> tuple[tuple[Metric, ...], tuple[Read, ...]] | None:
    """Return an evaluator's metrics and reads with its default settings; None if some have no default."""
    try:
        evaluator = plugin()
        return evaluator.metrics, evaluator.reads
    except (TypeError, ValueError):
        return None


def declared_space(plugin: type[Method]) -> dict[str, Dimension]:
    """Return the search dimension of each setting of a method, or of its training, that declares one."""
    training_fields = field_types(Training)
    hints = field_types(plugin)
    hints |= {f"{TRAINING_PATH}{name}": training_fields.get(name) for name in plugin.searched_training}
    space: dict[str, Dimension] = {}
    for name, hint in hints.items():
        for part in getattr(hint, "__metadata__", ()):
            if isinstance(part, LogUniform | Choice):
                space.setdefault(name, part)
    return space


METHODS: PluginRegistry[Method] = PluginRegistry("method", "methods", "harness.methods", Method)  # type: ignore[type-abstract]
EVALUATORS: PluginRegistry[Evaluator] = PluginRegistry("evaluator", "evaluators", "harness.evaluators", Evaluator)  # type: ignore[type-abstract]
