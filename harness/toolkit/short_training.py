"""Short training of a copy: what a few steps on some texts make of a model that an evaluator is lent."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch

from harness.contracts import Model, Sequences, Training
from harness.toolkit.engines.torch import TorchEngine
from harness.toolkit.finetune import micro_batches
from harness.toolkit.losses import nll_loss


def trained_briefly(
    model: Model, sequences: Sequences, *, steps: Sequence[int], learning_rate: float, batch: int, seed: int
) -> Iterator[tuple[int, Model]]:
    """Train a copy of `model` on the NLL of all tokens of `sequences`, and yield it after each of `steps`.

    AdamW in fp32, without weight decay, at a constant rate, in evaluation mode (no dropout): what the copy is after a
    step does not depend on the later ones. The texts come in one random order, again and again, `batch` of them a step.

    Args:
        model: Left as it is. A `PairModel` has no weights of its own: give it one of its two models.
        sequences: The texts that are trained on.
        steps: After which steps to yield, rising; 0 is the copy before any.
        learning_rate: AdamW's.
        batch: Texts in one step; all of them where there are fewer.
        seed: Of the texts' order.

    Yields:
        The step, and the copy: always the same model, in evaluation mode, which the next step changes.

    Raises:
        TrialError: A loss is NaN or infinite.
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
