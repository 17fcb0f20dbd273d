"""Which earlier tokens a head attends to: its key-query products over a text, normalised by the model itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch

from harness.contracts import Model
from harness.errors import ModelError
from harness.models.blocks import GROUPED_KINDS, HEAD_KINDS, block_place, lacks_blocks
from harness.models.families import FAMILIES


@dataclass(frozen=True)
class Head:
    """An attention head, counted from 0."""

    layer: int
    index: int
    """Among the heads of its layer."""
    window: int | None
    """How many tokens its layer looks back, the query's own being the first; None: to the start of the text."""


def head_of_block(architecture: Mapping[str, Any], block: str) -> Head:
    """Return the head that the block `L2.W_v.H11` is a part of: the same for its W_q, W_k, W_v and W_o.

    Args:
        architecture: The model's, from `loading.architecture`.
        block: Its name.

    Raises:
        ModelError: The model has no blocks, or not this one, or the block is no single head's: an MLP matrix, or the
            W_k or W_v of a group of heads.

    Example:
        >>> gpt_neo = {"model_type": "gpt_neo", "num_hidden_layers": 2, "num_attention_heads": 4, "window_size": 256}
        >>> head_of_block(gpt_neo | {"attention_layers": ["global", "local"]}, "L1.W_v.H3")
        Head(layer=1, index=3, window=256)
    """
    model_type = str(architecture["model_type"])
    if reason := lacks_blocks(model_type):
        raise ModelError(f"{reason} The attention of its heads cannot be named by one.")
    layers, heads = int(architecture["num_hidden_layers"]), int(architecture["num_attention_heads"])
    share = heads // int(architecture.get("num_key_value_heads") or heads)
    of_heads = [kind for kind in HEAD_KINDS if share == 1 or kind not in GROUPED_KINDS]
    there = (
        f"This model has {', '.join(of_heads)} of the heads H0 to H{heads - 1} in each of the layers L0 to "
        f"L{layers - 1}: L0.{of_heads[-1]}.H{heads - 1}, for instance."
    )
    place = block_place(block)
    if place and place.layer < layers and place.kind in FAMILIES[model_type].matrices and place.head is None:
        raise ModelError(f"{block} is a matrix of an MLP and belongs to no attention head. {there}")
    if place and place.layer < layers and place.is_group and share > 1 and (place.head or 0) < heads // share:
        first = (place.head or 0) * share
        raise ModelError(
            f"{block} is shared by the heads H{first} to H{first + share - 1}: name one of them, "
            f"L{place.layer}.W_q.H{first} for instance."
        )
    names = [f"L{layer}.{kind}.H{head}" for layer in range(layers) for kind in of_heads for head in range(heads)]
    if place is None or place.head is None or block not in names:
        near = get_close_matches(block, names, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ModelError(f"no block of this model is called '{block}'.{hint} {there}")
    return Head(place.layer, place.head, _window(architecture, place.layer))


def _window(architecture: Mapping[str, Any], layer: int) -> int | None:
    windowed = FAMILIES[architecture["model_type"]].windowed
    if windowed is None:
        return None
    if windowed != "every layer" and architecture[windowed][layer] not in ("local", "sliding_attention"):
        return None
    window: int | None = architecture["window_size" if windowed == "attention_layers" else "sliding_window"]
    return window


def attention_weights(model: Model, tokens: Sequence[int], head: Head) -> torch.Tensor:
    """Return the head's weights_QK: a row for each query token, the softmax of its q·k over the keys it may see.

    They are what the model itself multiplies the values with, so its scaling, positions, window and mask are in them
    (GPT-Neo does not divide q·k by √d). Rows sum to 1; keys that a query may not see have 0.

    Raises:
        ModelError: The model was not loaded with eager attention, and keeps its weights to itself.
    """
    kept: list[torch.Tensor | None] = []

    def keep(module: torch.nn.Module, given: Any, returned: tuple[torch.Tensor, torch.Tensor | None]) -> None:
        weights_BHQK = returned[1]
        kept.append(None if weights_BHQK is None else weights_BHQK[0, head.index].float().cpu())

    family = FAMILIES[model.config.model_type]
    # A hook on the one layer: `output_attentions` would keep those of all layers, gigabytes for a long text.
    attention = model.get_submodule(f"{family.layers}.{head.layer}.{family.attention}")
    hook = attention.register_forward_hook(keep)
    try:
        with torch.inference_mode():
            model.base_model(torch.tensor([list(tokens)]), use_cache=False)
    finally:
        hook.remove()
    if kept[0] is None:
        raise ModelError("this model gives no attention weights: load it with attn_implementation='eager'.")
    return kept[0]


def visible_keys(tokens: int, head: Head) -> torch.Tensor:
    """Return visible_QK: whether a query may see a key. It sees itself, and as far back as the head's window.

    Example:
        >>> visible_keys(3, Head(0, 0, window=2)).int().tolist()
        [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    back_QK = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
    return (back_QK >= 0) & (back_QK < (tokens if head.window is None else head.window))
