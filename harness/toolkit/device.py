"""Device of a trial, the rows that fit on it at once, and layers that take less of its memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from harness.contracts import Model, Sequences
from harness.errors import TrialError
from harness.models.loading import longest_context

LOGIT_BYTES = {"cpu": 512 << 20, "cuda": 4 << 30}
"""Logits of one forward pass."""
READ_TOKENS = {"cpu": 1024, "cuda": 1 << 20}
"""Tokens of one forward pass: on a CPU a layer's results then stay in the caches."""
SCORED_ROWS = 32
"""Rows scored in one forward pass, at most."""
JUDGE_BYTES = 1 << 28
"""Judges that stay loaded."""


def rows_at_once(vocabulary: int, tokens: int, device: torch.device, most: int) -> int:
    """Return the rows of so many tokens in one forward pass, 1 to `most`."""
    return max(1, min(most, LOGIT_BYTES[device.type] // (4 * vocabulary * tokens)))


def padded_batches(model: Model, sequences: Sequences) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield tokens_BT and lengths_B on the model's device.

    Right padding needs no mask: earlier positions of a causal model never see it.
    """
    device, longest = next(model.parameters()).device, sequences.tokens_NT.shape[1]
    at_once = rows_at_once(count_vocabulary(model), longest, device, min(SCORED_ROWS, read_at_once(longest, device)))
    for start in range(0, len(sequences), at_once):
        lengths_B = sequences.lengths_N[start : start + at_once]
        tokens_BT = sequences.tokens_NT[start : start + at_once, : int(lengths_B.max())]
        yield tokens_BT.to(device), lengths_B.to(device)


def read_at_once(tokens: int, device: torch.device) -> int:
    """Return the rows to read in one pass without logits."""
    return max(1, READ_TOKENS[device.type] // tokens)


def count_vocabulary(model: Model) -> int:
    """Return the vocabulary size of a model or its text part."""
    return int(model.config.get_text_config(decoder=True).vocab_size)


def room_after(model: Model, tokens: int) -> int:
    """Return the tokens that fit in the context after so many."""
    return max(0, longest_context(model.config) - tokens)


_DEVICE: ContextVar[torch.device | None] = ContextVar("_DEVICE", default=None)
_JUDGES_DTYPE: ContextVar[torch.dtype] = ContextVar("_JUDGES_DTYPE", default=torch.float32)


def device_for(gpus: float) -> torch.device:
    """Return the GPU if any was given and exists, else the CPU."""
    is_gpu = gpus > 0 and torch.cuda.is_available()
    for kernel in ("flash", "mem_efficient", "cudnn"):  # On a GPU they may train to other bits each time.
        getattr(torch.backends.cuda, f"enable_{kernel}_sdp")(not is_gpu)
    return torch.device("cuda" if is_gpu else "cpu")


@contextmanager
def judging_on(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Set `computing_device` and `judges_dtype` within the block."""
    device_token, dtype_token = _DEVICE.set(device), _JUDGES_DTYPE.set(dtype)
    try:
        yield
    finally:
        _DEVICE.reset(device_token)
        _JUDGES_DTYPE.reset(dtype_token)


def computing_device() -> torch.device:
    """Return the trial's device; else the CPU."""
    return _DEVICE.get() or torch.device("cpu")


def judges_dtype() -> torch.dtype:
    """Return the trial's dtype of causal judges; else fp32."""
    return _JUDGES_DTYPE.get()


@contextmanager
def checkpointed_layers(model: torch.nn.Module) -> Iterator[None]:
    """Keep only each layer's input in forward passes without a cache; losses and gradients are bit-identical.

    Source:
        Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    if not (layers := [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]):
        remedy = "Set training.activation_checkpointing to false."
        raise TrialError(f"a {type(model).__name__} has no layers of transformers that can be checkpointed. {remedy}")
    for layer in layers:
        vars(layer)["forward"] = partial(_checkpointed, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["forward"]


def _checkpointed(forward: Callable[..., Any], *arguments: Any, **kwargs: Any) -> Any:
    from transformers import Cache

    if any(isinstance(value, Cache) for value in (*arguments, *kwargs.values())):
        return forward(*arguments, **kwargs)
    return checkpoint(forward, *arguments, use_reentrant=False, preserve_rng_state=False, **kwargs)
