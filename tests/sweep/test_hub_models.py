"""A checkpoint as wide as GPT-Neo 125M, with random weights, from the hub's cache: planned, erased and measured."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM

from harness.records.journal import Journal
from harness.records.record import Point, Started
from harness.sweep import main

COMMITS = {2: "c0ffee02" * 5, 12: "c0ffee12" * 5}
"""What is known of a model is kept by its commit."""
SWEEP = """# Does a model of the paper's smallest size run, from the hub's cache, offline?
name: hub
models: [owner/gpt-neo-125m]
data:
  forget: {source: npy, path: FORGET, prefix_tokens: 8}
  utility: {source: miniature, prompts: 2, prompt_tokens: 8, reference_tokens: 8}
  validation: {source: miniature, sequences: 4}
training: {learning_rate: 1.0e-4, global_batch: 4, early_stop: null}
methods:
  gradient_ascent: {epochs: 1}
  emso: {epochs: 1, selection: random}
  ascent_in_bf16: {method: gradient_ascent, epochs: 1, training: {precision: bf16}}
evaluators:
  memorization: {el_prefixes: 2}
"""


@pytest.fixture(params=[2, pytest.param(12, marks=pytest.mark.soak)], ids="{} layers".format)
def sweep_file(request, hub_cache, neo_tokenizer, tmp_path):
    folder = tmp_path / "model"
    torch.manual_seed(0)
    GPTNeoForCausalLM(
        GPTNeoConfig(
            vocab_size=50257,
            hidden_size=768,
            num_layers=request.param,
            num_heads=12,
            attention_types=[[["global", "local"], request.param // 2]],
            window_size=256,
            max_position_embeddings=2048,
        )
    ).save_pretrained(folder)
    neo_tokenizer.save_pretrained(folder)
    hub_cache("owner/gpt-neo-125m", folder, commit=COMMITS[request.param])
    np.save(tmp_path / "forget.npy", np.random.default_rng(0).integers(0, 50257, (4, 24)))
    file = tmp_path / "hub.yaml"
    file.write_text(SWEEP.replace("FORGET", str(tmp_path / "forget.npy")))
    return file


@pytest.mark.soak
def test_it_is_loaded_erased_one_step_and_measured_in_fp32_and_bf16(sweep_file, tmp_path, request):
    assert main([str(sweep_file), "--executor", "inline", "--results", str(tmp_path / "results")]) == 0
    table = pd.read_csv(tmp_path / "results" / "hub" / "table.csv").set_index("variant")
    assert list(table.index) == ["original", "stand_in", "gradient_ascent", "emso", "ascent_in_bf16"]
    assert table[["el_3", "ma", "ss", "exact_match"]].notna().all().all()
    assert dict(table["precision"]) == {
        "original": "fp32",
        "stand_in": "fp32",
        "gradient_ascent": "fp32",
        "emso": "fp32",
        "ascent_in_bf16": "bf16",
    }
    journal = Journal(tmp_path / "results" / "hub" / "journal")
    records = [record for file in sorted(journal.folder.glob("*.jsonl")) for record in journal.read(file.stem)]
    commit = COMMITS[request.node.callspec.params["sweep_file"]]
    assert {record.spec["model"]["digest"] for record in records if isinstance(record, Started)} == {commit}
    points = [record.notes for record in records if isinstance(record, Point) and record.strength]
    assert {notes["optimizer_steps"] for notes in points} == {1}
    # Random weights know nothing: ascent starts from the surprise of a guess, and half of the logits' variance.
    ascents = [notes["loss_first"] for notes in points if "selected_blocks" not in notes]
    assert ascents == [pytest.approx(-(math.log(50257) + 768 * 0.02**2 / 2), abs=0.1)] * 2
    assert ascents[0] != ascents[1], "bf16 rounds otherwise than fp32"
