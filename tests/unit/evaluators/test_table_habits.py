"""`definition: table` follows the code behind the published tables habit by habit: each on a case worked by hand.

A script model writes the same tokens at the same places, whatever it reads: what is sampled is known beforehand.
"""

import json
import math
import random
import shutil

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPTNeoConfig, GPTNeoForCausalLM, PreTrainedTokenizerFast

from evaluators.generation import Generation, table_perplexity
from evaluators.memorization import Memorization
from evaluators.metrics.semantic_similarity import Embedder, row_cosine
from harness.contracts import Checkpoint
from harness.execution.tasks import EvaluatingTask
from harness.models.resolving import resolve_judge
from harness.models.tokenizing import cleaned, retokenized
from harness.records.artifacts import Artifacts
from harness.settings import Source, replace
from harness.toolkit.scoring import CausalJudge, judge_key

END = 256


def byte_tokenizer(merges=(), swapped="", end="<|end|>"):
    """Return a tokenizer of bytes and of these pairs of bytes; two `swapped` letters have each other's ids."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if swapped:
        first, second = (alphabet.index(letter) for letter in swapped)
        alphabet[first], alphabet[second] = alphabet[second], alphabet[first]
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    for number, pair in enumerate(merges):
        vocabulary["".join(pair)] = END + 1 + number
    if merges:
        vocabulary["unused"] = END
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **({"eos_token": end} if end else {}))


def script_model(script, vocabulary):
    """Return a GPT-Neo that writes `script[t]` at place t: its blocks do nothing, its places say the token."""
    width = -(-vocabulary // 4) * 4
    ends = {"bos_token_id": None, "eos_token_id": None, "max_position_embeddings": len(script)}
    sizes = {"vocab_size": vocabulary, "hidden_size": width, "num_layers": 2, "num_heads": 4}
    model = GPTNeoForCausalLM(GPTNeoConfig(**sizes, **ends, attention_types=[[["global"], 2]])).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "attn" in name or "mlp" in name:
                weight.zero_()
        model.transformer.wte.weight.copy_(torch.eye(width)[:vocabulary])
        model.transformer.wpe.weight.zero_()
        for place, token in enumerate(script[1:]):
            model.transformer.wpe.weight[place, token] = 1000.0
    return model


@pytest.fixture
def measuring(tmp_path, make_spec):
    """Return a maker of tasks: a tokenizer, the forget texts, a script, and utility texts, with real judges."""

    def make(tokenizer, script, texts, judges=("similarity",), utility="", tokens=None, **places):
        folder = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        model = script_model(script, max(len(tokenizer), END + 1))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        sources = {}
        for role, rows in {"forget": texts, "utility": [utility] if isinstance(utility, str) else utility}.items():
            file = folder / f"{role}.jsonl"
            file.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
            sources[role] = Source(source="jsonl", path=str(file), sequences=len(rows), prefix_tokens=4)
        sources["utility"] = replace(sources["utility"], sequence_tokens=tokens or 200, **places)
        checkpoint = Checkpoint("m", str(folder), str(folder), digest="")
        spec = make_spec(model=checkpoint, judges={role: resolve_judge(role, "minilm") for role in judges}, **sources)
        return EvaluatingTask(spec, Artifacts(tmp_path / "artifacts"), model, prepares=True)

    return make


# Texts


def numbers_of(task, definition="table"):
    return Memorization(definition=definition).evaluate(task.model, task).numbers


def test_cleaning_is_what_transformers_did():
    tokenizer, generator = byte_tokenizer(), random.Random(0)
    assert cleaned("it 's , they 're ! do n't ' x '") == "it's, they're! don't'x '"
    for _ in range(5_000):
        text = "".join(generator.choices(" .,'?!ntmsverx", k=12))
        assert cleaned(text) == tokenizer.clean_up_tokenization(text), text


def test_sequences_are_tokenised_again_at_their_lengths(make_sequences):
    tokenizer = byte_tokenizer(merges=[("a", "b")])
    letter = tokenizer.convert_tokens_to_ids
    a, b, c, d, ab = (letter(token) for token in ("a", "b", "c", "d", "ab"))
    # A half is the first byte of é: no character alone, three bytes when it is written as one.
    comma, space, half, end = letter(","), letter("Ġ"), letter("Ã"), tokenizer.eos_token_id
    rows = [[a, b, c, d], [c, d, c, d], [c, space, comma, d], [half, d, c], [end, c, d]]
    found = retokenized(tokenizer, make_sequences(rows))
    again = [row[:length] for row, length in zip(found.tokens_NT.tolist(), found.lengths_N.tolist(), strict=True)]
    assert again == [[end, ab, c, d], [c, d, c, d], [end, c, comma, d], [letter(token) for token in "ï¿½"], [end, c, d]]


# Memorisation


def test_writing_ends_at_the_end_of_text(measuring):
    """A text of 20 letters, looked at after 4, 8, 12 and 16: written are efghij, ij, mnopqrst and qrst, then an end."""
    tokenizer, text = byte_tokenizer(), "abcdefghijklmnopqrst"
    ids, end = tokenizer(text)["input_ids"], tokenizer.eos_token_id
    found = numbers_of(measuring(tokenizer, [*ids[:10], end, *ids[11:], end, *ids], [text], utility=text, tokens=20))
    # 4 of 4 trigrams, no trigram at all, 6 of 6, 2 of 2
    assert found["el_3"] == pytest.approx((1 + 0 + 1 + 1) / 4)
    assert found["ma"] == 1.0
    encode = Embedder(resolve_judge("similarity", "minilm")).encode
    pairs = [("efghij", text[4:]), ("ij", text[8:]), ("mnopqrst", text[12:]), ("qrst", text[16:])]
    expected = row_cosine(*(encode([pair[side] for pair in pairs]) for side in (0, 1))).mean()
    assert found["ss"] == pytest.approx(float(expected), abs=2e-3)
    assert found["ss"] < 0.95


def test_an_immediate_end_is_no_overlap_and_its_text_is_empty(measuring):
    tokenizer, text = byte_tokenizer(), "abcdefghijklmnopqrst"
    found = numbers_of(measuring(tokenizer, [tokenizer.eos_token_id] * 40, [text], utility=text, tokens=20))
    assert (found["el_3"], found["ma"]) == (0.0, 0.0)
    encode = Embedder(resolve_judge("similarity", "minilm")).encode
    expected = (encode([""] * 4) * encode([text[at:] for at in (4, 8, 12, 16)])).sum(axis=1).mean()
    assert found["ss"] == pytest.approx(float(expected), abs=2e-3)
    assert expected > 0.01  # what an encoder says of nothing; `exact` says 0


def test_what_is_written_is_tokenised_again(measuring):
    """The model writes a and b where the text's tokenizer says ab: the same text, no n-gram of ids in common."""
    tokenizer, text = byte_tokenizer(merges=[("a", "b")]), "ab" * 10
    a, b = (tokenizer.convert_tokens_to_ids(token) for token in "ab")
    assert len(tokenizer(text)["input_ids"]) == 10
    script = [a, b] * 15 + [tokenizer.eos_token_id] * 10
    found = numbers_of(measuring(tokenizer, script, [text], utility=text, tokens=10))
    # After 2, 4, 6 and 8 tokens ab is written 14 to 11 times: one distinct trigram. The text has 8, 6, 4 and 2 left.
    assert found["el_3"] == pytest.approx((1 + 1 + 1 + 0) / 4)
    assert found["ma"] == 0.0  # a is not ab


