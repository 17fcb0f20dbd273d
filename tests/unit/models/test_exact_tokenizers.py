"""Where tokenizer.json exists it decides, whatever class a folder names; a slow tokenizer's settings are read."""

import json
import shutil

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from harness.contracts import Checkpoint
from harness.errors import ModelError
from harness.models.loading import check_tokenizer, load_tokenizer
from harness.models.resolving import resolve_model
from harness.models.tokenizing import start_tokens, text_ends, token_lists
from harness.settings import replace

TEXTS = [
    "\n\n2. Call 1234 me\n",
    " leads with a blank",
    "1. One\n2. Two\n\n10. Ten",
    "naïve 12ab  two",
    "3.14 a\tb",
    "",
]
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTES])
LINES = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\n+"), "isolated"), BYTES])
THREES = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\d{1,3}"), "isolated"), BYTES])
SPACES = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
FOLDERS = {
    "llama as GPT2Tokenizer, digits": ("llama", "GPT2Tokenizer", DIGITS, None),
    "gpt2, lines": ("gpt2", "GPT2TokenizerFast", LINES, None),
    "opt, digits": ("opt", "GPT2Tokenizer", DIGITS, "$A"),
    "qwen3, lines": ("qwen3", "Qwen2TokenizerFast", LINES, None),
    "llama 2, no blank in front": ("llama", "LlamaTokenizer", SPACES, "<s> $A"),
    "llama 3, threes": ("llama", "PreTrainedTokenizerFast", THREES, "<s> $A"),
    "only a tokenizer": (None, "GPT2Tokenizer", DIGITS, None),
}


def backend(pre_tokenizer, template):
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizer
    alphabet = [*pre_tokenizers.ByteLevel.alphabet(), "▁", "\n", "\t", "ï"]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([*TEXTS, "\n\n" * 9, "Call me", "12 34", " and a blank"] * 3, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 0)])
    return tokenizer


def write_folder(folder, family, name, pre_tokenizer, template):
    folder.mkdir(exist_ok=True)
    backend(pre_tokenizer, template).save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "</s>", "add_bos_token": template is None}
    settings |= {"tokenizer_class": name} if name else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if family:
        (folder / "config.json").write_text(json.dumps({"model_type": family, "vocab_size": 420}))
    return Checkpoint(str(folder), str(folder), str(folder), "")


@pytest.mark.parametrize("name", FOLDERS)
def test_every_id_is_what_tokenizer_json_says(name, tmp_path):
    checkpoint = write_folder(tmp_path / "m", *FOLDERS[name])
    said = Tokenizer.from_file(str(tmp_path / "m" / "tokenizer.json"))
    loaded = load_tokenizer(checkpoint)
    assert token_lists(loaded, TEXTS) == [said.encode(text).ids for text in TEXTS]
    assert len({tuple(ids) for ids in token_lists(loaded, TEXTS)}) == len(TEXTS)
    assert start_tokens(loaded) == said.encode("a").ids[: -len(said.encode("a", add_special_tokens=False).ids)]
    assert loaded.eos_token_id == 1


def slow_folder(folder, **settings):
    folder.mkdir()
    trained = json.loads(backend(BYTES, None).to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(trained["vocab"]))
    (folder / "merges.txt").write_text("\n".join(" ".join(pair) for pair in trained["merges"]))
    (folder / "config.json").write_text(json.dumps({"model_type": "opt", "vocab_size": len(trained["vocab"])}))
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer", **settings}))
    return Checkpoint(str(folder), str(folder), str(folder), "")


def test_a_slow_tokenizers_settings_are_read(tmp_path):
    tokens = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "</s>")
    checkpoint = slow_folder(tmp_path / "m", add_bos_token=True, **tokens)
    check_tokenizer(checkpoint)
    assert start_tokens(load_tokenizer(checkpoint)) == [1]
    assert text_ends(checkpoint) == (1,)
    assert token_lists(load_tokenizer(checkpoint), ["Call"])[0][0] == 1
    bare = slow_folder(tmp_path / "bare", **tokens)
    assert start_tokens(load_tokenizer(bare)) == []


@pytest.fixture
def model_folder(make_model, tokenizer, tmp_path):
    folder = tmp_path / "model"
    make_model(vocabulary=256).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text("a card")
    return folder


@pytest.mark.parametrize("name", ["generation_config.json", "tokenizer.json", "tokenizer_config.json", "config.json"])
def test_a_checkpoints_digest_covers_every_file_that_decides_its_numbers(model_folder, tmp_path, name):
    elsewhere = shutil.copytree(model_folder, tmp_path / "elsewhere")
    before, apart = resolve_model(str(model_folder)), resolve_model(str(elsewhere), str(model_folder))
    (model_folder / "README.md").write_text("another card, which decides nothing")
    assert resolve_model(str(model_folder)) == before
    (model_folder / name).write_text(json.dumps(json.loads((model_folder / name).read_text()), indent=7))
    assert resolve_model(str(model_folder)).digest != before.digest
    assert resolve_model(str(elsewhere), str(model_folder)).digest != apart.digest
    with pytest.raises(ModelError, match=r"weights, configuration or tokenizer of .* are not what they were when"):
        load_tokenizer(replace(before, id=name))
