"""Decoding: exact greedy continuations of every prefix at a fraction of the work, and seeded sampling.

If the most likely token after a prefix is the text's own next token, then the continuation of that
prefix is that token followed by the continuation of the next longer prefix. So one teacher-forced
pass tells where a generation differs from the text at all, and only from there on it is generated: from a
key-value cache where that gives the logits of plain forward passes, else by those.

Tensor letters: N sequences, R generated rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from harness.contracts import Model, Sequences
from harness.toolkit.batches import read_at_once, rows_at_once, vocabulary_of
from harness.toolkit.decoding.cache import Prefilled, joined, rows_in_caches
from harness.toolkit.decoding.precision import LogitPrecision
from harness.toolkit.decoding.stepping import is_cache_exact, plain_logits, prefill, stepper

CACHE_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}
"""Keys and values that are generated from at once take no more, unless there is room for more."""
MIN_ROWS = 16
"""At least so many are generated at once, whatever they weigh: each step reads all weights, and fewer rows round
differently."""
SEQUENCES_AT_ONCE = 64


@dataclass(frozen=True)
class Continuations:
    """The greedy continuation of prefixes of each sequence, without an end of text."""

    sequences: Sequences
    predicted_NT: torch.Tensor
    """The greedy choice for token t given the text before it; -1 at t = 0 and in padding."""
    near_ties: int
    """Greedy choices, of the text's and of the generated tokens, with a margin below `near_tie_limit`."""
    near_tie_limit: str
    """That margin, for the precision that was used: a choice that is closer may differ between batch shapes."""
    rows: dict[tuple[int, int], torch.Tensor]
    """(sequence, mismatch position) to the whole row: the text up to there, then what was generated."""

    next_mismatch_NT: torch.Tensor
    """The first position from t on where the greedy choice is not the text; T where there is none."""

    def of(self, sequence: int, prefix: int) -> list[int]:
        """Return the tokens that follow the first `prefix` ones, to the sequence's length.

        Raises:
            KeyError: The continuation was not asked for when this was made.
        """
        length = int(self.sequences.lengths_N[sequence])
        mismatch = self.mismatch(sequence, prefix)
        row = self.sequences.tokens_NT[sequence] if mismatch is None else self.rows[sequence, mismatch]
        return row[prefix:length].tolist()

    def mismatch(self, sequence: int, prefix: int) -> int | None:
        """Return the first position from `prefix` on where the greedy choice is not the text."""
        position = int(self.next_mismatch_NT[sequence, prefix])
        return position if position < self.next_mismatch_NT.shape[1] else None


def greedy_continuations(model: Model, sequences: Sequences, prefixes: Sequence[Sequence[int]]) -> Continuations:
    """Return the greedy continuations of `sequences` after each of their `prefixes`.

    The result equals a generation for each prefix (end of text an ordinary token), near ties aside. All rows are in
    memory at once; `continuations_by_group` holds those of some sequences.

    Args:
        model: Any causal LM. One that cannot be continued from a key-value cache is decoded slowly.
        sequences: N of them, of any lengths.
        prefixes: For each sequence the prefix lengths, in tokens, all >= 1.

    Raises:
        TrialError: The model cannot read the sequences, is not a causal LM, or its logits are NaN.
    """
    predicted_NT = torch.full_like(sequences.tokens_NT, -1)
    next_NT = torch.full_like(sequences.tokens_NT, sequences.tokens_NT.shape[1])
    rows: dict[tuple[int, int], torch.Tensor] = {}
    near_ties, limit = 0, ""
    for members, group in continuations_by_group(model, sequences, prefixes):
        predicted_NT[members], next_NT[members] = group.predicted_NT, group.next_mismatch_NT
        rows |= {(int(members[row]), mismatch): whole for (row, mismatch), whole in group.rows.items()}
        near_ties, limit = near_ties + group.near_ties, group.near_tie_limit
    return Continuations(sequences, predicted_NT, near_ties, limit, rows, next_NT)


@torch.inference_mode()
def continuations_by_group(
    model: Model, sequences: Sequences, prefixes: Sequence[Sequence[int]]
) -> Iterator[tuple[torch.Tensor, Continuations]]:
    """Yield the places of some sequences of one length, and what `greedy_continuations` says of these alone.

    After every prefix of 15,000 sequences of 200 tokens rows weigh gigabytes; a group's weigh megabytes.

    Args:
        model: See `greedy_continuations`, which asks for the same and raises the same.
        sequences: N of them. Those that are yielded bear the digest of all.
        prefixes: For each of the N.
    """
    device = next(model.parameters()).device
    longest = sequences.lengths_N == sequences.lengths_N.max()
    tried = sequences.tokens_NT[longest, : int(sequences.lengths_N.max())].to(device)
    is_cached = is_cache_exact(model, tried)
    for length, members in _by_length(sequences, vocabulary_of(model), device):
        part = replace(sequences, tokens_NT=sequences.tokens_NT[members], lengths_N=sequences.lengths_N[members])
        of_members = [prefixes[member] for member in members.tolist()]
        yield members, _of_group(model, part, length, of_members, is_cached)


