"""Decoding on transformers' own classes: pairs of models, and caches of rows."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from harness.errors import TrialError

Combine = Callable[[Tensor, Tensor], Tensor]
"""(first logits, second logits) to logits."""


class PairModel(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """Two causal LMs with one vocabulary, decoded as one."""

    _supports_sdpa = True  # Each half chose its attention when it was loaded.

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True

    def __init__(self, first: PreTrainedModel, second: PreTrainedModel, combine: Combine) -> None:
        super().__init__(copy.deepcopy(first.config))
        self.first, self.second, self.combine = first, second, combine
        self.generation_config = copy.deepcopy(first.generation_config)
        self.eval()

    def get_input_embeddings(self) -> nn.Module:
        embeddings: nn.Module = self.first.get_input_embeddings()
        return embeddings

    def tie_weights(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: each model ties its own."""

    def forward(
        self,
        input_ids: Tensor,
        past_key_values: Cache | None = None,
        use_cache: bool = False,
        position_ids: Tensor | None = None,  # Named, so that `generate` makes them of a padded batch's mask.
        **inputs: Any,
    ) -> CausalLMOutputWithPast:
        """Return the combined logits; a cache has the first model's layers, then the second's."""
        if position_ids is not None:
            inputs["position_ids"] = position_ids
        caches: list[Cache | None] = [None, None]
        if use_cache or past_key_values is not None:
            if not takes_cache(self):
                raise TrialError("one of the pair's models takes no cache: call the pair with use_cache=False.")
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

    def __init__(self, keys_BHTD: Tensor, values_BHTD: Tensor, rows: int, tokens: int, start: int) -> None:
        super().__init__()
        self._source_keys, self._source_values = keys_BHTD, values_BHTD
        _, heads, _, width = keys_BHTD.shape
        self.keys = keys_BHTD.new_empty(rows, heads, tokens, width)
        self.values = values_BHTD.new_empty(rows, heads, tokens, values_BHTD.shape[-1])
        self.is_initialized = True
        self.live = 0
        self.length = start

    def join(self, sources: Tensor) -> None:
        """Add rows that continue source rows from their first `length` tokens."""
        rows = slice(self.live, self.live + len(sources))
        self.keys[rows, :, : self.length] = self._source_keys[sources, :, : self.length]
        self.values[rows, :, : self.length] = self._source_values[sources, :, : self.length]
        self.live += len(sources)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        start, self.length = self.length, self.length + key_states.shape[-2]
        keys, values = self.keys[: self.live, :, : self.length], self.values[: self.live, :, : self.length]
        keys[:, :, start:], values[:, :, start:] = key_states, value_states
        return keys, values

    def get_seq_length(self) -> int:
        return self.length
