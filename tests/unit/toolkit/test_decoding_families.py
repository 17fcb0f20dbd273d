"""Greedy and sampled continuations of every family of causal LMs, against argmax over plain forward passes."""

import pytest
import torch
import transformers as families
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from harness.errors import TrialError
from harness.toolkit.cached_models import PairModel
from harness.toolkit.decoding import choose, greedy_choices, greedy_continuations, sample, uniforms
from harness.toolkit.stepping import NEAR_TIE, is_cache_exact
from tests.unit.families import OLD_SIZES, SIZES, VOCABULARY, make_tiny
from tests.unit.tasks import said_after

TOKENS = 12
GROUPED = {**SIZES, "num_key_value_heads": 2, "max_position_embeddings": 32}
WHOLE = {
    **{name: (name, {}) for name in ("gpt2", "llama", "gpt_neox", "opt", "bloom", "mpt", "mamba")},
    "falcon": ("falcon", {"multi_query": True}),
    "falcon with ALiBi": ("falcon", {"multi_query": False, "alibi": True}),
}
SLIDING = {"use_sliding_window": True, "max_window_layers": 1, "head_dim": 8}
WINDOWED = {
    "gpt_neo": {},
    "mistral": {},
    "qwen2": SLIDING,
    "qwen3": SLIDING,
    "gemma2": {"head_dim": 8, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 8.0},
    "gemma3_text": {"head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]},
}
WINDOWS = (5, TOKENS, TOKENS + 1)
CASES = [(name, None) for name in WHOLE] + [(name, window) for name in WINDOWED for window in WINDOWS]


def make(name, window=None, seed=0, **changes):
    if window is None:
        model_type, sizes = WHOLE[name]
        return make_tiny(model_type, seed, **sizes, **changes)
    key = "window_size" if name == "gpt_neo" else "sliding_window"
    return make_tiny(name, seed, **WINDOWED[name], **{key: window}, **changes)


@torch.inference_mode()
def naive(model, tokens_NT):
    """Return every prefix's greedy continuation and its smallest margin, by passes over whole rows of one length."""
    count, length = tokens_NT.shape
    rows, margins = {}, {}
    for end in range(1, length):
        for sequence in range(count):
            rows[sequence, end], margins[sequence, end] = tokens_NT[sequence, :end], float("inf")
        logits = model(input_ids=torch.stack(list(rows.values())), use_cache=False).logits[:, -1].float()
        best = logits.topk(2).values
        for key, token, margin in zip(rows, logits.argmax(-1), best[:, 0] - best[:, 1], strict=True):
            rows[key] = torch.cat([rows[key], token[None]])
            margins[key] = min(margins[key], float(margin))
    return {key: row[key[1] :].tolist() for key, row in rows.items()}, margins


def texts(model, length=TOKENS):
    """Return random texts, and one that the model itself wrote but for one slip."""
    tokens = torch.randint(1, VOCABULARY, (3, length), generator=torch.Generator().manual_seed(1))
    start = tokens[0, :2].tolist()
    own = [*start, *said_after(model, start, length - 2)]
    own[length // 2] = (own[length // 2] + 1) % VOCABULARY
    return torch.cat([tokens[:2], torch.tensor([own])])


def check_greedy(model, make_sequences, tokens_NT, margin=NEAR_TIE):
    count, length = tokens_NT.shape
    ours = greedy_continuations(model, make_sequences(tokens_NT.tolist()), [range(1, length)] * count)
    theirs, margins = naive(model, tokens_NT)
    clear = [key for key in theirs if margins[key] >= margin]
    assert len(clear) > 0.8 * len(theirs)
    assert len({tuple(theirs[key]) for key in clear}) > length / 3, "the choices do not vary: nothing is tested"
    assert {key: ours.of(*key) for key in clear} == {key: theirs[key] for key in clear}
    return ours


@pytest.mark.parametrize(("name", "window"), CASES)
def test_every_continuation_is_that_of_plain_passes(name, window, make_sequences, caplog):
    model = make(name, window)
    check_greedy(model, make_sequences, texts(model))
    assert ("decoded slowly" in caplog.text) == (name == "mamba")


@torch.inference_mode()
def naive_sample(model, prompts, new_tokens, seed):
    rows = prompts
    for draws in uniforms(len(prompts), new_tokens, seed).T:
        token = choose(model(input_ids=rows, use_cache=False).logits[:, -1].float(), draws, 0.95)
        rows = torch.cat([rows, token[:, None]], dim=1)
    return rows[:, prompts.shape[1] :]


@pytest.mark.parametrize(("name", "window"), [case for case in CASES if case[1] in (None, 5)])
def test_samples_are_those_of_plain_passes(name, window):
    model = make(name, window)
    prompts = torch.randint(1, VOCABULARY, (4, 7), generator=torch.Generator().manual_seed(2))
    assert torch.equal(sample(model, prompts, TOKENS - 7, seed=5), naive_sample(model, prompts, TOKENS - 7, 5))


@pytest.mark.parametrize("names", [("mistral", "gemma2"), ("gpt_neo", "mistral"), ("mamba", "mistral"), ("llama",) * 2])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_pairs_of_any_two_are_exact(names, attention, make_sequences):
    first, second = (make(name, None if name in WHOLE else 6, seed) for seed, name in enumerate(names))
    for model in (first, second):
        if model._supports_sdpa:
            model.set_attn_implementation(attention)
    model = PairModel(first, second, lambda z, memo: z - 0.5 * torch.relu(memo - z))
    check_greedy(model, make_sequences, texts(model))
    prompts = torch.randint(1, VOCABULARY, (3, 4), generator=torch.Generator().manual_seed(2))
    assert torch.equal(sample(model, prompts, 10, seed=5), naive_sample(model, prompts, 10, 5))


class Forgetful(LlamaForCausalLM):
    """Its class says that it keeps keys and values; from a cache it sees only the last few of them."""

    def forward(self, input_ids=None, past_key_values=None, **inputs):
        if past_key_values is not None and past_key_values.get_seq_length():
            seen = past_key_values.get_seq_length() + input_ids.shape[1]
            inputs["attention_mask"] = (torch.arange(seen) >= seen - 6).long().expand(len(input_ids), -1)
        return super().forward(input_ids, past_key_values=past_key_values, **inputs)


class OwnKind(LlamaForCausalLM):
    """It wants a cache of its own."""

    def forward(self, input_ids=None, past_key_values=None, **inputs):
        if past_key_values is not None:
            raise ValueError("not a cache of mine")
        return super().forward(input_ids, past_key_values=past_key_values, **inputs)


class Short(LlamaForCausalLM):
    """It leaves the cache that it was given as it was."""

    def forward(self, input_ids=None, past_key_values=None, **inputs):
        return super().forward(input_ids, **{**inputs, "use_cache": False})


@pytest.mark.parametrize("kind", [Forgetful, OwnKind, Short])
def test_a_class_whose_cache_is_wrong_is_decoded_by_plain_passes(kind, make_sequences, caplog):
    torch.manual_seed(0)
    model = kind(LlamaConfig(vocab_size=VOCABULARY, initializer_range=0.3, attn_implementation="eager", **GROUPED))
    model = model.eval()
    check_greedy(model, make_sequences, texts(model))
    assert f"{kind.__name__} is decoded slowly" in caplog.text
    prompts = torch.randint(1, VOCABULARY, (3, 4), generator=torch.Generator().manual_seed(2))
    assert torch.equal(sample(model, prompts, 10, seed=5), naive_sample(model, prompts, 10, 5))


def check_refused(model, sequences, reason):
    for choose_tokens in (greedy_choices, lambda *of: greedy_continuations(*of, [[4]] * len(sequences))):
        with pytest.raises(TrialError, match=reason):
            choose_tokens(model, sequences)


def test_a_model_that_reads_ahead_is_refused(make_sequences):
    torch.manual_seed(0)
    config = families.BertConfig(vocab_size=VOCABULARY, initializer_range=0.3, **SIZES)
    sequences = make_sequences(torch.randint(1, VOCABULARY, (2, TOKENS)).tolist())
    check_refused(families.BertLMHeadModel(config).eval(), sequences, "not a causal LM")
    config.is_decoder = True
    greedy_continuations(families.BertLMHeadModel(config).eval(), sequences, [[4]] * 2)


def test_nan_is_refused(make_sequences):
    model = make("gpt2")
    sequences = make_sequences(texts(model).tolist())
    with torch.no_grad():
        model.transformer.ln_f.weight[0] = float("nan")
    check_refused(model, sequences, "NaN")


@pytest.mark.parametrize("name", ["gpt2", "opt", "mpt"])
def test_texts_end_where_a_table_of_positions_ends(name, make_sequences):
    model = make(name, **{"max_seq_len" if name == "mpt" else "max_position_embeddings": TOKENS})
    check_greedy(model, make_sequences, texts(model))
    beyond = torch.randint(1, VOCABULARY, (2, TOKENS + 1)).tolist()
    with pytest.raises(TrialError, match=f"{TOKENS + 1} tokens"):
        greedy_continuations(model, make_sequences(beyond), [[4]] * 2)
    # The last token that is written is not read.
    assert sample(model, torch.tensor(beyond)[:, :9], TOKENS - 8, seed=0).shape == (2, TOKENS - 8)
    with pytest.raises(TrialError, match=f"{TOKENS + 1} tokens"):
        sample(model, torch.tensor(beyond)[:, :9], TOKENS - 7, seed=0)


@pytest.mark.parametrize("name", ["llama", "bloom", "falcon with ALiBi"])
def test_rotary_positions_and_alibi_go_on(name, make_sequences):
    model = make(name, **({} if name == "bloom" else {"max_position_embeddings": TOKENS - 4}))
    check_greedy(model, make_sequences, texts(model))


def test_texts_of_one_and_two_tokens(make_sequences):
    for name in ("mamba", "llama"):
        ours = greedy_continuations(make(name), make_sequences([[3], [4, 5]]), [[], [1]])
        assert len(ours.of(1, 1)) == 1
        assert ours.predicted_NT[:, 0].tolist() == [-1, -1]


def test_a_half_precision_says_its_own_limit(make_sequences):
    model = make("gpt_neo", 5)
    tokens = texts(model)
    sequences, prefixes = make_sequences(tokens.tolist()), [range(1, TOKENS)] * 3
    fp32 = greedy_continuations(model, sequences, prefixes)
    assert greedy_continuations(model.bfloat16(), sequences, prefixes).near_ties > fp32.near_ties == 0
    # By hand, of the choices along the text alone: the two best of 61 logits against a sixteenth of the largest.
    with torch.inference_mode():
        logits = model(input_ids=tokens).logits[:, :-1].float()
    best = logits.topk(2).values
    close = best[..., 0] - best[..., 1] < logits.abs().amax(-1) / 16
    assert greedy_continuations(model, sequences, [[]] * 3).near_ties == int(close.sum()) > 0


def test_of_equal_logits_the_first_is_chosen(make_sequences):
    model = GPT2LMHeadModel(GPT2Config(**OLD_SIZES, vocab_size=VOCABULARY)).eval()
    with torch.no_grad():
        model.transformer.wte.weight.zero_()
    ours = greedy_continuations(model, make_sequences([[5, 6, 7, 8]]), [[1, 2]])
    assert ours.of(0, 1) == [0, 0, 0]
    assert ours.near_ties > 0


def test_a_cache_that_was_exact_is_tried_again_at_more_tokens_and_weights_always():
    torch.manual_seed(0)
    model = Forgetful(LlamaConfig(vocab_size=VOCABULARY, initializer_range=0.3, attn_implementation="eager", **GROUPED))
    tokens = torch.randint(1, VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(2))
    assert [is_cache_exact(model.eval(), tokens[:, :length]) for length in (6, 12, 5)] == [True, False, True]
    with torch.no_grad():
        model.get_output_embeddings().weight.fill_(torch.nan)
    with pytest.raises(TrialError, match="hold NaN"):
        is_cache_exact(model, tokens[:, :5])
