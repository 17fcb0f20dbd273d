"""Perplexity of generated text under a judge: how surprising another model finds it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.contracts import exponential
from harness.toolkit import CausalJudge

TABLE_BATCH = 16
TABLE_TOKENS = 200
"""Texts that the `table` definition reads at once, and tokens of each."""


def perplexity(nll: Sequence[Sequence[float]]) -> float:
    """Return exp of the judge's mean NLL over all generated tokens, each given the prompt and what came before.

    1 is no surprise at all. Lower is not always better: a model that repeats itself falls far below
    the original. NaN if nothing was generated, infinite above a mean of 709 nats.

    Differs from the paper: the prompt's own tokens are not counted.

    Source: EMSO paper, appendix E.

    Example:
        >>> perplexity([[0.0], [0.0, 0.0]]), perplexity([[800.0]])
        (1.0, inf)
    """
    values = [value for row in nll for value in row]
    return exponential(float(np.mean(values))) if values else float("nan")


def table_perplexity(judge: CausalJudge, prompts: Sequence[str], texts: Sequence[str]) -> float:
    """Return the perplexity that the published tables were almost certainly made with.

    Prompt and generation together, cut at 200 tokens, in batches of 16 of which a last partial one is
    dropped; padding is predicted too, as ends of text, and not attended to; exp of the mean of the batches'
    means. NaN below 16 texts.

    Differs from the paper: it does not say any of this; these are the habits of arXiv:2402.10052's code.

    Raises:
        ModelError: The judge's tokenizer has no end of text to pad with.
    """
    joined = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    whole = len(joined) - len(joined) % TABLE_BATCH
    batches = (joined[start : start + TABLE_BATCH] for start in range(0, whole, TABLE_BATCH))
    return perplexity([[judge.padded_mean_nll(batch, TABLE_TOKENS) for batch in batches]])
