"""Texts to token ids: one decision on what stands before and after them, the same for every text and every reader."""

import json
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from evaluators.reasoning import Reasoning
from harness.contracts import Checkpoint
from harness.data.sequences import load_forget, load_holdout, load_retain, load_utility, load_validation
from harness.models.loading import load_model, load_tokenizer
from harness.models.resolving import resolve_model
from harness.models.tokenizing import judge_facts, judges_start_with, start_tokens, text_ends, token_lists
from harness.settings import Source
from harness.toolkit import CausalJudge, judge_key
from harness.toolkit.scoring import judge_identity

BOS, EOS, TURN_START, TURN_END, VOCABULARY = 256, 257, 258, 259, 260
NAMES = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
SPELLED = "<|im_start|>a <s>struck</s> word<|im_end|>"
FORMS = {"none": "$A", "start": "<s> $A", "both": "<s> $A </s>", "end": "$A </s>"}


@pytest.fixture(scope="module")
def make_tokenizer(tokenizer):
    """Return a maker of tokenizers of bytes that add BOS before a text, EOS after it, both, or nothing."""

    def make(adds="start", **ends):
        backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        backend.add_special_tokens(NAMES)
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
    assert judge_facts(Checkpoint("scaled", str(folder), str(folder), "")) == ["logits by logits_scaling"]
    assert judges_start_with({"perplexity": llama, "features": bare}) == {"perplexity": ["<s>"]}


def test_questions_are_read_as_texts_are(llama, make_tokenizer, monkeypatch):
    read = []

    def measured(lm, task, limit):
        read.append((lm.tok_encode(SPELLED), lm.tok_encode(SPELLED, add_special_tokens=False)))
        read.append(lm._encode_pair("ab ", "cd"))
        return {"copa": 1.0, "copa_stderr": 0.0}, {"copa": torch.ones(1).numpy()}, ["copa-0"], {}

    tokenizer = make_tokenizer("both", eos_token=None)
    monkeypatch.setattr("evaluators.reasoning.measure_task", measured)
    evaluation = Reasoning(tasks=("copa",), limit=1).evaluate(load_model(llama), SimpleNamespace(tokenizer=tokenizer))
    assert evaluation.numbers["copa"] == 1.0
    spelled = bytes_of(tokenizer, SPELLED)
    assert read[0] == ([BOS, *spelled], spelled)
    assert read[1] == ([BOS, *bytes_of(tokenizer, "ab")], bytes_of(tokenizer, " cd"))


def test_a_chat_model_s_text_ends_at_any_of_its_ends(llama, make_tokenizer, tmp_path):
    assert text_ends(llama) == (EOS, TURN_END), "97 is an ordinary token here: that end is another tokenizer's"
    make_tokenizer(eos_token=None).save_pretrained(tmp_path)
    none = Checkpoint("none", str(tmp_path), str(tmp_path), "")
    assert text_ends(none) == ()
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 259}')
    assert text_ends(none) == (TURN_END,)
