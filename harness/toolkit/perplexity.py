"""A model's own perplexity: how surprised it is by texts, token for token."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from harness.contracts import Model, Sequences
from harness.toolkit.batches import rows_at_once

ROWS = 32


@torch.inference_mode()
def own_perplexity(model: Model, sequences: Sequences) -> float:
    """Return exp of the model's mean NLL over all predicted tokens of `sequences`; NaN if there are none."""
    device = next(model.parameters()).device
    total = count = 0.0
    at_once = rows_at_once(model.config.vocab_size, sequences.tokens_NT.shape[1], device, most=ROWS)
    for at in range(0, len(sequences), at_once):
        lengths = sequences.lengths_N[at : at + at_once].to(device)
        tokens = sequences.tokens_NT[at : at + at_once, : int(lengths.max())].to(device)
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits.float()
        nll = functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
        counted = torch.arange(1, tokens.shape[1], device=device) < lengths[:, None]
        total += float(nll.double().masked_fill(~counted, 0.0).sum())
        count += int(counted.sum())
    return math.exp(min(total / count, 700.0)) if count else float("nan")
