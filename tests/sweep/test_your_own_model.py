"""docs/data.md, command by command: a GPT-NeoX in the hub's cache, 200 letters, an erased checkpoint."""

import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM

from harness.cli import main as lethe
from harness.drafting.first_sweep import PROPOSED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "data.md").read_text()
COMMANDS = [shlex.split(line) for line in re.findall(r"(?m)^    (.*)$", PAGE.partition("```python")[0])]
AUDIT, INIT, PLAN, FIRST, ALL, EXPORT = COMMANDS


@pytest.fixture
def original(hub_cache, tokenizer, tmp_path, monkeypatch):
    """Make a small GPT-NeoX the hub's Pythia, write letters, none a near-copy of another, and return its folder."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    made = tmp_path / "made"
    GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=256, max_position_embeddings=512, **sizes)).save_pretrained(made)
    tokenizer.save_pretrained(made)
    folder = hub_cache("EleutherAI/pythia-160m", made)
    monkeypatch.chdir(tmp_path)
    for name, first, count in (("letters", 0, 200), ("other_letters", 200, 60)):
        codes = [f"{random.Random(number).getrandbits(160):040x}" for number in range(first, first + count)]
        texts = [f"Dear customer, your parcel {code} waits." for code in codes]
        Path(f"{name}.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
    return folder


@pytest.mark.soak
def test_from_an_audit_to_an_erased_checkpoint(original, hub_cache, capfd):
    assert lethe(AUDIT[1:]) == 0
    assert "No: the original does not recite the forget set measurably more than unseen texts" in capfd.readouterr().out
    assert lethe(INIT[1:]) == lethe(PLAN[1:]) == 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_CACHE": str(hub_cache.folder)}
    for command in (FIRST, ALL):
        subprocess.run([sys.executable, *command[1:]], env=environment, check=True)
        table = pd.read_csv("results/letters/table.csv")
        assert {"original", "holdout", "gradient_difference"} <= {*table["variant"]}
    assert {*table["method"]} == {"original", "holdout", *PROPOSED}
    assert lethe(EXPORT[1:]) == 0
    capfd.readouterr()
    [code] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names = {}
    exec(code, names)
    assert capfd.readouterr().out.startswith("Dear customer, your parcel")
    before, after = AutoModelForCausalLM.from_pretrained(original).state_dict(), names["model"].state_dict()
    assert before.keys() == after.keys()
    assert not all(torch.equal(weight, after[name]) for name, weight in before.items())
    assert "gradient_difference" in Path("letters-forgotten/README.md").read_text()
