"""Blocks: the pieces of a transformer that EMSO chooses from, named as the paper names them.

A block is one head's W_q, W_k, W_v or W_o, or one layer's C_fc or C_proj; biases belong to none. `L2.W_v.H11` is head
11 of layer 2, both counted from 0. Where several heads share their keys and values, W_k and W_v are their group's
(`L2.W_k.G3`); the MLP of a gated layer has a C_gate besides C_fc, which is its up-projection. Every block is one slice
of one parameter, rows or columns, in each of the families: a `Block` knows which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.contracts import Model
from harness.errors import ModelError


@dataclass(frozen=True)
class Family:
    """The layout of an architecture's matrices. Heads and widths are the configuration's, and differ within one."""

    layers: str
    """The list of layers: its path from the causal LM."""
    matrices: Mapping[str, str]
    """Path of each kind's module from a layer.

    A module that several kinds name holds them one after the other, in the order in which they stand here.
    """
    interleaved: bool = False
    """True: a module with W_q, W_k and W_v has those of head 0 first, then of head 1. False: all W_q first."""
    inputs_first: bool = False
    """True: weights are [inputs, outputs], as of transformers' Conv1D. False: [outputs, inputs], as of Linear."""


def _attention(module: str, query: str, key: str, value: str, output: str) -> dict[str, str]:
    return {f"W_{letter}": f"{module}.{name}" for letter, name in zip("qkvo", (query, key, value, output), strict=True)}


_SEPARATE = ("q_proj", "k_proj", "v_proj")
_SELF = _attention("self_attn", *_SEPARATE, "o_proj")
_GPT_MLP = {"C_fc": "mlp.c_fc", "C_proj": "mlp.c_proj"}
_GATED_MLP = {"C_gate": "mlp.gate_proj", "C_fc": "mlp.up_proj", "C_proj": "mlp.down_proj"}
_LLAMA = Family("model.layers", _SELF | _GATED_MLP)

FAMILIES: dict[str, Family] = {
    "gpt_neo": Family("transformer.h", _attention("attn.attention", *_SEPARATE, "out_proj") | _GPT_MLP),
    "gpt2": Family("transformer.h", _attention("attn", *("c_attn",) * 3, "c_proj") | _GPT_MLP, inputs_first=True),
    "gptj": Family(
        "transformer.h", _attention("attn", *_SEPARATE, "out_proj") | {"C_fc": "mlp.fc_in", "C_proj": "mlp.fc_out"}
    ),
    "gpt_neox": Family(
        "gpt_neox.layers",
        _attention("attention", *("query_key_value",) * 3, "dense")
        | {"C_fc": "mlp.dense_h_to_4h", "C_proj": "mlp.dense_4h_to_h"},
        interleaved=True,
    ),
    "opt": Family(
        "model.decoder.layers", _attention("self_attn", *_SEPARATE, "out_proj") | {"C_fc": "fc1", "C_proj": "fc2"}
    ),
    "phi": Family(
        "model.layers", _attention("self_attn", *_SEPARATE, "dense") | {"C_fc": "mlp.fc1", "C_proj": "mlp.fc2"}
    ),
    "phi3": Family(
        "model.layers",
        _attention("self_attn", *("qkv_proj",) * 3, "o_proj")
        | {"C_gate": "mlp.gate_up_proj", "C_fc": "mlp.gate_up_proj", "C_proj": "mlp.down_proj"},
    ),
    "starcoder2": Family("model.layers", _SELF | _GPT_MLP),
    **dict.fromkeys(("llama", "mistral", "gemma", "gemma2", "gemma3_text", "olmo", "olmo2", "olmo3"), _LLAMA),
    **dict.fromkeys(("qwen2", "qwen3", "stablelm", "granite", "cohere", "cohere2", "smollm3"), _LLAMA),
}
"""Families by transformers' `model_type`."""


