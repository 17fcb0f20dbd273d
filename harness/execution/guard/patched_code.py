"""Patched code: functions of classes and modules that all plugins of a process use, and that were replaced.

Listed are torch's modules, tensors and optimisers with all that derives from them (every model's class), what stands in
`torch`, `torch.nn.functional` and `torch.nn.init`, and Lethe's own modules and plugins. Anything is first seen at the
first look after it was imported, and what it held then is what it is put back to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache
from operator import is_
from types import ModuleType
from typing import Any

import torch

Namespace = type | ModuleType
Patches = dict[tuple[Namespace, str], Any]
"""A class or module and a name in it, to what is there now; `_ABSENT` where nothing is."""
_ABSENT = object()
_ROOTS = (torch.nn.Module, torch.Tensor, torch.optim.Optimizer)
_MODULES = (torch, torch.nn.functional, torch.nn.init)
_PACKAGES = ("harness", "methods", "evaluators")
_FIRST: dict[Namespace, dict[str, Any]] = {}
"""What each namespace held when it was first seen."""


def patches() -> Patches:
    """Return what is patched now."""
    _see(len(sys.modules))
    patched: Patches = {}
    for namespace, first in _FIRST.items():
        if len(vars(namespace)) == len(first) and all(map(is_, vars(namespace).values(), first.values())):
            continue
        now = dict(vars(namespace))
        for name in {**first, **now}:
            value, before = now.get(name, _ABSENT), first.get(name, _ABSENT)
            if getattr(value, "hooked", False) and value.__wrapped__ is _inherited(namespace, name, before):
                first[name] = value  # Torch wraps a class's `step` for its profiler when it makes the first optimiser.
            elif value is not before and _acts(_inherited(namespace, name, before)):
                patched[namespace, name] = value
    return patched


def set_patches(wanted: Patches) -> None:
    """Let these be patched, and no others."""
    for (namespace, name), patched in {**patches(), **wanted}.items():
        original = _FIRST[namespace].get(name, _ABSENT)
        value = patched if (namespace, name) in wanted else original
        if value is not _ABSENT:
            setattr(namespace, name, value)
        elif name in vars(namespace):
            delattr(namespace, name)


@lru_cache(maxsize=1)
def _see(modules: int) -> None:
    """Note the namespaces that are new; the argument makes the cache ask again after each import."""
    for namespace in _namespaces():
        if namespace not in _FIRST:
            _FIRST[namespace] = dict(vars(namespace))


def _inherited(namespace: Namespace, name: str, own: object) -> object:
    """Return what a name meant: its own value, or that of the first base class that has one."""
    if own is _ABSENT and isinstance(namespace, type):
        for base in namespace.__mro__[1:]:
            if name in vars(base):
                return vars(base)[name]
    return own


def _acts(before: object) -> bool:
    """Return whether this is a function, or acts as one in a class."""
    # Classes do not count: torch replaces one of its own when the default dtype changes.
    is_function = callable(before) and not isinstance(before, type)
    return is_function or isinstance(before, classmethod | staticmethod | property)


def _namespaces() -> Iterator[Namespace]:
    yield from _MODULES
    waiting: list[type] = list(_ROOTS)
    derived = set(waiting)
    while waiting:
        new: set[type] = set(type.__subclasses__(waiting.pop())) - derived
        derived |= new
        waiting += new
    classes = {base for one in derived for base in one.__mro__}
    for name, module in sys.modules.copy().items():
        if _is_ours(name) and isinstance(module, ModuleType):
            yield module
            held = vars(module).copy().values()  # Another thread may be importing.
            classes |= {one for one in held if isinstance(one, type) and _is_ours(one.__module__)}
    for one in classes:
        # A class that a function made belongs to that function alone, and goes with it.
        if vars(sys.modules.get(one.__module__, torch)).get(one.__name__) is one:
            yield one


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _PACKAGES
