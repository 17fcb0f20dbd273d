"""Stepping: one more token for many rows at once, of any causal LM, and faster of a GPT-Neo.

All live rows hold the same number of tokens (`harness.toolkit.cache` says why). A row joins by copying
the first tokens of a row that a forward pass over whole sequences has cached.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.nn import functional

from harness.contracts import Model
from harness.toolkit.cache import JoiningCache


class Stepper(Protocol):
    """Rows of one model that advance together."""

    def join(self, sources: torch.Tensor) -> None:
        """Add rows that continue these rows of the source, each with as many tokens as the live rows hold."""

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        """Feed one token to every live row and return the logits_RV that follow it."""


def stepper(model: Model, source: Any, rows: int, tokens: int, start: int) -> Stepper:
    """Return a stepper of `model` for at most `rows` rows of at most `tokens` tokens.

    Args:
        model: Any causal LM; a pair of models is stepped one by one.
        source: The cache of a forward pass over the sequences that rows will continue.
        rows: Room for so many.
        tokens: Room in each.
        start: How many tokens the first rows to join hold.
    """
    if model.config.model_type == "gpt_neo" and hasattr(model, "transformer"):
        return GPTNeoStepper(model, source.layers, rows, tokens, start)
    if hasattr(model, "halves"):
        halves = zip((model.first, model.second), model.halves(source), strict=True)
        return PairStepper([stepper(half, cache, rows, tokens, start) for half, cache in halves], model.combine)
    return CacheStepper(model, source, rows, tokens, start)


class CacheStepper:
    """Steps any model through its own forward pass, with a joining cache."""

    def __init__(self, model: Model, source: Any, rows: int, tokens: int, start: int) -> None:
        self._model = model
        self._cache = JoiningCache(source, rows, tokens, start)
        self._position = start

    def join(self, sources: torch.Tensor) -> None:
        """Add rows."""
        self._cache.join(sources)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        """Feed one token to every row."""
        position = torch.tensor([[self._position]], device=tokens_R.device)
        self._position += 1
        output = self._model(
            input_ids=tokens_R[:, None], past_key_values=self._cache, position_ids=position, use_cache=True
        )
        return output.logits[:, -1]


class PairStepper:
    """Steps two models and combines their logits."""

    def __init__(self, steppers: list[Stepper], combine: Any) -> None:
        self._steppers, self._combine = steppers, combine

    def join(self, sources: torch.Tensor) -> None:
        """Add rows to both."""
        for each in self._steppers:
            each.join(sources)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        """Feed one token to every row of both."""
        return self._combine(*(each.step(tokens_R) for each in self._steppers))  # type: ignore[no-any-return]


class GPTNeoStepper:
    """A GPT-Neo's forward pass for one token, with nothing in it that one token does not need.

    The same formulas as the model's own: no scaling of the scores, a local layer sees its window. Keys
    are kept transposed, queries, keys and values come from one product, and a local layer reads no more
    than its window. Logits differ from the model's by rounding only (tested).
    """

    def __init__(self, model: Model, source: Any, rows: int, tokens: int, start: int) -> None:
        self._model, self._source = model, source
        self._live, self._length = 0, start
        config = model.config
        self._heads, self._width = config.num_heads, config.hidden_size // config.num_heads
        weight = model.transformer.wte.weight
        self._keys = [weight.new_empty(rows, self._heads, self._width, tokens) for _ in source]
        self._values = [weight.new_empty(rows, self._heads, tokens, self._width) for _ in source]
        self._windows = [config.window_size if kind == "local" else tokens for kind in config.attention_layers]
        attentions = [layer.attn.attention for layer in model.transformer.h]
        self._projections = [torch.cat([a.q_proj.weight, a.k_proj.weight, a.v_proj.weight]) for a in attentions]

    def join(self, sources: torch.Tensor) -> None:
        """Add rows."""
        rows, held = slice(self._live, self._live + len(sources)), slice(self._length)
        for keys, values, layer in zip(self._keys, self._values, self._source, strict=True):
            keys[rows, :, :, held] = layer.keys[sources, :, held].transpose(-1, -2)
            values[rows, :, held] = layer.values[sources, :, held]
        self._live += len(sources)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        """Feed one token to every row."""
        transformer = self._model.transformer
        hidden = transformer.wte(tokens_R) + transformer.wpe.weight[self._length]
        for number, layer in enumerate(transformer.h):
            hidden = hidden + layer.attn.attention.out_proj(self._attend(number, layer.ln_1(hidden)))
            inner = functional.gelu(layer.mlp.c_fc(layer.ln_2(hidden)), approximate="tanh")
            hidden = hidden + layer.mlp.c_proj(inner)
        self._length += 1
        return self._model.lm_head(transformer.ln_f(hidden))  # type: ignore[no-any-return]

    def _attend(self, number: int, inputs: torch.Tensor) -> torch.Tensor:
        rows, end = len(inputs), self._length + 1
        query, key, value = (
            functional.linear(inputs, self._projections[number]).view(rows, 3, self._heads, -1).unbind(1)
        )
        keys, values = self._keys[number][:rows], self._values[number][:rows]
        keys[..., self._length] = key
        values[:, :, self._length] = value
        seen = slice(max(0, end - self._windows[number]), end)
        scores = torch.matmul(query.unsqueeze(2).float(), keys[..., seen].float())
        mixed = torch.matmul(scores.softmax(-1).to(values.dtype), values[:, :, seen])
        return mixed.reshape(rows, -1)
