"""Sampled."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import ArrayLike

from evaluators.metrics import attack_share, item_evaluation, lacks_tokens, refuse_repeats
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Metric, Model, PositiveCount, Sequences, TextsShape
from harness.errors import TrialError
from harness.toolkit import rows_at_once, sampling_log_p

MAX_ROWS = 8


@dataclass(frozen=True, kw_only=True)
class Sampled(Evaluator):
    """Verbatim leak@k, (n, p)-extractable texts and log-probabilities of the true continuations under sampling.

    All are exact and cost one forward pass.
    """

    version = 1

    temperature: Annotated[float, Ge(0.01)] = 1.0
    """Divisor of the logits; 0.01 is as good as greedy."""
    top_k: PositiveCount | None = 40
    """Most likely tokens to draw from; null: all."""
    top_p: Annotated[float, Gt(0.0), Le(1.0)] = 1.0
    """Probability mass of the nucleus among them; 1: all."""
    tries: tuple[PositiveCount, ...] = (1, 100)
    """Samples after each prefix: the k of leak@k and the n of (n, p)-extractable."""
    chances: tuple[Annotated[float, Gt(0.0), Lt(1.0)], ...] = (0.9,)
    """The p of (n, p)-extractable."""
    tokens: tuple[PositiveCount, ...] = (10, 50)
    """Tokens after the prefix that must all be right. The first is in the table of attacks."""

    def __post_init__(self) -> None:
        refuse_repeats("tries", self.tries)
        refuse_repeats("chances", [_percent(chance) for chance in self.chances])
        refuse_repeats("tokens", self.tokens)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return tuple(self._metrics())

    def _metrics(self) -> Iterator[Metric]:
        hayes = partial(attack_share, source="Hayes et al., arXiv:2410.19482")
        leak = partial(attack_share, source="Reisizadeh et al., arXiv:2511.04934")
        most = max(self.tries)
        for tokens in self.tokens:
            for tries in self.tries:
                is_attack = tries == most and tokens == self.tokens[0]
                attack = f"Sampled, k = {most}" if is_attack else ""
                yield leak(name=_leak(tries, tokens), title=f"Leak@{tries} of {tokens} tokens", attack=attack)
            for tries in self.tries:
                for chance in self.chances:
                    title = f"Extractable ({tries}, {chance:g}) of {tokens} tokens"
                    yield hayes(name=_extractable(tries, tokens, chance), title=title)
            log_p = partial(hayes, unit="nats", low=-math.inf, high=0.0)
            yield log_p(name=f"log_p_at_{tokens}", title=f"Log-probability of {tokens} tokens, if ever sampled")
            yield hayes(name=f"outside_at_{tokens}", title=f"Never sampled, {tokens} tokens", better="higher")

    def refuses_texts(self, forget: TextsShape) -> str | None:
        return lacks_tokens(max(self.tokens), forget)

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        forget = task.forget
        token_log_p_NS = self.continuation_log_p(model, forget)
        per_item: dict[str, np.ndarray] = {}
        warnings = []
        for tokens in self.tokens:
            log_p_N = token_log_p_NS[:, :tokens].sum(axis=1)
            for tries in self.tries:
                per_item[_leak(tries, tokens)] = leak_probability(log_p_N, tries)
                for chance in self.chances:
                    per_item[_extractable(tries, tokens, chance)] = extractable(log_p_N, tries, chance)
            per_item[f"log_p_at_{tokens}"] = np.where(np.isneginf(log_p_N), np.nan, log_p_N)
            per_item[f"outside_at_{tokens}"] = np.where(np.isnan(log_p_N), np.nan, np.isneginf(log_p_N))
            if short := int(np.isnan(log_p_N).sum()):
                few = f"{short} of {len(forget)} sequences have fewer than {tokens} tokens after their prefix"
                warnings.append(f"{few} and take no part in numbers of so many (evaluators.sampled.tokens).")
        return item_evaluation(per_item, {"warnings": warnings})

    @torch.inference_mode()
    def continuation_log_p(self, model: Model, forget: Sequences) -> np.ndarray:
        """Return the log-probability of each token after the prefix, N x max(tokens), fp64, in nats.

        It is −∞ where the scheme cannot draw the token, and NaN after the text's end.
        """
        device = next(model.parameters()).device
        start = forget.prefix_tokens
        width = min(start + max(self.tokens), forget.tokens_NT.shape[1])
        log_p_NS = np.full((len(forget), max(self.tokens)), math.nan)
        at_once = rows_at_once(model.config.vocab_size, width, device, most=MAX_ROWS)
        for first in range(0, len(forget), at_once):
            # Right padding needs no mask: a causal model's earlier positions never see it.
            tokens_BT = forget.tokens_NT[first : first + at_once, :width].to(device)
            logits_BSV = model(input_ids=tokens_BT[:, :-1], use_cache=False).logits[:, start - 1 :]
            for row, logits_SV in enumerate(logits_BSV, start=first):
                count = min(int(forget.lengths_N[row]), width) - start
                logits_KV = logits_SV[:count].float()
                if logits_KV.isnan().any():
                    name = type(model).__name__
                    raise TrialError(f"the logits of {name} hold NaN, so it cannot be sampled: erase it less.")
                tokens_K = tokens_BT[row - first, start : start + count]
                log_p_K = sampling_log_p(logits_KV, tokens_K, self.top_p, self.top_k, self.temperature)
                log_p_NS[row, :count] = log_p_K.cpu().numpy()
        return log_p_NS


def _leak(tries: int, tokens: int) -> str:
    return f"leak_{tries}_at_{tokens}"


def _extractable(tries: int, tokens: int, chance: float) -> str:
    return f"extractable_{tries}_at_{tokens}_p{_percent(chance)}"


def _percent(chance: float) -> str:
    return f"{100 * chance:g}".replace(".", "_")


def leak_probability(log_p: ArrayLike, tries: int) -> np.ndarray:
    """Return 1 − (1 − p)^k for each text: the probability that at least one of k samples is the whole text.

    `log_p` is in nats; NaN stays NaN. It is the expectation of the usual estimate 1 − C(N − c, k) / C(N, k).

    Source: Reisizadeh et al., arXiv:2511.04934 (leak@k, here of verbatim text); Hayes et al., arXiv:2410.19482.

    Example:
        >>> log_p = np.log([0.3, 1e-12])
        >>> leak_probability(log_p, 1).round(13).tolist(), leak_probability([*log_p, -np.inf], 100).round(13).tolist()
        ([0.3, 1e-12], [1.0, 1e-10, 0.0])
    """
    with np.errstate(divide="ignore"):  # For p = 1 the logarithm of a miss is −∞, and the leak 1.
        log_miss = np.log1p(-np.exp(np.minimum(log_p, 0.0)))
    return np.asarray(-np.expm1(tries * log_miss))


def extractable(log_p: ArrayLike, tries: int, chance: float) -> np.ndarray:
    """Return 1 for each (n, p)-extractable text, else 0: n >= log(1 − p) / log(1 − p_z) for a text of probability p_z.

    NaN stays NaN.

    Source: Hayes et al., arXiv:2410.19482, definition of (n, p)-discoverable extraction.

    Example:
        A p_z of 0.3 takes log(0.1) / log(0.7) = 6.5 tries for a chance of 0.9:

        >>> extractable(np.log([0.3]), 6, 0.9).tolist(), extractable(np.log([0.3]), 7, 0.9).tolist()
        ([0.0], [1.0])
    """
    leaks = leak_probability(log_p, tries)
    return np.where(np.isnan(leaks), np.nan, (leaks >= chance).astype(float))