HEAD_KINDS = ("W_q", "W_k", "W_v", "W_o")
GROUPED_KINDS = ("W_k", "W_v")
"""Those that a group of heads may share."""
MLP_KINDS = ("C_gate", "C_fc", "C_proj")
KINDS = (*HEAD_KINDS, *MLP_KINDS)
_INPUT_KINDS = ("W_o", "C_proj")
"""Those of which a head, or the MLP's inner width, is the input."""
_NUMBER = "(?:[0-9]{1,3})"
_NAME = re.compile(
    rf"L(?P<layer>{_NUMBER})\.(?:(?P<kind>{'|'.join(HEAD_KINDS)})\.H(?P<head>{_NUMBER})"
    rf"|(?P<shared>{'|'.join(GROUPED_KINDS)})\.G(?P<group>{_NUMBER})|(?P<mlp>{'|'.join(MLP_KINDS)}))",
    re.ASCII,
)


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
    """A block's place in a model."""

    layer: int
    """From 0, the shallowest."""
    kind: str
    """One of `KINDS`."""
    head: int | None
    """The group for a group's W_k or W_v; None for a block that is no head's."""
    is_group: bool = False


def lacks_blocks(model_type: str) -> str | None:
    """Return why models of this type have no blocks, and what would give them some; None if they have.

    Example:
        >>> lacks_blocks("llama") is None, "and this is a 'mamba'" in lacks_blocks("mamba")
        (True, True)
    """
    if model_type in FAMILIES:
        return None
    return (
        f"blocks are defined for models of the types {', '.join(sorted(FAMILIES))}, and this is a '{model_type}'. One "
        "entry of FAMILIES in harness/models/blocks.py adds it: its list of layers, and each matrix's module."
    )


def blocks(model: Model) -> tuple[Block, ...]:
    """Return every block, layer by layer: 600 of GPT-Neo 125M, 1584 of 1.3B, 2624 of 2.7B, 1328 of Llama 3.2 1B.

    Raises:
        ModelError: The model's family is not known, or its matrices are not what its configuration says.
    """
    config = model.config
    reason = lacks_blocks(config.model_type)
    if reason is not None:
        raise ModelError(f"{reason} Or use a method that does not select blocks (emso with selection: all).")
    family, heads = FAMILIES[config.model_type], _heads(config)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    every: list[Block] = []
    for layer in range(config.num_hidden_layers):
        every += _layer_blocks(family, heads, layer, shapes)
    return tuple(every)


def block_count(config: Mapping[str, Any]) -> int:
    """Return how many blocks a model of a known family has, by its `config.json`: as many as `blocks` finds in it."""
    from transformers import AutoConfig

    read = AutoConfig.for_model(**config)
    heads = _heads(read)
    return int(read.num_hidden_layers) * sum(len(heads.names(kind)) for kind in FAMILIES[read.model_type].matrices)


@dataclass(frozen=True)
class _Heads:
    """Attention heads as the configuration describes them."""

    heads: int
    groups: int
    """As many as heads where none share keys and values."""
    width: int
    hidden: int

    def names(self, kind: str) -> list[str]:
        """Return what the blocks of a kind are called within a layer."""
        if kind in MLP_KINDS:
            return [kind]
        if kind in GROUPED_KINDS and self.groups < self.heads:
            return [f"{kind}.G{group}" for group in range(self.groups)]
        return [f"{kind}.H{head}" for head in range(self.heads)]


