"""Precision of logits, and steppers that add one token to many rows."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, TypeAlias
from weakref import WeakKeyDictionary

import torch

from harness.contracts import Model
from harness.errors import TrialError
from harness.models.loading import longest_context, reads_beyond
from harness.toolkit.device import count_vocabulary, rows_at_once

NEAR_TIE = 1e-4
"""Margin of fp32 logits below which batch shapes may change a greedy choice."""
HALF_NEAR_TIE_STEPS = 8
"""For bf16 and fp16, in steps of the precision at the largest logit."""
ROUNDING = 2e-4
"""Largest difference of two computations of an fp32 logit, as a share of the largest logit."""
HALF_ROUNDING_STEPS = 16
"""For bf16 and fp16, in steps of the precision."""


class LogitPrecision(NamedTuple):
    """Tolerances of logits in one dtype.

    With and without a cache (five families, 128 tokens), choices with margins to 1.9 steps of the precision at the
    largest logit differ in bf16, and logits by 6.7; in fp16 3.5 and 10.3.
    """

    dtype: torch.dtype

    @classmethod
    def of(cls, model: Model, logits: torch.Tensor) -> Self:
        """Return the coarsest precision among weights and logits."""
        floats = {tensor.dtype for tensor in (*model.parameters(), logits) if tensor.is_floating_point()}
        return cls(max(floats, key=lambda dtype: torch.finfo(dtype).eps))

    @property
    def is_half(self) -> bool:
        return torch.finfo(self.dtype).eps > torch.finfo(torch.float32).eps

    def near_tie(self, logits: torch.Tensor) -> torch.Tensor | float:
        """Return the margins of near ties for logits ... x V: ... of them, or one for all."""
        if not self.is_half:
            return NEAR_TIE
        # Without a copy of the logits, which outweigh all else.
        largest = torch.maximum(logits.amax(dim=-1), -logits.amin(dim=-1)).float()
        return HALF_NEAR_TIE_STEPS * torch.finfo(self.dtype).eps * largest

    def agree(self, ours: torch.Tensor, theirs: torch.Tensor, slack: float = 1.0) -> bool:
        """Return whether two computations of logits, ... x V, differ only by rounding."""
        ours, theirs = ours.float(), theirs.float()
        share = HALF_ROUNDING_STEPS * torch.finfo(self.dtype).eps if self.is_half else ROUNDING
        largest = theirs.masked_fill(theirs.isinf(), 0.0).abs().amax(dim=-1, keepdim=True)
        return bool((((ours - theirs).abs() <= slack * share * largest) | (ours == theirs)).all())


Cache: TypeAlias = Any
"""transformers' class, whose import takes seconds."""
Prefilled: TypeAlias = Cache | torch.Tensor
"""Source of rows to continue: a cache, or tokens_BT to read again."""


def rows_in_caches(source: Prefilled, tokens: int, most_bytes: int) -> int:
    """Return the rows of so many tokens whose caches take `most_bytes`."""
    return most_bytes // (bytes_per_token(source) * tokens)


def whole_cache(model: Model) -> Cache | None:
    """Return an empty cache; None for recurrent, compressed or shared states."""
    from transformers import cache_utils

    from harness.toolkit.cached_models import cache_layers, takes_cache

    # They hold keys and values of tokens and nothing else: no recurrent state, no compressed or indexed past.
    plain = cache_utils.DynamicLayer, cache_utils.DynamicSlidingWindowLayer
    layers = cache_layers(model) if takes_cache(model) else []
    if not layers or any(type(layer) not in plain for layer in layers):
        return None
    return cache_utils.Cache(layers=[cache_utils.DynamicLayer() for _ in layers])


def holds_all(cache: Cache, rows: int, tokens: int) -> bool:
    """Return whether every layer has keys and values of all tokens of all rows."""
    for layer in cache.layers:
        for states in (layer.keys, layer.values):
            if states is None or states.ndim != 4 or (states.shape[0], states.shape[2]) != (rows, tokens):
                return False
    return True


