"""Shared fixtures: small random GPT-Neos with both kinds of attention, made in memory."""

import logging
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM

from harness.contracts import Sequences

logging.getLogger("transformers").setLevel(logging.ERROR)
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def make_model():
    """Return a maker of GPT-Neos whose weights are large enough for opinions of their own."""

    def make(seed=0, layers=4, hidden=32, heads=4, vocabulary=60, window=8, scale=0.3):
        torch.manual_seed(seed)
        config = GPTNeoConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            num_layers=layers,
            num_heads=heads,
            attention_types=[[["global", "local"], layers // 2]],
            window_size=window,
            max_position_embeddings=128,
            initializer_range=scale,
            resid_dropout=0.0,
            embed_dropout=0.0,
            attention_dropout=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
        return GPTNeoForCausalLM(config).eval()

    return make


@pytest.fixture(scope="session")
def make_sequences():
    """Return a maker of sequences from lists of token ids."""

    def make(rows, prefix_tokens=1, digest="0" * 16):
        width = max(len(row) for row in rows)
        tokens = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
        return Sequences(tokens, torch.tensor([len(row) for row in rows]), prefix_tokens, digest)

    return make