def test_sequences_of_different_lengths_are_looked_at_at_their_own_fifths(measuring):
    tokenizer, long, short = byte_tokenizer(), "abcdefghijklmnopqrst", "abcdefghij"
    ids = tokenizer(long)["input_ids"]
    # right but for place 6: a fifth of ten (2, 4, 6, 8), and none of twenty (4, 8, 12, 16)
    script = [*ids[:6], ids[0], *ids[7:], *[tokenizer.eos_token_id] * 20]
    task = measuring(tokenizer, script, [long, short], utility=long, tokens=20)
    assert numbers_of(task)["ma"] == pytest.approx(7 / 8)


# Generation


def test_generations_are_cleaned_cut_and_longer_than_their_references(measuring):
    tokenizer = byte_tokenizer()
    human, written = "The dog , a cat 's friend , sat . ", "on it , he 's . "
    ids = tokenizer(written)["input_ids"]
    script = [*[0] * 8, *ids, tokenizer.eos_token_id, *ids]
    task = measuring(tokenizer, script, ["abcdefgh"], utility=human, tokens=18, prefix_tokens=8)
    table, exact = task.generations("table"), task.generations("exact")
    assert (table.prompts, table.texts, table.references) == (("The dog ",), ("on it, he's. ",), (", a cat's",))
    assert (exact.prompts, exact.texts, exact.references) == (("The dog ",), ("on it , he",), (", a cat 's",))
    assert table.digest != exact.digest


def test_prompt_and_text_are_joined_before_they_are_tokenised(judge_folder):
    """The prompt ends with a and the text begins with b: one token of the judge's."""
    judge = CausalJudge(judge_folder(byte_tokenizer(merges=[("a", "b")])))
    together = judge.score([""], ["xyzab"]).last_ND
    apart = judge.score(["xyza"], ["b"]).last_ND
    assert not np.allclose(together, apart)
    assert np.array_equal(Generation(definition="table")._score(judge, ["xyza"], ["b"]).last_ND, together)
    assert np.array_equal(Generation(definition="exact")._score(judge, ["xyza"], ["b"]).last_ND, apart)


# Perplexity


@pytest.fixture
def judge_folder(tmp_path, make_model):
    """Return a maker of judges: a small GPT-Neo that looks back at 8 tokens in every other layer, and a tokenizer."""

    def make(tokenizer, name="judge"):
        folder = tmp_path / name
        make_model(vocabulary=260, seed=3).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return Checkpoint(name, str(folder), str(folder), digest="")

    return make