def joined(parts: Sequence[Prefilled]) -> Prefilled:
    """Concatenate the rows of all parts; their caches are used up."""
    caches = [part for part in parts if not isinstance(part, torch.Tensor)]
    if not caches:
        return torch.cat([part for part in parts if isinstance(part, torch.Tensor)])
    if len(caches) > 1:
        for layer, *others in zip(*(cache.layers for cache in caches), strict=True):
            for name in ("keys", "values"):
                setattr(layer, name, torch.cat([getattr(each, name) for each in (layer, *others)]))
                for each in others:
                    setattr(each, name, None)
    return caches[0]


def bytes_per_token(source: Prefilled) -> int:
    """Return the bytes of a row's token in all layers, or of its id."""
    if isinstance(source, torch.Tensor):
        return source.element_size()
    return sum(layer.keys[0, :, 0].nbytes + layer.values[0, :, 0].nbytes for layer in source.layers)


_LOG = logging.getLogger(__name__)
_EXACT_LENGTHS: WeakKeyDictionary[Model, int] = WeakKeyDictionary()
"""Most tokens at which its cache was exact."""
TRIED_ROWS = 2
"""A mask or a position may suit a single row by chance."""
Stepper: TypeAlias = "ReadingStepper | CacheStepper | PairStepper"
"""Rows of one model, decoded one token at a time.

`join` adds rows that continue source rows, each as long as the live rows. `step` appends one token to every live row,
and returns the next logits_RV.
"""
UNFIT = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors of a model that cannot take its input."""


def prefill(model: Model, tokens_BT: torch.Tensor, is_cached: bool) -> tuple[torch.Tensor, Prefilled]:
    """Return the logits_BTV of unpadded rows, and the source of their continuations."""
    cache = whole_cache(model) if is_cached else None
    if cache is None:
        return model(input_ids=tokens_BT, use_cache=False).logits, tokens_BT
    return model(input_ids=tokens_BT, past_key_values=cache, use_cache=True).logits, cache


def stepper(model: Model, source: Prefilled, rows: int, tokens: int, start: int) -> Stepper:
    """Return a stepper of at most `rows` rows of `tokens` tokens; the first to join have `start` tokens."""
    from harness.toolkit.cached_models import PairModel

    if isinstance(source, torch.Tensor):
        return ReadingStepper(model, source, rows, tokens, start)
    if isinstance(model, PairModel):
        halves = zip((model.first, model.second), model.halves(source), strict=True)
        return PairStepper([stepper(half, cache, rows, tokens, start) for half, cache in halves], model.combine)
    return CacheStepper(model, source, rows, tokens, start)


class ReadingStepper:
    """Reads each row from its beginning: slow, and always right."""

    def __init__(self, model: Model, source_BT: torch.Tensor, rows: int, tokens: int, start: int) -> None:
        self._model, self._source_BT = model, source_BT
        self._rows_RT = source_BT.new_empty(rows, tokens)
        self._live, self._length = 0, start

    def join(self, sources: torch.Tensor) -> None:
        rows = slice(self._live, self._live + len(sources))
        self._rows_RT[rows, : self._length] = self._source_BT[sources, : self._length]
        self._live += len(sources)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        self._rows_RT[: self._live, self._length] = tokens_R
        self._length += 1
        at_once = rows_at_once(count_vocabulary(self._model), self._length, tokens_R.device, most=self._live)
        parts = self._rows_RT[: self._live, : self._length].split(at_once)
        return torch.cat([self._model(input_ids=part, use_cache=False).logits[:, -1] for part in parts])


class CacheStepper:
    """Steps any model through its own forward pass, with a joining cache."""

    def __init__(self, model: Model, source: Cache, rows: int, tokens: int, start: int) -> None:
        from transformers import cache_utils

        from harness.toolkit.cached_models import JoiningLayer

        self._model, self._position = model, start
        self._layers = [JoiningLayer(layer.keys, layer.values, rows, tokens, start) for layer in source.layers]
        self._cache = cache_utils.Cache(layers=self._layers)

    def join(self, sources: torch.Tensor) -> None:
        for layer in self._layers:
            layer.join(sources)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        position = torch.tensor([[self._position]], device=tokens_R.device)
        self._position += 1
        cached = {"past_key_values": self._cache, "position_ids": position, "use_cache": True}
        return self._model(input_ids=tokens_R[:, None], **cached).logits[:, -1]  # type: ignore[no-any-return]


class PairStepper:
    """Steps two models and combines their logits."""

    def __init__(self, steppers: list[Stepper], combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        self._steppers, self._combine = steppers, combine

    def join(self, sources: torch.Tensor) -> None:
        for half in self._steppers:
            half.join(sources)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        return self._combine(*(half.step(tokens_R) for half in self._steppers))


@torch.inference_mode()
def is_cache_exact(model: Model, tokens_NT: torch.Tensor) -> bool:
    """Return whether continuations from a cache have the logits of plain forward passes, at this length.

    Two rows are stepped at the beginning, in the middle and at the end; a failure is logged.

    Raises:
        TrialError: The model cannot read such rows, its logits are NaN, or they depend on later tokens.
    """
    plain, precision = causal_logits(model, tokens_NT)  # Weights may have become NaN since the cache was exact.
    if tokens_NT.shape[1] > _EXACT_LENGTHS.get(model, 0):
        if fault := _fault(model, tokens_NT[:TRIED_ROWS], plain, precision):
            _LOG.warning("%s is decoded slowly, by plain forward passes: %s.", type(model).__name__, fault)
            return False
        if len(tokens_NT) >= TRIED_ROWS:
            _EXACT_LENGTHS[model] = tokens_NT.shape[1]
    return True


def plain_logits(model: Model, tokens: torch.Tensor) -> torch.Tensor:
    """Return logits_BTV without a cache."""
    name, length = type(model).__name__, tokens.shape[1]
    most = longest_context(model.config)
    # A table of positions ends there; on a GPU, reading beyond it would break the process.
    if length > most and not reads_beyond(model.config):
        raise TrialError(f"{name} has {most} positions, so it cannot read {length} tokens: take shorter texts.")
    logits, _ = prefill(model, tokens, is_cached=False)
    # Tensors without values are true in every condition, so the condition is that these are numbers.
    if not logits.isnan().logical_not().all():
        raise TrialError(f"the logits of {name} hold NaN, so it has no greedy choice: erase it less.")
    return logits


def causal_logits(model: Model, tokens_NT: torch.Tensor) -> tuple[torch.Tensor, LogitPrecision]:
    """Return the first rows' logits_BTV without a cache, which depend on no later tokens, and their precision."""
    tokens = tokens_NT[:TRIED_ROWS]
    plain = plain_logits(model, tokens)
    precision, half = LogitPrecision.of(model, plain), max(1, tokens.shape[1] // 2)
    half_logits, _ = prefill(model, tokens[:, :half], is_cached=False)
    # Twice the slack: here a false alarm would end the trial, and not only cost time.
    if not precision.agree(half_logits[:, -1], plain[:, half - 1], slack=2.0):
        depend = f"after {half} tokens depend on what follows them, up to {tokens.shape[1]} tokens"
        raise TrialError(f"the logits of {type(model).__name__} {depend}: it is not a causal LM at this length.")
    return plain, precision


def _fault(model: Model, tokens: torch.Tensor, plain: torch.Tensor, precision: LogitPrecision) -> str:
    rows, length = tokens.shape
    if whole_cache(model) is None:
        return "it keeps something else than keys and values"
    try:
        logits, source = prefill(model, tokens, is_cached=True)
        if isinstance(source, torch.Tensor) or not holds_all(source, rows, length):
            return "its cache does not hold every token"
        if not precision.agree(logits, plain):
            return "its logits with an empty cache differ from those without one"
        for start in sorted({start for start in (1, length // 2, length - 2) if 1 <= start < length}):
            stepping = stepper(model, source, rows, length, start)
            stepping.join(torch.arange(rows, device=tokens.device))
            for position in range(start, min(start + 2, length)):
                if not precision.agree(stepping.step(tokens[:, position]), plain[:, position]):
                    return f"from a cache its logits after {position + 1} tokens differ from those without one"
    except torch.OutOfMemoryError:
        raise
    except UNFIT as error:
        return f"its cache cannot be given to it ({type(error).__name__})"
    return ""
