"""Language modelling."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from evaluators.metrics import weighted_mean
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Metric, Model, Sequences, exponential
from harness.toolkit import continuation_ids, score_tokens, token_lists


@dataclass(frozen=True, kw_only=True)
class LanguageModelling(Evaluator):
    """The model's own perplexity of the human continuations of the utility prompts.

    Less varied text may lower generation's perplexity and raise this.
    """

    version = 2  # A continuation has no space that the tokenizer adds.

    @property
    def metrics(self) -> tuple[Metric, ...]:
        own = partial(Metric, better="lower", unit="perplexity", low=1.0, high=math.inf, aggregate="exp_mean")
        source = "Jelinek et al., J. Acoust. Soc. Am. 62, 1977"
        shown = partial(own, group="generation", source=source, ranked=False, items="prompt")
        return (shown(name="own_perplexity", title="Own perplexity"),)

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        written = task.generations(self.definition)
        prompts = token_lists(task.tokenizer, written.prompts)
        references = continuation_ids(task.tokenizer, written.references)
        nll_N, tokens_N = continuation_nll(model, prompts, references)
        numbers = {"own_perplexity": exponential(weighted_mean(nll_N, tokens_N))}
        per_item, weights = {"own_perplexity": nll_N}, {"own_perplexity": tokens_N}
        return Evaluation(numbers, per_item=per_item, item_weights=weights)


def continuation_nll(
    model: Model, prompts: list[list[int]], continuations: list[list[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean −log p of each continuation's tokens, in nats (NaN without one), and their number."""
    whole = [torch.tensor(prompt + text, dtype=torch.long) for prompt, text in zip(prompts, continuations, strict=True)]
    # No text is read as shorter than two tokens, so that there is one to predict; padding counts nowhere.
    tokens_NT = functional.pad(pad_sequence(whole, batch_first=True), (0, 2))
    lengths_N = torch.tensor([max(2, len(tokens_T)) for tokens_T in whole])
    _, nll_NT = score_tokens(model, Sequences(tokens_NT, lengths_N, prefix_tokens=1, digest=""))
    means, counts = [], []
    for nll_T, prompt, tokens_T in zip(nll_NT, prompts, whole, strict=True):
        continuation_nll_S = nll_T[max(len(prompt), 1) : len(tokens_T)]
        means.append(float(continuation_nll_S.mean()) if len(continuation_nll_S) else math.nan)
        counts.append(len(continuation_nll_S))
    return np.array(means), np.array(counts)
