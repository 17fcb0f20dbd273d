"""What a causal LM makes of choices: several continuations of one context, which is read once for all of them.

The contexts of a batch differ in length. Their common part is as long as the shortest has, less one token: it is read
without padding and kept as keys and values. The rest of each context is read again with each of its choices, padded
on the right, where a causal model's earlier positions never see it. So there is no mask and no position to be
told, and a choice's logits are those of a pass over the whole text, up to rounding. Whether they are is
tried on the texts; a model that fails reads each whole.

Tensor letters: B rows of a pass, T tokens, V vocabulary.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.contracts import Model
from harness.errors import TrialError
from harness.toolkit.batches import read_at_once, rows_at_once, vocabulary_of
from harness.toolkit.decoding.cache import bytes_per_token, holds_all, whole_cache
from harness.toolkit.decoding.greedy import CACHE_BYTES
from harness.toolkit.decoding.precision import LogitPrecision
from harness.toolkit.decoding.stepping import TRIED_ROWS, UNFIT, plain_logits

if TYPE_CHECKING:
    from transformers.cache_utils import Cache

_LOG = logging.getLogger(__name__)
ALIKE = 0.875
"""Contexts share a pass where the shortest has at least this share of the longest's tokens: what it lacks of them is
read again with each choice."""


@dataclass(frozen=True)
class AnswerChoice:
    """A continuation of a context, both as token ids, and both of at least one token.

    Example:
        >>> AnswerChoice((5, 6), (7, 8)).read_tokens
        (5, 6, 7)
    """

    context: tuple[int, ...]
    continuation: tuple[int, ...]

    @property
    def read_tokens(self) -> tuple[int, ...]:
        """Return what a model must read to predict the continuation: all but its last token."""
        return self.context + self.continuation[:-1]


@dataclass(frozen=True)
class _Question:
    """Choices with one context."""

    shared: int
    """How many of the context's tokens are read once for all; the last one is read with each choice."""
    places: list[int]
    """Of its choices among all."""


@torch.inference_mode()
def log_likelihoods(model: Model, choices: Sequence[AnswerChoice]) -> list[tuple[float, bool]]:
    """Return what the model makes of each choice: log p(continuation | context) in nats, and whether it is greedy.

    Greedy is a continuation whose every token is the likeliest after the text before it.

    Args:
        model: Any causal LM.
        choices: Those with equal contexts share the reading of it, wherever they stand.

    Raises:
        TrialError: The model cannot read the longest choice, or its logits are NaN.
    """
    device = next(model.parameters()).device
    answers: dict[int, tuple[float, bool]] = {}
    for batch, source, shared in _read_contexts(model, choices, device):
        rows = [(row, place) for row, question in enumerate(batch) for place in question.places]
        rows.sort(key=lambda of_row: len(choices[of_row[1]].read_tokens), reverse=True)
        while rows:
            width = len(choices[rows[0][1]].read_tokens) - shared
            at_once = min(
                rows_at_once(vocabulary_of(model), width, device, most=len(rows)), read_at_once(width, device)
            )
            part, rows = rows[:at_once], rows[at_once:]
            places = [place for _, place in part]
            read = [choices[place].read_tokens[shared:] for place in places]
            tokens_BT = torch.tensor([[*row, *[0] * (width - len(row))] for row in read], device=device)
            sources = torch.tensor([row for row, _ in part], device=device)
            logits = branched_logits(model, source, sources, tokens_BT)
            answers |= zip(
                places, _answers(logits, read, [choices[place].continuation for place in places]), strict=True
            )
            del logits  # Else they would lie beside the next part's.
        del source  # Else it would lie beside the next batch's.
    return [answers[place] for place in range(len(choices))]


def _read_contexts(
    model: Model, choices: Sequence[AnswerChoice], device: torch.device
) -> Iterator[tuple[list[_Question], Cache | None, int]]:
    """Yield some questions at a time, the cache of their contexts' first tokens, and how many tokens those are."""
    places: dict[tuple[int, ...], list[int]] = {}
    for place, choice in enumerate(choices):
        places.setdefault(choice.context, []).append(place)
    shares = any(len(of_context) > 1 and len(context) > 1 for context, of_context in places.items())
    token_bytes = _branching_bytes(model, choices, device) if shares else None
    alone: list[_Question] = []
    sharing: list[_Question] = []
    for context, of_context in places.items():
        shared = len(context) - 1 if token_bytes and len(of_context) > 1 else 0
        (sharing if shared else alone).append(_Question(shared, of_context))
    sharing.sort(key=lambda question: question.shared, reverse=True)
    while sharing and token_bytes:
        at_once = contexts_at_once(model, sharing[0].shared, token_bytes, device)
        least = ALIKE * sharing[0].shared
        batch = [question for question in sharing[:at_once] if question.shared >= least]
        sharing = sharing[len(batch) :]
        shared = batch[-1].shared
        read = [choices[question.places[0]].context[:shared] for question in batch]
        yield batch, read_beginnings(model, torch.tensor(read, device=device)), shared
    if alone:
        yield alone, None, 0