def _heads(config: Any) -> _Heads:
    heads, hidden = config.num_attention_heads, config.hidden_size
    groups = getattr(config, "num_key_value_heads", None) or heads
    return _Heads(heads, groups, getattr(config, "head_dim", None) or hidden // heads, hidden)


def _layer_blocks(family: Family, heads: _Heads, layer: int, shapes: Mapping[str, tuple[int, ...]]) -> list[Block]:
    by_kind: dict[str, list[Block]] = {}
    for module in dict.fromkeys(family.matrices.values()):
        kinds = [kind for kind, holder in family.matrices.items() if holder == module]
        names = {kind: [f"L{layer}.{name}" for name in heads.names(kind)] for kind in kinds}
        parameter = f"{family.layers}.{layer}.{module}.weight"
        axis = int((kinds[0] in _INPUT_KINDS) != family.inputs_first)
        if parameter not in shapes:
            raise ModelError(
                f"this model has no matrix {parameter}, where others of its type have {' and '.join(kinds)}. Blocks "
                "are those of a whole model as transformers loads it, without adapters."
            )
        width = _block_width(parameter, shapes[parameter], axis, heads, names)
        start, step = 0, width * (len(kinds) if family.interleaved else 1)
        for kind in kinds:
            at, by_kind[kind] = start, []
            for name in names[kind]:
                by_kind[kind].append(Block(name, parameter, axis, at, at + width))
                at += step
            start = start + width if family.interleaved else at
    return [block for kind in KINDS for block in by_kind.get(kind, ())]


def _block_width(
    parameter: str, shape: tuple[int, ...], axis: int, heads: _Heads, names: Mapping[str, Sequence[str]]
) -> int:
    """Return how many rows or columns a block of this matrix has.

    Raises:
        ModelError: The matrix is not of a size that holds these blocks.
    """
    count = sum(map(len, names.values()))
    width = heads.width if set(names) <= set(HEAD_KINDS) else shape[axis] // count
    if shape[axis] != width * count or shape[1 - axis] != heads.hidden:
        raise ModelError(
            f"{parameter} is {' x '.join(map(str, shape))}, and does not hold the {' and '.join(names)} of "
            f"{heads.heads} heads and {heads.groups} groups of keys and values, {heads.width} wide each, with a hidden "
            f"size of {heads.hidden}: the configuration is not this model's."
        )
    return width


def block_order(name: str) -> tuple[int, str, int]:
    """Return a sort key that puts `L2` before `L11` and `H2` before `H11`.

    Example:
        >>> sorted(["L11.C_fc", "L2.W_v.H11", "L2.W_v.H2"], key=block_order)
        ['L2.W_v.H2', 'L2.W_v.H11', 'L11.C_fc']
    """
    match = re.fullmatch(r"L(\d+)\.(\w+?)(?:\.[HG](\d+))?", name)
    if match is None:
        raise ModelError(f"'{name}' is not a block's name; they read L2.W_v.H11, L2.W_v.G3 or L2.C_proj.")
    layer, matrix, head = match.groups()
    return int(layer), matrix, int(head or 0)


def block_place(name: str) -> BlockPlace | None:
    """Return where the block of this name is; None if it is no block's name.

    Example:
        >>> block_place("L2.W_v.H11")
        BlockPlace(layer=2, kind='W_v', head=11, is_group=False)
        >>> block_place("L2.W_v.G3").is_group, block_place("L2.W_q.G3")
        (True, None)
        >>> block_place("L2.C_proj").head is None, block_place("L2.W_v"), block_place("lm_head")
        (True, None, None)
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    kind = match["kind"] or match["shared"] or match["mlp"]
    head = match["head"] or match["group"]
    return BlockPlace(int(match["layer"]), kind, int(head) if head else None, is_group=match["group"] is not None)


def kinds_among(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return all kinds that a model has, given some of its: `KINDS`, without C_gate unless it is one of them.

    Example:
        >>> kinds_among(["C_fc"])
        ('W_q', 'W_k', 'W_v', 'W_o', 'C_fc', 'C_proj')
    """
    has_gates = "C_gate" in kinds
    return tuple(kind for kind in KINDS if has_gates or kind != "C_gate")


def counts_by_kind(candidates: Iterable[Block]) -> dict[str, list[int]]:
    """Return how many of the blocks are of each kind in each layer: what a choice among them by chance would give.

    A kind that only gated MLPs have is left out where there is none.

    Example:
        >>> heads = [Block(f"L0.W_v.H{head}", "w", 0, head, head + 1) for head in range(2)]
        >>> counts_by_kind([*heads, Block("L1.C_fc", "c", 0, 0, 1)])
        {'W_q': [0, 0], 'W_k': [0, 0], 'W_v': [2, 0], 'W_o': [0, 0], 'C_fc': [0, 1], 'C_proj': [0, 0]}
    """
    places = [place for block in candidates if (place := block_place(block.name))]
    layers = max((place.layer for place in places), default=-1) + 1
    counts = {kind: [0] * layers for kind in kinds_among({place.kind for place in places})}
    for place in places:
        counts[place.kind][place.layer] += 1
    return counts
