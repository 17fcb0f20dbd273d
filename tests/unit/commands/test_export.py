"""A point as a folder for `from_pretrained`: the same model to the last bit, and a card of what is known of it."""

import hashlib
import re
import shutil
from functools import partial

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.analysis.answer import export_name
from harness.cli import main as lethe
from harness.library import load_results
from harness.models import adapters, loading, resolving
from harness.models.blocks import blocks
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.settings import Source, replace

SECRET = "/home/somebody/secret letters"


def export(arguments):
    """Run the verb and return its exit code."""
    return lethe(["export", *arguments])


@pytest.fixture
def results(tmp_path, world, make_row, make_plan, make_measurement, make_point):
    """A folder with a sweep: EMSO kept as a patch, CD not kept; nothing was ever trained."""
    model = resolving.resolve_model(str(world / "MODEL"))
    letters = Source(source="jsonl", path=f"{SECRET}/letters.jsonl", digest="f" * 16, rows=9)
    shared = {"model": model, "forget": letters, "settings": {"selection": "all", "scores": f"{SECRET}/scores"}}
    strengths = {"original": (), "emso": (1, 2), "contrastive_decoding": (0.5,)}
    rows = [make_row(variant, of_row, **shared) for variant, of_row in strengths.items()]
    journal = Journal(tmp_path / "results" / "s" / "journal")
    journal.write_plan(make_plan(*rows, ranked_at={"contrastive_decoding": 0.5}))
    for spec in rows:
        for strength in spec.points():
            journal.append(make_point(spec, strength, is_pair=spec.method == "contrastive_decoding"))
            journal.append(make_measurement(spec, strength, "generation", {"perplexity": 31.25, "mauve": float("nan")}))
            journal.append(make_measurement(spec, strength, "memorization", {"ma": 0.25}))
    artifacts = Artifacts(tmp_path / "results" / "artifacts")
    patch = partial(adapters.save_patch, erased(model), ["L0.W_v.H1"], model.digest)
    artifacts.build("erased", rows[1].point_id(2), lambda folder: patch(folder / "patch.safetensors"))
    return tmp_path / "results", {row.variant: row for row in rows}


def erased(checkpoint):
    """Return the model with one block of other weights."""
    model = loading.load_model(checkpoint)
    [block] = [each for each in blocks(model) if each.name == "L0.W_v.H1"]
    with torch.no_grad():
        block.of(model.get_parameter(block.parameter)).mul_(1.7).add_(0.1)
    return model


def logits(model):
    with torch.inference_mode():
        return model(input_ids=torch.arange(40).reshape(2, 20)).logits


@pytest.mark.parametrize(("variant", "strength"), [("emso", 2), ("original", None)])
def test_a_kept_model_is_written_with_the_logits_that_it_had(results, tmp_path, variant, strength):
    root, rows = results
    spec, out = rows[variant], tmp_path / "out"
    assert export([spec.point_id(strength)[:9], "--out", str(out), "--results", str(root)]) == 0
    again = logits(AutoModelForCausalLM.from_pretrained(out, attn_implementation="eager").eval())
    assert torch.equal(again, logits(erased(spec.model) if strength else loading.load_model(spec.model)))
    tokenizers = (AutoTokenizer.from_pretrained(folder) for folder in (out, spec.model.tokenizer))
    ours, theirs = (tokenizer("ab c")["input_ids"] for tokenizer in tokenizers)
    assert ours == theirs
    card = (out / "README.md").read_text()
    assert ("nothing was erased" in card) == (strength is None)
    digest = re.search(r"\| model.safetensors \| (\w{64}) \|", card)[1]
    assert digest == hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    written = "".join(path.read_text() for path in (*out.glob("*.json"), out / "README.md"))
    assert (SECRET in written, str(root) in written) == (False, False)


