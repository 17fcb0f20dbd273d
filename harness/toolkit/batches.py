"""Batches: how many rows a forward pass may take."""

from __future__ import annotations

import torch

LOGIT_BYTES = {"cpu": 512 << 20, "cuda": 4 << 30}
"""What the logits of one forward pass may weigh: with 50,000 tokens to choose from they outweigh all else."""


def rows_at_once(vocabulary: int, tokens: int, device: torch.device, most: int) -> int:
    """Return how many rows of so many tokens to put through a model at once, 1 to `most`.

    Example:
        >>> rows_at_once(1_024, 128, torch.device("cpu"), most=64)
        64
        >>> rows_at_once(50_257, 200, torch.device("cpu"), most=64)
        13
    """
    return max(1, min(most, LOGIT_BYTES[device.type] // (4 * vocabulary * tokens)))
