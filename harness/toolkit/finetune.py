"""The training loop, and bases of trained methods.

Losses and selections run in `training.precision`, early stopping's perplexity in fp32.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated, ClassVar, TypedDict, Unpack

import torch

from harness.contracts import ErasedModel, ErasureTask, Method, Model, Reference, Sequences, Strength, TrainingTask
from harness.errors import TrialError, unknown
from harness.models.adapters import LowRankAdapters, WeightMasks
from harness.models.blocks import Block, block_order
from harness.settings import Count, Engine, Json, LogUniform, NonNegative, Number, Training, replace
from harness.toolkit import engines
from harness.toolkit.deepspeed import DeepSpeedEngine
from harness.toolkit.engines import Loss, LossTerms, TorchEngine, TrainingEngine, take_step
from harness.toolkit.losses import Batch, ascent, mean_nll, nll_loss

Select = Callable[[Model, Sequence[Batch]], tuple[Sequence[Block], dict[str, Json]]]
"""(model, micro-batches of a random global batch) to an epoch's blocks and notes."""
Rows = Callable[[Model, int], Sequence[int]]
"""(model, epoch) to rows of the forget set."""
_Adapters = LowRankAdapters | WeightMasks
Values = Mapping[str, float]
"""A step's loss and its terms."""


class TrainingParts(TypedDict, total=False):
    """Optional arguments of `train`. Default: train all weights on the full forget set."""

    frozen: Sequence[Model]
    """Every other model that the loss runs; bf16 weights round theirs in place."""
    select: Select
    """Only these blocks change in an epoch."""
    masks: WeightMasks
    """Trained instead of the weights, at their own rate."""
    select_rows: Rows
    """Training ends if it returns no row."""
    paired_texts: Sequences
    """One more text for each forget sequence: their micro-batch is the loss's last argument."""


def engine_for(
    engine: Engine, model: Model, training: Training, blocks: Sequence[Block] | None = None
) -> TrainingEngine:
    """Return the engine for the trainable weights, or for some blocks.

    Blocks have little optimiser state to partition: the plain engine steps them.
    """
    if engine.deepspeed is None or blocks is not None:
        return TorchEngine(model, training, blocks)
    return DeepSpeedEngine(model, training, engine.deepspeed)


@dataclass(frozen=True)
class Epoch:
    """State after an epoch or at a stop within one; 0 is the untouched model."""

    number: Number
    notes: dict[str, Json]
    changed_blocks: tuple[str, ...] | None
    stop_reason: str | None = None


def train_and_yield(
    task: ErasureTask, model: Model, loss: Loss, **parts: Unpack[TrainingParts]
) -> Iterator[ErasedModel]:
    """Yield `model` at each epoch in `task.strengths`, and at an early stop; see `train`.

    At 2.25 a quarter of the third epoch's steps is done.
    """
    last = max(task.strengths)
    with closing(train(task, model, loss, math.ceil(last), task.strengths, **parts)) as epochs:
        for epoch in epochs:
            if epoch.number in task.strengths or epoch.stop_reason:
                yield ErasedModel(epoch.number, model, epoch.notes, epoch.changed_blocks, epoch.stop_reason)
            if epoch.number >= last:
                return


