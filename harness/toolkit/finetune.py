"""The one training loop that every trained method shares, and the memorised model too.

All forward passes of losses and selections are in one precision, `training.precision`, those of frozen models too, and
each epoch's notes name it: `fp32`, `bf16 autocast` (fp32 weights, torch's autocast) or `bf16 weights` (DeepSpeed's).
What is measured is measured in fp32, on plain weights: the evaluators' numbers, and the validation perplexity that
stops training early.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from harness.contracts import ErasedModel, ErasureTask, Json, Model, Sequences, Training, TrainingTask
from harness.errors import TrialError
from harness.models.adapters import LowRankAdapters
from harness.models.blocks import Block, block_order
from harness.toolkit.engines import TrainingEngine, engine_for
from harness.toolkit.engines.torch import plain_forward
from harness.toolkit.losses import Batch

Loss = Callable[[Model, Batch, Batch], torch.Tensor]
"""(model, forget, retain) to this micro-batch's share of the loss. Without retain data `retain` is empty."""
Parts = tuple[Batch, Batch]
"""A micro-batch of the forget set, and one of the retain data."""
Select = Callable[[Model, Sequence[Batch]], tuple[Sequence[Block], dict[str, Json]]]
"""(model, micro-batches of one random global batch) to the blocks that an epoch trains, and notes about the choice."""


@dataclass(frozen=True)
class Epoch:
    """The state after one whole epoch; number 0 is the untouched model."""

    number: int
    notes: dict[str, Json]
    changed_blocks: tuple[str, ...] | None
    stop_reason: str | None = None


def train_and_yield(
    task: ErasureTask, model: Model, loss: Loss, select: Select | None = None, frozen: Sequence[Model] = ()
) -> Iterator[ErasedModel]:
    """Yield `model` at each epoch in `task.strengths`, and where the trajectory stopped early; see `train`."""
    for epoch in train(task, model, loss, int(max(task.strengths)), select, frozen):
        if epoch.number in task.strengths or epoch.stop_reason:
            yield ErasedModel(epoch.number, model, epoch.notes, epoch.changed_blocks, epoch.stop_reason)


def train(
    task: TrainingTask,
    model: Model,
    loss: Loss,
    epochs: int,
    select: Select | None = None,
    frozen: Sequence[Model] = (),
) -> Iterator[Epoch]:
    """Train `model` in place on the forget set and yield after each epoch, 0 first.

    The data order of an epoch depends on the seed and its number alone, and the learning rate is
    constant: an epoch's model is the same whether or not later ones are asked for. The mode is
    evaluation throughout (no dropout), as the reference implementations of these methods have it.
    With `training.lora` low-rank adapters are trained; between two epochs they are merged into `model`.

    Args:
        task: The texts, the settings and the engine.
        model: What is trained; between two epochs nothing else of the training is on its device.
        loss: What is minimised.
        epochs: How many.
        select: Chooses the blocks that an epoch trains; without it all weights are trained.
        frozen: All other models that `loss` or `select` runs, such as a teacher. They compute in the precision in
            which `model` is trained, and where that takes bf16 weights, theirs become so, in place.

    Raises:
        TrialError: A loss that is not finite, or one that runs a model that is neither trained nor `frozen`; blocks to
            be selected and LoRA at once.
    """
    training = task.training
    if training.lora and select:
        raise TrialError("a method that selects blocks trains these alone, and no LoRA adapters: set lora: null.")
    baseline = task.validation_perplexity(model) if epochs else float("nan")
    changed: set[str] = set()
    selected: list[Json] = []
    yield Epoch(0, {}, () if select else None)
    adapters = LowRankAdapters(model, training.lora, _epoch_seed(task.seed, 0, 3)) if training.lora else None
    engine = None if select else engine_for(task.engine, adapters.model if adapters else model, training)
    try:
        for number in range(1, epochs + 1):
            task.progress(f"epoch {number} of {epochs}")
            notes: dict[str, Json] = {"epoch": number}
            if select is not None:
                rows = torch.randperm(len(task.forget), generator=_generator(task.seed, number, 1))
                batches = micro_batches(
                    task.forget, rows[: training.global_batch], training, next(model.parameters()).device
                )
                with plain_forward(model, training), _only_running(model, *frozen):
                    chosen, choice_notes = select(model, batches)
                selected.append([block.name for block in chosen])
                notes |= {**choice_notes, "selected_by_epoch": list(selected)}
                changed |= {block.name for block in chosen}
                engine = engine_for(task.engine, model, training, chosen)
            assert engine is not None
            for other in frozen:
                engine.freeze(other)
            if adapters:
                adapters.unmerge()
            engine.resume()
            notes |= _one_epoch(task, loss, engine, frozen, number)
            engine.suspend()
            if adapters:
                adapters.merge()
            if engine.skipped_steps:
                skipped = f"{engine.skipped_steps} optimiser steps were left out: their gradients were not finite"
                notes["warnings"] = [*notes.get("warnings", []), skipped]
            reason = _stop_reason(task, model, baseline, notes)
            names = tuple(sorted(changed, key=block_order)) if select else None
            yield Epoch(number, notes, names, reason)
            if reason:
                return
    finally:
        if engine is not None:
            engine.close()
        if adapters:
            adapters.close()


