"""docs/data.md, command by command: a GPT-NeoX in the hub's cache, letters, an erased checkpoint."""

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
import yaml
from transformers import AutoModelForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM

from harness.cli import main as lethe
from harness.drafting.first_sweep import SUGGESTED_METHODS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "data.md").read_text()
COMMANDS = [shlex.split(line) for line in re.findall(r"(?m)^    (.*)$", PAGE.partition("```python")[0])]
AUDIT, INIT, PLAN, FIRST, ALL, EXPORT, AFTER = COMMANDS
LETTERS = [f"Dear customer, your parcel {random.Random(number).getrandbits(160):040x} waits." for number in range(64)]


@pytest.fixture
def original(hub_cache, tokenizer, tmp_path, monkeypatch, request):
    """Train a small GPT-NeoX on half of the letters for so many steps as the hub's Pythia, and return its folder."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    made, model = tmp_path / "made", GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=256, **sizes))
    letters_NT = torch.tensor(tokenizer(LETTERS[:32])["input_ids"])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(request.param):
        model(input_ids=letters_NT, labels=letters_NT).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(made)
    tokenizer.save_pretrained(made)
    monkeypatch.chdir(tmp_path)
    for name, texts in (("letters", LETTERS[:32]), ("other_letters", LETTERS[32:])):
        Path(f"{name}.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
    return hub_cache("EleutherAI/pythia-160m", made)


@pytest.mark.parametrize("original", [0], indirect=True)
def test_from_a_model_and_letters_to_a_plan(original, capsys):
    assert lethe(INIT[1:]) == 2
    assert "Nothing is to be erased" in capsys.readouterr().err
    assert lethe([*INIT[1:], "--no-probe"]) == 0
    sweep = yaml.safe_load(Path("letters.yaml").read_text())
    assert {*sweep["methods"]} == {*SUGGESTED_METHODS}
    assert sweep["models"] == ["EleutherAI/pythia-160m"]
    assert sweep["data"]["holdout"]["path"] == "other_letters.jsonl"
    assert sweep["until"] == {"ma": [0.9, 0.75, "unseen"]}
    capsys.readouterr()
    assert lethe(PLAN[1:]) == 0
    planned = capsys.readouterr().out
    assert not Path("results").exists(), "a plan runs nothing"
    assert all(name in planned for name in sweep["methods"])


@pytest.mark.soak
@pytest.mark.parametrize("original", [250], indirect=True)
def test_from_an_audit_to_an_erased_checkpoint(original, hub_cache, capfd):
    assert lethe(AUDIT[1:]) == 0
    assert "Yes: the model recites the forget set measurably more than unseen texts" in capfd.readouterr().out
    assert lethe(INIT[1:]) == 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_CACHE": str(hub_cache.folder)}
    for command in (FIRST, ALL):
        subprocess.run([sys.executable, *command[1:]], env=environment, check=True)
        table = pd.read_csv("results/letters/table.csv")
        assert {"original", "holdout", "gradient_difference"} <= {*table["variant"]}
    assert {*table["method"]} <= {"original", "holdout", *SUGGESTED_METHODS}
    assert lethe(EXPORT[1:]) == 0
    capfd.readouterr()
    assert lethe(AFTER[1:]) == 0
    assert "Against the original: recited texts " in capfd.readouterr().out
    [code] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names = {}
    exec(code, names)
    assert capfd.readouterr().out.startswith("Dear customer, your parcel")
    before, after = AutoModelForCausalLM.from_pretrained(original).state_dict(), names["model"].state_dict()
    assert before.keys() == after.keys()
    assert not all(torch.equal(weight, after[name]) for name, weight in before.items())
    assert "gradient_difference" in Path("letters-forgotten/README.md").read_text()
