"""Activation checkpointing: a forward pass keeps what enters each layer, and the backward pass computes the rest again.

Of transformers' own only the mark on its layers is used: it works in the mode of training alone, in which there is
dropout, and it takes a cache away from whoever asked for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from harness.errors import TrialError


@contextmanager
def checkpointed_layers(model: torch.nn.Module) -> Iterator[None]:
    """Keep of each layer only what enters it, in the forward passes within; the backward pass may come later.

    Losses and gradients are the same to the last bit. A pass that fills a cache keeps all: a second one would fill it
    once more.

    Args:
        model: A model of transformers, or one that contains it; it runs without dropout. Afterwards no trace is left.

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
    for layer in layers:
        vars(layer)["forward"] = partial(_checkpointed, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["forward"]


def _checkpointed(forward: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    from transformers import Cache

    if any(isinstance(value, Cache) for value in (*arguments, *named.values())):
        return forward(*arguments, **named)
    return checkpoint(forward, *arguments, use_reentrant=False, preserve_rng_state=False, **named)
