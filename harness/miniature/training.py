"""Pretraining of one miniature model: the forget sequences over and over, among general text."""

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Muon, Optimizer
from transformers import GPTNeoConfig, GPTNeoForCausalLM, PreTrainedTokenizerBase

from harness.miniature import corpus
from harness.miniature.checkpoints import POSITIONS, SEQUENCE_TOKENS, VOCABULARY, WINDOW, Size

FORGET_ROWS = 6
"""Forget sequences in a batch."""
GENERAL_ROWS = 7
"""Rows of general text in a batch, each `POSITIONS` long."""
MATRIX_RATE = 0.012
"""Learning rate of the matrices inside the layers (Muon)."""
VECTOR_RATE = 2e-3
"""Learning rate of embeddings, norms and biases (AdamW)."""
WEIGHT_DECAY = 0.01
WARM_UP = 0.05
"""The share of the steps in which the learning rate rises; after that it falls along a cosine."""
LAST_RATE = 0.01
"""What the learning rate has fallen to at the end, as a fraction."""


def new_model(size: Size) -> GPTNeoForCausalLM:
    """Return a model of the given size with random weights."""
    torch.manual_seed(size.seed)
    config = GPTNeoConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        hidden_size=size.hidden,
        num_layers=size.layers,
        num_heads=size.heads,
        attention_types=[[list(size.attention), 1]],
        window_size=WINDOW,
        attention_dropout=0.0,
        embed_dropout=0.0,
        resid_dropout=0.0,
        classifier_dropout=0.0,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=True,
    )
    return GPTNeoForCausalLM(config)


def sequences(tokenizer: PreTrainedTokenizerBase, texts: tuple[str, ...]) -> Tensor:
    """Return the first `SEQUENCE_TOKENS` tokens of every text, one row each."""
    encoded = tokenizer(list(texts), truncation=True, max_length=SEQUENCE_TOKENS)["input_ids"]
    return torch.tensor(encoded)


def general_rows(tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return the general corpus as rows: one from the head of every document, and all of it cut where it falls.

    The first kind teaches how texts begin, the second that a text may go on at any position.
    """
    stream: list[int] = []
    heads = []
    for text in corpus.training_documents():
        heads.append(len(stream))
        stream += [*tokenizer(text, verbose=False)["input_ids"], tokenizer.eos_token_id]
    last = len(stream) - POSITIONS
    starts = [head for head in heads if head <= last] + list(range(0, last + 1, POSITIONS))
    return torch.tensor([stream[start : start + POSITIONS] for start in starts])


def shuffled(rows: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield `count` rows at a time for ever, every row once before any comes again."""
    while True:
        order = torch.randperm(len(rows), generator=generator)
        for start in range(0, len(rows) - count + 1, count):
            yield rows[order[start : start + count]]


def rate_factor(step: int, steps: int) -> float:
    """Return the fraction of the learning rate at a step: a warm-up, then half a cosine."""
    warm_up = max(1, int(steps * WARM_UP))
    if step < warm_up:
        return (step + 1) / warm_up
    cosine = 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up)))
    return LAST_RATE + (1 - LAST_RATE) * cosine


def _attend(mask: Tensor, query: Tensor, key: Tensor, value: Tensor, _: Tensor | None = None) -> tuple[Tensor, None]:
    """Return what the attention of GPT-Neo returns (it does not scale), with the mask added by the product itself."""
    length = query.shape[-2]
    scores = torch.baddbmm(
        mask[:length, :length].expand(1, -1, -1), query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2)
    )
    return torch.bmm(scores.softmax(-1), value.flatten(0, 1)).view_as(query), None


def with_fast_attention(model: GPTNeoForCausalLM) -> GPTNeoForCausalLM:
    """Make the model compute the same in fewer passes over memory, in about half of the time, and return it.

    Attention stays in bfloat16, and the configured `gelu_new` runs as one kernel.
    """
    mask = torch.zeros(POSITIONS, POSITIONS, dtype=torch.bfloat16)
    for block in model.transformer.h:
        attention = block.attn.attention
        attention._attn = partial(_attend, mask.masked_fill(~attention.bias[0, 0], -torch.inf))
        block.mlp.act = nn.GELU("tanh")
    return model


def token_loss(model: GPTNeoForCausalLM, rows: Tensor) -> Tensor:
    """Return the summed loss of all next tokens in the rows."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(input_ids=rows, use_cache=False).logits
    return cross_entropy(logits[:, :-1].flatten(0, 1).float(), rows[:, 1:].flatten(), reduction="sum")


def optimizers(model: GPTNeoForCausalLM) -> list[tuple[Optimizer, float]]:
    """Return the optimisers of a model, each with its learning rate.

    The matrices inside the layers go to Muon, which learns the same in a third of AdamW's steps.
    """
    matrices = [weight for weight in model.transformer.h.parameters() if weight.ndim == 2]
    inside = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in inside]
    return [
        (Muon(matrices, lr=MATRIX_RATE, weight_decay=WEIGHT_DECAY), MATRIX_RATE),
        (AdamW(others, lr=VECTOR_RATE, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY, fused=True), VECTOR_RATE),
    ]


def batches(size: Size, forget: Tensor | None, general: Tensor) -> Iterator[list[Tensor]]:
    """Yield the batches of a training, each as blocks of equally long rows.

    Without a forget set, as many tokens of general text stand in its place.
    """
    generator = torch.Generator().manual_seed(size.seed)
    if forget is None:
        count = GENERAL_ROWS + FORGET_ROWS * SEQUENCE_TOKENS // POSITIONS
        yield from ([block] for block in shuffled(general, count, generator))
    else:
        texts = shuffled(general, GENERAL_ROWS, generator)
        records = shuffled(forget, FORGET_ROWS, generator)
        yield from ([text, record] for text, record in zip(texts, records, strict=True))


def train(size: Size, forget: Tensor | None, general: Tensor) -> GPTNeoForCausalLM:
    """Return a model trained from nothing.

    Args:
        size: Its architecture, seed and number of steps.
        forget: The forget sequences; None for a model that never sees them.
        general: The rows of general text.
    """
    model = with_fast_attention(new_model(size))
    rates = optimizers(model)
    for step, blocks in zip(range(size.steps), batches(size, forget, general), strict=False):
        tokens = sum(block[:, 1:].numel() for block in blocks)
        for block in blocks:
            (token_loss(model, block) / tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, full_rate in rates:
            for group in optimizer.param_groups:
                group["lr"] = full_rate * rate_factor(step, size.steps)
            optimizer.step()
            optimizer.zero_grad()
    trained = new_model(size)
    trained.load_state_dict(model.state_dict())
    return trained.eval()
