"""The `models` block to pinned checkpoints, each model with the sweep's texts as it reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from typing import Any

from harness.contracts import Checkpoint, Training
from harness.errors import ModelError
from harness.miniature import checkpoints as miniature
from harness.models.loading import check_model, load_tokenizer, positions, vocabulary
from harness.models.resolving import resolve_model
from harness.planning.config import Data, ModelEntry, Resources, Sweep
from harness.planning.faults import Faults, check
from harness.planning.texts import Texts, check_texts, read_texts
from harness.specs import Engine, MemorizedTraining

LENGTHS = {
    "forget": "sequence_tokens",
    "retain": "sequence_tokens",
    "utility": "reference_tokens",
    "validation": "sequence_tokens",
}
"""The setting that says how long a role's texts are; a holdout's are never longer than the forget set's."""

Pinned = tuple[Checkpoint, Checkpoint | None]
"""A model, and the one that was trained without the forget set, if there is one."""


@dataclass(frozen=True)
class Subject:
    """A model that methods erase from."""

    checkpoint: Checkpoint
    retrained: Checkpoint | None
    engine: Engine
    resources: Resources
    training: Mapping[str, Any]
    """The sweep's training settings with the model's own; a method may override them further."""
    memorization: MemorizedTraining
    texts: Texts


def subjects(sweep: Sweep, unsound: Collection[str], faults: Faults) -> list[Subject]:
    """Return the sweep's models in the file's order; texts of a role that is `unsound` already are not read."""
    data, found = sweep.data, []
    pinned = {
        number: _pinned(entry, sweep.resources, f"models.{number}", faults) for number, entry in sweep.models.items()
    }
    _refuse_repeats(sweep.models, pinned, faults)
    readable = not unsound and data.forget is not None and data.utility is not None and any(pinned.values())
    if not readable:
        check_texts(data, unsound, faults)
    known: dict[tuple[str, int], Texts | None] = {}
    check(Training, sweep.training, "training", faults)
    for number, entry in sweep.models.items():
        path, place, settings = f"models.{number}", pinned[number], {**sweep.training, **entry.training}
        check(Training, entry.training, f"{path}.training", faults)
        if place is None or not readable:
            continue
        texts, training = _texts(data, place[0], known, path, faults), check(Training, settings, path, Faults())
        if texts is not None and training is not None:
            _refuse_overlong(texts, place[0], faults)
            found.append(
                Subject(
                    *place,
                    _engine(entry),
                    entry.resources or sweep.resources,
                    settings,
                    _memorization(sweep, training),
                    texts,
                )
            )
    return found


def _pinned(entry: ModelEntry, resources: Resources, path: str, faults: Faults) -> Pinned | None:
    _refuse_too_many_workers(entry, resources, f"{path}.engine.deepspeed.workers", faults)
    if entry.engine.deepspeed is not None and find_spec("deepspeed") is None:
        faults.add(f"{path}.engine", "needs the package deepspeed, which is not installed: pip install deepspeed.")
    known, id = miniature.names(), entry.id
    resolve = partial(resolve_model, id, entry.tokenizer, entry.revision)
    checkpoint = resolved(resolve, check_model, id, known, path, faults)
    if checkpoint is None:
        return None
    twin = entry.retrained or f"{id}-retrained"
    if not entry.retrained and twin not in known:
        return checkpoint, None
    resolve = partial(resolve_model, twin, entry.tokenizer)
    return checkpoint, resolved(resolve, check_model, twin, known, f"{path}.retrained", faults)


def _refuse_too_many_workers(entry: ModelEntry, resources: Resources, path: str, faults: Faults) -> None:
    """Add a fault for more workers than this machine has CPUs; a cluster knows only itself what it has."""
    workers, cpus = entry.engine.deepspeed.workers if entry.engine.deepspeed else 1, (entry.resources or resources).cpus
    has = os.cpu_count() or 1
    if workers > 1 and workers * cpus > has and "RAY_ADDRESS" not in os.environ:
        needed = f"{workers} workers with resources.cpus: {cpus} need {workers * cpus} CPUs"
        faults.add(path, f"{needed}, and this machine has {has}.")


def _engine(entry: ModelEntry) -> Engine:
    chosen = entry.engine.deepspeed
    return Engine(name="deepspeed", **chosen.model_dump()) if chosen is not None else Engine()


def resolved(
    resolve: Callable[[], Checkpoint],
    check_weights: Callable[[Checkpoint], None],
    name: str,
    known: Sequence[str],
    path: str,
    faults: Faults,
) -> Checkpoint | None:
    """Return the checkpoint, if its weights fit; if there is none, the fault says the nearest of the `known` names."""
    try:
        checkpoint = resolve()
        check_weights(checkpoint)
        return checkpoint
    except ModelError as error:
        near = [] if name in known or "Did you mean" in str(error) else get_close_matches(name, known, n=1)
        faults.add(path, f"{error} Did you mean '{near[0]}'?" if near else str(error))
        return None


def _refuse_repeats(entries: Mapping[str, ModelEntry], pinned: Mapping[str, Pinned | None], faults: Faults) -> None:
    seen: dict[str, str] = {}
    for number, entry in entries.items():
        place = pinned[number]
        names = [entry.id, *([place[0].digest] if place else [])]
        before = next((seen[name] for name in names if name in seen), None)
        if before is not None:
            same = "is" if entry.id == entries[before].id else "has the same weights as"
            reason = f"'{entry.id}' {same} models.{before}, so its trials would be the same: remove one."
            faults.add(f"models.{number}", reason)
        for name in names:
            seen.setdefault(name, number)


def _memorization(sweep: Sweep, training: Training) -> MemorizedTraining:
    shared: dict[str, Any] = {"learning_rate": training.learning_rate, "global_batch": training.global_batch}
    return MemorizedTraining(**shared | sweep.memorized_model.model_dump(exclude_none=True))


def _texts(
    data: Data, model: Checkpoint, known: dict[tuple[str, int], Texts | None], path: str, faults: Faults
) -> Texts | None:
    """Return the texts as the model's tokenizer cuts them; each tokenizer reads them once."""
    try:
        key = model.tokenizer, vocabulary(model)
        if key not in known:
            known[key] = read_texts(data, load_tokenizer(model), key[1], faults)
        return known[key]
    except ModelError as error:
        faults.add(path, str(error))
    except (KeyError, ValueError) as error:
        faults.add(path, f"{model.location}/config.json is not a model's configuration ({type(error).__name__}).")
    return None


def _refuse_overlong(texts: Texts, model: Checkpoint, faults: Faults) -> None:
    most = positions(model)
    for role, setting in LENGTHS.items():
        source = texts.sources.get(role)
        if source is not None and source.longest > most:
            reason = f"sequences of {source.longest} tokens do not fit '{model.id}', which reads {most} at most."
            faults.add(f"data.{role}.{setting}", reason)
