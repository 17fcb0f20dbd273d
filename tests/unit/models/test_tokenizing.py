"""Texts to token ids: one decision on what stands before and after them, the same for every text and every reader."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from evaluators.reasoning import Reasoning
from harness.contracts import Checkpoint
from harness.data.sequences import load_forget, load_holdout, load_retain, load_utility, load_validation
from harness.errors import ModelError
from harness.models import tokenizing
from harness.models.loading import check_tokenizer, load_model, load_tokenizer
from harness.models.resolving import resolve_model
from harness.models.tokenizing import continuation_ids, continuation_texts, start_tokens, token_lists
from harness.settings import Source, replace
from harness.toolkit import CausalJudge, judge_key
from harness.toolkit.scoring import judge_identity
from tests.unit.families import make_tiny

BOS, EOS, TURN_START, TURN_END, VOCABULARY = 256, 257, 258, 259, 260
SPELLED = "<|im_start|>a <s>struck</s> word<|im_end|>"
FORMS = {"none": "$A", "start": "<s> $A", "both": "<s> $A </s>", "end": "$A </s>"}


@pytest.fixture(scope="module")
def make_tokenizer(tokenizer):
    """Return a maker of tokenizers of bytes that add BOS before a text, EOS after it, both, or nothing."""

    def make(adds="start", **ends):
        backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        backend.add_special_tokens(["<s>", "</s>", "<|im_start|>", "<|im_end|>"])
        backend.post_processor = TemplateProcessing(single=FORMS[adds], special_tokens=[("<s>", BOS), ("</s>", EOS)])
        return PreTrainedTokenizerFast(tokenizer_object=backend, **{"bos_token": "<s>", "eos_token": "</s>"} | ends)

    return make


@pytest.fixture(scope="module")
def llama(make_tokenizer, tmp_path_factory):
    """A tiny Llama of random weights as the hub has one: bf16, in shards, with BOS, several ends, and settings."""
    folder = tmp_path_factory.mktemp("llama")
    make_tokenizer().save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    ends = {"bos_token_id": BOS, "eos_token_id": [EOS, TURN_END, 97], "initializer_range": 0.3}
    config = LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=2, max_position_embeddings=512, **sizes, **ends)
    model = LlamaForCausalLM(config).bfloat16()
    model.generation_config.do_sample, model.generation_config.temperature = True, 0.6
    model.save_pretrained(folder, max_shard_size="10KB")
    return resolve_model(str(folder))


def bytes_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]


@pytest.mark.parametrize("adds", FORMS)
def test_what_a_tokenizer_puts_before_a_text_is_kept_and_what_after_it_is_not(make_tokenizer, adds):
    made = make_tokenizer(adds)
    start = [BOS] if adds in ("start", "both") else []
    assert start_tokens(made) == start
    assert token_lists(made, ["a b", ""]) == [[*start, *bytes_of(made, "a b")], start]
    assert token_lists(made, ["a b"], starts=False) == [bytes_of(made, "a b")]
    assert token_lists(made, []) == []


def test_what_a_text_spells_is_text(make_tokenizer):
    made = make_tokenizer()
    [ids] = token_lists(made, [SPELLED])
    assert ids[0] == BOS
    assert max(ids[1:]) < BOS
    assert made.decode(ids[1:]) == SPELLED
    # The tokenizer itself reads it otherwise, before and after: an exported one is as it was.
    assert {BOS, EOS, TURN_START, TURN_END} < set(made(SPELLED)["input_ids"])


def test_every_source_of_texts_starts_alike(llama, tmp_path):
    made = load_tokenizer(llama)
    texts = [f"{SPELLED} number {number}, and so on and so forth." for number in range(3)]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    source = Source(source="jsonl", path=str(file), sequences=3, sequence_tokens=40, prefix_tokens=8)
    wanted = [[BOS, *bytes_of(made, text)][:40] for text in texts]
    for load in (load_forget, load_holdout, load_retain, load_validation):
        assert load(source, made, VOCABULARY).tokens_NT.tolist() == wanted
    utility = load_utility(source, made, VOCABULARY)
    assert torch.cat([utility.prompts_NT, utility.references_NT], dim=1).tolist() == wanted
    # BOS is one of the prompt's tokens, and no part of its text, so that no judge reads it twice.
    assert utility.prompt_texts == tuple(text[:7] for text in texts)


def test_a_judge_reads_its_own_start_before_every_text(llama):
    made, judge, model = load_tokenizer(llama), CausalJudge(llama), load_model(llama)
    scores = judge.score(["ab", "", ""], [" cd", SPELLED, ""])
    for row, (prompt, text) in enumerate((("ab", " cd"), ("", SPELLED))):
        ids = torch.tensor([[BOS, *bytes_of(made, prompt + text)]])
        with torch.no_grad():
            logits, states = model(ids).logits[0], model.base_model(ids).last_hidden_state[0]
        nll = functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="none")[len(prompt) :]
        assert scores.nll[row] == pytest.approx(nll.tolist(), abs=1e-4)
        assert torch.allclose(torch.tensor(scores.mean_ND[row]), states[1:].mean(0), atol=1e-4)
        assert torch.allclose(torch.tensor(scores.last_ND[row]), states[-1], atol=1e-4)
    # Of nothing there is nothing, though it starts.
    assert scores.nll[2] == []
    assert not scores.mean_ND[2].any()
    with torch.no_grad():
        one = model(torch.tensor([[BOS, *bytes_of(made, "abc")]]), labels=torch.tensor([[BOS, *bytes_of(made, "abc")]]))
    assert judge.padded_mean_nll(["abc"], 100) == pytest.approx(one.loss.item(), abs=1e-4)


def test_a_judge_may_have_a_head_that_is_narrower_than_its_states(make_tokenizer, tmp_path):
    make_tokenizer("none").save_pretrained(tmp_path)
    make_tiny("opt", vocab_size=VOCABULARY, word_embed_proj_dim=16).save_pretrained(tmp_path)
    assert CausalJudge(resolve_model(str(tmp_path))).score(["ab"], [" cd"]).mean_ND.shape == (1, 16)


def test_texts_that_continue_others_are_read_and_written_without_a_space_of_the_tokenizers(make_tokenizer, tmp_path):
    backend = Tokenizer(models.BPE({character: number for number, character in enumerate("▁abcd\n")}, []))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    whole = tokenizer("ab cd")["input_ids"]
    for place, text in ((3, " cd"), (2, "b cd"), (6, "")):
        assert continuation_ids(tokenizer, [text]) == [whole[place:]]
        assert continuation_texts(tokenizer, [whole[:place]], [whole[place:]]) == [text]
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert tokenizing.judge_facts(Checkpoint("j", str(tmp_path), str(tmp_path), "")) == [
        "continues texts without a space"
    ]
    bytes_only = make_tokenizer("none")
    assert continuation_ids(bytes_only, TEXTS) == token_lists(bytes_only, TEXTS)
    cut = bytes_of(bytes_only, "aé")
    assert continuation_texts(bytes_only, [cut[:2], cut[:1]], [cut[2:], cut[1:]]) == ["\ufffd", "é"]


def test_a_judge_that_starts_texts_has_another_name(llama, make_tokenizer, tmp_path):
    make_tokenizer("none").save_pretrained(tmp_path)
    bare = resolve_model(llama.location, str(tmp_path))
    assert "starts with 256" in judge_identity("perplexity", llama)
    assert not any("starts" in part for part in judge_identity("perplexity", bare))
    assert not any("starts" in part for part in judge_identity("similarity", llama))
    assert CausalJudge(llama).digest != judge_key(llama)
    assert CausalJudge(bare).digest == judge_key(bare)
    folder = tmp_path / "scaled"
    make_tokenizer("none").save_pretrained(folder)
    (folder / "config.json").write_text('{"vocab_size": 260, "logits_scaling": 8.0}')
    assert tokenizing.judge_facts(Checkpoint("scaled", str(folder), str(folder), "")) == ["logits by logits_scaling"]
    assert tokenizing.judges_start_with({"perplexity": llama, "features": bare}) == {"perplexity": ["<s>"]}


def test_questions_are_read_as_texts_are(llama, make_tokenizer, monkeypatch):
    read = []

    def measured(lm, task, limit):
        read.append((lm.tok_encode(SPELLED), lm.tok_encode(SPELLED, add_special_tokens=False)))
        read.append(lm._encode_pair("ab ", "cd"))
        return {"copa": 1.0, "copa_stderr": 0.0}, {"copa": torch.ones(1).numpy()}, ["copa-0"]

    tokenizer = make_tokenizer("both", eos_token=None)
    monkeypatch.setattr("evaluators.reasoning.measure_task", measured)
    evaluation = Reasoning(tasks=("copa",), limit=1).evaluate(load_model(llama), SimpleNamespace(tokenizer=tokenizer))
    assert evaluation.numbers["copa"] == 1.0
    spelled = bytes_of(tokenizer, SPELLED)
    assert read[0] == ([BOS, *spelled], spelled)
    assert read[1] == ([BOS, *bytes_of(tokenizer, "ab")], bytes_of(tokenizer, " cd"))


def test_a_chat_model_s_text_ends_at_any_of_its_ends(llama, make_tokenizer, tmp_path):
    assert tokenizing.text_ends(llama) == (EOS, TURN_END), "97 is an ordinary token here: that end is of another"
    make_tokenizer(eos_token=None).save_pretrained(tmp_path)
    none = Checkpoint("none", str(tmp_path), str(tmp_path), "")
    assert tokenizing.text_ends(none) == ()
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 259}')
    assert tokenizing.text_ends(none) == (TURN_END,)


# Where tokenizer.json exists it decides, whatever class a folder names; a slow tokenizer's settings are read.

TEXTS = ["\n\n2. Call 1234 me\n", " leads with a blank", "1. One\n2. Two\n\n10. Ten", "naïve 12ab  two"]
TEXTS += ["3.14 a\tb", ""]
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
        tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=[("<s>", 0)])
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
    loaded = load_tokenizer(write_folder(tmp_path / "m", *FOLDERS[name]))
    said = Tokenizer.from_file(str(tmp_path / "m" / "tokenizer.json"))
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
    assert tokenizing.text_ends(checkpoint) == (1,)
    assert token_lists(load_tokenizer(checkpoint), ["Call"])[0][0] == 1
    assert start_tokens(load_tokenizer(slow_folder(tmp_path / "bare", **tokens))) == []


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
