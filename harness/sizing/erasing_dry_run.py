"""Dry-runs a trial's training: the method's own code, on fake tensors, for as long as its memory still grows."""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from harness.contracts import Checkpoint, Model, Number, Sequences
from harness.models.loading import load_tokenizer, unloaded_model
from harness.models.resolving import ensure_local
from harness.plugins import METHODS
from harness.sizing.cuda_autocast import CudaAutocast
from harness.sizing.memory_tracker import Bytes, MemoryTracker, largest
from harness.specs import Engine, Source, TrialSpec
from harness.toolkit.engines.parking import rehearsing_gpu
from harness.toolkit.finetune import train
from harness.toolkit.losses import nll_loss
from harness.toolkit.scoring import SCORED_ROWS, own_perplexity

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PARTS = 4
"""Micro-batches of a global batch that are run. From the second on, gradients are there already when the next forward
pass starts; and from several it shows whether a method keeps something of each."""


@dataclass(frozen=True)
class DryRunResult:
    """What erasing needs, and what is still held while its model is measured."""

    moments: tuple[Bytes, ...]
    """What was held when it was most, section by section of the run (`MemoryTracker.moments`)."""
    held: Bytes
    """When the erased model is given to be measured, and the method waits."""
    model: Model
    """The erased model, of fake tensors."""
    is_plain: bool
    """Whether that is a model as the checkpoint describes it, and not a pair or a wrapper of ones."""
    models: int
    """How many loaded models were held then."""
    frozen: int
    """How many of them the training loop froze: none of their weights asks for a gradient."""
    trained: int
    """How many weights a step changed; 0 if nothing was trained."""

    @property
    def peak(self) -> Bytes:
        """Return what was held when it was most."""
        return largest(self.moments)


