"""Memorisation: what of the forget set the model still says."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from evaluators.metrics.exact_match import exact_match
from evaluators.metrics.extraction_likelihood import extraction_likelihood, sampled_prefixes, set_overlap
from evaluators.metrics.memorization_accuracy import memorization_accuracy
from evaluators.metrics.semantic_similarity import Embedder, row_cosine
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Metric, Model, PositiveCount, Sample, Sequences
from harness.toolkit.decoding import Continuations, greedy_continuations
from harness.toolkit.keys import texts_key
from harness.toolkit.sampling import sample
from harness.toolkit.texts import before_end, cleaned, decoded, retokenized, tokenized

PAPER = "EMSO paper, section 4.1.3"
SAMPLES = 4
WINDOW_TOKENS = 200
"""New tokens after each window of the `table` definition, at most."""


@dataclass(frozen=True, kw_only=True)
class Memorization(Evaluator):
    """EL_n, MA, SS and exact match on the forget set.

    `exact`: greedy decoding after every prefix. `table`: texts decoded and tokenised again, up to 200 tokens
    sampled after each fifth of the length, sets of n-grams, and MA at those four places only.
    """

    version = 2
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
            share(f"el_{self.n}", f"EL_{self.n}", PAPER, column=1, axis=2),
            share("ma", "MA", PAPER, column=2, axis=1, headline=True),
            share("ss", "SS", PAPER, low=-1.0, column=3, judge="similarity"),
            tokens("exact_match", "Exact match", "EMSO paper, section 4.4", column=4),
            tokens("exact_match_original", "Exact match with the original", "EMSO paper, figure 5"),
            share("ma_all", "MA (all positions)", "Tirumala et al., arXiv:2205.10770", ranked=False),
        )

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        """Return the numbers under this definition; exact match is greedy under both."""
        chosen = self._el_sample(task.forget)
        prefixes = [[task.forget.prefix_tokens, *chosen.get(place, ())] for place in range(len(task.forget))]
        found = greedy_continuations(model, task.forget, prefixes)
        numbers, by_sequence = (
            self._table(model, task, chosen) if self.definition == "table" else self._exact(task, found, chosen)
        )
        continuations = self._continuations(found)
        numbers |= {
            "exact_match": float(
                np.mean([exact_match(*pair) for pair in zip(continuations, _truth(task.forget), strict=True)])
            ),
            "exact_match_original": self._match_with_original(task, continuations),
            "ma_all": _mean(_accuracies(found, lambda length: (1, length))),
        }
        notes = {
            "near_ties": found.near_ties,
            "near_tie_limit": found.near_tie_limit,
            "el_sequences": len(chosen),
            "el_prefixes": sum(map(len, chosen.values())),
            "sequences": len(task.forget),
            "standard_errors": {name: standard_error(values) for name, values in by_sequence.items()},
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

    def _exact(
        self, task: EvaluationTask, found: Continuations, chosen: dict[int, list[int]]
    ) -> tuple[dict[str, float], dict[str, list[float]]]:
        """Return the ranked numbers, and of those that are means over sequences what each sequence has."""
        prefix = task.forget.prefix_tokens
        likelihoods = [extraction_likelihood(found, place, self.n, at) for place, at in chosen.items()]
        accuracies = _accuracies(found, lambda length: (prefix, length - 1))
        numbers = {
            f"el_{self.n}": float(np.nanmean(likelihoods)),
            "ma": _mean(accuracies),
            "ss": self._similarity(task, self._continuations(found), _truth(task.forget)),
        }
        return numbers, {f"el_{self.n}": likelihoods, "ma": accuracies}

    def _table(
        self, model: Model, task: EvaluationTask, chosen: Collection[int]
    ) -> tuple[dict[str, float], dict[str, list[float]]]:
        """Return what `_exact` does, under the other definition."""
        forget = retokenized(task.tokenizer, task.forget)
        windows = _windows(forget.lengths_N.tolist())
        predicted_NT = greedy_continuations(model, forget, [[]] * len(forget)).predicted_NT
        hits = [predicted_NT[rows, window] == forget.tokens_NT[rows, window] for window, rows in windows.items()]
        written, truth, written_by = [], [], []
        for window, rows in windows.items():
            if asked := [row for row in rows if row in chosen]:
                new_tokens = min(WINDOW_TOKENS, model.config.max_position_embeddings - window)
                texts = sample(model, forget.tokens_NT[asked, :window], new_tokens, seed=task.seed + window, top_k=50)
                written += [before_end(text, task.tokenizer.eos_token_id) for text in texts.tolist()]
                truth += [forget.tokens_NT[row, window : int(forget.lengths_N[row])].tolist() for row in asked]
                written_by += asked
        generated, reference = (_read_again(task, rows) for rows in (written, truth))
        overlaps = [set_overlap(ours, theirs, self.n) for ours, theirs in zip(generated, reference, strict=True)]
        numbers = {
            f"el_{self.n}": float(np.mean(overlaps)),
            "ma": float(torch.cat(hits).float().mean()),
            "ss": self._similarity(task, generated, reference),
        }
        by_sequence = {
            f"el_{self.n}": _means_by_row(written_by, overlaps),
            "ma": _means_by_row([row for rows in windows.values() for row in rows], torch.cat(hits).tolist()),
        }
        return numbers, by_sequence

    def _similarity(self, task: EvaluationTask, generated: list[list[int]], reference: list[list[int]]) -> float:
        embedder = task.judge("similarity", Embedder)
        table = self.definition == "table"
        embed = embedder.encode if table else embedder.embed
        ours, theirs = (
            _cleaned(task, rows, special=True) if table else decoded(task.tokenizer, rows)
            for rows in (generated, reference)
        )
        key = "similarity_reference", str(self.version), self.definition, embedder.digest, texts_key(theirs)
        truth = task.cached(key, lambda: {"embeddings": embed(theirs)})
        return float(row_cosine(embed(ours), truth["embeddings"]).mean())

    def _match_with_original(self, task: EvaluationTask, continuations: list[list[int]]) -> float:
        def make() -> dict[str, np.ndarray]:
            prefixes = [[task.forget.prefix_tokens]] * len(task.forget)
            rows = self._continuations(greedy_continuations(task.load_original(), task.forget, prefixes))
            return {"tokens": np.array([row + [-1] * (task.forget.tokens_NT.shape[1] - len(row)) for row in rows])}

        key = "original_continuations", str(self.version), task.original_digest(), task.forget.digest
        stored = task.cached(key, make)["tokens"]
        originals = [[token for token in row if token >= 0] for row in stored.tolist()]
        return float(
            np.mean([exact_match(ours, theirs) for ours, theirs in zip(continuations, originals, strict=True)])
        )

    def _samples(self, task: EvaluationTask, continuations: list[list[int]]) -> tuple[Sample, ...]:
        prefix, shown = task.forget.prefix_tokens, range(min(SAMPLES, len(task.forget)))
        prompts = decoded(task.tokenizer, [task.forget.tokens_NT[place, :prefix].tolist() for place in shown])
        generated = decoded(task.tokenizer, [continuations[place] for place in shown])
        truth = decoded(task.tokenizer, [_truth(task.forget)[place] for place in shown])
        return tuple(Sample("forget", *texts) for texts in zip(prompts, generated, truth, strict=True))


def _metric(name: str, title: str, source: str, *, low: float = 0.0, **others: Any) -> Metric:
    return Metric(name=name, title=title, source=source, low=low, better="lower", group="erasure", **others)


def _accuracies(found: Continuations, span: Callable[[int], tuple[int, int]]) -> list[float]:
    lengths = found.sequences.lengths_N.tolist()
    return [
        memorization_accuracy(found.sequences.tokens_NT[place], found.predicted_NT[place], *span(length))
        for place, length in enumerate(lengths)
    ]


def _mean(values: list[float]) -> float:
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of what each sequence has; NaN for fewer than two that are known.

    Example:
        >>> round(standard_error([0.0, 1.0, 0.0, 1.0, float("nan")]), 4)
        0.2887
    """
    known = np.asarray(values)[~np.isnan(values)]
    return float(np.std(known, ddof=1) / math.sqrt(len(known))) if len(known) > 1 else math.nan


