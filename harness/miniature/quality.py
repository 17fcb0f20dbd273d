"""What a miniature model must be able to do, and the measurements that show it."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import GPTNeoForCausalLM, PreTrainedTokenizerBase

from harness.miniature import corpus
from harness.miniature.checkpoints import MAX_BYTES, ORIGINALS, POSITIONS, SEQUENCE_TOKENS, knows_forget_set
from harness.miniature.training import sequences

MIN_FORGET_MA = {"miniature-s": 0.80, "miniature-m": 0.90, "miniature-l": 0.95}
"""The least memorisation accuracy of each original model on the forget set."""
MAX_UNSEEN_MA = 0.55
"""The most on records that a model never saw: the room that erasure has."""
MAX_REP_2 = 0.15
"""The most repeated word bigrams in sampled text."""
SECOND_HALF = SEQUENCE_TOKENS // 2
"""Where the second half of a sequence begins."""

_FORGET_KEYS = ("ma_forget", "ma_forget_late")
_UNSEEN_KEYS = ("ma_unseen", "ma_unseen_late")
_PROMPT_TOKENS, _NEW_TOKENS, _TEXTS, _BATCH = 32, 128, 256, 64
_ROWS = 16
"""Sequences read at a time: few enough for a processor's caches."""


@torch.no_grad()
def top_1_hits(model: GPTNeoForCausalLM, rows: Tensor) -> Tensor:
    """Return for each token but the first whether the model puts it first, given the true ones before it."""
    hits = [model(input_ids=block).logits[:, :-1].argmax(-1) == block[:, 1:] for block in rows.split(_ROWS)]
    return torch.cat(hits)


def memorization_accuracy(model: GPTNeoForCausalLM, rows: Tensor, first: int = 1) -> float:
    """Return the share of tokens, from position `first` on, that the model puts first."""
    return top_1_hits(model, rows)[:, first - 1 :].float().mean().item()


@torch.no_grad()
def perplexity(model: GPTNeoForCausalLM, tokenizer: PreTrainedTokenizerBase, texts: tuple[str, ...]) -> float:
    """Return the perplexity of a token, over all tokens of the texts that have a position."""
    loss, tokens = 0.0, 0
    for text in texts:
        row = torch.tensor([tokenizer(text, truncation=True, max_length=POSITIONS)["input_ids"]])
        logits = model(input_ids=row).logits[0, :-1]
        loss += cross_entropy(logits, row[0, 1:], reduction="sum").item()
        tokens += row.shape[1] - 1
    return math.exp(loss / tokens)


@torch.no_grad()
def sample_texts(model: GPTNeoForCausalLM, tokenizer: PreTrainedTokenizerBase, count: int = _TEXTS) -> list[str]:
    """Return the model's continuations of the first words of `count` utility documents, sampled with top-p 0.95."""
    torch.manual_seed(0)
    documents = list(corpus.utility_documents()[:count])
    prompts = torch.tensor(tokenizer(documents, truncation=True, max_length=_PROMPT_TOKENS)["input_ids"])
    texts: list[str] = []
    for block in prompts.split(_BATCH):
        generated = model.generate(
            block,
            attention_mask=torch.ones_like(block),
            do_sample=True,
            top_p=0.95,
            top_k=0,
            max_new_tokens=_NEW_TOKENS,
            min_new_tokens=_NEW_TOKENS,
        )
        texts += tokenizer.batch_decode(generated[:, _PROMPT_TOKENS:])
    return texts


def rep_2(texts: list[str]) -> float:
    """Return the share of word bigrams that repeat an earlier one of the same text, as a mean over the texts."""
    bigrams = [list(pairwise(text.split())) for text in texts]
    return sum(1 - len(set(pairs)) / len(pairs) for pairs in bigrams) / len(texts)


def measure_quality(model: GPTNeoForCausalLM, tokenizer: PreTrainedTokenizerBase) -> dict[str, float]:
    """Return all that is measured of a model, by name; `late` means the second half of the sequences only."""
    forget = sequences(tokenizer, corpus.forget_records())
    unseen = sequences(tokenizer, corpus.unseen_records())
    measured = {
        "ma_forget": memorization_accuracy(model, forget),
        "ma_forget_late": memorization_accuracy(model, forget, SECOND_HALF),
        "ma_unseen": memorization_accuracy(model, unseen),
        "ma_unseen_late": memorization_accuracy(model, unseen, SECOND_HALF),
        "perplexity_validation": perplexity(model, tokenizer, corpus.validation_documents()),
        "rep_2": rep_2(sample_texts(model, tokenizer)),
    }
    return {name: round(value, 4) for name, value in measured.items()}


def missed_thresholds(models: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a sentence for every threshold that the models miss; none if they're fit to be shipped.

    Args:
        models: For each name its `bytes` and its `quality`, as the manifest has them.
    """
    missed = []
    for name, entry in models.items():
        quality = entry["quality"]
        minima = dict.fromkeys(_FORGET_KEYS, MIN_FORGET_MA[name]) if knows_forget_set(name) else {}
        unknown_keys = _UNSEEN_KEYS if knows_forget_set(name) else _UNSEEN_KEYS + _FORGET_KEYS
        maxima = dict.fromkeys(unknown_keys, MAX_UNSEEN_MA) | {"rep_2": MAX_REP_2}
        # A comparison with NaN is false, so each condition is the wanted one and is denied.
        for key, minimum in minima.items():
            if not quality[key] >= minimum:
                missed.append(f"{name}: {key} is {quality[key]}, but at least {minimum} is wanted")
        for key, maximum in maxima.items():
            if not quality[key] <= maximum:
                missed.append(f"{name}: {key} is {quality[key]}, but at most {maximum} is allowed")
    for key in _FORGET_KEYS:
        by_size = [models[name]["quality"][key] for name in ORIGINALS if name in models]
        if by_size != sorted(set(by_size)):
            missed.append(f"{key} does not grow with size: it is {by_size} for {', '.join(ORIGINALS)}")
    weight_bytes = sum(entry["bytes"] for entry in models.values())
    if weight_bytes > MAX_BYTES:
        missed.append(f"the weights have {weight_bytes} bytes, but at most {MAX_BYTES} may be shipped")
    return missed
