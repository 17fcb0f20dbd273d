"""Families: where each architecture keeps its attention and MLP matrices. A further one is a further entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """The layout of an architecture's matrices. Heads and widths are the configuration's, and differ within one."""

    layers: str
    """The list of layers: its path from the causal LM."""
    matrices: Mapping[str, str]
    """Of each kind of block, the path of the module that holds it, from a layer.

    A module that several kinds name holds them one after the other, in the order in which they stand here.
    """
    interleaved: bool = False
    """Whether a module that holds W_q, W_k and W_v has those of head 0 first, then of head 1; else all W_q first."""
    inputs_first: bool = False
    """Whether weights are [inputs, outputs], as of transformers' Conv1D; else [outputs, inputs], as of Linear."""


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
"""By transformers' `model_type`."""
