"""Which earlier tokens a head attends to: its key-query products over a text, normalised by the model itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch

from harness.contracts import Model
from harness.errors import ModelError
from harness.models.blocks import HEAD_MATRICES, LAYER_MATRICES, lacks_blocks


@dataclass(frozen=True)
class Head:
    """An attention head of a GPT-Neo, counted from 0."""

    layer: int
    index: int
    """Among the heads of its layer."""
    is_local: bool
    """Whether its layer looks back over a window, not over the whole text."""


def head_of_block(architecture: Mapping[str, Any], block: str) -> Head:
    """Return the head that the block `L2.W_v.H11` is a part of: the same for its W_q, W_k, W_v and W_o.

    Args:
        architecture: The model's, from `loading.architecture`.
        block: Its name.

    Raises:
        ModelError: The model has no blocks, or not this one, or the block is an MLP matrix, which no head has.

    Example:
        >>> gpt_neo = {"model_type": "gpt_neo", "num_hidden_layers": 2, "num_attention_heads": 4}
        >>> head_of_block(gpt_neo | {"attention_layers": ["global", "local"]}, "L1.W_v.H3")
        Head(layer=1, index=3, is_local=True)
    """
    if reason := lacks_blocks(str(architecture["model_type"])):
        raise ModelError(f"{reason} The attention of its heads cannot be named by one.")
    layers, heads = int(architecture["num_hidden_layers"]), int(architecture["num_attention_heads"])
    there = (
        f"This model has {', '.join(HEAD_MATRICES)} of the heads H0 to H{heads - 1} in each of the layers L0 to "
        f"L{layers - 1}: L0.W_v.H{heads - 1}, for instance."
    )
    mlp = {f"L{layer}.{matrix}" for layer in range(layers) for matrix in LAYER_MATRICES}
    if block in mlp:
        raise ModelError(f"{block} is a matrix of an MLP and belongs to no attention head. {there}")
    match = re.fullmatch(rf"L(\d+)\.({'|'.join(HEAD_MATRICES)})\.H(\d+)", block)
    names = [
        f"L{layer}.{matrix}.H{head}" for layer in range(layers) for matrix in HEAD_MATRICES for head in range(heads)
    ]
    if match is None or block not in names:
        near = get_close_matches(block, names, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ModelError(f"no block of this model is called '{block}'.{hint} {there}")
    layer = int(match[1])
    return Head(layer, int(match[3]), architecture["attention_layers"][layer] == "local")


def attention_weights(model: Model, tokens: Sequence[int], head: Head) -> torch.Tensor:
    """Return the head's weights_QK: a row for each query token, the softmax of its q·k over the keys it may see.

    They are what the model itself multiplies the values with, so its scaling, window and mask are in them
    (GPT-Neo does not divide q·k by √d). Rows sum to 1; keys that a query may not see have 0.

    Raises:
        ModelError: The model was not loaded with eager attention, and keeps its weights to itself.
    """
    kept: list[torch.Tensor | None] = []

    def keep(module: torch.nn.Module, given: Any, returned: tuple[torch.Tensor, torch.Tensor | None]) -> None:
        weights_BHQK = returned[1]
        kept.append(None if weights_BHQK is None else weights_BHQK[0, head.index].float().cpu())

    # A hook on the one layer: `output_attentions` would keep those of all layers, gigabytes for a long text.
    hook = model.transformer.h[head.layer].attn.register_forward_hook(keep)
    try:
        with torch.inference_mode():
            model.transformer(torch.tensor([list(tokens)]), use_cache=False)
    finally:
        hook.remove()
    if kept[0] is None:
        raise ModelError("this model gives no attention weights: load it with attn_implementation='eager'.")
    return kept[0]


def visible_keys(model: Model, tokens: int, head: Head) -> torch.Tensor:
    """Return visible_QK: whether a query may see a key. It sees itself, and of a local layer one window back.

    Example:
        >>> from types import SimpleNamespace
        >>> model = SimpleNamespace(config=SimpleNamespace(window_size=2))
        >>> visible_keys(model, 3, Head(0, 0, is_local=True)).int().tolist()
        [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    back_QK = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
    return (back_QK >= 0) & (back_QK < (model.config.window_size if head.is_local else tokens))
