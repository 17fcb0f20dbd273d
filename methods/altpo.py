"""AltPO: prefer another continuation to the memorised one, of the model's own making."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import torch

from harness.contracts import ErasedModel, ErasureTask, LogUniform, Model, Positive, PositiveCount, Sequences
from harness.toolkit import (
    Batch,
    Epochs,
    SumRetainWeight,
    TrainedMethod,
    mean_nll,
    nll_rise,
    preference_loss,
    train_and_yield,
)


@dataclass(frozen=True, kw_only=True)
class AltPO(TrainedMethod):
    """Minimises −(2/β) log σ(β (Δ_text − Δ_alternative)) over forget sequences, plus L_NLL on the retain set.

    Δ is by how much a sequence's summed NLL has risen above the original's: it is to rise for the text, and to rise
    less for its alternative, another continuation of the same prefix.

    Differs from the paper: there, alternatives are answers that a language model was asked for, five a question; here
    the original writes one after each prefix. Of what it recites no draw at a temperature of 1 is another text: each
    further try is 0.25 hotter, until it shares no run of `longest_run` tokens with the text. The loss counts what
    `training.loss_region` says of both.

    Source: Mekala et al., arXiv:2409.13474; the loss is DPO's (Rafailov et al., arXiv:2305.18290, equation 7).
    """

    label = "AltPO"
    source = "Mekala et al. 2025, arXiv:2409.13474"
    reference = "retain_data"
    version = 1

    epochs: Epochs = 2
    beta: Annotated[Positive, LogUniform(low=0.005, high=0.5)] = 0.1
    """Rate at which a sequence is let go of; higher for long ones, since their NLLs are sums."""
    retain_weight: SumRetainWeight = 1.0
    """Weight of the retain set's NLL."""
    longest_run: PositiveCount = 8
    """As many tokens in a row of an alternative are not in the text."""
    tries: PositiveCount = 9
    """Draws for each text at most; of one that has no alternative then the draw with the shortest run counts."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the model after each epoch asked for, and how many texts have an alternative."""
        original = task.load_original()
        alternatives, longest_runs = self.alternatives(original, task)
        written = sum(run < self.longest_run for run in longest_runs)
        loss, model = partial(self.loss, original), task.load_original()
        for erased in train_and_yield(task, model, loss, frozen=[original], paired_texts=alternatives):
            yield replace(erased, notes={**erased.notes, "texts_with_an_alternative": written})

    def loss(self, original: Model, model: Model, forget: Batch, retain: Batch, alternative: Batch) -> torch.Tensor:
        """Return the preference's mean over the forget sequences, plus NLL on the retain set."""
        rises = [texts.sums_per_sequence(nll_rise(original, model, texts)) for texts in (forget, alternative)]
        descent = mean_nll(model, retain)
        return forget.sequence_mean(preference_loss(rises[0] - rises[1], self.beta)) + self.retain_weight * descent

    def alternatives(self, original: Model, task: ErasureTask) -> tuple[Sequences, list[int]]:
        """Return a text beside each forget sequence, of its length and prefix, and the longest run that both share."""
        from harness.toolkit import sample

        prefix, texts_NT = task.forget.prefix_tokens, task.forget.tokens_NT
        tokens_NT, lengths = texts_NT.clone(), task.forget.lengths_N.tolist()
        longest_runs = [longest + 1 for longest in lengths]
        for number in range(self.tries):
            rows = [row for row, run in enumerate(longest_runs) if run >= self.longest_run]
            if not rows:
                break
            task.progress(f"alternatives of {len(rows)} texts")
            drawn = sample(
                original,
                texts_NT[rows, :prefix],
                texts_NT.shape[1] - prefix,
                seed=task.seed * self.tries + number,
                top_p=1.0,
                temperature=1.0 + 0.25 * number,
            )
            for row, written in zip(rows, drawn, strict=True):
                length = lengths[row]
                run = longest_common_run(texts_NT[row, prefix:length].tolist(), written[: length - prefix].tolist())
                if run < longest_runs[row]:
                    longest_runs[row] = run
                    tokens_NT[row, prefix:length] = written[: length - prefix]
        return replace(task.forget, tokens_NT=tokens_NT, digest=""), longest_runs


def longest_common_run(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens the longest run has that stands in both texts.

    Example:
        >>> longest_common_run([1, 2, 3, 4, 5], [9, 2, 3, 4, 1, 2]), longest_common_run([1], [2])
        (3, 0)
    """
    ending_here = [0] * (len(other) + 1)
    longest = 0
    for token in one:
        before = 0
        for length, theirs in enumerate(other, start=1):
            here = before + 1 if token == theirs else 0
            before, ending_here[length] = ending_here[length], here
            longest = max(longest, here)
    return longest
