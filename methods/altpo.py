"""AltPO."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from typing import Annotated

import torch

from harness.contracts import ErasedModel, ErasureTask, LogUniform, Model, Positive, PositiveCount, Sequences
from harness.toolkit import Batch, Epochs, RetainMethod, SumRetainWeight, nll_rise, preference_loss, train_and_yield


@dataclass(frozen=True, kw_only=True)
class AltPO(RetainMethod):
    """Prefers other continuations to the text's: −(2/β) log σ(β (Δ_text − Δ_alternative)), plus L_NLL(retain).

    Δ is the rise of a sequence's summed NLL above the original's.

    Differs from the paper: there a language model answers each question five times; here the original writes one
    alternative a prefix. Each further try is 0.25 hotter, until no run of `longest_run` tokens is the text's.

    Source: Mekala et al., arXiv:2409.13474; the loss is DPO's (Rafailov et al., arXiv:2305.18290, equation 7).
    """

    label = "AltPO"
    source = "Mekala et al. 2025, arXiv:2409.13474"
    version = 2

    epochs: Epochs = 2
    beta: Annotated[Positive, LogUniform(low=0.005, high=0.5)] = 0.1
    """Higher lets go of a sequence sooner, and of long ones first."""
    retain_weight: SumRetainWeight = 1.0
    """Weight of the retain set's NLL."""
    longest_run: PositiveCount = 8
    """Length of a run that an alternative may not share with the text."""
    tries: PositiveCount = 9
    """Draws for each text; the one with the shortest run counts."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        original = task.load_original()
        alternatives, longest_runs = self.alternatives(original, task)
        written = sum(run < limit for run, limit in zip(longest_runs, self.limits(task.forget), strict=True))
        loss, model = partial(self.loss, original), task.load_original()
        for erased in train_and_yield(task, model, loss, frozen=[original], paired_texts=alternatives):
            yield replace(erased, notes={**erased.notes, "texts_with_an_alternative": written})

    def loss(self, original: Model, model: Model, forget: Batch, retain: Batch, alternative: Batch) -> torch.Tensor:
        rises = [texts.sums_per_sequence(nll_rise(original, model, texts)) for texts in (forget, alternative)]
        forget_loss = forget.sequence_mean(preference_loss(rises[0] - rises[1], self.beta))
        return self.with_retain(forget_loss, model, retain)

    def limits(self, texts: Sequences) -> list[int]:
        """Return the length of each text's run that no alternative may share."""
        return (texts.lengths_N - texts.prefix_tokens).clamp(min=1, max=self.longest_run).tolist()

    def alternatives(self, original: Model, task: ErasureTask) -> tuple[Sequences, list[int]]:
        """Return an alternative of equal length and prefix for each sequence, and their longest common runs."""
        from harness.toolkit import sample

        prefix, texts_NT = task.forget.prefix_tokens, task.forget.tokens_NT
        tokens_NT, lengths = texts_NT.clone(), task.forget.lengths_N.tolist()
        longest_runs, limits = [longest + 1 for longest in lengths], self.limits(task.forget)
        for number in range(self.tries):
            rows = [row for row, limit in enumerate(limits) if longest_runs[row] >= limit]
            if not rows:
                break
            task.progress(f"alternatives of {len(rows)} texts")
            seed, heat, new_tokens = task.seed * self.tries + number, 1.0 + 0.25 * number, texts_NT.shape[1] - prefix
            drawn = sample(original, texts_NT[rows, :prefix], new_tokens, seed=seed, top_p=1.0, temperature=heat)
            for row, written in zip(rows, drawn, strict=True):
                length = lengths[row]
                text, alternative = texts_NT[row, prefix:length], written[: length - prefix]
                match = SequenceMatcher(None, text.tolist(), alternative.tolist(), autojunk=False)
                run = match.find_longest_match().size
                if run < longest_runs[row]:
                    longest_runs[row] = run
                    tokens_NT[row, prefix:length] = alternative
        return replace(task.forget, tokens_NT=tokens_NT, digest=""), longest_runs
