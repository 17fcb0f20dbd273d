"""Blocks: the pieces of a transformer that EMSO chooses from, with the paper's names.

A block is one head's W_q, W_k, W_v or W_o, or one layer's C_fc or C_proj, without biases. `L2.W_v.H11` is head 11 of
layer 2, both from 0. Heads that share keys and values form a group (`L2.W_k.G3`); a gated MLP also has C_gate, and C_fc
is its up-projection.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from harness import contracts, errors


class Family(NamedTuple):
    """Layout of an architecture's matrices."""

    layers: str
    """Path of the list of layers from the causal LM."""
    matrices: Mapping[str, str]
    """Path of each kind's module from a layer; a fused module stores its kinds in this order."""
    interleaved: bool = False
    """A fused W_q, W_k and W_v is stored head by head, instead of all W_q first."""
    inputs_first: bool = False
    """Weights are [inputs, outputs], as in transformers' Conv1D, instead of [outputs, inputs]."""


def _attention(module: str, query: str, key: str, value: str, output: str) -> dict[str, str]:
    return {f"W_{letter}": f"{module}.{name}" for letter, name in zip("qkvo", (query, key, value, output), strict=True)}


_SEPARATE = ("q_proj", "k_proj", "v_proj")
_SELF = _attention("self_attn", *_SEPARATE, "o_proj")
_GPT_MLP = {"C_fc": "mlp.c_fc", "C_proj": "mlp.c_proj"}
_GPTJ_MLP = {"C_fc": "mlp.fc_in", "C_proj": "mlp.fc_out"}
_NEOX_MLP = {"C_fc": "mlp.dense_h_to_4h", "C_proj": "mlp.dense_4h_to_h"}
_PHI3_MLP = {"C_gate": "mlp.gate_up_proj", "C_fc": "mlp.gate_up_proj", "C_proj": "mlp.down_proj"}
_GATED_MLP = {"C_gate": "mlp.gate_proj", "C_fc": "mlp.up_proj", "C_proj": "mlp.down_proj"}
_OPT_MLP = {"C_fc": "fc1", "C_proj": "fc2"}
_PHI_MLP = {"C_fc": "mlp.fc1", "C_proj": "mlp.fc2"}
_FUSED_NEOX = _attention("attention", *("query_key_value",) * 3, "dense")
_LLAMA = Family("model.layers", _SELF | _GATED_MLP)

FAMILIES: dict[str, Family] = {
    "gpt_neo": Family("transformer.h", _attention("attn.attention", *_SEPARATE, "out_proj") | _GPT_MLP),
    "gpt2": Family("transformer.h", _attention("attn", *("c_attn",) * 3, "c_proj") | _GPT_MLP, inputs_first=True),
    "gptj": Family("transformer.h", _attention("attn", *_SEPARATE, "out_proj") | _GPTJ_MLP),
    "gpt_neox": Family("gpt_neox.layers", _FUSED_NEOX | _NEOX_MLP, interleaved=True),
    "opt": Family("model.decoder.layers", _attention("self_attn", *_SEPARATE, "out_proj") | _OPT_MLP),
    "phi": Family("model.layers", _attention("self_attn", *_SEPARATE, "dense") | _PHI_MLP),
    "phi3": Family("model.layers", _attention("self_attn", *("qkv_proj",) * 3, "o_proj") | _PHI3_MLP),
    "starcoder2": Family("model.layers", _SELF | _GPT_MLP),
    **dict.fromkeys(("llama", "mistral", "gemma", "gemma2", "gemma3_text", "olmo", "olmo2", "olmo3"), _LLAMA),
    **dict.fromkeys(("qwen2", "qwen3", "stablelm", "granite", "cohere", "cohere2", "smollm3"), _LLAMA),
}
"""By transformers' `model_type`."""


HEAD_KINDS = ("W_q", "W_k", "W_v", "W_o")
GROUPED_KINDS = ("W_k", "W_v")
"""Kinds that a group of heads may share."""
MLP_KINDS = ("C_gate", "C_fc", "C_proj")
KINDS = (*HEAD_KINDS, *MLP_KINDS)
# Their inputs are a head's, or the MLP's inner width.
_INPUT_KINDS = ("W_o", "C_proj")
_NAME = re.compile(r"L([0-9]{1,3})\.(?:(W_[qkvo])\.H([0-9]{1,3})|(W_[kv])\.G([0-9]{1,3})|(C_gate|C_fc|C_proj))")