def _means_by_row(rows: Sequence[int], values: Sequence[float]) -> list[float]:
    """Return the mean of each row's values, in the rows' order."""
    by_row: dict[int, list[float]] = {}
    for row, value in zip(rows, values, strict=True):
        by_row.setdefault(row, []).append(value)
    return [float(np.mean(by_row[row])) for row in sorted(by_row)]


def _truth(forget: Sequences) -> list[list[int]]:
    rows = zip(forget.tokens_NT.tolist(), forget.lengths_N.tolist(), strict=True)
    return [tokens[forget.prefix_tokens : length] for tokens, length in rows]


def _windows(lengths: Sequence[int]) -> dict[int, list[int]]:
    """Return the places that `table` looks at, in tokens, and the sequences that each is a fifth of."""
    rows: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        for window in sorted({length * fifth // 5 for fifth in range(1, 5)} - {0}):
            rows.setdefault(window, []).append(row)
    return dict(sorted(rows.items()))


def _cleaned(task: EvaluationTask, rows: list[list[int]], *, special: bool) -> list[str]:
    return [cleaned(text) for text in decoded(task.tokenizer, rows, special=special)]


def _read_again(task: EvaluationTask, rows: list[list[int]]) -> list[list[int]]:
    return tokenized(task.tokenizer, _cleaned(task, rows, special=False))
