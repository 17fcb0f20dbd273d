"""Whether a model may be continued from a key-value cache: found out by trying, on its own texts."""

from __future__ import annotations

import logging

import torch

from harness.contracts import Model
from harness.errors import TrialError
from harness.toolkit.cache import holds_all, whole_cache
from harness.toolkit.precision import Precision
from harness.toolkit.stepping import read, stepper

_LOG = logging.getLogger(__name__)
ROWS = 2
"""So many rows are tried: more than one, since a mask or a position may fit a single row by chance."""
_UNFIT = (
    *(AssertionError, AttributeError, IndexError, KeyError),
    *(NotImplementedError, RuntimeError, TypeError, ValueError),
)
"""What a model raises that cannot take what it was given. Memory that ran out is another matter."""


@torch.inference_mode()
def is_cache_exact(model: Model, tokens_NT: torch.Tensor) -> bool:
    """Return whether rows of these lengths can be continued from a cache, with the logits of plain forward passes.

    No list of architectures can say so: it depends on the configuration, the length and the version of
    transformers. So rows are stepped from a cache, at the beginning, in the middle and at the end of the
    longest sequence, where a window or a past that was dropped shows most, and their logits are compared with
    those of a pass without a cache. It costs three passes over two rows, and six steps. A model that
    fails is decoded by plain passes, which a warning in the log says.

    Args:
        model: Any causal LM.
        tokens_NT: At least one row, as long as the longest that will be decoded.

    Raises:
        TrialError: The model cannot read rows of that length, its logits are NaN, or they depend on later tokens.
    """
    tokens = tokens_NT[:ROWS]
    plain = _plain_logits(model, tokens)
    precision = Precision.of(model, plain)
    _refuse_reading_ahead(model, tokens, plain, precision)
    fault = _fault(model, tokens, plain, precision)
    if fault:
        _LOG.warning("%s is decoded slowly, by plain forward passes: %s.", type(model).__name__, fault)
    return not fault


def _plain_logits(model: Model, tokens: torch.Tensor) -> torch.Tensor:
    name, length = type(model).__name__, tokens.shape[1]
    config = model.config.get_text_config(decoder=True)
    most = getattr(config, "max_position_embeddings", None)
    # A table of positions ends there; on a GPU, reading beyond it would break the process. Rotary ones go on.
    if most and length > most and not getattr(config, "rope_parameters", None):
        raise TrialError(f"{name} has {most} positions, so that it cannot read {length} tokens: take shorter texts.")
    try:
        logits, _ = read(model, tokens, is_cached=False)
    except torch.OutOfMemoryError:
        raise
    except _UNFIT as error:
        raise TrialError(
            f"{name} cannot read {length} tokens in one forward pass without a cache, as decoding needs it: {error}"
        ) from error
    if logits.isnan().any():
        raise TrialError(f"the logits of {name} hold NaN, so that it has no greedy choice: erase it less.")
    return logits


def _refuse_reading_ahead(model: Model, tokens: torch.Tensor, plain: torch.Tensor, precision: Precision) -> None:
    half = max(1, tokens.shape[1] // 2)
    alone, _ = read(model, tokens[:, :half], is_cached=False)
    # Twice the slack: here a false alarm would end the trial, and not only cost time.
    if not precision.agree(alone[:, -1], plain[:, half - 1], slack=2.0):
        raise TrialError(
            f"the logits of {type(model).__name__} after {half} tokens depend on what follows them, up to "
            f"{tokens.shape[1]} tokens: it is no causal LM at this length, and has no continuations to measure."
        )


def _fault(model: Model, tokens: torch.Tensor, plain: torch.Tensor, precision: Precision) -> str:
    """Return why rows cannot be continued from a cache, or nothing."""
    rows, length = tokens.shape
    if whole_cache(model) is None:
        return "it keeps something else than keys and values"
    try:
        logits, source = read(model, tokens, is_cached=True)
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
    except _UNFIT as error:
        return f"its cache cannot be given to it ({type(error).__name__})"
    return ""
