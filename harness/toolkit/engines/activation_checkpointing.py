"""Activation checkpointing: a forward pass keeps what enters each layer, and the backward pass computes the rest again.

Of transformers' own only the mark on its layers is used: it works in the mode of training alone, in which there is
dropout, and it takes a cache away from whoever asked for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

from harness.errors import TrialError


@contextmanager
def checkpointed_layers(
    model: torch.nn.Module, within: Callable[[torch.nn.Module], AbstractContextManager[object]] | None = None
) -> Iterator[None]:
    """Keep of each layer only what enters it, in the forward passes meanwhile; the backward pass may come later.

    Losses and gradients are the same to the last bit: what is computed again is computed as before. A pass that fills a
    cache keeps all, since a second one would fill it once more.

    Args:
        model: A model of transformers, or one that contains it; it runs without dropout. Afterwards no trace is left.
        within: Of a layer, the context in which it runs, at first and again; None: in none.

    Raises:
        TrialError: It has no layers that transformers marks as ones that can be checkpointed.

    Source:
        Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise TrialError(
            f"a {type(model).__name__} has no layers of transformers whose activations could be computed again. Set "
            "training.activation_checkpointing to false."
        )
    bare = [layer for layer in layers if "forward" not in vars(layer)]  # Within another such context there are none.
    for layer in bare:
        vars(layer)["forward"] = _checkpointed(layer.forward, partial(within, layer) if within else nullcontext)
    try:
        yield
    finally:
        for layer in bare:
            del vars(layer)["forward"]


def _checkpointed(
    forward: Callable[..., Any], context: Callable[[], AbstractContextManager[object]]
) -> Callable[..., Any]:
    from transformers import Cache

    def in_context(*arguments: Any, **named: Any) -> Any:
        with context():
            return forward(*arguments, **named)

    def checkpointed_forward(*arguments: Any, **named: Any) -> Any:
        if any(isinstance(value, Cache) for value in (*arguments, *named.values())):
            return forward(*arguments, **named)
        run = _with_modes_of_now(in_context)
        return checkpoint(run, *arguments, use_reentrant=False, preserve_rng_state=False, **named)

    return checkpointed_forward


def _with_modes_of_now(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return `forward` with the modes that torch's functions are in now: of these a backward pass may be in none."""
    modes = _get_current_function_mode_stack()

    def in_modes(*arguments: Any, **named: Any) -> Any:
        with ExitStack() as stack:
            for mode in modes:
                if mode not in _get_current_function_mode_stack():
                    stack.enter_context(mode)
            return forward(*arguments, **named)

    return in_modes