def test_a_padded_batch_has_the_loss_of_the_model_with_its_padding(judge_folder):
    tokenizer = byte_tokenizer()
    judge, end = CausalJudge(judge_folder(tokenizer)), tokenizer.eos_token_id
    texts = ["the cat", "a", "the cat sat on the mat and slept for an hour"]
    rows = [tokenizer(text)["input_ids"] for text in texts]
    width = max(map(len, rows))
    found = judge.padded_mean_nll(texts, tokens=200)
    ids = torch.tensor([row + [end] * (width - len(row)) for row in rows])
    mask = (torch.arange(width) < torch.tensor([[len(row)] for row in rows])).long()
    with torch.inference_mode():
        assert found == pytest.approx(float(judge._model(ids, attention_mask=mask, labels=ids).loss), abs=1e-5)
        without_mask = float(judge._model(ids, labels=ids).loss)
        of_texts = float(judge._model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss)
    assert abs(found - without_mask) > 0.01
    assert abs(found - of_texts) > 0.01, "the padding's places are counted"


def test_a_batch_is_sixteen_texts_and_the_last_partial_one_is_dropped(judge_folder):
    """The mean is over batches, not tokens: the second batch is five times as wide."""
    judge = CausalJudge(judge_folder(byte_tokenizer()))
    texts = [letter * (4 if index < 16 else 20) for index, letter in enumerate("abcdefghijklmnopqrstuvwxyzabcdef")]
    prompts = ["p"] * 32
    parts = (["p" + text for text in part] for part in (texts[:16], texts[16:]))
    first, second = (judge.padded_mean_nll(part, tokens=200) for part in parts)
    assert table_perplexity(judge, prompts, texts) == pytest.approx(math.exp((first + second) / 2), rel=1e-5)
    assert table_perplexity(judge, prompts[:31], texts[:31]) == pytest.approx(math.exp(first), rel=1e-5)
    assert math.isnan(table_perplexity(judge, prompts[:15], texts[:15]))


@pytest.mark.parametrize("text", ["the cat sat.<|end|>the dog ran.", "<|end|>", "no name, or half of one: <|end"])
def test_the_name_of_a_token_is_the_token_where_a_judge_reads_as_the_published_code_did(text, judge_folder):
    judge, tokenizer = CausalJudge(judge_folder(byte_tokenizer())), byte_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    asked = tokenizer(["so: " + text] * 16, return_tensors="pt", truncation=True, padding=True, max_length=200)
    with torch.inference_mode():
        loss = float(judge._model(**asked, labels=asked["input_ids"]).loss)
        state_D = judge._model.transformer(asked["input_ids"][:1]).last_hidden_state[0, -1]
    prompts, texts = ["so: "] * 16, [text] * 16
    assert table_perplexity(judge, prompts, texts) == pytest.approx(math.exp(loss), rel=1e-5)
    of_table = Generation(definition="table")._score(judge, prompts, texts).last_ND[0]
    assert of_table == pytest.approx(state_D.numpy(), abs=1e-5)


# What is shared between trials


def test_two_tokenizers_with_the_same_ids_share_no_texts(measuring):
    """With a and b swapped, "abba…" and "baab…" are the same token ids and other texts."""
    plain, swapped = byte_tokenizer(), byte_tokenizer(swapped="ab")
    text, mirrored = "a cab, a bat and a crab.", "b cba, b abt bnd b crba."
    assert plain(text)["input_ids"] == swapped(mirrored)["input_ids"]
    script = [*plain("a cab, a bug sat on a tree.")["input_ids"], *[0] * 20]
    first, second = (
        measuring(tokenizer, script, [words], utility=words, tokens=20, prefix_tokens=8)
        for tokenizer, words in ((plain, text), (swapped, mirrored))
    )
    assert first.forget.digest == second.forget.digest
    for definition in ("exact", "table"):
        assert first.generations(definition).digest != second.generations(definition).digest
        shared = [numbers_of(task, definition)["ss"] for task in (first, second)]
        alone = replace(second, artifacts=Artifacts(second.artifacts.root / definition))
        assert shared[1] == numbers_of(alone, definition)["ss"]
        assert shared[0] != shared[1]


def test_a_judges_key_names_all_that_decides_its_numbers(judge_folder, tmp_path):
    plain = judge_folder(byte_tokenizer(), "plain")
    key = judge_key(plain)
    shutil.copytree(plain.location, tmp_path / "moved")
    moved = replace(plain, id="moved", location=str(tmp_path / "moved"), tokenizer=str(tmp_path / "moved"))
    assert judge_key(moved) == CausalJudge(moved).digest == key  # wherever it lies
    assert judge_key(replace(plain, digest="1" * 16)) != key
    assert judge_key(plain, "cuda") != key
    assert judge_key(replace(plain, tokenizer=judge_folder(byte_tokenizer(swapped="ab"), "swapped").tokenizer)) != key
