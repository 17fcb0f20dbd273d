"""Exact greedy continuations of every prefix at a fraction of the work, and seeded sampling.

Where the greedy choice is the text's next token, the continuation goes on as the next longer prefix's. One
teacher-forced pass finds where it leaves the text; only the rest is generated. Tensor letters: N sequences, R generated
rows, T tokens, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.contracts import Model, Sequences
from harness.toolkit import stepping
from harness.toolkit.device import count_vocabulary, read_at_once, rows_at_once
from harness.toolkit.stepping import LogitPrecision, Prefilled

CACHE_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}
"""Keys and values of rows generated at once."""
MAX_CACHED_WEIGHTS = 64 << 20
"""Bytes of weights beyond which a CPU reads them at each step: more rows then share that."""
MIN_ROWS = 16
"""Each step reads all weights, and fewer rows round differently."""
SEQUENCES_AT_ONCE = 64

Start = tuple[int, int]
"""(first generated position, row)."""
Choose = Callable[[Tensor, Tensor], Tensor]
"""(logits_BV, draws_B) to tokens_B."""


def cache_bytes(device_type: str, weights: int) -> int:
    """Return the bytes of keys and values of rows generated at once by a model with so many bytes of weights."""
    return weights if device_type == "cpu" and weights > MAX_CACHED_WEIGHTS else CACHE_BYTES[device_type]


class Continuations(NamedTuple):
    """Greedy continuations; end of text is an ordinary token."""

    sequences: Sequences
    predicted_NT: Tensor
    """Greedy choice for token t; -1 at t = 0 and in padding."""
    near_ties: int
    """Choices with a margin so small that batch shapes may change them."""
    rows: dict[tuple[int, int], Tensor]
    """By (sequence, mismatch position): the text up to there, then generated tokens."""

    next_mismatch_NT: Tensor
    """First position >= t where the greedy choice is not the text; T if none."""

    def of(self, sequence: int, prefix: int) -> list[int]:
        """Return the tokens after the first `prefix` ones, to the sequence's length."""
        length = int(self.sequences.lengths_N[sequence])
        mismatch = self.mismatch(sequence, prefix)
        row = self.sequences.tokens_NT[sequence] if mismatch is None else self.rows[sequence, mismatch]
        return row[prefix:length].tolist()

    def mismatch(self, sequence: int, prefix: int) -> int | None:
        """Return the first position >= `prefix` where the greedy choice is not the text."""
        position = int(self.next_mismatch_NT[sequence, prefix])
        return position if position < self.next_mismatch_NT.shape[1] else None


def greedy_continuations(model: Model, sequences: Sequences, prefixes: Sequence[Sequence[int]]) -> Continuations:
    """Return the greedy continuations of `sequences` after each of their `prefixes` (lengths in tokens, >= 1).

    They equal one generation a prefix, near ties aside; slow without a usable key-value cache.

    Raises:
        TrialError: The model cannot read the sequences, is not a causal LM, or its logits are NaN.
    """
    predicted_NT = torch.full_like(sequences.tokens_NT, -1)
    next_NT = torch.full_like(sequences.tokens_NT, sequences.tokens_NT.shape[1])
    rows: dict[tuple[int, int], Tensor] = {}
    near_ties = 0
    for members, group in continuations_by_group(model, sequences, prefixes):
        predicted_NT[members], next_NT[members] = group.predicted_NT, group.next_mismatch_NT
        rows |= {(int(members[row]), mismatch): whole for (row, mismatch), whole in group.rows.items()}
        near_ties += group.near_ties
    return Continuations(sequences, predicted_NT, near_ties, rows, next_NT)


@torch.inference_mode()
def continuations_by_group(
    model: Model, sequences: Sequences, prefixes: Sequence[Sequence[int]]
) -> Iterator[tuple[Tensor, Continuations]]:
    """Yield (indices of sequences of one length, their continuations)."""
    device = next(model.parameters()).device
    longest = sequences.lengths_N == sequences.lengths_N.max()
    probe_NT = sequences.tokens_NT[longest, : int(sequences.lengths_N.max())].to(device)
    is_cached = stepping.is_cache_exact(model, probe_NT)
    _, one = stepping.prefill(model, probe_NT[:1, :1], is_cached)
    for length, members in _split_by_length(sequences, partial(_rows_kept_at_once, model, one)):
        part = replace(sequences, tokens_NT=sequences.tokens_NT[members], lengths_N=sequences.lengths_N[members])
        tokens = part.tokens_NT[:, :length].to(device)
        choice, source, precision, near_ties = _read_whole(model, tokens, is_cached)
        predicted_NT = torch.full_like(part.tokens_NT, -1)
        predicted_NT[:, 1:length] = choice.cpu()
        next_NT = torch.full_like(part.tokens_NT, part.tokens_NT.shape[1])
        next_NT[:, :length] = _next_mismatch(tokens.cpu(), choice.cpu(), part.tokens_NT.shape[1])
        mismatches: set[Start] = set()
        for row, member in enumerate(members.tolist()):
            mismatches |= {(first, row) for first in next_NT[row, list(prefixes[member])].tolist() if first < length}
        starts = sorted(mismatches)
        whole, close = _continue(model, source, tokens, choice, starts, precision)
        del source  # Else memory would hold it with the next group's.
        rows = {(row, mismatch): tokens_T for (mismatch, row), tokens_T in zip(starts, whole, strict=True)}
        yield members, Continuations(part, predicted_NT, near_ties + close, rows, next_NT)


