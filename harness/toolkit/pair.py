"""A causal LM whose logits combine those of two models, with both caches in one cache object."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_outputs import CausalLMOutputWithPast

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(logits of the first, logits of the second) to the logits that are decoded from."""


class PairModel(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """Two causal LMs with one vocabulary, used as one: `generate`, lm-eval and our decoders run on it."""

    _supports_cache_class = True

    def __init__(self, first: PreTrainedModel, second: PreTrainedModel, combine: Combine) -> None:
        super().__init__(copy.deepcopy(first.config))
        self.first = first
        self.second = second
        self.combine = combine
        self.generation_config = copy.deepcopy(first.generation_config)
        self.eval()

    def get_input_embeddings(self) -> torch.nn.Module:
        """Return the first model's embeddings."""
        return self.first.get_input_embeddings()

    def tie_weights(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: each of the two ties its own."""

    def forward(
        self,
        input_ids: torch.Tensor,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        **inputs: Any,
    ) -> CausalLMOutputWithPast:
        """Return the combined logits; the cache's first half of layers is the first model's."""
        caches: list[Cache | None] = [None, None]
        if use_cache or past_key_values is not None:
            past_key_values = DynamicCache(config=self.config) if past_key_values is None else past_key_values
            caches = list(self.halves(past_key_values))
        inputs.pop("return_dict", None)
        logits = [
            model(input_ids=input_ids, past_key_values=cache, use_cache=cache is not None, **inputs).logits
            for model, cache in zip((self.first, self.second), caches, strict=True)
        ]
        return CausalLMOutputWithPast(logits=self.combine(*logits), past_key_values=past_key_values)

    def halves(self, cache: Cache) -> tuple[Cache, Cache]:
        """Return two caches that share their layers with `cache`, which is widened for the second at first use."""
        one = len(DynamicCache(config=self.first.config).layers)
        if len(cache.layers) == one:
            cache.layers.extend(DynamicCache(config=self.second.config).layers)
        return Cache(layers=cache.layers[:one]), Cache(layers=cache.layers[one:])
