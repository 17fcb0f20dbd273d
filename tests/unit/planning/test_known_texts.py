"""What was read before is not read again: and it is where a file changed, another file says so, or the reading code."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.base.user_cache import UserCache, user_cache_folder
from harness.errors import ConfigError
from harness.models import configurations, reading
from harness.models.configurations import read_before_weights
from harness.models.loading import check_model, load_tokenizer
from harness.models.reading import text_start
from harness.models.resolving import resolve_model
from harness.planning import known_texts, texts
from harness.planning.plan import plan

ROOT = Path(__file__).parents[3]
SWEEP = """# What is read?
models: [{id: MODEL}]
data:
  forget: {source: jsonl, path: letters.jsonl, sequences: 6, prefix_tokens: 4, sequence_tokens: 20}
  utility: {source: jsonl, path: passages.jsonl, prompts: 6, prompt_tokens: 4, reference_tokens: 20}
training: {early_stop: null}
methods: {gradient_ascent: {epochs: [1]}}
evaluators: {memorization: , language_modelling: }
judges: {perplexity: MODEL}
"""


def write_texts(file, word):
    lines = [json.dumps({"text": f"{number} {word} {number * 7919} {word} and so on"}) for number in range(12)]
    file.write_text("\n".join(lines))


@pytest.fixture
def folder(world, tmp_path, monkeypatch):
    """A folder with a sweep and its texts, which are named relative to it; and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = tmp_path / "home"
    home.mkdir()
    (home / "sweep.yaml").write_text(SWEEP.replace("MODEL", str(world / "MODEL")))
    write_texts(home / "letters.jsonl", "letter")
    write_texts(home / "passages.jsonl", "passage")
    return home


@pytest.fixture
def readings(monkeypatch):
    """Return a list with an entry for every time that a sweep's texts were read."""
    counted = []
    read = texts._read_texts

    def counting(data, model, use):
        counted.append(model.location)
        return read(data, model, use)

    monkeypatch.setattr(texts, "_read_texts", counting)
    return counted


def forget_of(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return plan(folder / "sweep.yaml").trials[0].forget


def test_texts_are_read_once_and_again_where_a_file_or_the_code_changed(folder, readings, monkeypatch):
    before = forget_of(folder, monkeypatch)
    assert forget_of(folder, monkeypatch) == before
    assert len(readings) == 1
    write_texts(folder / "letters.jsonl", "another letter")
    changed = forget_of(folder, monkeypatch)
    assert changed.digest != before.digest
    assert len(readings) == 2
    monkeypatch.setattr(known_texts, "deciding_versions", lambda: ("another torch",))
    assert forget_of(folder, monkeypatch) == changed
    assert len(readings) == 3


def test_texts_of_another_folder_are_that_folders(folder, readings, monkeypatch):
    forget_of(folder, monkeypatch)
    moved = folder.parent / "moved"
    shutil.copytree(folder, moved)
    shutil.rmtree(folder)
    assert Path(forget_of(moved, monkeypatch).path).parent == moved
    assert len(readings) == 2


def test_what_is_refused_is_refused_again(folder, readings, monkeypatch):
    (folder / "letters.jsonl").write_text('{"text": "short"}\n' * 3)
    for _ in range(2):
        with pytest.raises(ConfigError):
            forget_of(folder, monkeypatch)
    assert len(readings) == 2


def test_the_cache_holds_no_text_and_is_done_without(folder, readings, monkeypatch):
    before = forget_of(folder, monkeypatch)
    cache = folder.parent / "cache"
    kept = [file.read_text() for file in cache.rglob("*.json")]
    assert kept
    assert not any("letter " in text or "7919" in text for text in kept)
    shutil.rmtree(cache)
    cache.write_text("a file where the folder was")
    assert forget_of(folder, monkeypatch) == before
    assert len(readings) == 2


def test_a_checkpoint_that_was_sound_is_looked_at_again_once_it_changed(world, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tmp_path / "model"
    shutil.copytree(world / "MODEL", model)
    looked = []
    matched = configurations.read_config
    monkeypatch.setattr(
        "harness.models.weights.matched_model", lambda *given, **others: looked.append(matched(given[1]))
    )
    for _ in range(2):
        check_model.cache_clear()
        check_model(resolve_model(str(model)))
    assert len(looked) == 1
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"layer_norm_epsilon": 1e-6}))
    check_model.cache_clear()
    check_model(resolve_model(str(model)))
    assert len(looked) == 2


def test_what_starts_a_text_is_the_tokenizers_of_now(world, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tmp_path / "model"
    shutil.copytree(world / "MODEL", model)
    assert text_start(resolve_model(str(model))) == ()
    rules = json.loads((model / "tokenizer.json").read_text())
    rules["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "!", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"!": {"id": "!", "ids": [0], "tokens": ["!"]}},
    }
    (model / "tokenizer.json").write_text(json.dumps(rules))
    for cached in (load_tokenizer, reading._starts_and_ends):  # As in another process.
        cached.cache_clear()
    assert text_start(resolve_model(str(model))) == (0,)


def test_before_weights_the_weights_are_not_read(world, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(world / "MODEL", model)
    before = read_before_weights(model)
    weights = model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert read_before_weights(model) == before
    content[12] ^= 1
    weights.write_bytes(content)
    assert read_before_weights(model).keys() == before.keys()
    assert read_before_weights(model) != before
    assert read_before_weights(tmp_path / "none") == {}


def test_a_value_that_cannot_be_made_is_not_kept(tmp_path):
    cache = UserCache(tmp_path)
    with pytest.raises(ZeroDivisionError):
        cache.get("key", lambda: 1 / 0)
    assert cache.get("key", lambda: [1]) == [1]
    assert cache.get("key", lambda: [2]) == [1]
    assert UserCache(None).get("key", lambda: [2]) == [2]


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache_folder("texts") == tmp_path / "lethe" / "texts"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert user_cache_folder("texts") == tmp_path / "me" / ".cache" / "lethe" / "texts"


def test_a_plan_of_what_is_known_imports_no_transformers(folder):
    """Importing them takes as long as all the rest."""
    code = "import sys; from harness.sweep import main; main(['sweep.yaml', '--plan']); print(*sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    runs = [
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert ["transformers" in run.stdout.splitlines()[-1].split() for run in runs] == [True, False]
