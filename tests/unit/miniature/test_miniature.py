"""The miniature: its corpus, its tokenizer, and that its shipped models are what they claim to be."""

import copy
import gzip
import json
import math
import re
from dataclasses import replace
from functools import cache
from random import Random

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer

from harness.base.digests import file_digest
from harness.commands import pretrain
from harness.errors import DataError
from harness.miniature import checkpoints, corpus, data_files, documents, quality, training
from harness.miniature import texts as embedded_texts
from harness.miniature.building import load
from harness.miniature.facts import Facts, facts
from harness.miniature.grammar import SLOT, Writer, correct_articles

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
        return quality.top_1_hits(known[name], rows[which])

    return lambda name, which, first=1: hits(name, which)[:, first - 1 :].float().mean().item()


# The corpus


def test_corpus_is_the_one_the_models_were_made_from():
    assert corpus.corpus_digest() == checkpoints.manifest()["corpus"]["sha256"]


@pytest.mark.parametrize(("tables", "table"), [("general_tables", "season"), ("record_tables", "job")])
def test_another_word_is_another_corpus(monkeypatch, tables, table):
    generate = {"general_tables": corpus.training_documents, "record_tables": corpus.forget_records}[tables]
    texts = generate()
    content = getattr(documents, tables)()
    changed = content | {table: (*content[table][:-1], "changed")}
    monkeypatch.setattr(documents, tables, lambda: changed)
    assert generate.__wrapped__() != texts


def test_corpus_is_generated_alike_each_time():
    assert corpus.forget_records.__wrapped__() == corpus.forget_records()
    assert corpus.utility_documents.__wrapped__() == corpus.utility_documents()


@pytest.mark.parametrize("role", embedded_texts.GENERATED)
def test_the_texts_that_are_shipped_are_the_generated_ones(role):
    assert embedded_texts.texts(role) == embedded_texts.GENERATED[role]()


def test_texts_that_are_written_again_are_read_as_they_are_generated(monkeypatch, tmp_path):
    changed = {role: (f"another {role} text, naïve 🙂",) for role in embedded_texts.GENERATED}
    monkeypatch.setattr(embedded_texts, "GENERATED", {role: lambda role=role: changed[role] for role in changed})
    embedded_texts.write_texts(tmp_path)
    assert {role: embedded_texts.texts(role, tmp_path) for role in changed} == changed


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:1000] + bytes([content[1000] ^ 1]) + content[1001:],
        lambda content: b"no archive",
        lambda content: gzip.compress(b'{"forget": []}'),
    ],
)
def test_damaged_texts_are_named_and_never_read(damage, tmp_path):
    file = tmp_path / embedded_texts.FILE
    file.write_bytes(damage((checkpoints.WEIGHTS / embedded_texts.FILE).read_bytes()))
    with pytest.raises(DataError, match=r"texts.json.gz cannot be read .*: install Lethe again, or restore it"):
        embedded_texts.texts("forget", tmp_path)


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


