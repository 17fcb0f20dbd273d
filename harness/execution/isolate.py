"""Isolation of plugins: one that changes its task, or a model, fails by name, and a failure quotes no text.

Global state that decides numbers is restored after every plugin.
"""

import os
import random
import sys
import traceback
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import xxhash

from harness import contracts, errors
from harness.base.messages import first_names

Policy = Literal["redacted", "plain"]
RECITED, OTHER = "■", "□"
"""Marks of generated words: filled if the reference has the same word in the same place."""
RUN_WORDS = 5
"""Words that two texts share in a row by more than phrasing."""
MAX_LOG_LINES = 40
_WITHHELD = "its message may quote the forget set; `report: {samples: plain}` keeps it."
_GPU_IS_FULL = "its GPU's memory is full: lower training.micro_batch, or give each trial more of it (resources.gpus)."
_OWN = f"{Path(errors.__file__).resolve().parent}/"


def word_runs(texts: Iterable[str]) -> set[tuple[str, ...]]:
    """Return all runs of `RUN_WORDS` words."""
    runs = set()
    for words in map(str.split, texts):
        runs |= {tuple(words[start : start + RUN_WORDS]) for start in range(len(words) - RUN_WORDS + 1)}
    return runs


def sample_for_report(sample: contracts.Sample, policy: Policy, runs: Set[tuple[str, ...]]) -> dict[str, str]:
    """Return the sample as plain data; `redacted` hides words of the forget set, and its `runs` in other texts.

    Example:
        >>> secret = contracts.Sample("forget", "Her name is", "Ann Lee of York", "Ann Lee of Bath")
        >>> sample_for_report(secret, "redacted", set())["generated"]
        '■ ■ ■ □'
    """
    if policy == "plain":
        return asdict(sample)
    if sample.kind != "forget":
        generated, hidden = sample.generated.split(), set[int]()
        for start in range(len(generated)):
            if tuple(generated[start : start + RUN_WORDS]) in runs:
                hidden |= {*range(start, start + RUN_WORDS)}
        marked = (RECITED if place in hidden else word for place, word in enumerate(generated))
        return asdict(sample) | ({"generated": " ".join(marked)} if hidden else {})
    truth = sample.reference.split()
    words = zip_longest(sample.generated.split(), truth)
    marks = [RECITED if word == true_word else OTHER for word, true_word in words if word is not None]
    prompt, reference = (f"[{count} words redacted]" for count in (len(sample.prompt.split()), len(truth)))
    return {"kind": sample.kind, "prompt": prompt, "generated": " ".join(marks), "reference": reference}


def failure_for_report(error: BaseException, policy: Policy) -> tuple[str, list[str]]:
    """Return a sentence about an exception, and the last lines of its log.

    Under `redacted` only Lethe's own messages are kept. Libraries and plugins may quote texts, so only the type and
    position of their errors are.

    Example:
        >>> sentence, _ = failure_for_report(ValueError("Her name is Ann Lee"), "redacted")
        >>> sentence
        'ValueError: its message may quote the forget set; `report: {samples: plain}` keeps it.'
    """
    if policy == "plain":
        lines = "".join(traceback.format_exception(error)).splitlines()[-MAX_LOG_LINES:]
        return f"{type(error).__name__}: {error}", [*lines, *getattr(error, "log", ())]
    lines = []  # In the order of a traceback: the cause first.
    for related in reversed(_causes(error)):
        lines += [f"{type(related).__name__}:", *(f"  {where}" for where in _positions(related))]
    if is_own(error):
        return f"{type(error).__name__}: {error}", [*lines[-MAX_LOG_LINES:], *getattr(error, "log", ())]
    raised_at = "".join(f"raised at {where}; " for where in _positions(error)[-1:])
    why = _GPU_IS_FULL if type(error).__name__ == "OutOfMemoryError" else _WITHHELD
    return f"{type(error).__name__}: {raised_at}{why}", lines[-MAX_LOG_LINES:]


def is_own(error: BaseException) -> bool:
    """Return whether Lethe's code raised the error: plugins may raise its types too."""
    if vars(errors).get(type(error).__name__) is not type(error):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return not frames or frames[-1].f_code.co_filename.startswith(_OWN)


