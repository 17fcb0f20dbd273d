"""The guard around plugins: a plugin leaves what it was lent as it was, or it fails by name.

A process runs trial after trial. So what the process shares (torch's modes, random states) is put back after
every plugin, well or not; and a plugin that changed a model, a text or a judge that it was lent is stopped
before its numbers are journaled and before an array that it made is kept for others.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Protocol

from harness.contracts import ErasedModel
from harness.errors import TrialError
from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.guard.process_state import ProcessState
from harness.execution.guard.threads import no_thread_left


class PluginTask(Protocol):
    """What a plugin is given: a task."""

    def changes(self) -> list[str]:
        """Return what differs from what was given, each with the names of its parts."""


@contextmanager
def guarded(plugin: str, task: PluginTask) -> Iterator[None]:
    """Run a plugin inside, or a method until it yields a model; `plugin` is its name for people.

    Raises:
        TrialError: It changed what it was lent, or left a thread behind.
    """
    ours = ProcessState.capture()
    try:
        with no_thread_left(plugin):
            yield
    finally:
        with INTERRUPTION.deferred():
            ours.restore()
            faulthandler.cancel_dump_traceback_later()  # Nothing says whether one is due; it may end the process.
    refuse_changes(plugin, task)


def guarded_models(
    plugin: str, erase: Callable[[], Iterator[ErasedModel]], task: PluginTask
) -> Generator[ErasedModel, None, None]:
    """Yield what a method yields; while it waits, and afterwards, the process's state is the one it started with.

    A method that goes on finds the state that it left: a generator may well yield inside `torch.no_grad()`.

    Raises:
        TrialError: It changed what it was lent, or left a thread behind.
    """
    models = None
    theirs = ProcessState.capture()
    try:
        while True:
            with guarded(plugin, task):
                theirs.restore()
                models = erase() if models is None else models
                erased = next(models, None)
                theirs = ProcessState.capture()
            if erased is None:
                return
            yield erased
    finally:
        if models is not None and hasattr(models, "close"):
            with guarded(plugin, task):
                theirs.restore()
                models.close()


def refuse_changes(plugin: str, task: PluginTask) -> None:
    """Raise a TrialError that names the plugin, which ran last, if it changed what it was lent."""
    changed = task.changes()
    if changed:
        raise TrialError(
            f"{plugin} changed {'; '.join(changed)}. A plugin must leave what it is lent as it was: change a copy "
            "(tensor.clone(), copy.deepcopy) or put it back. Nothing that it made since is kept; "
            "harness.testing shows more."
        )
