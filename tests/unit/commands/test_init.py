"""lethe init: a sweep file for a model and texts that plans without a fault, whatever the model."""

import json
import re
import tempfile

import pytest
import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

from harness.cli import main as lethe
from harness.drafting.first_sweep import PROPOSED, strength_grid
from harness.drafting.rate_probe import RATES, plan_probe
from harness.models.blocks import FAMILIES
from harness.planning.plan import plan
from harness.plugins import METHODS

TEXT = "Dear Ms Hale, the parcel lies with Mr Ost. " * 99


@pytest.fixture(scope="module")
def llama(tokenizer, tmp_path_factory):
    """A folder with a tiny Llama of weights that nobody trained; one token a byte."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    folder = tmp_path_factory.mktemp("llama") / "MODEL"
    LlamaForCausalLM(LlamaConfig(vocab_size=256, max_position_embeddings=512, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def letters(tmp_path):
    """A maker of a file of texts, each of so many bytes."""

    def make(*lengths, name="my letters.jsonl", to="Ms Hale"):
        texts = [f"To {to}, {number}: {TEXT}"[:length] for number, length in enumerate(lengths)]
        lines = [json.dumps({"text": text}) for text in texts]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return str(tmp_path / name)

    return make


DRAFTED = {name for name in METHODS.names() if name in PROPOSED}


def test_a_method_that_refuses_a_model_is_left_out(llama, letters, tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(FAMILIES, "llama")
    out = tmp_path / "new.yaml"
    assert lethe(["init", str(llama), letters(60, 300, 150), "--no-probe", "--out", str(out)]) == 0
    text = out.read_text()
    assert yaml.safe_load(text)["methods"].keys() == DRAFTED - {"emso"}
    [line] = [line for line in text.splitlines() if "# emso:" in line]
    assert "left out: cannot erase from" in line
    assert "emso: cannot erase from" in capsys.readouterr().out


def test_a_llama_gets_every_method(llama, letters, tmp_path, capsys):
    out = tmp_path / "new.yaml"
    assert lethe(["init", str(llama), letters(60, 300, 150), "--no-probe", "--out", str(out)]) == 0
    sweep = yaml.safe_load(out.read_text())
    assert sweep["methods"].keys() == DRAFTED < set(METHODS.names())
    rest = {line.split(":")[0].removeprefix("  # ") for line in out.read_text().splitlines() if line.startswith("  # ")}
    assert rest >= set(METHODS.names()) - DRAFTED, "a comment away"
    assert "Left out" not in capsys.readouterr().out
    assert sweep["data"]["forget"] | {"path": ""} == {
        **{"source": "jsonl", "path": "", "prefix_tokens": 30, "sequence_tokens": 200}
    }
    assert sweep["judges"] == {"perplexity": "original", "features": "original"}
    assert sweep["data"]["utility"] == {
        **{"source": "miniature", "prompts": 256, "prompt_tokens": 32, "reference_tokens": 128}
    }
    planned = plan(out)
    assert planned.sweep == "my-letters"
    assert {spec.method for spec in planned.trials} - {"original", "stand_in"} == sweep["methods"].keys()


def test_a_file_is_never_overwritten(llama, letters, tmp_path, capsys):
    out = tmp_path / "mine.yaml"
    out.write_text("mine")
    assert lethe(["init", str(llama), letters(60), "--no-probe", "--out", str(out)]) == 2
    assert out.read_text() == "mine"
    assert f"{out} exists, and is not overwritten: name another file with --out" in capsys.readouterr().err


def test_a_drafted_file_can_be_probed(tmp_path):
    out = tmp_path / "new.yaml"
    assert lethe(["init", "miniature-s", "miniature", "--no-probe", "--out", str(out)]) == 0
    [study] = plan_probe(out.read_text(), out, 8).studies
    assert (study.trials, study.trial.forget.rows) == (len(RATES), 8)


@pytest.mark.soak
def test_the_learning_rate_is_the_least_that_erases_on_this_model(tmp_path, monkeypatch, capsys):
    out, scratch = tmp_path / "new.yaml", tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert lethe(["init", "miniature-s", "miniature", "--out", str(out)]) == 0
    text, seen = out.read_text(), []
    for rate, before, after in re.findall(
        r"#   (\S+): MA (\S+) to (\S+), perplexity \S+ to \S+ in \d+ steps$", text, re.M
    ):
        assert f"  {rate}: MA {before} to {after}, " in capsys.readouterr().out or seen, "they are shown as they come"
        seen.append((float(rate), float(after) / float(before)))
    rates, left = zip(*seen, strict=True)
    assert list(rates) == list(RATES[: len(rates)])
    assert left[-1] <= 0.9 < min(left[:-1])
    assert yaml.safe_load(text)["training"]["learning_rate"] == rates[-1]
    assert "the least that erased in a few steps of gradient ascent" in text
    assert list(scratch.iterdir()) == []
    plan(out)


@pytest.mark.parametrize(
    ("name", "grid"),
    [("emso", [1, 2, 3, 4, 7]), ("gradient_ascent", [1, 2, 3]), ("task_arithmetic", [0.025, 0.05, 0.1, 0.2])],
)
def test_strengths_rise_from_what_a_method_declares(name, grid):
    assert strength_grid(METHODS.load(name)) == grid


@pytest.mark.parametrize(
    ("lengths", "arguments", "said"),
    [
        ((60, 9, 80, 12), [], "2 of 4 texts have fewer than 16 tokens (the shortest has 9, the median 12)"),
        ((60, 9), ["--prefix-tokens", "20"], "has 1 unusable row: line 2 has 9 of at least 21 tokens"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(lengths, arguments, said, llama, letters, tmp_path, capsys):
    out = tmp_path / "new.yaml"
    assert lethe(["init", str(llama), letters(*lengths), "--no-probe", "--out", str(out), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()