@contextmanager
def _only_running(*models: Model) -> Iterator[None]:
    """Refuse the forward pass of any other model: its precision, or on DeepSpeed its weights, would be another."""
    known = {id(module) for model in models for module in model.modules()}

    def check(module: torch.nn.Module, inputs: Any) -> None:
        if id(module) not in known and next(module.parameters(recurse=False), None) is not None:
            raise TrialError(
                f"a loss, or a selection, ran a {type(module).__name__} of a model that the training loop does not "
                "know. Use the model that it is given, and name all others: train_and_yield(task, model, loss, "
                "frozen=[teacher])."
            )

    handle = register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        handle.remove()


def _stop_reason(task: TrainingTask, model: Model, baseline: float, notes: dict[str, Json]) -> str | None:
    """Note the validation perplexity after an epoch; return why training ends there, if it does."""
    perplexity, limit = task.validation_perplexity(model), task.training.early_stop
    notes |= {"validation_perplexity": perplexity, "validation_perplexity_original": baseline}
    if limit and perplexity > limit * baseline:
        return (
            f"validation perplexity {perplexity:.4g} after epoch {notes['epoch']} is above "
            f"{limit:g} times the original's {baseline:.4g}"
        )
    return None


def _one_epoch(
    task: TrainingTask, loss: Loss, engine: TrainingEngine, frozen: Sequence[Model], number: int
) -> dict[str, Json]:
    began, values = time.perf_counter(), []
    device = next(engine.model.parameters()).device
    order = torch.randperm(len(task.forget), generator=_generator(task.seed, number, 0))
    if task.retain is not None:
        shuffled = torch.randperm(len(task.retain), generator=_generator(task.seed, number, 2))
        retain = shuffled.repeat(-(-len(order) // len(shuffled)))[: len(order)]
    for start in range(0, len(order), task.training.global_batch):
        rows = order[start : start + task.training.global_batch]
        forget_parts = micro_batches(task.forget, rows, task.training, device, engine.workers)
        retain_parts = [_EMPTY] * len(forget_parts)
        if task.retain is not None:
            retain_rows = retain[start : start + len(rows)]
            retain_parts = micro_batches(task.retain, retain_rows, task.training, device, engine.workers)
        value, parts = 0.0, list(zip(forget_parts, retain_parts, strict=True))
        for (forget_part, retain_part), weight in _of_worker(parts, engine):
            with engine.forward(), _only_running(engine.model, *frozen):
                share = loss(engine.model, forget_part, retain_part) * weight
            value += engine.backward(share)
        engine.step()
        values.append(value)
    return {
        "precision": engine.precision,
        "loss_first": values[0],
        "loss_last": values[-1],
        "loss_mean": sum(values) / len(values),
        "optimizer_steps": len(values),
        "skipped_steps": engine.skipped_steps,
        "epoch_seconds": time.perf_counter() - began,
    }


def _of_worker(parts: Sequence[Parts], engine: TrainingEngine) -> Iterator[tuple[Parts, float]]:
    """Yield the parts of a global batch that this worker computes, each with its weight.

    All workers must step equally often: one that has run out computes a part again, for nothing.
    """
    for first in range(0, len(parts), engine.workers):
        index = first + engine.rank
        yield (parts[index], 1.0) if index < len(parts) else (parts[-1], 0.0)


def micro_batches(
    sequences: Sequences, rows: torch.Tensor, training: Training, device: torch.device, workers: int = 1
) -> list[Batch]:
    """Return the micro-batches of one global batch, `rows` of `sequences`, in order: one at least for each worker."""
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


def _generator(seed: int, epoch: int, purpose: int) -> torch.Generator:
    return torch.Generator().manual_seed(_epoch_seed(seed, epoch, purpose))


def _epoch_seed(seed: int, epoch: int, purpose: int) -> int:
    return (seed * 1_000_003 + epoch) * 7 + purpose


_EMPTY = Batch(torch.empty(0, 1, dtype=torch.long), torch.empty(0, 0, dtype=torch.bool), 0, 0)