def contexts_at_once(model: Model, tokens: int, token_bytes: int, device: torch.device) -> int:
    """Return how many contexts of so many tokens are read at once, each token of which is kept in so many bytes."""
    kept = max(1, CACHE_BYTES[device.type] // (token_bytes * tokens))
    # As if their logits were kept, which bounds what a layer computes too.
    return choices_at_once(model, tokens, device, most=kept)


def choices_at_once(model: Model, tokens: int, device: torch.device, most: int) -> int:
    """Return how many rows of so many tokens are read at once for their choices' logits, 1 to `most`."""
    return min(rows_at_once(vocabulary_of(model), tokens, device, most), read_at_once(tokens, device))


def read_beginnings(model: Model, tokens_BT: torch.Tensor) -> Cache | None:
    """Return the keys and values of these rows, all of one length; None of a model that does not keep all of them."""
    cache = whole_cache(model)
    if cache is not None:
        # The logits are not looked at: where a model can leave them out, it does.
        last_only = {"logits_to_keep": 1} if _takes_last_only(model) else {}
        model(input_ids=tokens_BT, past_key_values=cache, use_cache=True, **last_only)
    return cache


def branched_logits(model: Model, source: Cache | None, sources: torch.Tensor, tokens_BT: torch.Tensor) -> torch.Tensor:
    """Return the logits_BTV of rows that continue these rows of a cache, or of whole rows where there is none."""
    if source is None:
        return model(input_ids=tokens_BT, use_cache=False).logits  # type: ignore[no-any-return]
    from harness.toolkit.decoding.row_caches import BranchingCache

    branches = BranchingCache(source, sources)
    return model(input_ids=tokens_BT, past_key_values=branches, use_cache=True).logits  # type: ignore[no-any-return]


def _answers(
    logits_BTV: torch.Tensor, read: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
) -> list[tuple[float, bool]]:
    """Return each row's log-likelihood of the continuation that its last tokens predict, and whether it is greedy."""
    sums: list[torch.Tensor] = []
    is_greedy: list[torch.Tensor] = []
    # Row by row: a copy of all logits would weigh as much as they do, and they outweigh all else.
    for logits_TV, tokens, continuation in zip(logits_BTV, read, continuations, strict=True):
        logits_SV = logits_TV[len(tokens) - len(continuation) : len(tokens)].float()
        targets_S = torch.tensor(continuation, device=logits_BTV.device)
        log_p_S = logits_SV.gather(1, targets_S[:, None])[:, 0] - logits_SV.logsumexp(dim=-1)
        sums.append(log_p_S.double().sum())
        is_greedy.append((logits_SV.argmax(dim=-1) == targets_S).all())
    log_likelihood_B = torch.stack(sums)
    if log_likelihood_B.isnan().any():
        raise TrialError("the logits after a choice's context are NaN, so it has no likelihood: erase the model less.")
    return list(zip(log_likelihood_B.tolist(), torch.stack(is_greedy).tolist(), strict=True))


def _takes_last_only(model: Model) -> bool:
    """Return whether a model can leave out the logits of all tokens but the last; a pair can where both can."""
    from harness.toolkit.decoding.pair import PairModel

    if isinstance(model, PairModel):
        return _takes_last_only(model.first) and _takes_last_only(model.second)
    return "logits_to_keep" in inspect.signature(model.forward).parameters


def _branching_bytes(model: Model, choices: Sequence[AnswerChoice], device: torch.device) -> int | None:
    """Return the bytes in which a context's token is kept, or None where contexts cannot be read once for all.

    It is tried on the longest choices.
    """
    longest = sorted((choice.read_tokens for choice in choices), key=len)[-TRIED_ROWS:]
    tokens_BT = torch.tensor([row[: len(longest[0])] for row in longest], device=device)
    fault = _branching_fault(model, tokens_BT)
    if fault:
        _LOG.warning("%s reads a context once for each of its choices: %s.", type(model).__name__, fault)
        return None
    source = read_beginnings(model, tokens_BT[:1, :1])
    return None if source is None else bytes_per_token(source)


def _branching_fault(model: Model, tokens_BT: torch.Tensor) -> str:
    """Return why rows cannot be continued from the cache of their beginnings, each twice, or nothing."""
    rows, last = len(tokens_BT), tokens_BT.shape[1] - 1
    whole = plain_logits(model, tokens_BT)
    precision = LogitPrecision.of(model, whole)
    starts = sorted({start for start in (last // 2, last - 1) if start >= 1})
    # A copy of what is compared: the rest need not lie in memory beside the logits that follow.
    plain = {position: whole[:, position].clone() for position in (*starts, last)}
    del whole
    sources = torch.arange(rows, device=tokens_BT.device).repeat_interleave(2)
    try:
        for start in starts:
            source = read_beginnings(model, tokens_BT[:, :start])
            if source is None or not holds_all(source, rows, start):
                return "its cache does not hold every token's keys and values"
            logits = branched_logits(model, source, sources, tokens_BT[sources, start:])
            if not all(precision.agree(logits[:, at - start], plain[at][sources]) for at in (start, last)):
                return f"after {start} tokens from a cache its logits differ from those without one"
            del logits  # Else they would lie beside the next ones.
    except torch.OutOfMemoryError:
        raise
    except UNFIT as error:
        return f"its cache cannot be given to it ({type(error).__name__})"
    return ""
