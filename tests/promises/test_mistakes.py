"""Mistakes: all of a file's faults are told at once, each with its line and the nearest right name; bad models and
texts are refused by name. Nothing has started by then."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.promises.models import make_byte_checkpoint
from tests.promises.records_fixtures import environment

FORM = """# Are twelve mistakes told at once?
name: faulty
modles: []
models: [miniature-s]
seeds: [0, true]
data:
  forget: {source: miniature, sequencess: 3}
  utility: {source: miniature, prompts: 0}
training: {micro_bach: 3}
methods:
  emsoo: {epochs: [1]}
  emso:
    epochs: [-1]
    selektion: all
evaluators:
  memorisation: {}
  generation: {definition: tabel}
judges: {feature: miniature-s}
report: {samples: plan}
keep_erased: pach
"""
MISTAKES = {
    "modles": "'models'", "seeds.1": "true", "sequencess": "'sequences'", "prompts": "at least 1",
    "micro_bach": "'micro_batch'", "emsoo": "'emso'", "emso.epochs.0": "-1", "selektion": "'selection'",
    "memorisation": "'memorization'", "tabel": "'table'", "judges.feature": "'features'", "plan": "'plain'",
    "pach": "'patch'",
}  # fmt: skip
"""What is written, or where, and the nearest right name in quotes, or what is said of the value."""
WRITTEN = {"seeds.1": "seeds: [0", "emso.epochs.0": "epochs: [-1]", "judges.feature": "judges", "plan": "samples: plan"}
"""What the line holds, where that is more than the mistake."""


def refused(folder, text):
    """Return what a sweep that is refused prints, after a look at what it left: nothing, of Ray neither."""
    (folder / "faulty.yaml").write_text(text)
    (folder / "tmp").mkdir()
    command = [sys.executable, "-m", "harness.sweep", "faulty.yaml", "--results", "results"]
    around = environment(TMPDIR=str(folder / "tmp"), COLUMNS="300")
    done = subprocess.run(command, cwd=folder, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (folder / "results").exists()
    assert list((folder / "tmp").iterdir()) == [], "Ray has its folder there once it has started"
    return done.stderr.splitlines()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return refused(tmp_path_factory.mktemp("form"), FORM)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_twelve_mistakes_are_told_at_once_each_with_its_line_and_the_nearest_name(told, mistake):
    lines = FORM.splitlines()
    [number] = [at for at, line in enumerate(lines, 1) if WRITTEN.get(mistake, mistake) in line]
    [said] = [line for line in told if f"line {number} " in line and mistake in line]
    assert MISTAKES[mistake] in said.replace(mistake, "")


def test_no_more_is_told_than_that(told):
    assert sum(line.strip().startswith("line ") for line in told) == len(MISTAKES) >= 12


SUBSTANCE = """# Are bad models and texts refused by name?
name: faulty
models:
  - sound
  - nowhere
  - bare
  - cut
  - speechless
  - talkative
  - other
  - misfit
data:
  forget: {source: jsonl, path: empty.jsonl}
  holdout: {source: jsonl, path: wrong_key.jsonl}
  retain: {source: jsonl, path: latin.jsonl}
  utility: {source: jsonl, path: short.jsonl, prompts: 2}
  validation: {source: npy, path: flat.npy}
methods: {emso: {epochs: [1]}}
evaluators: {memorization: {}}
collapse: {}
"""
BAD = {
    "nowhere": "folder", "bare": "safetensors", "cut": "safetensor", "speechless": "tokenizer", "talkative": "556",
    "other": "shape", "misfit": "missing", "empty.jsonl": "", "wrong_key.jsonl": "'text'", "latin.jsonl": "UTF-8",
    "short.jsonl": "tokens", "flat.npy": "dimension",
}  # fmt: skip
"""The model or text, and a word of what is wrong with it."""


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    """What is said of bad models and texts in one file."""
    folder = tmp_path_factory.mktemp("substance")
    for name in ("sound", "bare", "cut", "speechless", "talkative", "other", "misfit"):
        make_byte_checkpoint(folder / name, extra=300 if name == "talkative" else 0)
    file = "model.safetensors"
    (folder / "bare" / file).unlink()
    (folder / "cut" / file).write_bytes((folder / "cut" / file).read_bytes()[:-100])
    weights, name = load_file(folder / "other" / file), "transformer.h.0.mlp.c_fc.weight"
    save_file({**weights, name: torch.zeros(3, 4)}, folder / "other" / file, {"format": "pt"})
    del weights[name]
    save_file(weights, folder / "misfit" / file, {"format": "pt"})
    for path in folder.glob("speechless/*token*"):
        path.unlink()
    (folder / "empty.jsonl").write_text("")
    (folder / "wrong_key.jsonl").write_text(json.dumps({"txt": "It has no text."}) + "\n")
    (folder / "latin.jsonl").write_bytes('{"text": "Gar\u00e7on"}\n'.encode("latin-1"))
    (folder / "short.jsonl").write_text(json.dumps({"text": "A."}) + "\n")
    np.save(folder / "flat.npy", np.arange(9))
    return refused(folder, SUBSTANCE)


@pytest.mark.parametrize("name", BAD)
def test_bad_models_and_texts_are_refused_by_name(bad, name):
    [said] = [line for line in bad if re.search(rf"[/'\"]{name}\b", line)]
    assert re.match(r" *line \d+ ", said)
    assert BAD[name].lower() in said.lower()
