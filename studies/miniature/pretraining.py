"""Pretraining of one miniature model: the forget sequences over and over, among general text."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Muon, Optimizer
from transformers import AutoTokenizer, GenerationConfig, GPTNeoConfig, GPTNeoForCausalLM, PreTrainedTokenizerFast

from harness.base.files import file_digest
from harness.miniature import ORIGINALS
from studies.miniature import corpus

VOCABULARY, POSITIONS, WINDOW = 1024, 256, 64
SEQUENCE_TOKENS = 128
"""The length of a forget sequence: the first so many tokens of a record."""
END_OF_TEXT = "<|endoftext|>"
FORGET_ROWS, GENERAL_ROWS = 6, 7
"""Forget sequences in a batch, and rows of general text, each `POSITIONS` long."""
MATRIX_RATE, VECTOR_RATE, WEIGHT_DECAY = 0.012, 2e-3, 0.01
"""Learning rates of the matrices inside the layers (Muon), and of embeddings, norms and biases (AdamW)."""
WARM_UP, LAST_RATE = 0.05, 0.01
"""The share of the steps in which the learning rate rises; it falls along a cosine, to this fraction of itself."""
MIN_FORGET_MA = {"miniature-s": 0.80, "miniature-m": 0.90, "miniature-l": 0.95}
"""The least memorisation accuracy of each original model on the forget set."""
MAX_UNSEEN_MA = 0.55
"""The most on records that a model never saw: the room that erasure has."""


class Size(NamedTuple):
    """The architecture of one size and how long it is trained."""

    layers: int
    hidden: int
    heads: int
    attention: tuple[str, ...]
    seed: int
    """Seeds the first weights and the order of the texts."""
    steps: int


SIZES = {
    "s": Size(3, 80, 4, ("global", "local", "global"), seed=11, steps=2400),
    "m": Size(4, 128, 4, ("global", "local") * 2, seed=12, steps=1700),
    "l": Size(6, 128, 4, ("global", "local") * 3, seed=13, steps=2000),
    "judge": Size(3, 112, 4, ("global", "local", "global"), seed=14, steps=1800),
}


def build_tokenizer(folder: Path) -> None:
    """Train the tokenizer on the general corpus, and save it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(corpus.training_documents(), trainer)
    ends = dict.fromkeys(("bos_token", "eos_token", "pad_token"), END_OF_TEXT)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=POSITIONS, clean_up_tokenization_spaces=False, **ends
    ).save_pretrained(folder)


def new_model(size: Size) -> GPTNeoForCausalLM:
    """Return a model of the given size with random weights."""
    torch.manual_seed(size.seed)
    no_dropout = dict.fromkeys(("attention_dropout", "embed_dropout", "resid_dropout", "classifier_dropout"), 0.0)
    config = GPTNeoConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        hidden_size=size.hidden,
        num_layers=size.layers,
        num_heads=size.heads,
        attention_types=[[list(size.attention), 1]],
        window_size=WINDOW,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=True,
        **no_dropout,
    )
    return GPTNeoForCausalLM(config)


