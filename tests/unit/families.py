"""Tiny random models of every family, with weights so large that heads matter and choices vary."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HEADS, HIDDEN, LAYERS, VOCABULARY = 4, 32, 2, 60
SIZES = {"hidden_size": HIDDEN, "intermediate_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
OLD_SIZES = {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64}
NEO = {"hidden_size": HIDDEN, "num_layers": LAYERS, "num_heads": HEADS, "attention_types": [[["global", "local"], 1]]}
UNGROUPED = {
    "gpt_neo": {**NEO, "max_position_embeddings": 64},
    "gpt2": OLD_SIZES,
    "gptj": {**OLD_SIZES, "rotary_dim": 4},
    "gpt_neox": SIZES,
    "opt": {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": HIDDEN, "init_std": 0.3, "max_position_embeddings": 64},
    "olmo": SIZES,
    "phi": SIZES,
    "bloom": {"hidden_size": HIDDEN, "n_layer": LAYERS, "n_head": HEADS},
    "falcon": {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS},
    "mpt": {"d_model": HIDDEN, "n_layers": LAYERS, "n_heads": HEADS, "max_seq_len": 32},
    "mamba": {"hidden_size": HIDDEN, "state_size": 4, "num_hidden_layers": LAYERS},
}
"""Sizes of the families whose heads have keys and values of their own; in all others two share theirs."""


def make_tiny(model_type, seed=0, **changes):
    """Return a model whose settings are `changes` over the sizes here."""
    settings = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    settings |= {"initializer_range": 0.3, **UNGROUPED.get(model_type, {**SIZES, "num_key_value_heads": 2}), **changes}
    torch.manual_seed(seed)
    config = AutoConfig.for_model(model_type, **settings)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
