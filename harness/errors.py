"""Errors for people."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


class LetheError(Exception):
    """Base of all errors that Lethe raises."""


@dataclass(frozen=True, order=True)
class Fault:
    """One fault of a sweep file."""

    path: str
    """Dotted path: `methods.emso.epochs`."""
    reason: str
    """One or two sentences: the fault, the allowed values, the nearest right name."""
    origin: str = ""
    """`line 12` of the file, or `--set`; '' where nothing was written."""


class Faults(list[Fault]):
    """Collected faults, reported at once."""

    def add(self, path: str, reason: str) -> None:
        """Append the fault of a setting."""
        self.append(Fault(path, reason))


class ConfigError(LetheError):
    """A sweep file with faults."""

    def __init__(self, file: str, faults: Sequence[Fault]) -> None:
        self.file = file
        self.faults = tuple(faults)
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        width = max((len(fault.path) for fault in faults), default=0)
        margin = max((len(fault.origin) + 2 for fault in faults if fault.origin), default=0)
        lines = [f"  {fault.origin:<{margin}}{fault.path:<{width}}  {fault.reason}" for fault in faults]
        super().__init__("\n".join([f"{file} has {count}:", *lines]))


class DataError(LetheError):
    """A text file, array or data set that cannot be used."""


class ModelError(LetheError):
    """A checkpoint or tokenizer that cannot be loaded."""


class PluginError(LetheError):
    """A method or evaluator that is unknown, broken, or defined twice."""


class StorageError(LetheError):
    """A file or folder that cannot be written."""


class TrialError(LetheError):
    """An erasure or a measurement that cannot go on."""

    log: tuple[str, ...] = ()
    """Lines from other processes' logs."""


class WorkerDiedError(TrialError):
    """Death of a worker process or its machine; a retry may succeed."""


class ExecutorError(LetheError):
    """Failure of the executor: the sweep ends, and measurements are kept."""


def unknown(kind: str, name: str, known_names: Iterable[str]) -> str:
    """Return the sentence for an unknown name, with the nearest known one.

    Example:
        >>> unknown("method", "emsoo", ["emso", "gradient_ascent"])
        "no method is called 'emsoo'. Did you mean 'emso'? Known: emso, gradient_ascent."
    """
    names = sorted(known_names)
    return f"no {kind} is called '{name}'.{did_you_mean(name, names)} Known: {', '.join(names)}."


def did_you_mean(name: str, known_names: Sequence[str]) -> str:
    """Return a question with the nearest known name, or the one with these initials; '' if none is near.

    Example:
        >>> did_you_mean("sweeep", ["sweep", "audit"]), did_you_mean("lr", ["lora", "learning_rate"])
        (" Did you mean 'sweep'?", " Did you mean 'learning_rate'?")
    """
    abbreviated = [known for known in known_names if name.lower() == "".join(word[:1] for word in known.split("_"))]
    near = abbreviated or get_close_matches(name, known_names, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""
