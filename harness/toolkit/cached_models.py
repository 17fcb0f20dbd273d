"""Decoding on transformers' own classes: pairs of models, caches of rows, and a faster GPT-Neo."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationMixin, GPTNeoForCausalLM, PreTrainedModel
from transformers.activations import NewGELUActivation
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

from harness.contracts import Model
from harness.errors import TrialError

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(first logits, second logits) to logits."""


class PairModel(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """Two causal LMs with one vocabulary, decoded as one."""

    _supports_cache_class = True

    def __init__(self, first: PreTrainedModel, second: PreTrainedModel, combine: Combine) -> None:
        super().__init__(copy.deepcopy(first.config))
        self.first = first
        self.second = second
        self.combine = combine
        self.generation_config = copy.deepcopy(first.generation_config)
        self.eval()

    def get_input_embeddings(self) -> torch.nn.Module:
        embeddings: torch.nn.Module = self.first.get_input_embeddings()
        return embeddings

    def tie_weights(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: each model ties its own."""

    def forward(
        self,
        input_ids: torch.Tensor,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        **inputs: Any,
    ) -> CausalLMOutputWithPast:
        """Return the combined logits; a cache has the first model's layers, then the second's.

        Raises:
            TrialError: One of the two models ignores caches.
        """
        caches: list[Cache | None] = [None, None]
        if use_cache or past_key_values is not None:
            if not takes_cache(self):
                names = f"{type(self.first).__name__} and {type(self.second).__name__}"
                raise TrialError(f"{names} cannot both be given a cache: call the pair with use_cache=False.")
            past_key_values = DynamicCache(config=self.config) if past_key_values is None else past_key_values
            caches = list(self.halves(past_key_values))
        inputs.pop("return_dict", None)
        logits = []
        for model, cache in zip((self.first, self.second), caches, strict=True):
            output = model(input_ids=input_ids, past_key_values=cache, use_cache=cache is not None, **inputs)
            # A difference of rounded logits is rounded more.
            logits.append(output.logits.float() if output.logits.is_floating_point() else output.logits)
        return CausalLMOutputWithPast(logits=self.combine(*logits), past_key_values=past_key_values)

    def halves(self, cache: Cache) -> tuple[Cache, Cache]:
        """Return a cache for each model, which share layers with `cache`."""
        first, second = cache_layers(self.first), cache_layers(self.second)
        cache.layers.extend([*first, *second][len(cache.layers) :])
        return Cache(layers=cache.layers[: len(first)]), Cache(layers=cache.layers[len(first) :])


def cache_layers(model: PreTrainedModel) -> list[Any]:
    """Return empty layers of the model's own kinds of cache."""
    if isinstance(model, PairModel):
        return [*cache_layers(model.first), *cache_layers(model.second)]
    return list(DynamicCache(config=model.config).layers)


def takes_cache(model: PreTrainedModel) -> bool:
    """Return whether the model, or both of a pair, takes `past_key_values`."""
    if isinstance(model, PairModel):
        return takes_cache(model.first) and takes_cache(model.second)
    return "past_key_values" in inspect.signature(model.forward).parameters


class JoiningLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer: R rows of at most T tokens."""

    def __init__(self, keys_BHTD: torch.Tensor, values_BHTD: torch.Tensor, rows: int, tokens: int, start: int) -> None:
        super().__init__()
        self._source_keys, self._source_values = keys_BHTD, values_BHTD
        _, heads, _, width = keys_BHTD.shape
        self.keys = keys_BHTD.new_empty(rows, heads, tokens, width)
        self.values = values_BHTD.new_empty(rows, heads, tokens, values_BHTD.shape[-1])
        self.is_initialized = True
        self.live = 0
        self.length = start

    def join(self, sources: torch.Tensor) -> None:
        """Add rows that continue source rows from their first `length` tokens."""
        rows = slice(self.live, self.live + len(sources))
        self.keys[rows, :, : self.length] = self._source_keys[sources, :, : self.length]
        self.values[rows, :, : self.length] = self._source_values[sources, :, : self.length]
        self.live += len(sources)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        end = self.length + key_states.shape[-2]
        self.keys[: self.live, :, self.length : end] = key_states
        self.values[: self.live, :, self.length : end] = value_states
        self.length = end
        return self.keys[: self.live, :, :end], self.values[: self.live, :, :end]

    def get_seq_length(self) -> int:
        return self.length


class JoiningCache(Cache):  # type: ignore[misc]
    """Joining layers of a model, made from the cache of a forward pass."""

    def __init__(self, source: Cache, rows: int, tokens: int, start: int) -> None:
        super().__init__(
            layers=[JoiningLayer(layer.keys, layer.values, rows, tokens, start) for layer in source.layers]
        )

    def join(self, sources: torch.Tensor) -> None:
        for layer in self.layers:
            layer.join(sources)


class BranchingLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of B beginnings, and the beginning of each row. Updates are not stored."""

    def __init__(self, keys_BHTD: torch.Tensor, values_BHTD: torch.Tensor, sources: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self._sources = keys_BHTD, values_BHTD, sources
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return each row's beginning followed by the new tokens."""
        keys = torch.cat([self.keys[self._sources], key_states], dim=-2)
        return keys, torch.cat([self.values[self._sources], value_states], dim=-2)


class BranchingCache(Cache):  # type: ignore[misc]
    """Branching layers of a model, after a pass over beginnings of one length.

    Passes leave it unchanged; one layer of all rows is in memory at a time.
    """

    def __init__(self, source: Cache, sources: torch.Tensor) -> None:
        super().__init__(layers=[BranchingLayer(layer.keys, layer.values, sources) for layer in source.layers])


def is_plain_gpt_neo(model: Model) -> bool:
    """Return whether `GPTNeoStepper` computes this model's function: this exact class and modules, in fp32.

    In bf16 it rounds differently: 6.5 % of a random model's greedy choices change (6 layers, width 256).
    """
    if type(model) is not GPTNeoForCausalLM or model.training:
        return False
    attentions = [layer.attn.attention for layer in model.transformer.h]
    projections = [linear for a in attentions for linear in (a.q_proj, a.k_proj, a.v_proj)]
    return (
        all(type(attention) is GPTNeoSelfAttention for attention in attentions)
        and all(type(linear) is nn.Linear and linear.bias is None for linear in projections)
        and all(weight.dtype == torch.float32 for weight in model.parameters())
        and not torch.is_autocast_enabled(model.device.type)
        and not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    )


class GPTNeoStepper:
    """Steps a plain GPT-Neo with its own formulas.

    Keys are stored transposed, and a local layer reads only its window. Logits differ only by rounding (tested).
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
        # Of GPT-Neo's usual activation the kernel, which takes a third of the time.
        self._activations = [
            partial(functional.gelu, approximate="tanh") if type(layer.mlp.act) is NewGELUActivation else layer.mlp.act
            for layer in model.transformer.h
        ]

    def join(self, sources: torch.Tensor) -> None:
        rows, held = slice(self._live, self._live + len(sources)), slice(self._length)
        for keys, values, layer in zip(self._keys, self._values, self._source, strict=True):
            keys[rows, :, :, held] = layer.keys[sources, :, held].transpose(-1, -2)
            values[rows, :, held] = layer.values[sources, :, held]
        self._live += len(sources)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        transformer = self._model.transformer
        hidden = transformer.wte(tokens_R) + transformer.wpe.weight[self._length]
        for number, layer in enumerate(transformer.h):
            hidden = hidden + layer.attn.attention.out_proj(self._attend(number, layer.ln_1(hidden)))
            inner = self._activations[number](layer.mlp.c_fc(layer.ln_2(hidden)))
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
        scores = torch.matmul(query.unsqueeze(2), keys[..., seen])
        mixed = torch.matmul(scores.softmax(-1), values[:, :, seen])
        return mixed.reshape(rows, -1)