class _DryTask:
    """An `ErasureTask` on fake models and made-up sequences of the real ones' length."""

    engine, seed = Engine(), 0

    def __init__(self, spec: TrialSpec, tracker: MemoryTracker, dtype: torch.dtype, layers: int | None) -> None:
        self._spec, self._tracker, self._dtype, self._layers = spec, tracker, dtype, layers
        self._models: list[weakref.ref[Model]] = []
        self._validated = 0
        training = spec.training
        rows = min(training.global_batch, spec.forget.rows)
        size = min(training.micro_batch, rows)
        whole = min(rows, size * PARTS)
        self.further_parts = -(-rows // size) - PARTS
        """Of a global batch; they are not run."""
        is_cumulative = not spec.is_reference and METHODS.load(spec.method).strength.cumulative
        self.training = replace(training, global_batch=whole, early_stop=None if is_cumulative else 2.0)
        self.strengths = () if spec.is_reference else _needed_strengths(spec)
        self.forget = _made_up(spec.forget, whole)
        self.validation = _made_up(spec.validation, min(spec.validation.rows, SCORED_ROWS))
        self.retain = _made_up(spec.retain, whole) if spec.retain is not None else None

    def load_original(self) -> Model:
        """Return a fake copy of the original."""
        model = self._tracker.loading(lambda: unloaded_model(self._spec.model, self._dtype, self._layers))
        self._models.append(weakref.ref(model))
        return model

    memorized_model = load_original

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The real one: it holds no weights."""
        return load_tokenizer(self._spec.model)

    def present(self) -> list[Model]:
        """Return the loaded models that someone still holds."""
        return [model for made in self._models if (model := made()) is not None]

    def validation_perplexity(self, model: Model) -> float:
        """Measure as a real task does, once there has been a step; then the early stop ends the training.

        Of a cumulative method the early stop is off: its first epoch is measured, and the dry run ends there.
        """
        self._validated += 1
        if self._tracker.optimizer_steps:
            own_perplexity(model, self.validation)
        return math.inf if self._validated > 1 else 1.0

    def progress(self, message: str) -> None:
        """Say nothing."""


def dry_run(spec: TrialSpec, dtype: torch.dtype = torch.float32, layers: int | None = None) -> DryRunResult:
    """Return what a trial's erasing needs on the plain engine, counted while its method runs on fake tensors.

    Args:
        spec: The trial.
        dtype: Of the weights.
        layers: Of the model, if not all.

    Raises:
        Exception: The method's code cannot run without values; the caller says that its need is not known.
    """
    if spec.is_reference:
        return _dry_run(spec, dtype, layers, lambda task: iter([task.load_original()]))
    strengths = _needed_strengths(spec)
    method = METHODS.configure(spec.method, {**spec.settings, spec.strength_name: max(strengths)})
    return _dry_run(spec, dtype, layers, lambda task: (erased.model for erased in method.erase(task)))


def dry_run_memorizing(spec: TrialSpec, dtype: torch.dtype = torch.float32, layers: int | None = None) -> DryRunResult:
    """Return what training the memorised model of a trial needs on the plain engine."""
    training = replace(spec.training, global_batch=spec.memorization.global_batch, lora=None)
    return _dry_run(replace(spec, training=training), dtype, layers, _memorized)


def _needed_strengths(spec: TrialSpec) -> tuple[Number, ...]:
    """Return the strengths to reach: after the first of two, training is to go on while it is measured."""
    strength = METHODS.load(spec.method).strength
    if not strength.cumulative:
        return spec.strengths[:1]
    trained = [value for value in spec.strengths if value != strength.off]
    return (1, 2)[: len(trained)] or (strength.off,)


def _dry_run(
    spec: TrialSpec, dtype: torch.dtype, layers: int | None, run: Callable[[_DryTask], Iterator[Model]]
) -> DryRunResult:
    with ExitStack() as stack:
        tracker = stack.enter_context(MemoryTracker())
        if spec.gpus > 0:
            stack.enter_context(CudaAutocast())
            stack.enter_context(rehearsing_gpu())
        task = _DryTask(spec, tracker, dtype, layers)
        trajectory = run(task)
        model = next(trajectory)
        present = task.present()
        is_plain = any(loaded is model for loaded in present)
        frozen = sum(not any(weight.requires_grad for weight in loaded.parameters()) for loaded in present)
        moments = _with_further_parts(tracker.moments(), tracker.starts, task.further_parts)
        return DryRunResult(moments, tracker.held(), model, is_plain, len(present), frozen, tracker.trained)


def _with_further_parts(moments: Sequence[Bytes], starts: Sequence[int], further: int) -> tuple[Bytes, ...]:
    """Return the moments of a run over more micro-batches: what is kept of each adds up until the last one is done.

    Something is kept of each where as many forward passes as there are micro-batches start with ever more, in equal
    steps. What a single micro-batch holds besides does not depend on how many there are.
    """
    grown = list(moments)
    for first in range(len(starts) - PARTS + 1 if further > 0 else 0):
        of_parts = [moments[at].activations for at in starts[first : first + PARTS]]
        steps = {after - before for before, after in pairwise(of_parts)}
        if len(steps) == 1 and min(steps) > 0:
            last, after = (*starts, len(moments))[first + PARTS - 1 : first + PARTS + 1]
            kept = Bytes(activations=further * min(steps))
            grown[last:after] = [moment + kept for moment in moments[last:after]]
    return tuple(grown)


def _memorized(task: _DryTask) -> Iterator[Model]:
    model = task.load_original()
    for _ in train(task, model, nll_loss, 1):
        pass
    yield model


def _made_up(source: Source, rows: int) -> Sequences:
    tokens = torch.zeros(rows, source.longest, dtype=torch.long)
    return Sequences(tokens, torch.full((rows,), source.longest), source.prefix_tokens, "")


SHALLOW = (2, 4)
"""Layers of the two runs: GPT-Neo's attention alternates between two kinds."""
DryRun = Callable[[TrialSpec, torch.dtype, int | None], DryRunResult]


def run_shallow(run: DryRun, spec: TrialSpec, dtype: torch.dtype = torch.float32) -> DryRunResult:
    """Return the result of `run` for a trial at its model's whole depth; only the model in it may be a shallow one.

    It is run at the whole depth after all where the model is not deep, and where its layers are not alike: their
    weights or the sections of the two runs do not add up.
    """
    depth = _layer_count(spec.model)
    if depth <= SHALLOW[-1]:
        return run(spec, dtype, None)
    low, high = (run(spec, dtype, layers) for layers in SHALLOW)
    low_weights, high_weights = (bytes_of(spec.model, layers) for layers in SHALLOW)
    times = (depth - SHALLOW[0]) / (SHALLOW[1] - SHALLOW[0])
    is_alike = low_weights + times * (high_weights - low_weights) == bytes_of(spec.model)
    if not is_alike or low.models != high.models or len(low.moments) != len(high.moments):
        return run(spec, dtype, None)
    return replace(
        high,
        moments=tuple(_extended(*pair, times) for pair in zip(low.moments, high.moments, strict=True)),
        held=_extended(low.held, high.held, times),
        trained=round(low.trained + times * (high.trained - low.trained)),
    )


@lru_cache(maxsize=64)
def bytes_of(checkpoint: Checkpoint, layers: int | None = None) -> int:
    """Return what a model's fp32 weights and its buffers weigh, if it has so many layers (None: its own)."""
    model = MemoryTracker().loading(lambda: unloaded_model(checkpoint, layers=layers))
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))


def _layer_count(checkpoint: Checkpoint) -> int:
    """Return the number of layers that the configuration names, by its architecture's name for it; 0 without."""
    config = json.loads((Path(ensure_local(checkpoint, weights=False).location) / "config.json").read_text())
    for name in ("num_hidden_layers", "num_layers", "n_layer"):
        if name in config:
            return int(config[name])
    return 0


def _extended(low: Bytes, high: Bytes, times: float) -> Bytes:
    """Return `low` with the difference between the two added so many times."""
    sums = {}
    for part in fields(Bytes):
        at_low, at_high = getattr(low, part.name), getattr(high, part.name)
        sums[part.name] = round(at_low + times * (at_high - at_low))
    return Bytes(**sums)
