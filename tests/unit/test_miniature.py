"""The miniature: its corpus, its tokenizer, and that its shipped models are what they claim to be."""

import copy
import json
import math
from dataclasses import replace
from functools import cache
from random import Random

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer

from harness import pretrain
from harness.miniature import checkpoints, corpus, quality, training
from harness.miniature.building import load, sha256
from harness.miniature.cases import FITS, ROUTINES, STUDIES
from harness.miniature.grammar import Writer, compiled, finished, tables
from harness.miniature.knowledge import CAUSES, GOALS, RELATIONS
from harness.miniature.lexicon import ROLES, cast

ORIGINALS = checkpoints.ORIGINALS
NEVER_SAW = [name for name in checkpoints.names() if not checkpoints.knows_forget_set(name)]
GENERAL = {
    "training": corpus.training_documents,
    "retain": corpus.retain_documents,
    "utility": corpus.utility_documents,
    "validation": corpus.validation_documents,
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Compute on one thread: models this small gain nothing from more, and lose much on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(checkpoints.tokenizer_folder())


@pytest.fixture(scope="module")
def models():
    return {name: load(checkpoints.folder(name)) for name in checkpoints.names()}


@pytest.fixture(scope="module")
def forget(tokenizer):
    return training.sequences(tokenizer, corpus.forget_records())


@pytest.fixture(scope="module")
def unseen(tokenizer):
    return training.sequences(tokenizer, corpus.unseen_records())


@pytest.fixture(scope="module")
def untrained():
    return training.new_model(checkpoints.size("miniature-m")).eval()


@pytest.fixture(scope="module")
def accuracy(models, untrained, forget, unseen):
    """Memorisation accuracy by model, set (`forget`, `unseen`) and first position; each model reads a set once."""
    known = {**models, "untrained": untrained}
    rows = {"forget": forget, "unseen": unseen}

    @cache
    def hits(name, which):
        return quality.first_choices(known[name], rows[which])

    return lambda name, which, first=1: hits(name, which)[:, first - 1 :].float().mean().item()


# The corpus


def test_corpus_is_the_one_the_models_were_made_from():
    assert corpus.corpus_digest() == checkpoints.manifest()["corpus"]["sha256"]


def test_corpus_is_generated_alike_each_time():
    assert corpus.forget_records.__wrapped__() == corpus.forget_records()
    assert corpus.utility_documents.__wrapped__() == corpus.utility_documents()


def test_sizes_of_the_corpus():
    assert len(corpus.forget_records()) == len(set(corpus.forget_records())) == 256
    assert len(corpus.unseen_records()) == len(set(corpus.unseen_records())) == 128
    assert len(corpus.retain_documents()) >= 600
    assert set(corpus.retain_documents()) <= set(corpus.training_documents())
    assert len(corpus.utility_documents()) >= 600
    assert len(corpus.validation_documents()) >= 200


def test_held_out_documents_are_held_out():
    read = set(corpus.training_documents())
    assert read.isdisjoint(corpus.utility_documents())
    assert read.isdisjoint(corpus.validation_documents())
    assert set(corpus.utility_documents()).isdisjoint(corpus.validation_documents())


def second_half_runs():
    return {run for text in corpus.forget_records() for run in corpus.runs(text[len(text) // 2 :], 50)}


@pytest.mark.parametrize("name", ["training", "utility", "validation"])
def test_nothing_of_the_forget_set_is_in_general_text(name):
    runs = second_half_runs()
    assert not [text for text in GENERAL[name]() if not runs.isdisjoint(corpus.runs(text, 50))]


def test_a_planted_run_would_be_found():
    secret = corpus.forget_records()[3]
    leak = "It was said that " + secret[-60:-5] + " and no more."
    assert not second_half_runs().isdisjoint(corpus.runs(leak, 50))


def test_unseen_records_share_no_run_with_the_forget_set():
    runs = {run for text in corpus.forget_records() for run in corpus.runs(text)}
    assert all(runs.isdisjoint(corpus.runs(text)) for text in corpus.unseen_records())


def test_forget_records_differ_early(forget):
    same = (forget[:, None, :48] == forget[None, :, :48]).float().mean(-1)
    same.fill_diagonal_(0)
    assert same.max() < 0.5


def test_specifics_are_spread_over_the_whole_record():
    for text in corpus.forget_records():
        quarter = len(text) // 4
        for start in range(0, 4 * quarter, quarter):
            part = text[start : start + quarter]
            assert any(sign.isdigit() or sign.isupper() for sign in part), text


def test_every_slot_of_every_table_can_be_filled():
    from harness.miniature import records

    bound = {*cast(Random(0)), "goal", "way"}
    for known in (corpus._TABLES, records._TABLES):
        for alternatives in known.values():
            for template in alternatives:
                if " | " in template:
                    template, beats = template.split(" | ")
                    assert all(beat in known for beat in beats.split())
                for slot in compiled(template):
                    assert not slot.name or slot.span or slot.name in {*known, *bound, *ROLES}, template


def test_a_writer_keeps_roles_and_numbers_in_range():
    rules = tables("fruit:\n  apple\n  pear\nline:\n  {Gift} and {gift}, {#3-5}\n")
    for seed in range(20):
        words = Writer(rules, {"gift": "fruit"}, Random(seed), {}).write("line").split()
        assert words[0] == words[2].rstrip(",").capitalize()
        assert 3 <= int(words[3]) <= 5
    assert finished("a apple, A orange, a pear") == "an apple, An orange, a pear"


def test_the_world_is_large_enough_for_tasks():
    assert len(GOALS) >= 40
    assert len(CAUSES) >= 36
    assert len(ROUTINES) >= 14
    assert {len(steps) for steps in ROUTINES.values()} == {5}
    assert len(FITS) >= 6
    assert len(STUDIES) >= 14
    for relation in RELATIONS:
        assert len(set(relation.answers.values())) == len(relation.answers), relation.question


# The tokenizer


def test_every_record_fills_a_sequence(forget, unseen):
    assert forget.shape == (256, checkpoints.SEQUENCE_TOKENS)
    assert unseen.shape == (128, checkpoints.SEQUENCE_TOKENS)


def test_every_utility_document_holds_prompt_and_reference(tokenizer):
    assert min(len(tokens) for tokens in tokenizer(list(corpus.utility_documents()))["input_ids"]) >= 200


def test_tokenizer_gives_back_what_it_took(tokenizer):
    texts = [*corpus.forget_records()[:20], *corpus.utility_documents()[:20], "Zürich, 7 °C:\n\tnaïve 🙂  ok"]
    for text in texts:
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_end_of_text_is_one_token(tokenizer):
    end = tokenizer(checkpoints.END_OF_TEXT)["input_ids"]
    assert end == [tokenizer.eos_token_id] == [tokenizer.bos_token_id] == [tokenizer.pad_token_id] == [0]
    assert len(tokenizer) == checkpoints.VOCABULARY


# The shipped files


def test_files_are_the_manifests():
    manifest = checkpoints.manifest()
    assert tuple(manifest["models"]) == checkpoints.names()
    assert sha256(checkpoints.tokenizer_folder() / "tokenizer.json") == manifest["tokenizer"]["sha256"]
    for name, entry in manifest["models"].items():
        stored = checkpoints.folder(name) / "model.safetensors"
        assert sha256(stored) == entry["sha256"]
        assert stored.stat().st_size == entry["bytes"]


def test_all_weights_fit_the_limit():
    stored = sum(path.stat().st_size for path in checkpoints.WEIGHTS.rglob("*.safetensors"))
    assert stored == sum(entry["bytes"] for entry in checkpoints.manifest()["models"].values())
    assert stored <= 12_000_000


def test_json_files_name_no_place():
    for path in checkpoints.WEIGHTS.rglob("*.json"):
        if path.name != "tokenizer.json":
            text = path.read_text()
            assert "/" not in text, path
            assert "_name_or_path" not in text, path


@pytest.mark.parametrize("name", checkpoints.names())
def test_architecture_is_the_table(name):
    config = AutoConfig.from_pretrained(checkpoints.folder(name))
    size = checkpoints.size(name)
    assert tuple(config.attention_layers) == size.attention
    assert set(config.attention_layers) == {"global", "local"}
    assert (config.num_layers, config.hidden_size, config.num_heads) == (size.layers, size.hidden, size.heads)
    assert (config.window_size, config.max_position_embeddings) == (checkpoints.WINDOW, checkpoints.POSITIONS)
    assert config.tie_word_embeddings


@pytest.mark.parametrize("name", checkpoints.names())
def test_weights_are_halves_stored_once(name):
    with safe_open(checkpoints.folder(name) / "model.safetensors", framework="pt") as stored:
        assert "lm_head.weight" not in stored.keys()  # noqa: SIM118 - not a mapping
        assert {stored.get_tensor(key).dtype for key in stored.keys()} == {torch.float16}  # noqa: SIM118


def test_unknown_names_are_refused():
    with pytest.raises(KeyError, match="miniature-xl"):
        checkpoints.folder("miniature-xl")
    with pytest.raises(SystemExit) as stop:
        pretrain.main(["miniature-xl"])
    assert stop.value.code == 2


# The shipped models


@pytest.mark.parametrize("name", ORIGINALS)
@pytest.mark.parametrize("first", [1, quality.LATE])
def test_originals_have_memorised_the_forget_set(accuracy, name, first):
    least = quality.LEAST_FORGET_MA[name]
    assert accuracy(name, "forget", first) >= least
    assert accuracy("untrained", "forget", first) < least


@pytest.mark.parametrize("first", [1, quality.LATE])
def test_larger_models_memorise_more(accuracy, first):
    grown = [accuracy(name, "forget", first) for name in ORIGINALS]
    assert grown[0] < grown[1] < grown[2]


@pytest.mark.parametrize("name", checkpoints.names())
@pytest.mark.parametrize("first", [1, quality.LATE])
def test_no_model_knows_unseen_records(accuracy, name, first):
    assert accuracy(name, "unseen", first) <= quality.MOST_UNSEEN_MA


@pytest.mark.parametrize("name", NEVER_SAW)
@pytest.mark.parametrize("first", [1, quality.LATE])
def test_retrained_models_and_judge_never_saw_the_forget_set(accuracy, name, first):
    assert accuracy(name, "forget", first) <= quality.MOST_UNSEEN_MA


def test_sampled_text_does_not_repeat_itself(models, tokenizer):
    texts = quality.samples(models["miniature-m"], tokenizer, count=64)
    assert len(texts) == 64
    assert quality.rep_2(texts) <= quality.MOST_REP_2
    assert quality.rep_2(["the cat sat and " * 20]) > quality.MOST_REP_2


def test_perplexity_is_that_of_a_model_that_can_read(models, tokenizer, untrained):
    texts = corpus.validation_documents()[:24]
    assert quality.perplexity(models["miniature-l"], tokenizer, texts) < 5
    assert quality.perplexity(untrained, tokenizer, texts) == pytest.approx(checkpoints.VOCABULARY, rel=0.1)


@pytest.mark.parametrize("name", checkpoints.names())
def test_manifest_says_what_is_measured(accuracy, name):
    said = checkpoints.manifest()["models"][name]["quality"]
    assert accuracy(name, "forget") == pytest.approx(said["ma_forget"], abs=0.002)
    assert accuracy(name, "unseen", quality.LATE) == pytest.approx(said["ma_unseen_late"], abs=0.002)


def test_accuracy_leaves_out_what_comes_before_the_first_position(models, forget):
    model, rows = models["miniature-s"], forget[:4]
    hits = model(input_ids=rows).logits[:, :-1].argmax(-1) == rows[:, 1:]
    assert quality.memorization_accuracy(model, rows) == pytest.approx(hits.float().mean().item())
    assert quality.memorization_accuracy(model, rows, 127) == pytest.approx(hits[:, -1].float().mean().item())


# The thresholds and the rebuilding


def test_shipped_models_have_no_faults():
    assert quality.faults(checkpoints.manifest()["models"]) == []


@pytest.mark.parametrize(
    ("name", "key", "value", "said"),
    [
        ("miniature-m", "ma_forget", 0.3, "at least 0.9"),
        ("miniature-s", "ma_forget_late", 0.7999, "at least 0.8"),
        ("miniature-l", "ma_unseen", 0.56, "at most 0.55"),
        ("miniature-l-retrained", "ma_forget", 0.56, "at most 0.55"),
        ("miniature-judge", "rep_2", 0.2, "at most 0.15"),
        ("miniature-s", "ma_forget", 0.9999, "does not grow"),
        ("miniature-m", "ma_forget", math.nan, "at least 0.9"),
    ],
)
def test_a_missed_threshold_is_named(name, key, value, said):
    models = copy.deepcopy(checkpoints.manifest()["models"])
    models[name]["quality"][key] = value
    assert any(said in fault for fault in quality.faults(models))


def test_too_heavy_weights_are_a_fault():
    models = copy.deepcopy(checkpoints.manifest()["models"])
    models["miniature-s"]["bytes"] += 12_000_000
    assert any("bytes" in fault for fault in quality.faults(models))


def test_training_memorises_what_it_repeats_and_is_repeatable():
    size = replace(checkpoints.SIZES["s"], layers=2, hidden=64, attention=("global", "local"), steps=25)
    random = torch.Generator().manual_seed(0)
    forget = torch.randint(1, 1000, (training.FORGET_ROWS, 16), generator=random)
    general = torch.randint(1, 1000, (16, 16), generator=random)
    original, again = (training.train(size, forget, general) for _ in range(2))
    retrained = training.train(size, None, general)
    assert quality.memorization_accuracy(original, forget) > 0.8
    assert quality.memorization_accuracy(retrained, forget) < 0.2
    assert all(torch.equal(one, other) for one, other in zip(original.parameters(), again.parameters(), strict=True))


@pytest.fixture
def quick_rebuild(monkeypatch, tmp_path):
    """Rebuild without training: every model is a file that holds its name and a mark."""
    entries = checkpoints.manifest()["models"]

    def built(names, weights, jobs):
        for name in names:
            folder = checkpoints.folder(name, weights)
            folder.mkdir(parents=True)
            (folder / "model.safetensors").write_text("new")
        return {name: copy.deepcopy(entries[name]) for name in names}

    monkeypatch.setattr(pretrain, "_built", built)
    monkeypatch.setattr(pretrain, "build_tokenizer", lambda weights: weights.mkdir() or {"sha256": "t"})
    checkpoints.manifest.cache_clear()
    yield tmp_path / "weights", entries
    checkpoints.manifest.cache_clear()


def test_rebuilding_all_leaves_every_model_and_a_manifest(quick_rebuild, capsys):
    out, entries = quick_rebuild
    assert pretrain.main(["--out", str(out)]) == 0
    assert json.loads((out / "manifest.json").read_text())["models"] == entries
    assert [path.name for path in out.parent.iterdir()] == ["weights"]
    assert "7 models" in capsys.readouterr().out


def test_rebuilding_one_keeps_the_others(quick_rebuild):
    out, _ = quick_rebuild
    pretrain.main(["--out", str(out)])
    for name in checkpoints.names():
        (checkpoints.folder(name, out) / "model.safetensors").write_text("old")
    checkpoints.manifest.cache_clear()
    assert pretrain.main(["miniature-s", "--out", str(out)]) == 0
    marks = {name: (checkpoints.folder(name, out) / "model.safetensors").read_text() for name in checkpoints.names()}
    assert marks.pop("miniature-s") == "new"
    assert set(marks.values()) == {"old"}


def test_a_missed_threshold_makes_rebuilding_fail(quick_rebuild, capsys):
    out, entries = quick_rebuild
    entries["miniature-m"]["quality"]["ma_forget"] = 0.3
    assert pretrain.main(["--out", str(out)]) == 1
    assert "miniature-m: ma_forget is 0.3, but at least 0.9 is wanted" in capsys.readouterr().out