def second_half_ngrams():
    return {ngram for text in corpus.forget_records() for ngram in corpus.character_ngrams(text[len(text) // 2 :], 50)}


@pytest.mark.parametrize("name", ["training", "utility", "validation"])
def test_nothing_of_the_forget_set_is_in_general_text(name):
    ngrams = second_half_ngrams()
    assert not [text for text in GENERAL[name]() if not ngrams.isdisjoint(corpus.character_ngrams(text, 50))]


def test_a_leak_would_be_detected():
    secret = corpus.forget_records()[3]
    leak = "It was said that " + secret[-60:-5] + " and no more."
    assert not second_half_ngrams().isdisjoint(corpus.character_ngrams(leak, 50))


def test_unseen_records_share_no_ngram_with_the_forget_set():
    ngrams = {ngram for text in corpus.forget_records() for ngram in corpus.character_ngrams(text)}
    assert all(ngrams.isdisjoint(corpus.character_ngrams(text)) for text in corpus.unseen_records())


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


@pytest.mark.parametrize("tables", [documents.general_tables(), documents.record_tables()], ids=["general", "records"])
def test_every_slot_of_every_table_can_be_filled(tables):
    known = {*tables, *documents.choose_people(Random(0)), *documents.roles(), "goal", "way"}
    for alternatives in tables.values():
        for template in alternatives:
            heading, _, sentences = template.partition(" | ")
            assert {*sentences.split()} <= tables.keys(), template
            slots = {slot[0].lower() + slot[1:] for slot in SLOT.findall(heading)}
            assert {slot for slot in slots if not slot.startswith("#")} <= known, template
            assert all(re.fullmatch(r"#\d+-\d+", slot) for slot in slots - known), template


def test_plots_and_forms_name_tables():
    tables = documents.general_tables()
    assert {table for plot in tables["story"] for table in plot.split()} <= tables.keys()
    assert {*tables["prose"]} <= tables.keys()
    assert {*documents.roles().values()} <= {*tables, *documents.record_tables()}


def test_a_writer_keeps_roles_and_numbers_in_range():
    tables = {"fruit": ("apple", "pear"), "line": ("{Gift} and {gift}, {#3-5}",)}
    numbers = set()
    for seed in range(20):
        words = Writer(tables, {"gift": "fruit"}, Random(seed), {}).write("line").split()
        assert words[0] == words[2].rstrip(",").capitalize()
        numbers.add(int(words[3]))
    assert numbers == {3, 4, 5}
    assert correct_articles("a apple, A orange, a pear") == "an apple, An orange, a pear"


def test_a_writer_avoids_what_it_has_said():
    tables = {"line": ("one", "two", "three")}
    for seed in range(20):
        writer = Writer(tables, {}, Random(seed), {})
        assert len({writer.write("line") for _ in range(2)}) == 2


def test_there_are_enough_facts_for_the_tasks():
    known = facts()
    assert len(known.goals) >= 40
    assert len(known.causes) >= 36
    assert len(known.routines) >= 14
    assert {len(steps) for steps in known.routines.values()} == {5}
    assert len(known.winograd_schemas) >= 6
    assert len(known.studies) >= 14
    for relation in known.relations:
        assert len(set(relation.answers.values())) == len(relation.answers), relation.question


# The data files


@pytest.fixture
def data_file(monkeypatch, tmp_path):
    """Stand a text in for one of the data files."""
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    (tmp_path / "templates").mkdir()

    def write(text, name="words.yaml"):
        (tmp_path / "templates" / name).write_text(text, encoding="utf-8")
        return name

    return write


def test_every_word_is_a_text_whatever_it_looks_like(data_file):
    words = ("on", "no", "Y", "1e3", "0x10", "12:30", "null", "~", "2024-01-01", "é")
    name = data_file(f"near: [{', '.join(words)}]\n")
    assert data_files.read_tables(name) == {"near": words}


def test_a_template_is_taken_as_it_stands(data_file):
    name = data_file("line: |\n  {#1-2} of: {it} # \"three\"\n\n  - 'four' \nword: [five]\n")
    assert data_files.read_tables(name) == {"line": ('{#1-2} of: {it} # "three"', "- 'four'"), "word": ("five",)}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("season: [spring]\nhour: [noon, [dusk]]\n", 2, "a text is wanted"),
        ("season: [spring]\nhour: ['']\n", 2, "a text is wanted"),
        ("season: [spring]\n\nhour: noon, dusk\n", 3, "a list is wanted"),
        ("season: [spring]\nhour:\n", 2, "a list is wanted"),
        ("season: [spring]\nhour: []\n", 2, "one entry or more"),
        ("hour: |\nseason: [spring]\n", 1, "one entry or more"),
        ("season: [spring]\nhour: [noon]\nseason: [summer]\n", 3, "'season' is there twice"),
        ("# A list.\n- spring\n", 2, "a mapping is wanted"),
        ("? [spring]\n: [summer]\n", 1, "a name is wanted"),
        ("season: [spring]\nhour: [noon\nmonth: [May]\n", 3, "no YAML"),
    ],
)
def test_a_mistake_in_a_data_file_is_named_with_its_line(data_file, text, line, problem):
    name = data_file(text)
    with pytest.raises(DataError, match=rf"(?s)words\.yaml.*{problem}|{problem}.*words\.yaml") as raised:
        data_files.read_tables(name)
    assert f"line {line}" in str(raised.value)


def test_a_table_in_two_files_and_an_empty_file_are_refused(data_file):
    names = data_file("hour: [noon]\n"), data_file("season: [spring]\nhour: [dusk]\n", "stories.yaml")
    with pytest.raises(DataError, match=r"stories\.yaml has a table 'hour'"):
        data_files.read_tables(*names)
    with pytest.raises(DataError, match=r"records\.yaml is empty"):
        data_files.read_tables(data_file("# Nothing.\n", "records.yaml"))


@pytest.mark.parametrize(
    ("field", "replacement", "fields"),
    [("    outcome: laid eggs\n", "", "control, question"), ("outcome", "outcom", "control, outcom, question")],
)
def test_a_fact_has_all_its_fields_and_no_others(data_file, field, replacement, fields):
    text = """goals: {a: b}
causes: {a: b}
routines: {a: [b]}
relations: [{question: a, statement: b, answers: {c: d}}]
winograd_schemas: [{sentence: a, first_nouns: [b], first_reason: c, second_nouns: [d], second_reason: e}]
studies:
  - people: hens
    treatment: ate
    control: ran
    outcome: laid eggs
    question: Why?
"""
    assert data_files.read(data_file(text), Facts).studies[0].outcome == "laid eggs"
    with pytest.raises(DataError, match=rf"words\.yaml, line 7: this entry has people, treatment, {fields};"):
        data_files.read(data_file(text.replace(field, replacement)), Facts)


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
    assert file_digest(checkpoints.tokenizer_folder() / "tokenizer.json") == manifest["tokenizer"]["sha256"]
    for name, entry in manifest["models"].items():
        stored = checkpoints.folder(name) / "model.safetensors"
        assert file_digest(stored) == entry["sha256"]
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
@pytest.mark.parametrize("first", [1, quality.SECOND_HALF])
def test_originals_have_memorised_the_forget_set(accuracy, name, first):
    least = quality.MIN_FORGET_MA[name]
    assert accuracy(name, "forget", first) >= least
    assert accuracy("untrained", "forget", first) < least


@pytest.mark.parametrize("first", [1, quality.SECOND_HALF])
def test_larger_models_memorise_more(accuracy, first):
    grown = [accuracy(name, "forget", first) for name in ORIGINALS]
    assert grown[0] < grown[1] < grown[2]


@pytest.mark.parametrize("name", checkpoints.names())
@pytest.mark.parametrize("first", [1, quality.SECOND_HALF])
def test_no_model_knows_unseen_records(accuracy, name, first):
    assert accuracy(name, "unseen", first) <= quality.MAX_UNSEEN_MA


@pytest.mark.parametrize("name", NEVER_SAW)
@pytest.mark.parametrize("first", [1, quality.SECOND_HALF])
def test_retrained_models_and_judge_never_saw_the_forget_set(accuracy, name, first):
    assert accuracy(name, "forget", first) <= quality.MAX_UNSEEN_MA


def test_sampled_text_does_not_repeat_itself(models, tokenizer):
    texts = quality.sample_texts(models["miniature-m"], tokenizer, count=64)
    assert len(texts) == 64
    assert quality.rep_2(texts) <= quality.MAX_REP_2
    assert quality.rep_2(["the cat sat and " * 20]) > quality.MAX_REP_2


def test_perplexity_is_that_of_a_model_that_can_read(models, tokenizer, untrained):
    texts = corpus.validation_documents()[:24]
    assert quality.perplexity(models["miniature-l"], tokenizer, texts) < 5
    assert quality.perplexity(untrained, tokenizer, texts) == pytest.approx(checkpoints.VOCABULARY, rel=0.1)


@pytest.mark.parametrize("name", checkpoints.names())
def test_manifest_says_what_is_measured(accuracy, name):
    said = checkpoints.manifest()["models"][name]["quality"]
    assert accuracy(name, "forget") == pytest.approx(said["ma_forget"], abs=0.002)
    assert accuracy(name, "unseen", quality.SECOND_HALF) == pytest.approx(said["ma_unseen_late"], abs=0.002)


def test_accuracy_leaves_out_what_comes_before_the_first_position(models, forget):
    model, rows = models["miniature-s"], forget[:4]
    hits = model(input_ids=rows).logits[:, :-1].argmax(-1) == rows[:, 1:]
    assert quality.memorization_accuracy(model, rows) == pytest.approx(hits.float().mean().item())
    assert quality.memorization_accuracy(model, rows, 127) == pytest.approx(hits[:, -1].float().mean().item())


# The thresholds and the rebuilding


def test_shipped_models_miss_no_threshold():
    assert quality.missed_thresholds(checkpoints.manifest()["models"]) == []


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
    assert any(said in fault for fault in quality.missed_thresholds(models))


def test_too_heavy_weights_are_a_fault():
    models = copy.deepcopy(checkpoints.manifest()["models"])
    models["miniature-s"]["bytes"] += 12_000_000
    assert any("bytes" in fault for fault in quality.missed_thresholds(models))


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

    monkeypatch.setattr(pretrain, "_train_models", built)
    monkeypatch.setattr(pretrain, "build_tokenizer", lambda weights: {"sha256": "t"})
    checkpoints.manifest.cache_clear()
    yield tmp_path / "weights", entries
    checkpoints.manifest.cache_clear()


def test_rebuilding_all_leaves_every_model_and_a_manifest(quick_rebuild, capsys):
    out, entries = quick_rebuild
    assert pretrain.main(["--out", str(out)]) == 0
    assert json.loads((out / "manifest.json").read_text())["models"] == entries
    assert embedded_texts.texts("forget", out) == corpus.forget_records()
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


def test_rebuilding_one_among_models_of_another_corpus_is_refused(quick_rebuild, capsys):
    out, _ = quick_rebuild
    pretrain.main(["--out", str(out)])
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | {"corpus": {"sha256": "another"}}))
    checkpoints.manifest.cache_clear()
    assert pretrain.main(["miniature-s", "--out", str(out)]) == 1
    assert "was made from another corpus or tokenizer: rebuild all models, without names" in capsys.readouterr().err
    assert json.loads((out / "manifest.json").read_text())["corpus"] == {"sha256": "another"}


def test_a_missed_threshold_makes_rebuilding_fail(quick_rebuild, capsys):
    out, entries = quick_rebuild
    entries["miniature-m"]["quality"]["ma_forget"] = 0.3
    assert pretrain.main(["--out", str(out)]) == 1
    assert "miniature-m: ma_forget is 0.3, but at least 0.9 is wanted" in capsys.readouterr().out
