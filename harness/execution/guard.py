"""The guard around plugins: what one was lent or shares is as it was afterwards, or the plugin fails by name.

A process runs trial after trial. So what the process shares (torch's modes, random states) is put back after
every plugin, well or not; and a plugin that changed a model, a text or a judge that it was lent is stopped
before its numbers are journaled and before an array that it made is kept for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from harness.contracts import ErasedModel
from harness.errors import TrialError
from harness.execution.surroundings import Surroundings


class Lent(Protocol):
    """What a plugin is given: a task."""

    def changes(self) -> list[str]:
        """Return what is not as it was given, each with its parts' names."""


@contextmanager
def guarded(who: str, task: Lent) -> Iterator[None]:
    """Run a plugin inside, `who` being its name for people.

    Raises:
        TrialError: It changed what it was lent.
    """
    ours = Surroundings.now()
    try:
        yield
    finally:
        ours.put_back()
    refuse_changes(who, task)


def guarded_models(who: str, erase: Callable[[], Iterator[ErasedModel]], task: Lent) -> Iterator[ErasedModel]:
    """Yield what a method yields; while it waits, and afterwards, the process's state is the one it started with.

    A method that goes on finds the state that it left: a generator may well yield inside `torch.no_grad()`.

    Raises:
        TrialError: It changed what it was lent.
    """
    models = None
    theirs = Surroundings.now()
    try:
        while True:
            with guarded(who, task):
                theirs.put_back()
                models = erase() if models is None else models
                erased = next(models, None)
                theirs = Surroundings.now()
            if erased is None:
                return
            yield erased
    finally:
        if models is not None and hasattr(models, "close"):
            with guarded(who, task):
                theirs.put_back()
                models.close()


def refuse_changes(who: str, task: Lent) -> None:
    """Raise a TrialError, by the name of the plugin that ran last, if what it was lent is not as it was."""
    found = task.changes()
    if found:
        raise TrialError(
            f"{who} changed {'; '.join(found)}. What a plugin is lent stays as it was: change a copy "
            "(tensor.clone(), copy.deepcopy) or put it back. Nothing that it made since is kept; "
            "harness.testing tells more."
        )
