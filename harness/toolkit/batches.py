"""What may be on a device at once: rows of a forward pass, judges."""

from __future__ import annotations

import torch

from harness.contracts import Model
from harness.models.configurations import longest_context

LOGIT_BYTES = {"cpu": 512 << 20, "cuda": 4 << 30}
"""The most that the logits of one forward pass may take: with a vocabulary of 50,000 they outweigh all else."""
READ_TOKENS = {"cpu": 1024, "cuda": 1 << 20}
"""In one forward pass over texts: on a CPU, what a layer computes then stays in the caches."""
JUDGE_BYTES = 1 << 30
"""Judges that weigh less than this together stay loaded beside a model that is measured."""


def rows_at_once(vocabulary: int, tokens: int, device: torch.device, most: int) -> int:
    """Return how many rows of so many tokens to put through a model at once, 1 to `most`.

    Example:
        >>> rows_at_once(1_024, 128, torch.device("cpu"), most=64)
        64
        >>> rows_at_once(50_257, 200, torch.device("cpu"), most=64)
        13
    """
    return max(1, min(most, LOGIT_BYTES[device.type] // (4 * vocabulary * tokens)))


def read_at_once(tokens: int, device: torch.device) -> int:
    """Return how many rows of so many tokens to read in one forward pass where their logits have room.

    Example:
        >>> read_at_once(128, torch.device("cpu")), read_at_once(2_000, torch.device("cpu"))
        (8, 1)
    """
    return max(1, READ_TOKENS[device.type] // tokens)


def vocabulary_of(model: Model) -> int:
    """Return how many tokens a model chooses from; of one that also sees or hears, its text part says so."""
    return int(model.config.get_text_config(decoder=True).vocab_size)


def room_after(model: Model, tokens: int) -> int:
    """Return how many tokens a model can be made to write after so many, as its longest context allows."""
    return max(0, longest_context(model.config) - tokens)
