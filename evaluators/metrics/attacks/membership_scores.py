"""Scores of membership inference: how much a model's log-probabilities of a text say that it was trained on it."""

from __future__ import annotations

import math
import zlib

import torch

MIN_K_SHARE = 0.2
"""Of a text's tokens, the least likely ones that Min-K and Min-K++ look at. Fixed before anything was measured: to
take the share that separates best would be to train on what is tested."""
LEAST_VARIANCE = 1e-6
"""A model that is sure of a token's distribution has a variance near 0, by which nothing is to be divided."""


def zlib_ratio(total_nll: float, text: str) -> float:
    """Return a text's total NLL, in nats, for each byte of it that zlib cannot do without; members have less.

    What repeats itself is likely to any model, and short when compressed.

    Args:
        total_nll: −log p of the whole text, in nats.
        text: Compressed as UTF-8, at zlib's default level.

    Source: Carlini et al., arXiv:2012.07805, section 5.2.

    Differs from the paper: the total and not the mean of the tokens, so that texts of different lengths compare. Where
    all have as many tokens, both give the same order.

    Example:
        >>> len(zlib.compress(b"a" * 100)), zlib_ratio(24.0, "a" * 100)
        (12, 2.0)
    """
    return total_nll / len(zlib.compress(text.encode()))


def mean_of_lowest(scores_T: torch.Tensor, share: float = MIN_K_SHARE) -> float:
    """Return the mean of the lowest scores of a text's tokens; NaN without a token. Members have more.

    Of log-probabilities it is Min-K, of `standardized` ones Min-K++.

    Args:
        scores_T: A score for each token.
        share: How many of them count; rounded down, but at least one.

    Source: Shi et al., arXiv:2310.16789, equation 1.

    Example:
        >>> mean_of_lowest(torch.tensor([-1.0, -6.0, -2.0, -4.0, -3.0]), share=0.4)
        -5.0
        >>> mean_of_lowest(torch.tensor([-1.0, -6.0]))
        -6.0
    """
    if not len(scores_T):
        return math.nan
    count = max(1, math.floor(len(scores_T) * share))
    return float(scores_T.double().sort().values[:count].mean())


def standardized(logits_TV: torch.Tensor, tokens_T: torch.Tensor) -> torch.Tensor:
    """Return z = (log p of each token − μ) / σ: how its log-probability compares with those of the whole vocabulary.

    μ = Σ p log p and σ² = Σ p (log p − μ)² are those of a token that the model itself would write there.

    Args:
        logits_TV: The model's logits before each token.
        tokens_T: The tokens.

    Source: Zhang et al., arXiv:2404.02936, equation 3; σ² is at least 1e-6, as in OpenUnlearning's code.

    Example:
        With p = ½, ¼ and ¼, μ is −1.5 log 2, σ is ½ log 2, and the first token has (−1 + 1.5) / ½:

        >>> logits = torch.tensor([[0.5, 0.25, 0.25]] * 2).log()
        >>> [round(value, 4) for value in standardized(logits, torch.tensor([0, 2])).tolist()]
        [1.0, -1.0]
    """
    log_p_TV = logits_TV.log_softmax(-1)
    p_TV = log_p_TV.exp()
    # What has no probability adds nothing, though its logarithm may be infinite.
    finite_TV = log_p_TV.masked_fill(p_TV == 0, 0.0)
    mean_T1 = (p_TV * finite_TV).sum(-1, keepdim=True)
    variance_T = (p_TV * (finite_TV - mean_T1) ** 2).sum(-1).clamp(min=LEAST_VARIANCE)
    log_p_T = log_p_TV.gather(-1, tokens_T[..., None])[..., 0]
    return (log_p_T - mean_T1[..., 0]) / variance_T.sqrt()
