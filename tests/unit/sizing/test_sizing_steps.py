"""A dry run of decoding in bf16 makes the first step and the last: those between hold no more."""

import pytest
import torch
from transformers import AutoModelForCausalLM, GPTNeoConfig, LlamaConfig

from harness.sizing.measuring_dry_run import lowered_in_place, model_passes
from harness.sizing.memory_tracker import MemoryTracker
from harness.specs import Source
from harness.toolkit.decoding.gpt_neo import GPTNeoStepper
from harness.toolkit.decoding.pair import PairModel
from harness.toolkit.decoding.stepping import CacheStepper

NEO = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]}
LLAMA = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
IDS = {"vocab_size": 50, "max_position_embeddings": 32, "bos_token_id": 0, "eos_token_id": 0}
CONFIGS = (GPTNeoConfig(**NEO, window_size=6, **IDS), LlamaConfig(**LLAMA, **IDS))
TEXT = Source(source="jsonl", rows=6, longest=16, prefix_tokens=5)


def fake(config):
    def make():
        return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()

    return lowered_in_place(MemoryTracker().loading(make), torch.bfloat16)


@pytest.mark.parametrize("is_pair", [False, True])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_what_is_skipped_holds_no_more_than_the_last_step(config, is_pair, monkeypatch):
    def passes():
        model = PairModel(fake(config), fake(config), torch.sub) if is_pair else fake(config)
        return model_passes(model, TEXT, TEXT, torch.device("cuda"))

    skipping = passes()
    skipped = []

    def step_each(stepper, tokens):
        skipped.append(tokens)
        rows = stepper._live if isinstance(stepper, GPTNeoStepper) else stepper._cache.layers[0].live
        for _ in range(tokens):
            stepper.step(torch.zeros(rows, dtype=torch.long))

    for kind in (GPTNeoStepper, CacheStepper):
        monkeypatch.setattr(kind, "skip", step_each)
    assert passes() == skipping
    # Continuing the forget set from its first token, and writing after prompts of five.
    assert skipped == [12, 12, 8, 8] if is_pair else [12, 8]
