"""Blocks: the pieces of a transformer that EMSO chooses from, named as the paper names them.

A block is one head's W_q, W_k, W_v or W_o, or one layer's C_fc or C_proj; biases belong to none.
`L2.W_v.H11` is head 11 of layer 2, both counted from 0. W_q, W_k and W_v of a head are rows of
their matrix, W_o columns: a `Block` knows which slice of which parameter it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from harness.contracts import Model
from harness.errors import ModelError

MODEL_TYPE = "gpt_neo"
HEAD_MATRICES = {"W_q": "q_proj", "W_k": "k_proj", "W_v": "v_proj", "W_o": "out_proj"}
LAYER_MATRICES = {"C_fc": "c_fc", "C_proj": "c_proj"}
KINDS = (*HEAD_MATRICES, *LAYER_MATRICES)
_NUMBER = "([0-9]{1,3})"
_NAME = re.compile(rf"L{_NUMBER}\.(?:({'|'.join(HEAD_MATRICES)})\.H{_NUMBER}|({'|'.join(LAYER_MATRICES)}))", re.ASCII)


@dataclass(frozen=True)
class Block:
    """A slice of one weight matrix."""

    name: str
    parameter: str
    """The matrix, as `named_parameters` calls it."""
    axis: int
    """0: rows `start` to `stop`; 1: columns."""
    start: int
    stop: int

    def of(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return this block's view of `matrix`: writing to it writes to the matrix."""
        return matrix.narrow(self.axis, self.start, self.stop - self.start)


@dataclass(frozen=True)
class BlockPlace:
    """Where in a model a block is."""

    layer: int
    """From 0, the shallowest."""
    kind: str
    """One of `KINDS`."""
    head: int | None
    """None for a block that is a whole matrix."""


def lacks_blocks(model_type: str) -> str | None:
    """Return why models of this type have no blocks; None if they have.

    Example:
        >>> lacks_blocks("gpt_neo") is None, lacks_blocks("llama")
        (True, "blocks are defined for GPT-Neo models (model_type gpt_neo), and this is a 'llama'.")
    """
    if model_type == MODEL_TYPE:
        return None
    return f"blocks are defined for GPT-Neo models (model_type {MODEL_TYPE}), and this is a '{model_type}'."


def blocks(model: Model) -> tuple[Block, ...]:
    """Return every block of a GPT-Neo, layer by layer: 600 for 125M, 1584 for 1.3B, 2624 for 2.7B.

    Raises:
        ModelError: The model is of another architecture.
    """
    reason = lacks_blocks(model.config.model_type)
    if reason is not None:
        raise ModelError(f"{reason} Use a GPT-Neo, or a method that does not select blocks (emso with selection: all).")
    heads, width = model.config.num_heads, model.config.hidden_size // model.config.num_heads
    every: list[Block] = []
    parameters = dict(model.named_parameters())
    for layer in range(model.config.num_layers):
        stem = f"transformer.h.{layer}"
        for short, matrix in HEAD_MATRICES.items():
            parameter, axis = f"{stem}.attn.attention.{matrix}.weight", 1 if short == "W_o" else 0
            every += [
                Block(f"L{layer}.{short}.H{head}", parameter, axis, head * width, (head + 1) * width)
                for head in range(heads)
            ]
        for short, matrix in LAYER_MATRICES.items():
            parameter = f"{stem}.mlp.{matrix}.weight"
            every.append(Block(f"L{layer}.{short}", parameter, 0, 0, parameters[parameter].shape[0]))
    return tuple(every)


def block_order(name: str) -> tuple[int, str, int]:
    """Return a sort key that puts `L2` before `L11` and `H2` before `H11`.

    Example:
        >>> sorted(["L11.C_fc", "L2.W_v.H11", "L2.W_v.H2"], key=block_order)
        ['L2.W_v.H2', 'L2.W_v.H11', 'L11.C_fc']
    """
    match = re.fullmatch(r"L(\d+)\.(\w+?)(?:\.H(\d+))?", name)
    if match is None:
        raise ModelError(f"'{name}' is not a block's name; they read L2.W_v.H11 or L2.C_proj.")
    layer, matrix, head = match.groups()
    return int(layer), matrix, int(head or 0)


def block_place(name: str) -> BlockPlace | None:
    """Return where the block of this name is; None if it is no block's name.

    Example:
        >>> block_place("L2.W_v.H11")
        BlockPlace(layer=2, kind='W_v', head=11)
        >>> block_place("L2.C_proj").head is None, block_place("L2.W_v"), block_place("lm_head")
        (True, None, None)
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    layer, of_head, head, of_layer = match.groups()
    return BlockPlace(int(layer), of_head or of_layer, int(head) if of_head else None)


def counts_by_kind(candidates: Iterable[Block]) -> dict[str, list[int]]:
    """Return how many of the blocks are of each kind in each layer: what a choice among them by chance would give.

    Example:
        >>> heads = [Block(f"L0.W_v.H{head}", "w", 0, head, head + 1) for head in range(2)]
        >>> counts_by_kind([*heads, Block("L1.C_fc", "c", 0, 0, 1)])
        {'W_q': [0, 0], 'W_k': [0, 0], 'W_v': [2, 0], 'W_o': [0, 0], 'C_fc': [0, 1], 'C_proj': [0, 0]}
    """
    places = [place for block in candidates if (place := block_place(block.name))]
    layers = max((place.layer for place in places), default=-1) + 1
    counts = {kind: [0] * layers for kind in KINDS}
    for place in places:
        counts[place.kind][place.layer] += 1
    return counts
