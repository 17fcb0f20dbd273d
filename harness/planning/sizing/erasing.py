"""Rehearses a trial's training: the method's own code, on fake tensors, for as long as its memory still grows."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch

from harness.contracts import Model, Number, Sequences, Training
from harness.models.loading import unloaded_model
from harness.planning.sizing.meter import Bytes, Meter
from harness.plugins import METHODS
from harness.specs import Engine, Source, TrialSpec
from harness.toolkit.finetune import train
from harness.toolkit.losses import recite
from harness.toolkit.perplexity import ROWS, own_perplexity

PARTS = 2
"""From the second micro-batch on, gradients are there already when the next forward pass starts."""


class _Enough(Exception):  # noqa: N818 - it is no error: nothing more is to be learned
    """What comes now has been seen."""


@dataclass(frozen=True)
class Rehearsed:
    """What erasing needs, and what is still held while its model is measured."""

    peak: Bytes
    held: Bytes
    model: Model
    """The erased model, of fake tensors."""
    models: int
    """How many models were there while it was trained."""
    trained: int
    """How many weights a step changed; 0 if nothing was trained."""


@dataclass
class _Task:
    """An `ErasureTask` on fake models and made-up sequences of the real ones' length."""

    spec: TrialSpec
    meter: Meter
    training: Training
    strengths: tuple[Number, ...]
    forget: Sequences
    validation: Sequences
    retain: Sequences | None
    dtype: torch.dtype
    engine: Engine = field(default_factory=Engine)
    seed: int = 0
    models: list[weakref.ref[Model]] = field(default_factory=list)

    def load_original(self) -> Model:
        """Return a fake copy of the original."""
        model = self.meter.loading(lambda: unloaded_model(self.spec.model, self.dtype))
        self.models.append(weakref.ref(model))
        return model

    memorized_model = load_original

    def present(self) -> list[Model]:
        """Return the loaded models that someone still holds."""
        return [model for made in self.models if (model := made()) is not None]

    def validation_perplexity(self, model: Model) -> float:
        """Measure as a real task does; after enough steps this was the last thing to be seen."""
        own_perplexity(model, self.validation)
        if self.meter.optimizer_steps:
            raise _Enough
        return 1.0

    def progress(self, message: str) -> None:
        """Say nothing."""


def rehearse(spec: TrialSpec, dtype: torch.dtype = torch.float32) -> Rehearsed:
    """Return what a trial's erasing needs on the plain engine, counted while its method runs on fake tensors.

    Args:
        spec: The trial.
        dtype: Of the weights.

    Raises:
        Exception: The method's code cannot run without values; the caller says that its need is not known.
    """
    if spec.is_reference:
        return _rehearse(spec, dtype, _loaded)
    settings = {**spec.settings, spec.strength_name: _strength(spec)}
    method = METHODS.configure(spec.method, settings)
    return _rehearse(spec, dtype, lambda task: (erased.model for erased in method.erase(task)))


def rehearse_memorizing(spec: TrialSpec, dtype: torch.dtype = torch.float32) -> Rehearsed:
    """Return what training the memorised model of a trial needs on the plain engine."""
    return _rehearse(spec, dtype, _memorized)


def _strength(spec: TrialSpec) -> Number:
    return 1 if METHODS.load(spec.method).strength.cumulative else spec.strengths[0]


def _rehearse(spec: TrialSpec, dtype: torch.dtype, run: Callable[[_Task], Iterator[Model]]) -> Rehearsed:
    with Meter() as meter:
        task = _task(spec, meter, dtype)
        walk = run(task)
        try:
            model = next(walk)
        except _Enough as enough:  # Its traceback holds what the training loop does while a model is measured.
            return _seen(meter, task, task.present()[0], enough)
        return _seen(meter, task, model, walk)


def _seen(meter: Meter, task: _Task, model: Model, _alive: object) -> Rehearsed:
    return Rehearsed(meter.peak(), meter.held(), model, len(task.present()), meter.trained)


def _loaded(task: _Task) -> Iterator[Model]:
    yield task.load_original()


def _memorized(task: _Task) -> Iterator[Model]:
    model = task.load_original()
    for _ in train(task, model, recite, 1):
        pass
    yield model


def _task(spec: TrialSpec, meter: Meter, dtype: torch.dtype) -> _Task:
    training = spec.training
    size = min(training.micro_batch, training.global_batch, spec.forget.rows)
    whole = min(training.global_batch, size * PARTS, spec.forget.rows)
    return _Task(
        spec=spec,
        meter=meter,
        training=replace(training, global_batch=whole, early_stop=None),
        strengths=() if spec.is_reference else (_strength(spec),),
        forget=_made_up(spec.forget, whole),
        validation=_made_up(spec.validation, min(spec.validation.rows, ROWS)),
        retain=_made_up(spec.retain, whole) if spec.retain is not None else None,
        dtype=dtype,
    )


def _made_up(source: Source, rows: int) -> Sequences:
    tokens = torch.zeros(rows, source.longest, dtype=torch.long)
    return Sequences(tokens, torch.full((rows,), source.longest), source.prefix_tokens, "")
