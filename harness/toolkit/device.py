"""The device of a trial, and the rows and judges that fit on it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from harness.contracts import Model, Sequences
from harness.models.loading import longest_context

LOGIT_BYTES = {"cpu": 512 << 20, "cuda": 4 << 30}
"""The most that the logits of one forward pass may take: with a vocabulary of 50,000 they outweigh all else."""
READ_TOKENS = {"cpu": 1024, "cuda": 1 << 20}
"""Tokens of one forward pass over texts: on a CPU, a layer's results then stay in the caches."""
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


def padded_batches(model: Model, sequences: Sequences, most: int = 32) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield some sequences at a time, tokens_BT and lengths_B on the model's device, cut to the longest of them.

    Right padding needs no mask: a causal model's earlier positions never see it.
    """
    device = next(model.parameters()).device
    at_once = rows_at_once(vocabulary_of(model), sequences.tokens_NT.shape[1], device, most)
    for start in range(0, len(sequences), at_once):
        lengths_B = sequences.lengths_N[start : start + at_once]
        tokens_BT = sequences.tokens_NT[start : start + at_once, : int(lengths_B.max())]
        yield tokens_BT.to(device), lengths_B.to(device)


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


_DEVICE: ContextVar[torch.device | None] = ContextVar("_DEVICE", default=None)
_JUDGES_DTYPE: ContextVar[torch.dtype] = ContextVar("_JUDGES_DTYPE", default=torch.float32)


def device_for(gpus: float) -> torch.device:
    """Return where what was given so many GPUs computes: on a GPU only if it was given one, and there is one.

    Example:
        >>> device_for(0.0)
        device(type='cpu')
    """
    return torch.device("cuda" if gpus > 0 and torch.cuda.is_available() else "cpu")


@contextmanager
def judging_on(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Say to `computing_device` and `judges_dtype`, as long as the block lasts, what its trial asks for."""
    device_token, dtype_token = _DEVICE.set(device), _JUDGES_DTYPE.set(dtype)
    try:
        yield
    finally:
        _DEVICE.reset(device_token)
        _JUDGES_DTYPE.reset(dtype_token)


def computing_device() -> torch.device:
    """Return where the trial that asks for a judge computes, which is where the judge belongs; else the CPU.

    A GPU that the machine has may be another trial's.
    """
    return _DEVICE.get() or torch.device("cpu")


def judges_dtype() -> torch.dtype:
    """Return in what the causal judges of the trial that asks for one compute: fp32 unless it says otherwise."""
    return _JUDGES_DTYPE.get()
