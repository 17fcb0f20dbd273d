"""Sequential gradient difference."""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

import torch

from harness.contracts import Count, ErasedModel, ErasureTask, LogUniform, Model, NonNegative, PositiveCount
from harness.toolkit import RetainMethod, train


@dataclass(frozen=True, kw_only=True)
class SequentialGradientDifference(RetainMethod):
    """Takes gradient difference to one chunk of the forget set after another: −L_NLL(chunk) + w L_NLL(retain).

    An epoch is one round over the chunks in the forget set's order: a fraction of it has erased only the first ones.

    Differs from the paper: its code steps on single sequences, here a step takes `training.global_batch`, so the
    published learning rate erases far less. Each batch has as many retain as forget sequences, weighted by 3.5, where
    the paper has seven times as many at 0.5. Losses are means over tokens, AdamW's state continues from chunk to chunk,
    and the learning rate is constant. `training.early_stop` looks after each pass over a chunk.

    Source: Premptis et al., arXiv:2503.02443 (SUGD, first of SemEval-2025 task 4); settings: iraklis07/llm-unlearning,
    with LoRA of rank 16 and alpha 64.
    """

    label = "SUGD"
    source = "Premptis et al. 2025, arXiv:2503.02443"
    version = 2
    published = {"training.learning_rate": 1e-5}

    epochs: Annotated[Count, LogUniform(low=1, high=3)] = 1
    """Rounds over all chunks; the paper's is 1."""
    passes: Annotated[PositiveCount, LogUniform(low=1, high=10)] = 7
    """Passes over a chunk in a round."""
    chunk: Annotated[PositiveCount, LogUniform(low=16, high=64)] = 32
    """Forget sequences in a chunk; the last one has the rest."""
    retain_weight: Annotated[NonNegative, LogUniform(low=0.3, high=30.0)] = 3.5
    """w of the retain term."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        chunks: list[list[int]] = [rows.tolist() for rows in torch.arange(len(task.forget)).split(self.chunk)]
        passes_of_epoch = self.passes * len(chunks)
        # A strength has four digits: without rounding, the end of a pass could become the next one's first step.
        steps = -(-len(chunks[0]) // task.training.global_batch)
        strengths = {round(epochs * passes_of_epoch * steps) / steps: epochs for epochs in task.strengths}
        last, batch = max(strengths), task.training.global_batch
        steps_of_epoch = self.passes * sum(-(-len(rows) // batch) for rows in chunks)

        def chunk_of(model: Model, number: int) -> list[int]:
            return chunks[(number - 1) % passes_of_epoch // self.passes]

        model = task.load_original()
        with closing(train(task, model, self.loss, math.ceil(last), strengths, select_rows=chunk_of)) as passes:
            for state in passes:
                if state.number in strengths or state.stop_reason:
                    epochs = strengths.get(state.number, state.number / passes_of_epoch)
                    notes = {**state.notes, "epoch": state.number / len(chunks)}  # Passes over the forget set.
                    if "total_steps" in notes:
                        notes["optimizer_steps"] = (notes["total_steps"] - 1) % steps_of_epoch + 1
                    yield ErasedModel(epochs, model, notes, state.changed_blocks, state.stop_reason)
                if state.number >= last:
                    return
