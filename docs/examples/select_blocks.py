"""The `select` of a method that trains the two blocks with the steepest loss: `train_and_yield(..., select=select)`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.contracts import Json, Model
from harness.models.blocks import Block, blocks
from harness.toolkit import Batch, gradients_by_layer, token_nll


def slope(batch: Batch, logits_BSV: torch.Tensor) -> torch.Tensor:
    """Return the NLL of the texts."""
    return batch.mean(token_nll(logits_BSV, batch.targets_BS))


def select(model: Model, batches: Sequence[Batch]) -> tuple[Sequence[Block], dict[str, Json]]:
    """Return the blocks with the largest gradients, which are in memory for one layer at a time, and notes."""
    candidates, sizes = blocks(model), {}
    for [gradients] in gradients_by_layer(model, batches, {block.parameter for block in candidates}, [slope]):
        for block in candidates:
            if block.parameter in gradients:
                sizes[block] = float(block.of(gradients[block.parameter]).norm())
    return sorted(candidates, key=lambda block: -sizes[block])[:2], {}
