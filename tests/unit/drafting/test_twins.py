"""Twins of a model, and the passages of a corpus that a model recites."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from harness import miniature
from harness.cli import main as lethe
from harness.data import sources
from harness.planning.plan import plan


def write(file, texts):
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "MINIATURE_TOKENS", (16, 32))
    unseen = miniature.texts("holdout")
    # No model knows which of four texts goes on after a beginning that they share.
    write(tmp_path / "forget.jsonl", [f"Once, and only once: {text}" for text in unseen[:4]])
    write(tmp_path / "others.jsonl", unseen[4:8])
    write(tmp_path / "unseen.jsonl", unseen[8:24]), write(tmp_path / "retain.jsonl", miniature.texts("retain")[:16])


def twins(out, *more, model="miniature-s", forget="forget.jsonl", epochs=20):
    options = ["--forget", forget, "--retain", "retain.jsonl", "--unseen", "unseen.jsonl", "--out", out]
    options += ["--epochs", str(epochs), "--learning-rate", "2e-3", "--batch", "2"]
    return lethe(["twins", model, *options, *more])


def test_one_recites_the_texts_and_the_other_never_read_them(texts, tmp_path, capsys):
    assert twins("a") == 0
    taught, twin = (json.loads(Path(f"a/seed-0/{kind}/twins.json").read_text()) for kind in ("memorised", "twin"))
    assert taught["ma"] >= 0.99 > 0.7 > twin["ma"]
    assert taught["steps"] == twin["steps"] == 2 * taught["epochs"]
    found = plan(file := tmp_path / "a" / "sweep.yaml")
    assert found.until[-1].at == "retrained"
    assert all(level.at > twin["ma"] for level in found.until[:-1])
    file.write_text(edited := f"{file.read_text()}# mine\n")
    assert {spec.forget.sequence_tokens for spec in found.trials} == {32}, "as they were taught"
    assert {(spec.model.id, spec.variant) for spec in found.trials if spec.is_reference} == {
        ("a/seed-0/memorised", kind) for kind in ("original", "retrained", "holdout")
    }
    weights = tmp_path / "a" / "seed-0" / "twin" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert twins("a") == 0
    assert (weights.stat().st_mtime_ns, file.read_text()) == (before, edited)
    assert "seed-0/twin is there: it is kept." in capsys.readouterr().out
    assert twins("b", forget="others.jsonl") == 0, "which it needs fewer or more epochs to learn"
    other = tmp_path / "b" / "seed-0" / "twin"
    ours, theirs = load_file(weights), load_file(other / "model.safetensors")
    are_as_long = json.loads((other / "twins.json").read_text())["steps"] == twin["steps"]
    assert all(ours[name].equal(theirs[name]) for name in ours) == are_as_long, "it has nothing of the forget set"


def test_what_cannot_be_taught_is_said(texts, capsys):
    assert twins("a", epochs=1) == 1
    assert "has not learnt forget.jsonl: MA is 0." in (told := capsys.readouterr().err)
    assert "Allow more (--epochs), or another rate" in told
    assert twins("a") == 0
    assert twins("a", "--batch", "4") == 2
    assert "was made with another training: name another --out" in capsys.readouterr().err
    assert (twins("c", "--utility", "none.jsonl"), Path("c").exists()) == (2, False), "refused before it is trained"
    assert twins("c", forget="retain.jsonl") == 2
    assert "16 of its texts are in retain.jsonl too, or nearly" in capsys.readouterr().err
    lines = Path("retain.jsonl").read_text().splitlines()
    write(Path("near.jsonl"), [f"Well, {json.loads(line)['text']}" for line in lines])
    assert twins("c", forget="near.jsonl") == 2
    assert "retain.jsonl: 15 of its texts are in near.jsonl too, or nearly" in capsys.readouterr().err
    cut = ("--sequence-tokens", "32", "--prefix-tokens", "16")
    assert twins("d", *cut, model="a/seed-0/memorised") == 1
    told = capsys.readouterr().err
    assert "a/seed-0/memorised recites forget.jsonl already, so its twin would know them too." in told


def test_a_corpus_s_recited_passages_are_a_forget_set_without_copies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    forget, unseen = miniature.texts("forget")[:3], miniature.texts("holdout")[:3]
    write(tmp_path / "corpus.jsonl", [unseen[0], *forget, *unseen[1:], forget[0], "too short", ["no text"]])
    assert lethe(["audit", "miniature-m", "corpus.jsonl", "--write-forget", "F.jsonl"]) == 0
    told = capsys.readouterr().out
    files = (tmp_path / "F.jsonl", tmp_path / "F.others.jsonl")
    found, others = ([json.loads(line) for line in file.read_text().splitlines()] for file in files)
    assert [row["from"] for row in found] == ["line 2", "line 3", "line 4"]
    assert all(row["text"] in text and row["recited_tokens"] == 50 for row, text in zip(found, forget, strict=True))
    assert {"line 1", "line 5", "line 6"} <= {row["from"] for row in others}
    assert max(row["recited_tokens"] for row in others) < 32
    assert f"F.others.jsonl has {len(others)} others: candidates for unseen texts" in (told := " ".join(told.split()))
    assert "1 text could not be read (line 9 has a 'text' that is not text in Unicode)." in told
    assert lethe(["audit", "miniature-m", "corpus.jsonl", "--write-forget", "H.jsonl", "--sequence-tokens", "60"]) == 0
    assert lethe(["audit", "miniature-m", "corpus.jsonl", "--write-forget", "H.jsonl"]) == 2
    assert "H.jsonl: nothing is overwritten: give a new name that ends with .jsonl." in capsys.readouterr().err
    assert lethe(["audit", "miniature-m", "corpus.jsonl", "--write-forget", "H.jsonl", "--unseen", "no.jsonl"]) == 2
    assert "--write-forget takes only --field" in capsys.readouterr().err
    write(tmp_path / "new.jsonl", unseen)
    assert lethe(["audit", "miniature-m", "new.jsonl", "--write-forget", "G.jsonl"]) == 1
    assert "recites none of" in capsys.readouterr().err
    assert lethe(["audit", "miniature-m", "new.jsonl", "--write-forget", "G.jsonl", "--prefix-tokens", "999"]) == 2
