"""The `models` and `judges` blocks to pinned checkpoints, each model with the sweep's texts as it reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from harness.contracts import Checkpoint, Training
from harness.errors import Fault, ModelError, unknown
from harness.miniature import checkpoints as miniature
from harness.models.loading import load_tokenizer, positions, resolve_judge, resolve_model, vocabulary
from harness.planning.config import Judges, ModelEntry, Sweep
from harness.planning.faults import check
from harness.planning.measures import Measure
from harness.planning.texts import Texts, check_texts, read_texts
from harness.specs import Memorization

ENGINES = ("torch",)
EMBEDDED_JUDGES = ("miniature", "minilm")


@dataclass(frozen=True)
class Subject:
    """A model that methods erase from."""

    checkpoint: Checkpoint
    retrained: Checkpoint | None
    engine: str
    training: Mapping[str, Any]
    """The sweep's training settings with the model's own; a method may override them further."""
    memorization: Memorization
    texts: Texts


def subjects(sweep: Sweep, unsound: Collection[str], faults: list[Fault]) -> list[Subject]:
    """Return the sweep's models in the file's order; what is wrong is added to `faults`.

    Args:
        sweep: The sound part of the sweep file.
        unsound: Roles of the `data` block that hold faults already, so that their contents are not read.
        faults: Grows.
    """
    found: list[Subject] = []
    pinned = {number: _pinned(entry, f"models.{number}", faults) for number, entry in sweep.models.items()}
    _refuse_repeats(sweep.models, pinned, faults)
    readable = not unsound and sweep.data.forget is not None and sweep.data.utility is not None
    if not readable or not any(pinned.values()):
        check_texts(sweep.data, unsound, faults)
        readable = False
    known: dict[tuple[str, int], Texts | None] = {}
    faults += check(Training, sweep.training, "training")[1]
    for number, entry in sweep.models.items():
        settings, place = {**sweep.training, **entry.training}, pinned[number]
        training = _training(entry, settings, f"models.{number}", faults)
        if place is None or not readable:
            continue
        texts = _texts(sweep, place[0], known, f"models.{number}", faults)
        if texts is not None and training is not None:
            _refuse_overlong(texts, place[0], faults)
            memorization = _memorization(sweep, training)
            found.append(Subject(*place, entry.engine, settings, memorization, texts))
    return found


def _pinned(entry: ModelEntry, path: str, faults: list[Fault]) -> tuple[Checkpoint, Checkpoint | None] | None:
    if entry.engine not in ENGINES:
        faults.append(Fault(f"{path}.engine", unknown("engine", entry.engine, ENGINES)))
    try:
        checkpoint = resolve_model(entry.id, entry.tokenizer, entry.revision)
    except ModelError as error:
        faults.append(Fault(path, _hinted(error, entry.id, miniature.names())))
        return None
    twin = entry.retrained or miniature_twin(entry.id)
    if twin is None:
        return checkpoint, None
    try:
        return checkpoint, resolve_model(twin, entry.tokenizer)
    except ModelError as error:
        faults.append(Fault(f"{path}.retrained", _hinted(error, twin, miniature.names())))
        return checkpoint, None


def miniature_twin(id: str) -> str | None:
    """Return the name of a miniature's retrained twin; None for any other model."""
    twin = f"{id}-retrained"
    return twin if twin in miniature.names() else None


def _hinted(error: ModelError, name: str, known: Collection[str]) -> str:
    """Return the error with the nearest right name, unless it has one."""
    near = [] if name in known else get_close_matches(name, list(known), n=1)
    return f"{error} Did you mean '{near[0]}'?" if near and "Did you mean" not in str(error) else str(error)


def _refuse_repeats(
    entries: Mapping[str, ModelEntry], pinned: Mapping[str, tuple[Checkpoint, Any] | None], faults: list[Fault]
) -> None:
    seen: dict[str, str] = {}
    for number, entry in entries.items():
        place = pinned[number]
        names = [entry.id, *([place[0].digest] if place else [])]
        before = next((seen[name] for name in names if name in seen), None)
        if before is not None:
            same = "is" if entry.id == entries[before].id else "has the same weights as"
            reason = f"'{entry.id}' {same} models.{before}, so its trials would be the same: remove one."
            faults.append(Fault(f"models.{number}", reason))
        for name in names:
            seen.setdefault(name, number)


def _training(entry: ModelEntry, settings: Mapping[str, Any], path: str, faults: list[Fault]) -> Training | None:
    own, wrong = check(Training, entry.training, f"{path}.training")
    faults += wrong
    return check(Training, settings, path)[0] if own is not None else None


def _memorization(sweep: Sweep, training: Training) -> Memorization:
    wanted = sweep.memorized_model
    return Memorization(
        epochs=wanted.epochs,
        learning_rate=wanted.learning_rate or training.learning_rate,
        global_batch=wanted.global_batch or training.global_batch,
        gate=wanted.gate,
    )


def _texts(
    sweep: Sweep, model: Checkpoint, known: dict[tuple[str, int], Texts | None], path: str, faults: list[Fault]
) -> Texts | None:
    try:
        key = model.tokenizer, vocabulary(model)
        if key not in known:
            known[key] = read_texts(sweep.data, load_tokenizer(model), key[1], faults)
    except ModelError as error:
        faults.append(Fault(path, str(error)))
        return None
    except (KeyError, ValueError) as error:
        faults.append(
            Fault(path, f"{model.location}/config.json is not a model's configuration ({type(error).__name__}).")
        )
        return None
    return known[key]


def _refuse_overlong(texts: Texts, model: Checkpoint, faults: list[Fault]) -> None:
    setting = {"forget": "sequence_tokens", "utility": "reference_tokens", "validation": "sequence_tokens"}
    for role, longest in texts.longest.items():
        if longest > positions(model):
            reason = f"sequences of {longest} tokens do not fit '{model.id}', which reads {positions(model)} at most."
            faults.append(Fault(f"data.{role}.{setting[role]}", reason))


def judges(wanted: Judges, written: Any, measures: Sequence[Measure], faults: list[Fault]) -> dict[str, Checkpoint]:
    """Return the checkpoint of every judge that the file names or an evaluator asks for.

    Args:
        wanted: The `judges` block with its defaults.
        written: That block as it is in the file, if it is there.
        measures: The evaluators.
        faults: Grows.
    """
    found = {}
    roles = tuple(Judges.model_fields)
    for measure in measures:
        for role in measure.judges:
            if role not in roles:
                faults.append(Fault(f"evaluators.{measure.name}", unknown("judge role", role, roles)))
    asked = {role for measure in measures for role in measure.judges}
    asked |= set(written) if isinstance(written, dict) else set()
    for role in (role for role in roles if role in asked):
        entry = getattr(wanted, role)
        try:
            found[role] = resolve_judge(role, entry.id, entry.tokenizer, entry.revision)
        except ModelError as error:
            names = (*EMBEDDED_JUDGES, *miniature.names())
            faults.append(Fault(f"judges.{role}", _hinted(error, entry.id, names)))
    return found