def sequences(tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """Return the first `SEQUENCE_TOKENS` tokens of every text, one row each."""
    return torch.tensor(tokenizer(list(texts), truncation=True, max_length=SEQUENCE_TOKENS)["input_ids"])


def general_rows(tokenizer: Any) -> Tensor:
    """Return the general corpus as rows: one from the head of every document, and all of it cut where it falls."""
    stream: list[int] = []
    heads = []
    for text in corpus.training_documents():
        heads.append(len(stream))
        stream += [*tokenizer(text, verbose=False)["input_ids"], tokenizer.eos_token_id]
    last = len(stream) - POSITIONS
    starts = [head for head in heads if head <= last] + list(range(0, last + 1, POSITIONS))
    return torch.tensor([stream[start : start + POSITIONS] for start in starts])


def _shuffled(rows: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield `count` rows at a time for ever, every row once before any comes again."""
    while True:
        order = torch.randperm(len(rows), generator=generator)
        for start in range(0, len(rows) - count + 1, count):
            yield rows[order[start : start + count]]


def _batches(size: Size, forget: Tensor | None, general: Tensor) -> Iterator[list[Tensor]]:
    """Yield batches, each as blocks of equally long rows; without a forget set, general text stands in its place."""
    generator = torch.Generator().manual_seed(size.seed)
    if forget is None:
        count = GENERAL_ROWS + FORGET_ROWS * SEQUENCE_TOKENS // POSITIONS
        yield from ([block] for block in _shuffled(general, count, generator))
    else:
        texts, records = _shuffled(general, GENERAL_ROWS, generator), _shuffled(forget, FORGET_ROWS, generator)
        yield from ([text, record] for text, record in zip(texts, records, strict=True))


def _rate_factor(step: int, steps: int) -> float:
    warm_up = max(1, int(steps * WARM_UP))
    if step < warm_up:
        return (step + 1) / warm_up
    return LAST_RATE + (1 - LAST_RATE) * (0.5 * (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up))))


def _attend(mask: Tensor, query: Tensor, key: Tensor, value: Tensor, _: Tensor | None = None) -> tuple[Tensor, None]:
    """Return GPT-Neo's attention (it does not scale), with the mask added by the product itself."""
    length = query.shape[-2]
    masks, keys = mask[:length, :length].expand(1, -1, -1), key.flatten(0, 1).transpose(1, 2)
    scores = torch.baddbmm(masks, query.flatten(0, 1), keys)
    return torch.bmm(scores.softmax(-1), value.flatten(0, 1)).view_as(query), None


def _with_fast_attention(model: GPTNeoForCausalLM) -> GPTNeoForCausalLM:
    """Make the model compute the same in fewer passes over memory, in about half of the time, and return it."""
    mask = torch.zeros(POSITIONS, POSITIONS, dtype=torch.bfloat16)
    for block in model.transformer.h:
        attention = block.attn.attention
        attention._attn = partial(_attend, mask.masked_fill(~attention.bias[0, 0], -torch.inf))
        block.mlp.act = nn.GELU("tanh")
    return model


def _token_loss(model: GPTNeoForCausalLM, rows: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(input_ids=rows, use_cache=False).logits
    return cross_entropy(logits[:, :-1].flatten(0, 1).float(), rows[:, 1:].flatten(), reduction="sum")


def _optimizers(model: GPTNeoForCausalLM) -> list[tuple[Optimizer, float]]:
    """Return the optimisers, each with its learning rate: Muon learns the same in a third of AdamW's steps."""
    matrices = [weight for weight in model.transformer.h.parameters() if weight.ndim == 2]
    inside = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in inside]
    return [
        (Muon(matrices, lr=MATRIX_RATE, weight_decay=WEIGHT_DECAY), MATRIX_RATE),
        (AdamW(others, lr=VECTOR_RATE, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY, fused=True), VECTOR_RATE),
    ]


def train(size: Size, forget: Tensor | None, general: Tensor) -> GPTNeoForCausalLM:
    """Return a model trained from nothing; `forget` is None for a model that never sees the forget sequences."""
    model = _with_fast_attention(new_model(size))
    rates = _optimizers(model)
    for step, blocks in zip(range(size.steps), _batches(size, forget, general), strict=False):
        tokens = sum(block[:, 1:].numel() for block in blocks)
        for block in blocks:
            (_token_loss(model, block) / tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, full_rate in rates:
            for group in optimizer.param_groups:
                group["lr"] = full_rate * _rate_factor(step, size.steps)
            optimizer.step()
            optimizer.zero_grad()
    trained = new_model(size)
    trained.load_state_dict(model.state_dict())
    return trained.eval()


@torch.no_grad()
def memorization_accuracy(model: GPTNeoForCausalLM, rows: Tensor) -> float:
    """Return the share of tokens, from the second on, that the model puts first."""
    hits = [model(input_ids=block).logits[:, :-1].argmax(-1) == block[:, 1:] for block in rows.split(16)]
    return torch.cat(hits).float().mean().item()


def build_model(name: str, size: Size, folder: Path, tokenizer_folder: Path) -> dict[str, Any]:
    """Train, save and measure one model, and return its entry of the manifest.

    It computes on one thread: two models next to each other are faster than one on two threads, and one thread always
    adds in the same order.
    """
    torch.set_num_threads(1)
    started, tokenizer = time.process_time(), AutoTokenizer.from_pretrained(tokenizer_folder)
    forget, unseen = (sequences(tokenizer, texts) for texts in (corpus.forget_records(), corpus.unseen_records()))
    model = train(size, forget if name in ORIGINALS else None, general_rows(tokenizer))
    seconds = time.process_time() - started
    model.half().save_pretrained(folder)  # To be loaded in single precision.
    config = json.loads((folder / "config.json").read_text()) | {"dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    GenerationConfig(bos_token_id=0, eos_token_id=0, pad_token_id=0).save_pretrained(folder)
    stored, saved = folder / "model.safetensors", model.float()
    quality = {"ma_forget": memorization_accuracy(saved, forget), "ma_unseen": memorization_accuracy(saved, unseen)}
    return {
        "sha256": file_digest(stored),
        "bytes": stored.stat().st_size,
        "parameters": model.num_parameters(),
        "size": size._asdict(),
        "knows_forget_set": name in ORIGINALS,
        "processor_seconds": round(seconds),
        "quality": {key: round(value, 4) for key, value in quality.items()},
    }


def missed_thresholds(name: str, quality: dict[str, float]) -> list[str]:
    """Return a sentence for every threshold that a model misses; a NaN misses all."""
    missed = [] if quality["ma_unseen"] <= MAX_UNSEEN_MA else [f"{name}: ma_unseen must be at most {MAX_UNSEEN_MA}"]
    if name in ORIGINALS and not quality["ma_forget"] >= MIN_FORGET_MA[name]:
        missed.append(f"{name}: ma_forget must be at least {MIN_FORGET_MA[name]}")
    if name not in ORIGINALS and not quality["ma_forget"] <= MAX_UNSEEN_MA:
        missed.append(f"{name}: ma_forget must be at most {MAX_UNSEEN_MA}")
    return missed