@torch.inference_mode()
def greedy_choices(model: Model, sequences: Sequences) -> Tensor:
    """Return `predicted_NT` of `greedy_continuations`, near ties aside, without a cache; raises as it does."""
    device = next(model.parameters()).device
    stepping.causal_logits(model, sequences.tokens_NT[:, : int(sequences.lengths_N.max())].to(device))
    predicted_NT = torch.full_like(sequences.tokens_NT, -1)
    for length, members in _split_by_length(sequences, partial(_rows_read_at_once, model)):
        logits = stepping.plain_logits(model, sequences.tokens_NT[members, :length].to(device))
        predicted_NT[members, 1:length] = logits[:, :-1].argmax(dim=-1).cpu()
    return predicted_NT


def _read_whole(model: Model, tokens_BT: Tensor, is_cached: bool) -> tuple[Tensor, Prefilled, LogitPrecision, int]:
    choices, sources, near_ties = [], [], 0
    for part in tokens_BT.split(_rows_read_at_once(model, tokens_BT.shape[1])):
        logits, source = stepping.prefill(model, part, is_cached)
        precision = LogitPrecision.of(model, logits)
        choice, close = _likeliest_tokens(logits[:, :-1], precision)
        choices.append(choice)
        sources.append(source)
        near_ties += close
        del logits  # Else memory would hold them with the next part's.
    return torch.cat(choices), stepping.joined(sources), precision, near_ties


def _next_mismatch(tokens_BT: Tensor, choice_BS: Tensor, none: int) -> Tensor:
    mismatches = torch.arange(tokens_BT.shape[1]).expand(tokens_BT.shape).clone()
    mismatches[:, 0] = none
    mismatches[:, 1:][tokens_BT[:, 1:] == choice_BS] = none
    return mismatches.flip(1).cummin(dim=1).values.flip(1)


def _split_by_length(sequences: Sequences, count_rows: Callable[[int], int]) -> Iterator[tuple[int, Tensor]]:
    for length in sequences.lengths_N.unique().tolist():
        at_once = min(SEQUENCES_AT_ONCE, count_rows(length))
        for members in (sequences.lengths_N == length).nonzero()[:, 0].split(at_once):
            yield length, members


def _rows_read_at_once(model: Model, tokens: int) -> int:
    device = next(model.parameters()).device
    return rows_at_once(count_vocabulary(model), tokens, device, most=read_at_once(tokens, device))


def _rows_kept_at_once(model: Model, source: Prefilled, tokens: int) -> int:
    weights = sum(weight.nbytes for weight in model.parameters())
    return max(1, stepping.rows_in_caches(source, tokens, cache_bytes(next(model.parameters()).device.type, weights)))


def _likeliest_tokens(logits: Tensor, precision: LogitPrecision) -> tuple[Tensor, int]:
    limit = precision.near_tie(logits)
    best = logits.max(dim=-1)
    second = logits.scatter_(-1, best.indices.unsqueeze(-1), float("-inf")).amax(dim=-1)
    return best.indices, int((best.values - second < limit).sum())