class Block(NamedTuple):
    """A slice of one weight matrix."""

    name: str
    parameter: str
    """Name in `named_parameters`."""
    axis: int
    """0: rows `start` to `stop`; 1: columns."""
    start: int
    stop: int

    def of(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return this block's view of `matrix`."""
        return matrix.narrow(self.axis, self.start, self.stop - self.start)


class BlockPlace(NamedTuple):
    """A block's place in a model."""

    layer: int
    kind: str
    """One of `KINDS`."""
    head: int | None
    """The group for a group's; None for an MLP's block."""


def lacks_blocks(model_type: str) -> str | None:
    """Return why models of this type have no blocks, and what to do."""
    if model_type in FAMILIES:
        return None
    defined = f"blocks are defined for models of the types {', '.join(sorted(FAMILIES))}, and this is a '{model_type}'"
    return f"{defined}. One entry of FAMILIES in harness/models/blocks.py adds it."


def blocks(model: contracts.Model) -> tuple[Block, ...]:
    """Return every block, layer by layer: 600 in GPT-Neo 125M, 1584 in 1.3B, 2624 in 2.7B, 1328 in Llama 3.2 1B."""
    config = model.config
    if reason := lacks_blocks(config.model_type):
        raise errors.ModelError(f"{reason} Or use a method that does not select blocks (emso with selection: all).")
    family, heads = FAMILIES[config.model_type], _heads(config)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    every: list[Block] = []
    for layer in range(config.num_hidden_layers):
        every += _layer_blocks(family, heads, layer, shapes)
    return tuple(every)


def block_count(fields: Mapping[str, Any]) -> int:
    """Return the number of blocks for a known family's `config.json`."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(**fields)
    heads = _heads(config)
    return int(config.num_hidden_layers) * sum(len(heads.names(kind)) for kind in FAMILIES[config.model_type].matrices)


class _Heads(NamedTuple):
    heads: int
    groups: int
    width: int
    hidden: int

    def names(self, kind: str) -> list[str]:
        """Return the names of a kind's blocks within a layer."""
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
            others = f"where others of its type have {' and '.join(kinds)}: blocks are those of a whole model."
            raise errors.ModelError(f"this model has no matrix {parameter}, {others}")
        shape, count = shapes[parameter], sum(map(len, names.values()))
        width = heads.width if set(kinds) <= set(HEAD_KINDS) else shape[axis] // count
        if shape[axis] != width * count or shape[1 - axis] != heads.hidden:
            size = f"{heads.heads} heads and {heads.groups} groups, {heads.width} wide"
            holds = f"is {' x '.join(map(str, shape))}, and does not hold the {' and '.join(kinds)} of {size}"
            reason = f"{holds}, at a hidden size of {heads.hidden}: the configuration is not this model's."
            raise errors.ModelError(f"{parameter} {reason}")
        start, step = 0, width * (len(kinds) if family.interleaved else 1)
        for kind in kinds:
            at, by_kind[kind] = start, []
            for name in names[kind]:
                by_kind[kind].append(Block(name, parameter, axis, at, at + width))
                at += step
            start = start + width if family.interleaved else at
    return [block for kind in KINDS for block in by_kind.get(kind, ())]


def block_order(name: str) -> tuple[int, str, int]:
    """Return a sort key that puts `L2` before `L11` and `H2` before `H11`."""
    place = block_place(name)
    if place is None:
        raise errors.ModelError(f"'{name}' is not a block's name; they read L2.W_v.H11, L2.W_v.G3 or L2.C_proj.")
    return place.layer, place.kind, place.head or 0


def block_place(name: str) -> BlockPlace | None:
    """Return the place of a block's name; None if it is no block's name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    layer, kind, *head = filter(None, match.groups())
    return BlockPlace(int(layer), kind, int(head[0]) if head else None)


def kinds_among(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return `KINDS`, without C_gate unless it is among the given ones."""
    return tuple(kind for kind in KINDS if kind != "C_gate" or kind in kinds)


def counts_by_kind(candidates: Iterable[Block]) -> dict[str, list[int]]:
    """Return the number of blocks of each kind in each layer, for comparison with chance."""
    places = [place for block in candidates if (place := block_place(block.name))]
    layers = max((place.layer for place in places), default=-1) + 1
    counts = {kind: [0] * layers for kind in kinds_among({place.kind for place in places})}
    for place in places:
        counts[place.kind][place.layer] += 1
    return counts