def train(
    task: TrainingTask,
    model: Model,
    loss: Loss,
    epochs: int,
    stops: Collection[Number] = (),
    **parts: Unpack[TrainingParts],
) -> Generator[Epoch, None, None]:
    """Train `model` in place on the forget set and yield after each epoch, 0 first, and at `stops` within epochs.

    The learning rate is constant and the data order depends only on seed and epoch: no epoch depends on later ones.
    There is no dropout. LoRA adapters are merged after each epoch.

    Raises:
        TrialError: The loss is not finite, or parts clash.
    """
    _refuse_parts(task, loss, parts)
    training, select = task.training, parts.get("select")
    if "masks" in parts:
        training = replace(training, learning_rate=parts["masks"].learning_rate, early_stop=None)
    baseline = task.validation_perplexity(model) if training.early_stop and epochs else float("nan")
    changed: set[str] = set()
    names: tuple[str, ...] | None = () if select else None
    selected, losses = list[Json](), list[Json]()
    yield Epoch(0, {}, names)
    adapters = _adapters(task, model, parts)
    engine = None if select else engine_for(task.engine, adapters.model if adapters else model, training)
    try:
        for number in range(1, epochs + 1):
            task.progress(f"epoch {number} of {epochs}")
            notes: dict[str, Json] = {"epoch": number}
            rows = _rows_of_epoch(task, model, number, parts)
            if not len(rows):
                yield Epoch(number, notes, names, f"no forget sequence was chosen to train epoch {number} on")
                return
            if select is not None:
                selected_blocks, choice_notes = _blocks_of_epoch(task, model, select, number)
                selected.append([block.name for block in selected_blocks])
                notes |= {**choice_notes, "selected_by_epoch": list(selected)}
                changed |= {block.name for block in selected_blocks}
                names = tuple(sorted(changed, key=block_order))
                engine = engine_for(task.engine, model, training, selected_blocks)
            assert engine is not None
            for frozen in parts.get("frozen", ()):
                engine.freeze(frozen)
            steps = _steps_of_epoch(task, loss, engine, rows, number, parts)
            ends = _stops_of_epoch(number, -(-len(rows) // training.global_batch), stops)
            reason = None
            for stop, notes_of_steps in _run_to_stops(ends, steps, engine, adapters):
                so_far = losses + notes_of_steps["loss_by_step"]
                reached = {**notes, **notes_of_steps, "loss_by_step": so_far, "total_steps": len(so_far)}
                if engine.skipped_steps:
                    skipped = f"{engine.skipped_steps} optimiser steps were left out: their gradients were not finite"
                    reached["warnings"] = [*notes.get("warnings", []), skipped]
                if "select_rows" in parts:
                    reached["forget_sequences"] = len(rows)
                # A stop within an epoch ends nothing: later steps must not depend on it.
                if stop == number and training.early_stop is not None:
                    reason = _stop_reason(task, model, training.early_stop, baseline, reached)
                yield Epoch(stop, reached, names, reason)
            if reason:
                return
            losses = so_far
    finally:
        if engine is not None:
            engine.close()
        if adapters:
            adapters.close()


def _refuse_parts(task: TrainingTask, loss: Loss, parts: TrainingParts) -> None:
    for name in parts.keys() - TrainingParts.__annotations__.keys():
        raise TrialError(f"{unknown('part of training', name, TrainingParts.__annotations__)}")
    if bool(task.training.lora) + ("select" in parts) + ("masks" in parts) > 1:
        raise TrialError("blocks, masks or LoRA adapters can be trained, and only one of these: set lora: null.")
    makes_gradient = isinstance(loss, LossTerms) and loss.gradient is not None
    if makes_gradient and "select" not in parts and task.engine.name != "torch":
        raise TrialError("a method that makes its own gradient needs the weights in one place. Say engine: torch.")
    paired = parts.get("paired_texts")
    if paired is not None and len(paired) != len(task.forget):
        raise TrialError(f"{len(paired)} texts are paired with {len(task.forget)} forget sequences. Give one for each.")


def _adapters(task: TrainingTask, model: Model, parts: TrainingParts) -> _Adapters | None:
    if lora := task.training.lora:
        return LowRankAdapters(model, lora, _epoch_seed(task.seed, 0, 3))
    if "masks" not in parts:
        model.requires_grad_(True)
    return parts.get("masks")


def _rows_of_epoch(task: TrainingTask, model: Model, number: int, parts: TrainingParts) -> torch.Tensor:
    order = _shuffled(len(task.forget), task.seed, number, 0)
    if (choose := parts.get("select_rows")) is None:
        return order
    is_chosen = torch.zeros(len(task.forget), dtype=torch.bool)
    is_chosen[torch.as_tensor(choose(model, number), dtype=torch.long)] = True
    return order[is_chosen[order]]


def _blocks_of_epoch(
    task: TrainingTask, model: Model, select: Select, number: int
) -> tuple[Sequence[Block], dict[str, Json]]:
    rows = _shuffled(len(task.forget), task.seed, number, 1)[: task.training.global_batch]
    with engines.plain_forward(model, task.training):
        return select(model, micro_batches(task.forget, rows, task.training, model.device, task.engine.workers))


def whole_loss(
    model: Model, sequences: Sequences, loss: Callable[[Model, Batch], torch.Tensor], training: Training
) -> float:
    """Return a loss over whole texts as one global batch.

    `loss` maps (model, batch) to the micro-batch's share, as `Batch.mean` makes it.
    """
    batches = micro_batches(sequences, torch.arange(len(sequences)), training, next(model.parameters()).device)
    with torch.no_grad(), engines.plain_forward(model, training):
        return sum(float(loss(model, batch)) for batch in batches)


def _stop_reason(task: TrainingTask, model: Model, limit: float, baseline: float, notes: dict[str, Json]) -> str | None:
    perplexity = task.validation_perplexity(model)
    notes |= {"validation_perplexity": perplexity, "validation_perplexity_original": baseline}
    if not perplexity > limit * baseline:
        return None
    found = f"validation perplexity {f'{perplexity:.4g}'.replace('inf', '∞')}"
    return f"{found} is above {limit:g} times the original's {baseline:.4g}"


def _stops_of_epoch(number: int, steps: int, stops: Collection[Number]) -> list[tuple[Number, int]]:
    """Return (stop, steps before it) within an epoch, the end last.

    Example:
        >>> _stops_of_epoch(3, steps=12, stops=(1.5, 2.25, 2.99, 3, 4))
        [(2.25, 3), (2.99, 12), (3, 12)]
    """
    within = [stop for stop in sorted(stops) if number - 1 < stop < number]
    return [*((stop, max(1, round((stop - number + 1) * steps))) for stop in within), (number, steps)]


def _run_to_stops(
    ends: Sequence[tuple[Number, int]], steps: Iterator[Values], engine: TrainingEngine, adapters: _Adapters | None
) -> Iterator[tuple[Number, dict[str, Json]]]:
    values: list[Values] = []
    seconds = 0.0
    for stop, total in ends:
        if adapters:
            adapters.unmerge()
        began = time.perf_counter()
        values += islice(steps, total - len(values))
        seconds += time.perf_counter() - began
        engine.gather()
        if adapters:
            adapters.merge()
        yield stop, _notes_of_steps(values, engine, seconds)


def _steps_of_epoch(
    task: TrainingTask, loss: Loss, engine: TrainingEngine, order: torch.Tensor, number: int, parts: TrainingParts
) -> Iterator[Values]:
    retain_order = order
    if task.retain is not None:
        shuffled = _shuffled(len(task.retain), task.seed, number, 2)
        retain_order = shuffled.repeat(-(-len(order) // len(shuffled)))[: len(order)]
    streams = [(task.forget, order), (task.retain, retain_order)]
    if (paired := parts.get("paired_texts")) is not None:
        streams.append((paired, order))
    for start in range(0, len(order), task.training.global_batch):
        batch = _global_batch(streams, start, task.training, engine)
        step = take_step(engine, loss, batch)
        if isinstance(loss, LossTerms) and loss.after_step is not None:
            loss.after_step(step)
        yield step


def _notes_of_steps(values: Sequence[Values], engine: TrainingEngine, seconds: float) -> dict[str, Json]:
    losses = [step["loss"] for step in values]
    notes: dict[str, Json] = {
        "precision": engine.precision,
        "loss_by_step": losses,
        "loss_mean": sum(losses) / len(losses),
        "optimizer_steps": len(values),
        "skipped_steps": engine.skipped_steps,
        "epoch_seconds": seconds,
    }
    for term in ("forget", "retain"):
        if term_values := [step[term] for step in values if term in step]:
            notes[f"{term}_loss_mean"] = sum(term_values) / len(term_values)
    return notes


def _global_batch(
    streams: Sequence[tuple[Sequences | None, torch.Tensor]], start: int, training: Training, engine: TrainingEngine
) -> list[engines.Parts]:
    device = next(engine.model.parameters()).device
    columns: list[list[Batch]] = []
    for sequences, order in streams:
        rows = order[start : start + training.global_batch]
        if sequences is None:
            columns.append([_EMPTY] * len(columns[0]))
        else:
            columns.append(micro_batches(sequences, rows, training, device, engine.workers))
    return list(zip(*columns, strict=True))


def micro_batches(
    sequences: Sequences, rows: torch.Tensor, training: Training, device: torch.device, workers: int = 1
) -> list[Batch]:
    """Return a global batch's micro-batches in order, at least one a worker."""
    lengths = sequences.lengths_N[rows]
    width = int(lengths.max())
    tokens = sequences.tokens_NT[rows, :width]
    position = torch.arange(1, width)
    counted = position < lengths[:, None]
    if training.loss_region == "continuation":
        counted = counted & (position >= sequences.prefix_tokens)
    total, total_sequences = int(counted.sum()), int(counted.any(dim=1).sum())
    size = min(training.micro_batch, -(-len(rows) // workers))
    return [
        Batch(tokens[at : at + size].to(device), counted[at : at + size].to(device), total, total_sequences)
        for at in range(0, len(rows), size)
    ]


def _shuffled(count: int, seed: int, epoch: int, purpose: int) -> torch.Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(_epoch_seed(seed, epoch, purpose)))


def _epoch_seed(seed: int, epoch: int, purpose: int) -> int:
    return (seed * 1_000_003 + epoch) * 7 + purpose


_EMPTY = Batch(torch.empty(0, 1, dtype=torch.long), torch.empty(0, 0, dtype=torch.bool), 0, 0)


def trained_briefly(
    model: Model, sequences: Sequences, *, steps: Sequence[int], learning_rate: float, batch: int, seed: int
) -> Iterator[tuple[int, Model]]:
    """Train a copy of `model` on the NLL of all tokens, and yield (step, copy) after each of `steps` (rising, from 0).

    AdamW in fp32 without weight decay or dropout. Texts repeat in one random order, at most `batch` a step. No step
    depends on later ones.
    """
    training = Training(learning_rate=learning_rate, global_batch=batch)
    device = next(model.parameters()).device
    order = torch.randperm(len(sequences), generator=torch.Generator().manual_seed(seed))
    at_once = torch.arange(min(batch, len(sequences)))
    with torch.inference_mode(False), torch.enable_grad():
        copied = copy.deepcopy(model).eval().requires_grad_(True)
        engine = TorchEngine(copied, training)
    try:
        for step in range(max(steps) + 1):
            if step:
                rows = order[((step - 1) * len(at_once) + at_once) % len(order)]
                with torch.inference_mode(False), torch.enable_grad():
                    for part in micro_batches(sequences, rows, training, device):
                        with engine.forward():
                            engine.backward(nll_loss(copied, part, part))
                    engine.step()
            if step in steps:
                yield step, copied
    finally:
        engine.close()


Epochs = Annotated[Count, LogUniform(low=1, high=12)]
RetainWeight = Annotated[NonNegative, LogUniform(low=0.1, high=10.0)]
SumRetainWeight = Annotated[NonNegative, LogUniform(low=0.1, high=100.0)]
"""Weight of a mean over retain tokens next to a sum over a forget sequence."""


@dataclass(frozen=True, kw_only=True)
class TrainedMethod(Method):
    """Trains with its `loss`; the dial is epochs."""

    strength = Strength("epochs", cumulative=True, off=0, divisible=True)
    reference: ClassVar[Reference] = "none"
    loss: ClassVar[Callable[..., torch.Tensor]]
    """(self, model, forget, retain) to a micro-batch's share."""
    needs_original: ClassVar[bool] = False
    """`loss` gets the original, frozen, before the model."""

    epochs: Epochs = 1
    """Passes over the forget set."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        frozen = [task.load_original()] if self.needs_original else []
        yield from train_and_yield(task, task.load_original(), partial(self.loss, *frozen), frozen=frozen)


def gradient_difference(method: RetainMethod, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
    """Return −L_NLL(forget) + `retain_weight` · L_NLL(retain)."""
    return method.with_retain(ascent(model, forget), model, retain)


@dataclass(frozen=True, kw_only=True)
class RetainMethod(TrainedMethod):
    """A trained method with a weighted term on the retain set."""

    reference = "retain_data"
    loss: ClassVar[Callable[..., torch.Tensor]] = gradient_difference

    retain_weight: RetainWeight = 1.0
    """Weight of the retain term."""

    def with_retain(self, forget_loss: torch.Tensor, model: Model, retain: Batch) -> torch.Tensor:
        """Return a forget loss plus the weighted NLL on the retain set."""
        return forget_loss + self.retain_weight * mean_nll(model, retain)


@dataclass(frozen=True, kw_only=True)
class RetainedMethod(RetainMethod):
    """A trained method with an optional NLL on the retain set."""

    retain: bool = True
    """Add NLL on the retain set."""

    @property
    def reference(self) -> Reference:  # type: ignore[override]
        """Need in addition to model and forget set."""
        return "retain_data" if self.retain else "none"

    def with_retain(self, forget_loss: torch.Tensor, model: Model, retain: Batch) -> torch.Tensor:
        """Add it if `retain`."""
        return super().with_retain(forget_loss, model, retain) if self.retain else forget_loss