def _positions(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{_path_in_package(frame.filename)}, line {frame.lineno}, in {frame.name}" for frame in frames]


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return causes


def _path_in_package(file: str) -> str:
    path = Path(file)
    roots = [root for root in sys.path if root and path.is_relative_to(root)]
    return path.relative_to(max(roots, key=len)).as_posix() if roots else path.name


Changes = Callable[[], list[str]]
"""Returns the parts of its task that a plugin has changed, by name."""
# Variables at the start of the process; libraries may set others when imported.
_VARIABLES = frozenset(os.environ)


class ProcessState:
    """Global state of the process that numbers may depend on, as it is now."""

    def __init__(self) -> None:
        self._values = {name: getter() for name, (getter, _) in _SHARED.items()}

    def restore(self) -> None:
        for name in self.changed():
            _SHARED[name][1](self._values[name])

    def changed(self) -> list[str]:
        """Return the names of changed parts."""
        return [name for name, (getter, _) in _SHARED.items() if getter() != self._values[name]]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Restore this state within the block."""
        around = ProcessState()
        self.restore()
        try:
            yield
        finally:
            around.restore()


@contextmanager
def guarded(plugin: str, changes: Changes) -> Iterator[None]:
    """Restore the process's state after the block; `plugin` names the plugin in errors."""
    with ProcessState().applied():
        yield
    refuse_changes(plugin, changes)


def guarded_models(
    plugin: str, erase: Callable[[], Iterator[contracts.ErasedModel]], changes: Changes
) -> Generator[contracts.ErasedModel, None, None]:
    """Yield a method's models; between them the process has its state from before.

    The method resumes in its own state: a generator may yield inside `torch.no_grad()`.
    """
    models, theirs = None, ProcessState()
    try:
        while True:
            with guarded(plugin, changes):
                theirs.restore()
                models = models or erase()
                erased = next(models, None)
                theirs = ProcessState()
            if erased is None:
                return
            with torch.inference_mode(False):
                yield erased
    finally:
        if close := getattr(models, "close", None):
            with guarded(plugin, changes):
                theirs.restore()
                close()


def refuse_changes(plugin: str, changes: Changes) -> None:
    """Raise a TrialError if the plugin changed its task."""
    if changed := changes():
        rule = "A plugin must leave what it is lent as it was: change a copy (tensor.clone(), copy.deepcopy)"
        raise errors.TrialError(f"{plugin} changed {first_names(changed, 3)}. {rule}, or put it back.")


def _torch_random() -> list[list[int]]:
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [state.tolist() for state in [torch.get_rng_state(), *gpus]]


def _set_torch_random(states: list[list[int]]) -> None:
    cpu, *gpus = (torch.tensor(state, dtype=torch.uint8) for state in states)
    torch.set_rng_state(cpu)
    torch.cuda.set_rng_state_all(gpus)


def _numpy_random() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    return kind, np.asarray(keys).tolist(), *rest


_SHARED: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch's grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's matrix precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's autocast": (partial(torch.is_autocast_enabled, "cpu"), partial(torch.set_autocast_enabled, "cpu")),
    "torch's GPU autocast": (partial(torch.is_autocast_enabled, "cuda"), partial(torch.set_autocast_enabled, "cuda")),
    "torch's threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's random state": (_torch_random, _set_torch_random),
    "NumPy's random state": (_numpy_random, np.random.set_state),
    "Python's random state": (random.getstate, random.setstate),
    "the working directory": (os.getcwd, os.chdir),
    "the environment": (lambda: {name: os.environ[name] for name in _VARIABLES & os.environ.keys()}, os.environ.update),
}


Fingerprints = Mapping[str, Hashable]
"""Fingerprint by name: `the model's weights lm_head.weight`."""


@torch.no_grad()
def fingerprint(tensor: torch.Tensor) -> Hashable:
    """Return dtype, shape and a digest of the bits.

    Example:
        >>> fingerprint(torch.tensor([0.0, 1.0])) == fingerprint(torch.tensor([-0.0, 1.0]))
        False
    """
    bits = xxhash.xxh3_128_digest(tensor.detach().contiguous().reshape(-1).cpu().view(torch.uint8).numpy().data)
    return str(tensor.dtype), tuple(tensor.shape), bits


def fingerprints(name: str, value: object) -> Fingerprints:
    """Return fingerprints of a model's weights, buffers and modes, of the parts of texts, or of another value."""
    if isinstance(value, torch.nn.Module):
        modes = {f"{name}'s mode of {part}": module.training for part, module in value.named_modules()}
        tensors = [*value.named_parameters(), *value.named_buffers()]
        return modes | {f"{name}'s weights {part}": fingerprint(tensor) for part, tensor in tensors}
    if not isinstance(value, contracts.Sequences):
        return {name: repr(value)}
    parts = {f"{name}.{part}": content for part, content in vars(value).items()}
    return {part: fingerprint(it) if isinstance(it, torch.Tensor) else it for part, it in parts.items()}


def compared(before: Fingerprints, after: Fingerprints) -> list[str]:
    """Return the names of changed parts.

    Example:
        >>> compared({"task.seed": 0, "the weights a": 1}, {"task.seed": 0, "the weights a": 2})
        ['the weights a']
    """
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]