def _continue(
    model: Model,
    source: Prefilled,
    tokens_BT: Tensor,
    choice_BS: Tensor,
    starts: list[Start],
    precision: LogitPrecision,
) -> tuple[list[Tensor], int]:
    length, device = tokens_BT.shape[1], tokens_BT.device
    at_once = max(MIN_ROWS, _rows_kept_at_once(model, source, length))
    token_rows: list[Tensor] = []
    near_ties = 0
    for number in range(0, len(starts), at_once):
        positions, sources = torch.tensor(starts[number : number + at_once]).T.contiguous()
        first, at, sources = int(positions[0]), positions.to(device), sources.to(device)
        rows_RT = tokens_BT[sources]
        rows_RT[torch.arange(len(at), device=device), at] = choice_BS[sources, at - 1]
        rows, live = stepping.stepper(model, source, len(at), length, first), 0
        for step in range(first, length - 1):
            joining = int(torch.searchsorted(positions, step, right=True))
            if joining > live:
                rows.join(sources[live:joining])
                live = joining
            rows_RT[:live, step + 1], close = _likeliest_tokens(rows.step(rows_RT[:live, step]), precision)
            near_ties += close
        del rows  # Else memory would hold them with the next part's.
        token_rows += list(rows_RT.cpu())
    return token_rows, near_ties


ROWS_AT_ONCE = {"cpu": 128, "cuda": 256}
"""More rows are no faster on a CPU."""
SAMPLED_CACHE_BYTES = {"cpu": 1 << 30, "cuda": 4 << 30}
"""Keys and values of rows sampled at once."""
NUCLEUS_GUESSES = 1024, 8192
"""Most likely tokens in which the nucleus is first sought."""