def _of_group(
    model: Model, part: Sequences, length: int, prefixes: Sequence[Sequence[int]], is_cached: bool
) -> Continuations:
    tokens = part.tokens_NT[:, :length].to(next(model.parameters()).device)
    choice, source, precision, near_ties = _read_whole(model, tokens, is_cached)
    predicted_NT = torch.full_like(part.tokens_NT, -1)
    predicted_NT[:, 1:length] = choice.cpu()
    next_NT = torch.full_like(part.tokens_NT, part.tokens_NT.shape[1])
    next_NT[:, :length] = _next_mismatch(tokens.cpu(), choice.cpu(), part.tokens_NT.shape[1])
    wanted = sorted(
        {
            (mismatch, row)
            for row, lengths in enumerate(prefixes)
            for mismatch in next_NT[row, list(lengths)].tolist()
            if mismatch < length
        }
    )
    whole, close = _continue(model, source, tokens, choice, wanted, precision)
    rows = {(row, mismatch): tokens_T for (mismatch, row), tokens_T in zip(wanted, whole, strict=True)}
    return Continuations(part, predicted_NT, near_ties + close, precision.near_tie_limit, rows, next_NT)


@torch.inference_mode()
def greedy_choices(model: Model, sequences: Sequences) -> torch.Tensor:
    """Return the greedy choice for each token given the text before it, N x T; -1 at t = 0 and in padding.

    It is the `predicted_NT` of `greedy_continuations`, near ties aside, for whoever generates nothing: no cache is
    tried, and none kept.

    Args:
        model: Any causal LM.
        sequences: N of them, of any lengths.

    Raises:
        TrialError: The model cannot read the sequences, or its logits are NaN.
    """
    device = next(model.parameters()).device
    predicted_NT = torch.full_like(sequences.tokens_NT, -1)
    for length, members in _by_length(sequences, vocabulary_of(model), device):
        for rows in members.split(read_at_once(length, device)):
            logits = plain_logits(model, sequences.tokens_NT[rows, :length].to(device))
            predicted_NT[rows, 1:length] = logits[:, :-1].argmax(dim=-1).cpu()
    return predicted_NT


def _read_whole(
    model: Model, tokens_BT: torch.Tensor, is_cached: bool
) -> tuple[torch.Tensor, Prefilled, LogitPrecision, int]:
    """Return the greedy choices after each token but the last, what is continued, and the choices' near ties."""
    choices, sources, near_ties = [], [], 0
    for part in tokens_BT.split(read_at_once(tokens_BT.shape[1], tokens_BT.device)):
        logits, source = prefill(model, part, is_cached)
        precision = LogitPrecision.of(model, logits)
        choice, close = _likeliest_tokens(logits[:, :-1], precision)
        choices.append(choice)
        sources.append(source)
        near_ties += close
        del logits  # Else they would lie beside the next part's.
    return torch.cat(choices), joined(sources), precision, near_ties


def continued_at_once(source: Prefilled, tokens: int, device: torch.device) -> int:
    """Return how many rows of so many tokens are generated at once."""
    return max(MIN_ROWS, rows_in_caches(source, tokens, CACHE_BYTES[device.type]))


def _next_mismatch(tokens_BT: torch.Tensor, choice_BS: torch.Tensor, none: int) -> torch.Tensor:
    """Return for each position the next one where the choice is not the text, or `none`; position 0 is never one."""
    mismatches = torch.arange(tokens_BT.shape[1]).expand(tokens_BT.shape).clone()
    mismatches[:, 0] = none
    mismatches[:, 1:][tokens_BT[:, 1:] == choice_BS] = none
    return mismatches.flip(1).cummin(dim=1).values.flip(1)


def _by_length(sequences: Sequences, vocabulary: int, device: torch.device) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield a length, and some of the sequences that have it: as many as are read at once."""
    for length in sequences.lengths_N.unique().tolist():
        at_once = rows_at_once(vocabulary, length, device, most=SEQUENCES_AT_ONCE)
        for members in (sequences.lengths_N == length).nonzero()[:, 0].split(at_once):
            yield length, members


def _likeliest_tokens(logits: torch.Tensor, precision: LogitPrecision) -> tuple[torch.Tensor, int]:
    """Return the likeliest tokens, of equal ones the first, and how many are near ties; the logits are used up."""
    limit = precision.near_tie(logits)
    best = logits.max(dim=-1)
    second = logits.scatter_(-1, best.indices.unsqueeze(-1), float("-inf")).amax(dim=-1)
    return best.indices, int((best.values - second < limit).sum())


def _continue(
    model: Model,
    source: Prefilled,
    tokens_BT: torch.Tensor,
    choice_BS: torch.Tensor,
    wanted: list[tuple[int, int]],
    precision: LogitPrecision,
) -> tuple[list[torch.Tensor], int]:
    """Generate to the end from each (mismatch position, row) of a forward pass; sorted by position."""
    length, device = tokens_BT.shape[1], tokens_BT.device
    at_once = continued_at_once(source, length, device)
    done: list[torch.Tensor] = []
    near_ties = 0
    for start in range(0, len(wanted), at_once):
        positions, sources = torch.tensor(wanted[start : start + at_once]).T.contiguous()
        first, at, sources = int(positions[0]), positions.to(device), sources.to(device)
        rows_RT = tokens_BT[sources]
        rows_RT[torch.arange(len(at), device=device), at] = choice_BS[sources, at - 1]
        rows, live = stepper(model, source, len(at), length, first), 0
        for step in range(first, length - 1):
            joining = int(torch.searchsorted(positions, step, right=True))
            if joining > live:
                rows.join(sources[live:joining])
                live = joining
            rows_RT[:live, step + 1], close = _likeliest_tokens(rows.step(rows_RT[:live, step]), precision)
            near_ties += close
        del rows  # Else they would lie beside the next part's.
        done += list(rows_RT.cpu())
    return done, near_ties
