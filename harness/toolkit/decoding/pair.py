"""A causal LM whose logits combine those of two models, with both caches in one cache object."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_outputs import CausalLMOutputWithPast

from harness.errors import TrialError

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
        embeddings: torch.nn.Module = self.first.get_input_embeddings()
        return embeddings

    def tie_weights(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: each of the two ties its own."""

    def forward(
        self,
        input_ids: torch.Tensor,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        **inputs: Any,
    ) -> CausalLMOutputWithPast:
        """Return the combined logits; the cache's first half of layers is the first model's.

        Raises:
            TrialError: A cache is asked for, and one of the two would ignore it.
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
            of_model = model(input_ids=input_ids, past_key_values=cache, use_cache=cache is not None, **inputs).logits
            # A difference of rounded logits is rounded more.
            logits.append(of_model.float() if of_model.is_floating_point() else of_model)
        return CausalLMOutputWithPast(logits=self.combine(*logits), past_key_values=past_key_values)

    def halves(self, cache: Cache) -> tuple[Cache, Cache]:
        """Return two caches that share their layers with `cache`, which is widened for the second at first use."""
        first, second = cache_layers(self.first), cache_layers(self.second)
        cache.layers.extend([*first, *second][len(cache.layers) :])
        return Cache(layers=cache.layers[: len(first)]), Cache(layers=cache.layers[len(first) :])


def cache_layers(model: PreTrainedModel) -> list[Any]:
    """Return new, empty layers of the kinds that a model's own cache has; those of a pair one after the other."""
    if isinstance(model, PairModel):
        return [*cache_layers(model.first), *cache_layers(model.second)]
    return list(DynamicCache(config=model.config).layers)


def takes_cache(model: PreTrainedModel) -> bool:
    """Return whether a model, or both of a pair, can be given what it kept under the name `past_key_values`."""
    if isinstance(model, PairModel):
        return takes_cache(model.first) and takes_cache(model.second)
    return "past_key_values" in inspect.signature(model.forward).parameters
