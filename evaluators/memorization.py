"""Memorisation: what of the forget set the model still says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from evaluators.metrics.exact_match import exact_match
from evaluators.metrics.extraction_likelihood import extraction_likelihood, sampled_prefixes, set_overlap
from evaluators.metrics.memorization_accuracy import memorization_accuracy
from evaluators.metrics.semantic_similarity import Embedder, row_cosine
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Metric, Model, PositiveCount, Sample, Sequences
from harness.toolkit.decoding import Continuations, greedy_continuations
from harness.toolkit.sampling import sample

PAPER = "EMSO paper, section 4.1.3"
SAMPLES = 4
WINDOW_TOKENS = 200
"""New tokens after each window of the `table` definition."""


@dataclass(frozen=True, kw_only=True)
class Memorization(Evaluator):
    """EL_n, MA, SS and exact match on the forget set.

    `exact`: greedy decoding after every prefix. `table`: 200 tokens sampled after each fifth of the
    length, sets of n-grams, and MA at those four places only.
    """

    version = 1
    judges = ("similarity",)

    n: PositiveCount = 3
    """Length of EL's n-grams, in tokens."""
    el_sequences: PositiveCount | None = None
    """EL is measured on this many sequences, a fixed random sample; on all by default."""
    el_prefixes: PositiveCount | None = None
    """And after this many prefixes of each, spread over its length (`exact`); after all by default."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return EL_n, MA and SS, and their unranked companions."""
        share = partial(_metric, unit="fraction", high=1.0)
        tokens = partial(_metric, unit="tokens", high=math.inf, ranked=False)
        return (
            share(f"el_{self.n}", f"EL_{self.n}", PAPER),
            share("ma", "MA", PAPER),
            share("ss", "SS", PAPER, low=-1.0),
            tokens("exact_match", "Exact match", "EMSO paper, section 4.4"),
            tokens("exact_match_original", "Exact match with the original", "EMSO paper, figure 5"),
            share("ma_all", "MA (all positions)", "Tirumala et al., arXiv:2205.10770", ranked=False),
        )

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        """Return the numbers under this definition; exact match is greedy under both."""
        chosen = self._el_sample(task.forget)
        prefixes = [[task.forget.prefix_tokens, *chosen.get(place, ())] for place in range(len(task.forget))]
        found = greedy_continuations(model, task.forget, prefixes)
        numbers = (
            self._table(model, task, found, sorted(chosen))
            if self.definition == "table"
            else self._exact(task, found, chosen)
        )
        continuations = self._continuations(found)
        numbers |= {
            "exact_match": float(
                np.mean([exact_match(*pair) for pair in zip(continuations, _truth(task.forget), strict=True)])
            ),
            "exact_match_original": self._match_with_original(task, continuations),
            "ma_all": _mean_accuracy(found, lambda length: (1, length)),
        }
        notes = {
            "near_ties": found.near_ties,
            "near_tie_limit": found.near_tie_limit,
            "el_sequences": len(chosen),
            "el_prefixes": sum(map(len, chosen.values())),
            "sequences": len(task.forget),
        }
        return Evaluation(numbers, self._samples(task, continuations), notes)

    def _el_sample(self, forget: Sequences) -> dict[int, list[int]]:
        """Return the prefix lengths that EL is measured at, for each sequence of its sample."""
        # The sample depends on the data alone: seeds of a sweep repeat the erasure, not the question.
        generator = torch.Generator().manual_seed(int(forget.digest[:8] or "0", 16))
        count = min(self.el_sequences or len(forget), len(forget))
        chosen = sorted(torch.randperm(len(forget), generator=generator)[:count].tolist())
        if self.definition == "table":
            return {place: [] for place in chosen}
        longest = {place: int(forget.lengths_N[place]) - self.n for place in chosen}
        return {place: sampled_prefixes(most, self.el_prefixes, generator) for place, most in longest.items()}

    def _continuations(self, found: Continuations) -> list[list[int]]:
        return [found.of(place, found.sequences.prefix_tokens) for place in range(len(found.sequences))]

    def _exact(self, task: EvaluationTask, found: Continuations, chosen: dict[int, list[int]]) -> dict[str, float]:
        prefix = task.forget.prefix_tokens
        likelihoods = [extraction_likelihood(found, place, self.n, at) for place, at in chosen.items()]
        return {
            f"el_{self.n}": float(np.nanmean(likelihoods)),
            "ma": _mean_accuracy(found, lambda length: (prefix, length - 1)),
            "ss": self._similarity(task, self._continuations(found), _truth(task.forget)),
        }

    def _table(self, model: Model, task: EvaluationTask, found: Continuations, chosen: list[int]) -> dict[str, float]:
        generated, reference, hits = [], [], []
        length = int(task.forget.lengths_N.min())
        rows = torch.tensor(chosen)
        for window in (length * fifth // 5 for fifth in range(1, 5)):
            new_tokens = min(WINDOW_TOKENS, model.config.max_position_embeddings - window)
            prompts = task.forget.tokens_NT[rows, :window]
            texts = sample(model, prompts, new_tokens, seed=task.seed + window, top_k=50)
            generated += texts.tolist()
            reference += [
                task.forget.tokens_NT[row, window : int(task.forget.lengths_N[row])].tolist() for row in chosen
            ]
            hits.append(found.predicted_NT[:, window] == task.forget.tokens_NT[:, window])
        overlaps = [set_overlap(ours, truth, self.n) for ours, truth in zip(generated, reference, strict=True)]
        return {
            f"el_{self.n}": float(np.mean(overlaps)),
            "ma": float(torch.stack(hits).float().mean()),
            "ss": self._similarity(task, generated, reference),
        }

    def _similarity(self, task: EvaluationTask, generated: list[list[int]], reference: list[list[int]]) -> float:
        embedder = task.judge("similarity", Embedder)
        truth = task.cached(
            ("similarity_reference", embedder.digest, task.forget.digest, self.definition, str(len(reference))),
            lambda: {"embeddings": embedder.embed(_decode(task, reference))},
        )
        return float(row_cosine(embedder.embed(_decode(task, generated)), truth["embeddings"]).mean())

    def _match_with_original(self, task: EvaluationTask, continuations: list[list[int]]) -> float:
        def make() -> dict[str, np.ndarray]:
            prefixes = [[task.forget.prefix_tokens]] * len(task.forget)
            rows = self._continuations(greedy_continuations(task.load_original(), task.forget, prefixes))
            return {"tokens": np.array([row + [-1] * (task.forget.tokens_NT.shape[1] - len(row)) for row in rows])}

        stored = task.cached(("original_continuations", task.original_digest(), task.forget.digest), make)["tokens"]
        originals = [[token for token in row if token >= 0] for row in stored.tolist()]
        return float(
            np.mean([exact_match(ours, theirs) for ours, theirs in zip(continuations, originals, strict=True)])
        )

    def _samples(self, task: EvaluationTask, continuations: list[list[int]]) -> tuple[Sample, ...]:
        prefix, shown = task.forget.prefix_tokens, range(min(SAMPLES, len(task.forget)))
        prompts = _decode(task, [task.forget.tokens_NT[place, :prefix].tolist() for place in shown])
        generated = _decode(task, [continuations[place] for place in shown])
        truth = _decode(task, [_truth(task.forget)[place] for place in shown])
        return tuple(Sample("forget", *texts) for texts in zip(prompts, generated, truth, strict=True))


def _metric(
    name: str, title: str, source: str, *, unit: str, high: float, low: float = 0.0, ranked: bool = True
) -> Metric:
    return Metric(
        name=name,
        title=title,
        source=source,
        unit=unit,
        low=low,
        high=high,
        ranked=ranked,
        better="lower",
        group="erasure",
    )


def _mean_accuracy(found: Continuations, span: Callable[[int], tuple[int, int]]) -> float:
    lengths = found.sequences.lengths_N.tolist()
    values = [
        memorization_accuracy(found.sequences.tokens_NT[place], found.predicted_NT[place], *span(length))
        for place, length in enumerate(lengths)
    ]
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def _truth(forget: Sequences) -> list[list[int]]:
    rows = zip(forget.tokens_NT.tolist(), forget.lengths_N.tolist(), strict=True)
    return [tokens[forget.prefix_tokens : length] for tokens, length in rows]


def _decode(task: EvaluationTask, rows: list[list[int]]) -> list[str]:
    return list(task.tokenizer.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=False))