@torch.inference_mode()
def sample(
    model: Model,
    prompts_NT: Tensor,
    new_tokens: int,
    seed: int,
    top_p: float = 0.95,
    top_k: int | None = None,
    temperature: float = 1.0,
) -> Tensor:
    """Return N x new_tokens sampled tokens, each row from its own random stream; end of text is an ordinary token.

    Logits are divided by `temperature`, cut to `top_k` tokens if set, and to the nucleus of mass `top_p`.

    Raises:
        TrialError: The model cannot read so many tokens, is not a causal LM, or its logits are NaN.
    """
    draws = uniforms(len(prompts_NT), new_tokens, seed)
    device = next(model.parameters()).device
    prompt = prompts_NT.shape[1]
    # The prompt stands for tokens not yet written: a cache loses entries by position, whichever tokens they are.
    as_long = prompts_NT.repeat(1, -(-(prompt + new_tokens) // prompt))[:, : prompt + new_tokens - 1]
    is_cached = stepping.is_cache_exact(model, as_long.to(device))
    _, one = stepping.prefill(model, prompts_NT[:1, :1].to(device), is_cached)
    in_caches = stepping.rows_in_caches(one, prompt + new_tokens, SAMPLED_CACHE_BYTES[device.type])
    at_once = rows_at_once(count_vocabulary(model), prompt, device, min(ROWS_AT_ONCE[device.type], in_caches))
    choose_tokens = partial(choose, top_p=top_p, top_k=top_k, temperature=temperature)
    parts = [
        _sample(model, prompts.to(device), uniform.to(device), choose_tokens, is_cached)
        for prompts, uniform in zip(prompts_NT.split(at_once), draws.split(at_once), strict=True)
    ]
    return torch.cat(parts)


def uniforms(rows: int, new_tokens: int, seed: int) -> Tensor:
    """Return random numbers in [0, 1), rows x new_tokens, one generator a row."""
    generators = [torch.Generator().manual_seed(seed * 1_000_003 + row) for row in range(rows)]
    return torch.stack([torch.rand(new_tokens, generator=generator) for generator in generators])


def _sample(model: Model, prompts_BT: Tensor, draws_BS: Tensor, choose_tokens: Choose, is_cached: bool) -> Tensor:
    device = prompts_BT.device
    rows, start = prompts_BT.shape
    steps = draws_BS.shape[1]
    last_logits, sources = [], []
    for part in prompts_BT.split(read_at_once(start, device)):
        prompt_logits, source = stepping.prefill(model, part, is_cached)
        last_logits.append(prompt_logits[:, -1].clone())
        sources.append(source)
    logits, source = torch.cat(last_logits), stepping.joined(sources)
    rows_stepper = stepping.stepper(model, source, rows, start + steps, start)
    rows_stepper.join(torch.arange(rows, device=device))
    generated = torch.empty(rows, steps, dtype=torch.long, device=device)
    for step in range(steps):
        generated[:, step] = choose_tokens(logits.float(), draws_BS[:, step])
        if step + 1 < steps:
            logits = rows_stepper.step(generated[:, step])
    return generated.cpu()


def choose(
    logits_BV: Tensor, draws_B: Tensor, top_p: float, top_k: int | None = None, temperature: float = 1.0
) -> Tensor:
    """Return one token a row, at the draw's position in the nucleus, most likely tokens first.

    Source: Holtzman et al., arXiv:1904.09751 (nucleus sampling), by inversion of the distribution.

    Example:
        The nucleus at 0.7 is the first two tokens:

        >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log().repeat(3, 1)
        >>> choose(logits, torch.tensor([0.0, 0.62, 0.63]), top_p=0.7).tolist()
        [0, 0, 1]
    """
    logits_BV = logits_BV if temperature == 1.0 else logits_BV / temperature
    values, p = _likeliest(logits_BV, top_p, top_k)
    cumulative = p.cumsum(dim=-1)
    last_B1 = _last_of_nucleus(cumulative, top_p)
    aims_B1 = draws_B[:, None] * cumulative.gather(1, last_B1)
    position_B1 = torch.minimum(torch.searchsorted(cumulative, aims_B1, right=True), last_B1)
    value_B1 = values.gather(1, position_B1)
    return _find_position(logits_BV, value_B1, (position_B1 - torch.searchsorted(-values, -value_B1))[:, 0])


def sampling_log_p(
    logits_BV: Tensor, tokens_B: Tensor, top_p: float, top_k: int | None = None, temperature: float = 1.0
) -> Tensor:
    """Return the log-probability with which `choose` takes each token, in nats, fp64.

    Ties are cut as in `choose`. At a `top_p` of 1 every token may be taken.

    Source: Hayes et al., arXiv:2410.19482, section 3.

    Example:
        The nucleus at 0.7 is the first two tokens:

        >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log().repeat(3, 1)
        >>> [round(p, 6) for p in sampling_log_p(logits, torch.tensor([0, 1, 2]), top_p=0.7).exp().tolist()]
        [0.625, 0.375, 0.0]
    """
    logits_BV = logits_BV if temperature == 1.0 else logits_BV / temperature
    value_B1 = logits_BV.gather(1, tokens_B[:, None])
    if top_p == 1.0 and top_k is None:
        return (value_B1.double() - logits_BV.double().logsumexp(dim=-1, keepdim=True))[:, 0]
    values, p = _likeliest(logits_BV, top_p, top_k)
    whole_B1 = torch.full_like(tokens_B[:, None], values.shape[-1] - 1)
    last_B1 = whole_B1 if top_p == 1.0 else _last_of_nucleus(p.cumsum(dim=-1), top_p)
    is_left_out = torch.arange(values.shape[-1], device=values.device) > last_B1
    total_B1 = values.double().masked_fill(is_left_out, -math.inf).logsumexp(dim=-1, keepdim=True)
    is_before = torch.arange(logits_BV.shape[-1], device=values.device) < tokens_B[:, None]
    is_likelier = (logits_BV > value_B1) | ((logits_BV == value_B1) & is_before)
    return (value_B1.double() - total_B1).masked_fill(is_likelier.sum(dim=-1, keepdim=True) > last_B1, -math.inf)[:, 0]


def _last_of_nucleus(cumulative_BK: Tensor, top_p: float) -> Tensor:
    top_p_B1 = torch.full_like(cumulative_BK[:, :1], top_p)
    return torch.searchsorted(cumulative_BK, top_p_B1).clamp(max=cumulative_BK.shape[-1] - 1)


def _likeliest(logits_BV: Tensor, top_p: float, top_k: int | None) -> tuple[Tensor, Tensor]:
    width = logits_BV.shape[-1]
    if top_k is not None:
        values = _largest(logits_BV, min(top_k, width))
        return values, values.softmax(dim=-1)
    total = logits_BV.logsumexp(dim=-1, keepdim=True)
    for count in (*NUCLEUS_GUESSES, width):
        values = _largest(logits_BV, min(count, width))
        p = (values - total).exp()
        if count >= width or bool((p.sum(dim=-1) >= top_p).all()):
            break
    return values, p


def _largest(logits_BV: Tensor, count: int) -> Tensor:
    if logits_BV.device.type != "cpu" or type(logits_BV) is not Tensor:  # A dry run's hold nothing for NumPy.
        return logits_BV.topk(count, dim=-1).values
    # NumPy sorts only values, in a tenth of the time of torch, which sorts their positions too.
    values = logits_BV.numpy()
    if count < values.shape[-1]:
        values = np.partition(values, -count, axis=-1)[:, -count:]
    return torch.from_numpy(np.sort(values, axis=-1)[:, ::-1].copy())


def _find_position(logits_BV: Tensor, value_B1: Tensor, earlier_B: Tensor) -> Tensor:
    same = logits_BV == value_B1
    position_B = same.view(torch.uint8).argmax(dim=-1)
    tied = earlier_B.nonzero()[:, 0]
    if len(tied):
        passed = same[tied].cumsum(dim=-1) > earlier_B[tied, None]
        position_B[tied] = passed.view(torch.uint8).argmax(dim=-1)
    return position_B
