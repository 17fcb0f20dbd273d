"""Sampling: nucleus decoding in which every prompt has random numbers of its own.

The numbers depend on the seed and the prompt's index, not on the model or the batch: two models
are compared on the same draws, and adding prompts changes nothing for the earlier ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from harness.contracts import Model
from harness.toolkit.batches import read_at_once, rows_at_once, vocabulary_of
from harness.toolkit.decoding.cache import joined, rows_in_caches
from harness.toolkit.decoding.stepping import is_cache_exact, prefill, stepper

ROWS_AT_ONCE = {"cpu": 128, "cuda": 256}
"""For a small model, more rows are no faster on a CPU, and their memory is most of what a worker needs."""
SAMPLED_CACHE_BYTES = {"cpu": 1 << 30, "cuda": 4 << 30}
"""Keys and values of the rows written at once take no more, unless there is room for more."""
FIRST_GUESS = 128
"""The nucleus is first sought among so many tokens: sorting a whole vocabulary costs more than a step."""


@torch.inference_mode()
def sample(
    model: Model,
    prompts_NT: torch.Tensor,
    new_tokens: int,
    seed: int,
    top_p: float = 0.95,
    top_k: int | None = None,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Return `new_tokens` sampled tokens after each prompt, N x new_tokens; end of text is an ordinary token.

    Args:
        model: Any causal LM. One that cannot be continued from a key-value cache is decoded slowly.
        prompts_NT: N prompts of the same length T >= 1.
        new_tokens: How many to generate.
        seed: With a prompt's index, decides its random numbers.
        top_p: The nucleus: the most likely tokens that hold this much probability.
        top_k: Keep only so many most likely tokens before that; None keeps all.
        temperature: What the logits are divided by before that; above 0.

    Raises:
        TrialError: The model cannot read so many tokens, is not a causal LM, or its logits are NaN.
    """
    draws = uniforms(len(prompts_NT), new_tokens, seed)
    device = next(model.parameters()).device
    prompt = prompts_NT.shape[1]
    # What will be written is not known yet; what a cache drops depends on lengths, not on tokens.
    as_long = prompts_NT.repeat(1, -(-(prompt + new_tokens) // prompt))[:, : prompt + new_tokens - 1]
    is_cached = is_cache_exact(model, as_long.to(device))
    at_once = sampled_at_once(model, prompt, prompt + new_tokens, device, is_cached)
    chosen = partial(choose, top_p=top_p, top_k=top_k, temperature=temperature)
    parts = [
        _sample(model, prompts.to(device), uniform.to(device), chosen, is_cached)
        for prompts, uniform in zip(prompts_NT.split(at_once), draws.split(at_once), strict=True)
    ]
    return torch.cat(parts)


def sampled_at_once(model: Model, prompt: int, tokens: int, device: torch.device, is_cached: bool) -> int:
    """Return how many rows to write at once on a device, prompts of `prompt` tokens and `tokens` tokens in all."""
    first = torch.zeros(1, 1, dtype=torch.long, device=next(model.parameters()).device)
    _, one = prefill(model, first, is_cached)
    most = min(ROWS_AT_ONCE[device.type], rows_in_caches(one, tokens, SAMPLED_CACHE_BYTES[device.type]))
    return rows_at_once(vocabulary_of(model), prompt, device, most=most)


def uniforms(rows: int, new_tokens: int, seed: int) -> torch.Tensor:
    """Return the numbers in [0, 1) that choose the tokens, rows x new_tokens, a generator for each row."""
    return torch.stack(
        [torch.rand(new_tokens, generator=torch.Generator().manual_seed(seed * 1_000_003 + row)) for row in range(rows)]
    )


def _sample(
    model: Model,
    prompts_BT: torch.Tensor,
    draws_BS: torch.Tensor,
    chosen: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    is_cached: bool,
) -> torch.Tensor:
    device = prompts_BT.device
    rows, start = prompts_BT.shape
    steps = draws_BS.shape[1]
    last_logits, sources = [], []
    for part in prompts_BT.split(read_at_once(start, device)):
        prompt_logits, source = prefill(model, part, is_cached)
        last_logits.append(prompt_logits[:, -1].clone())
        sources.append(source)
    logits, source = torch.cat(last_logits), joined(sources)
    rows_stepper = stepper(model, source, rows, start + steps, start)
    rows_stepper.join(torch.arange(rows, device=device))
    generated = torch.empty(rows, steps, dtype=torch.long, device=device)
    for step in range(steps):
        generated[:, step] = chosen(logits.float(), draws_BS[:, step])
        if step + 1 < steps:
            logits = rows_stepper.step(generated[:, step])
    return generated.cpu()


def choose(
    logits_BV: torch.Tensor,
    draws_B: torch.Tensor,
    top_p: float,
    top_k: int | None = None,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Return one token for each row: the draw's position in the nucleus, most likely tokens first.

    Source: Holtzman et al., arXiv:1904.09751 (nucleus sampling), by inversion of the distribution.

    Example:
        The nucleus of (0.5, 0.3, 0.2) at 0.7 is the first two tokens, 5/8 and 3/8 of it:

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
    return _position_of(logits_BV, value_B1, (position_B1 - torch.searchsorted(-values, -value_B1))[:, 0])


def sampling_log_p(
    logits_BV: torch.Tensor,
    tokens_B: torch.Tensor,
    top_p: float,
    top_k: int | None = None,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Return the log-probability with which `choose` takes each row's token, in nats, fp64; −∞ of one it never takes.

    Which tokens may be taken is decided as `choose` decides it, equal logits by position too; at a `top_p` of 1 all
    may, and the sums are fp64.

    Args:
        logits_BV: A model's, fp32.
        tokens_B: A token for each row.
        top_p: The nucleus, as in `sample`.
        top_k: As there.
        temperature: As there.

    Source: Hayes et al., arXiv:2410.19482, section 3 (the probability of a token under a sampling scheme).

    Example:
        The nucleus of (0.5, 0.3, 0.2) at 0.7 is the first two tokens, 5/8 and 3/8 of it:

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
    log_p_B1 = value_B1.double() - total_B1
    return log_p_B1.masked_fill(is_likelier.sum(dim=-1, keepdim=True) > last_B1, -math.inf)[:, 0]


def _last_of_nucleus(cumulative_BK: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return for each row how many of its tokens, the likeliest first, come before the nucleus's last one."""
    top_p_B1 = torch.full_like(cumulative_BK[:, :1], top_p)
    return torch.searchsorted(cumulative_BK, top_p_B1).clamp(max=cumulative_BK.shape[-1] - 1)


def _likeliest(logits_BV: torch.Tensor, top_p: float, top_k: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits and probabilities, largest first: so many that every row's nucleus is among them."""
    width = logits_BV.shape[-1]
    if top_k is not None:
        values = _largest(logits_BV, min(top_k, width))
        return values, values.softmax(dim=-1)
    total = logits_BV.logsumexp(dim=-1, keepdim=True)
    values = _largest(logits_BV, min(FIRST_GUESS, width))
    p = (values - total).exp()
    if width > FIRST_GUESS and bool((p.sum(dim=-1) < top_p).any()):
        values = _largest(logits_BV, width)
        p = (values - total).exp()
    return values, p


def _largest(logits_BV: torch.Tensor, count: int) -> torch.Tensor:
    if logits_BV.device.type != "cpu" or type(logits_BV) is not torch.Tensor:  # A dry run's hold nothing for NumPy.
        return logits_BV.topk(count, dim=-1).values
    # NumPy's sorting of values alone takes a tenth of the time of torch's, which sorts their positions too.
    values = logits_BV.numpy()
    if count < values.shape[-1]:
        values = np.partition(values, -count, axis=-1)[:, -count:]
    return torch.from_numpy(np.sort(values, axis=-1)[:, ::-1].copy())


def _position_of(logits_BV: torch.Tensor, value_B1: torch.Tensor, earlier_B: torch.Tensor) -> torch.Tensor:
    """Return where each row holds its value, after so many earlier positions that hold the same."""
    same = logits_BV == value_B1
    position_B = same.view(torch.uint8).argmax(dim=-1)
    tied = earlier_B.nonzero()[:, 0]
    if len(tied):
        passed = same[tied].cumsum(dim=-1) > earlier_B[tied, None]
        position_B[tied] = passed.view(torch.uint8).argmax(dim=-1)
    return position_B