def test_the_card_has_what_was_measured_and_how_it_is_broken(results, tmp_path, make_measurement, capsys):
    root, rows = results
    spec = rows["emso"]
    worse = make_measurement(spec, 2, "generation", {"perplexity": 3125.0, "mauve": float("nan")})
    Journal(root / "s" / "journal").append(worse)
    assert export(["s:emso@2", "--out", str(tmp_path / "out"), "--results", str(root)]) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert yaml.safe_load(card.split("---\n")[1])["tags"] == ["lethe", "unlearning", "emso"]
    fault = "This model has collapsed (gibberish: perplexity)."
    assert card.split("# MODEL: EMSO, epochs 2\n\n")[1].startswith(f"**{fault}**")
    assert fault in capsys.readouterr().out
    numbers = ("| MA ↓ | 0.25 | 0.25 | memorization | exact |", "| 3125 | 31.25 | generation |", "MAUVE ↑ | nan |")
    digests = (spec.model.digest, "f" * 16, spec.point_id(2), spec.trial_id)
    for fact in (*digests, *numbers, "| selection | all |", "| scores | scores |", "another seed"):
        assert fact in card


def test_what_cannot_be_exported_says_why_and_leaves_nothing(results, tmp_path, capsys):
    root, rows = results
    out, there = tmp_path / "out", tmp_path / "there"
    there.mkdir()

    def refused(name, folder=out):
        assert export([name, "--out", str(folder), "--results", str(root)]) == 2
        assert list(tmp_path.glob(".*")) == []
        assert not out.exists()
        return capsys.readouterr().err

    assert "two models that decode together, and no single model" in refused("s:contrastive_decoding@0.5")
    assert "was not kept. Remove " in refused("s:emso@1")
    assert f"{there} exists already" in refused("s:emso@2", folder=there)
    assert "no measured point is called 's:emsoo@1'. Did you mean 'emso@1'?" in refused("s:emsoo@1")
    begun = rows["emso"].point_id(1)
    assert f"no measured point is called 's:{begun[:3]}'" in refused(f"s:{begun[:3]}"), "so short an id may be a method"
    assert "was not kept" in refused(f"s:{begun[:4]}")
    assert all(rows["emso"].point_id(strength) in refused("s:emso") for strength in (1, 2))
    assert "there are no results of a sweep 'other' here (there are of: s): say --results." in refused("other:emso@2")


def test_a_folder_is_known_by_its_own_name_and_from_within(results, tmp_path, monkeypatch, capsys):
    root, _ = results
    copy = shutil.copytree(root / "s", root / "old")
    assert export_name(load_results(copy).point("emso@2"), load_results(copy).results) == "old:emso@2"
    for within, folder in ((copy, "."), (copy / "journal", "..")):
        monkeypatch.chdir(within)
        assert export(["old:emso@2", "--out", str(tmp_path / within.name), "--results", folder]) == 0
    assert export(["old:emso@2", "--out", "out", "--results", "..", "--tokenizer", "away"]) == 2
    assert "--tokenizer is the tokenizer of --model: name that too." in capsys.readouterr().err


def test_an_original_that_was_moved_is_named(results, tmp_path, world, capsys):
    root, rows = results
    moved = shutil.copytree(world / "MODEL", tmp_path / "moved")
    checkpoint = resolving.resolve_model(str(moved))
    spec = replace(rows["emso"], model=replace(checkpoint, location=str(tmp_path / "away")))
    Journal(root / "s" / "journal").write_plan(replace(Journal(root / "s" / "journal").read_plan(), trials=(spec,)))
    arguments = ["s:emso@2", "--out", str(tmp_path / "out"), "--results", str(root)]
    assert export(arguments) == 2
    assert str(tmp_path / "away") in capsys.readouterr().err
    assert export([*arguments, "--model", str(world / "OTHER")]) == 2
    assert f"has the digest {spec.model.digest}, and " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert export([*arguments, "--model", str(moved)]) == 0
    written = AutoModelForCausalLM.from_pretrained(tmp_path / "out", attn_implementation="eager")
    assert torch.equal(logits(written), logits(erased(checkpoint)))
