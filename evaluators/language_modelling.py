"""Language modelling: how well the model itself still predicts what people wrote, without any judge."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from evaluators.metrics import weighted_mean
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Metric, Model, exponential
from harness.toolkit import rows_at_once, token_lists, token_nll

MOST_ROWS = 32
"""Texts in one forward pass; fewer of long ones."""


@dataclass(frozen=True, kw_only=True)
class LanguageModelling(Evaluator):
    """The model's own perplexity of the human continuations of the utility prompts.

    It is what a search minimises (on other texts). Generation's perplexity is a judge's, of what the
    model writes: a model that writes less variedly may do better there and worse here.
    """

    version = 1

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return the one metric, shown beside what is ranked."""
        own = Metric(
            name="own_perplexity",
            title="Own perplexity",
            better="lower",
            unit="perplexity",
            low=1.0,
            high=math.inf,
            group="generation",
            source="Jelinek et al., J. Acoust. Soc. Am. 62, 1977",
            column=4,
            ranked=False,
            items="prompt",
            weights="own_tokens",
            aggregate="exp_mean",
            meaning="how unlikely the model itself finds what people wrote after the prompts: 1 is certain",
        )
        return (own,)

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        """Return the perplexity; a continuation without a token does not count."""
        written = task.generations(self.definition)
        prompts = token_lists(task.tokenizer, written.prompts)
        references = token_lists(task.tokenizer, written.references, starts=False)
        nll_N, tokens_N = np.full(len(prompts), math.nan), np.zeros(len(prompts))
        longest = max((len(prompt) + len(text) for prompt, text in zip(prompts, references, strict=True)), default=1)
        device = next(model.parameters()).device
        at_once = rows_at_once(model.config.vocab_size, longest, device, most=MOST_ROWS)
        for start in range(0, len(prompts), at_once):
            rows = slice(start, start + at_once)
            nll_N[rows], tokens_N[rows] = continuation_nll(model, prompts[rows], references[rows])
        mean = weighted_mean(nll_N, tokens_N)
        numbers = {"own_perplexity": exponential(mean)}
        return Evaluation(numbers, per_item={"own_perplexity": nll_N, "own_tokens": tokens_N})


@torch.inference_mode()
def continuation_nll(
    model: Model, prompts: list[list[int]], continuations: list[list[int]]
) -> tuple[list[float], list[int]]:
    """Return the mean of −log p over the tokens of each continuation, in nats, and how many tokens those are.

    The mean is NaN where there are none. The very first token of a text without a prompt is not predicted.
    """
    device = next(model.parameters()).device
    whole = [prompt + continuation for prompt, continuation in zip(prompts, continuations, strict=True)]
    width = max(2, *map(len, whole))
    # Right padding needs no mask: a causal model's earlier positions never see it.
    tokens_BT = torch.tensor([row + [0] * (width - len(row)) for row in whole], device=device)
    nll_BS = token_nll(model(input_ids=tokens_BT[:, :-1], use_cache=False).logits.float(), tokens_BT[:, 1:])
    means, counts = [], []
    for nll_S, prompt, tokens in zip(nll_BS.double().cpu(), prompts, whole, strict=True):
        of_continuation = nll_S[max(len(prompt), 1) - 1 : max(len(tokens), 1) - 1]
        means.append(float(of_continuation.mean()) if len(of_continuation) else math.nan)
        counts.append(len(of_continuation))
    return means, counts
