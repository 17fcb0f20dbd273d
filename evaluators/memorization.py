"""Memorisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from evaluators.metrics import (
    accuracies,
    exact_match,
    likelihoods,
    means_by_row,
    sampled_prefixes,
    set_overlap,
    standard_error,
    weighted_mean,
)
from evaluators.metrics.semantic_similarity import Embedder, row_cosine
from harness import contracts
from harness.contracts import Evaluation, EvaluationTask, ItemKind, Metric, Model, PositiveCount, Sample, Sequences
from harness.toolkit import (
    Continuations,
    before_end,
    continuations_by_group,
    decoded,
    greedy_continuations,
    retokenized,
    room_after,
    sample,
    score_tokens,
    texts_key,
    tokenized,
    true_continuations,
)

PAPER = "EMSO paper, section 4.1.3"
TIRUMALA = "Tirumala et al., arXiv:2205.10770"
AFTER = "what it writes after a prefix"
SAME, FIRST_OTHER = "tokens after the prefix that it writes", "up to the first that differs"
WINDOW_TOKENS = 200
"""New tokens after each window under `table`, at most."""


@dataclass
class _Greedy:
    after_prefix: list[list[int]]
    predicted_NT: torch.Tensor
    el_N: np.ndarray
    near_ties: int = 0
    near_tie_limit: str = ""


@dataclass(frozen=True, kw_only=True)
class Memorization(contracts.Evaluator):
    """EL_n, MA, SS and exact match on the forget set, and the damage to unseen and general texts.

    Damage is teacher-forced: MA and mean NLL on unseen texts, and mean NLL on general texts.

    `exact`: greedy decoding after every prefix. `table`: texts decoded and tokenised again, up to 200 tokens sampled
    after each fifth of the length, sets of n-grams, and MA only at those four places.
    """

    version = 4
    judges = ("similarity",)
    reads_if_given = ("holdout", "validation")

    n: PositiveCount = 3
    """Length of EL's n-grams, in tokens."""
    el_sequences: PositiveCount | None = None
    """Size of a fixed random sample of sequences for EL; null: all."""
    el_prefixes: PositiveCount | None = None
    """Prefixes of each, spread over its length (`exact`); null: all."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        share = partial(erasure_metric, unit="fraction", high=1.0, source=PAPER)
        tokens = partial(erasure_metric, unit="tokens", high=math.inf, ranked=False)
        # Of a longer sequence `table` reads more texts and positions, each of which counts the same.
        texts, positions = ("texts", "positions") if self.definition == "table" else (None, None)
        el = (
            f"extraction likelihood: after each beginning of a sequence the model writes on; the share of its "
            f"{self.n}-token runs that stand in the rest of the sequence"
        )
        first = partial(share, axis=2, weights=texts)
        main = partial(share, axis=1, weights=positions, attack="As erased")
        meant = partial(share, low=-1.0, judge="similarity", weights=texts)
        as_text = partial(tokens, source="EMSO paper, section 4.4")
        as_original = partial(tokens, source="EMSO paper, figure 5")
        return (
            first(f"el_{self.n}", f"EL_{self.n}", el),
            main(
                "ma",
                "MA",
                "memorization accuracy: the share of a sequence's next tokens that are the model's first choice",
            ),
            meant("ss", "SS", f"semantic similarity of {AFTER} to the true continuation: cosine of embeddings"),
            as_text("exact_match", "Exact match", f"{SAME} as the text has them, {FIRST_OTHER}"),
            as_original(
                "exact_match_original", "Exact match with the original", f"{SAME} as the original does, {FIRST_OTHER}"
            ),
            share(
                "ma_all", "MA (all positions)", "MA over all positions, the prefix's too", ranked=False, source=TIRUMALA
            ),
            *DAMAGE,
        )

    def refuses_texts(self, forget: contracts.TextsShape) -> str | None:
        first = forget.longest // 5 if self.definition == "table" else 1
        most = forget.longest - max(first, 1)
        if self.n <= most:
            return None
        return (
            f"EL_{self.n} needs {self.n} tokens after a prefix, and the longest sequence of the forget set has {most} "
            f"there: set `n` to at most {most}, or name longer sequences."
        )

    def prepare(self, original: Model, task: EvaluationTask) -> None:
        self._continuations_of_original(task, lambda: original)

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        forget = task.forget
        el_prefixes = self._el_prefixes(forget)
        prefixes = [[forget.prefix_tokens, *el_prefixes.get(row, ())] for row in range(len(forget))]
        greedy = self._greedy(model, forget, prefixes, el_prefixes)
        if self.definition == "table":
            per_item, counts = self._table(model, task, el_prefixes)
        else:
            per_item, counts = self._exact(task, greedy), {}
        original_continuations = self._continuations_of_original(task, task.load_original)
        per_item |= {
            "exact_match": match_lengths(greedy.after_prefix, true_continuations(forget)),
            "exact_match_original": match_lengths(greedy.after_prefix, original_continuations),
            "ma_all": accuracies(forget, greedy.predicted_NT, first=1, left_out=0),
        }
        for kind, texts in (("unseen", task.holdout), ("general", task.validation)):
            if texts is not None:
                predicted_NT, nll_NT = score_tokens(model, texts)
                if kind == "unseen":
                    per_item["unseen_ma"] = accuracies(texts, predicted_NT, first=texts.prefix_tokens, left_out=1)
                per_item[f"{kind}_nll"] = mean_nll_by_text(texts, nll_NT)
                counts[f"{kind}_tokens"] = texts.lengths_N.numpy() - 1.0
        numbers = dict.fromkeys((metric.name for metric in self.metrics), math.nan)
        for metric in self.metrics:
            if metric.name in per_item:
                numbers[metric.name] = weighted_mean(per_item[metric.name], counts.get(metric.weights or ""))
        el = f"el_{self.n}"
        notes = {
            "near_ties": greedy.near_ties,
            "near_tie_limit": greedy.near_tie_limit,
            "el_sequences": len(el_prefixes),
            "el_prefixes": sum(map(len, el_prefixes.values())),
            "sequences": len(forget),
            "standard_errors": {el: standard_error(per_item[el]), "ma": standard_error(per_item["ma"])},
        }
        return Evaluation(numbers, self._samples(task, greedy.after_prefix), notes, per_item | counts)

    def _el_prefixes(self, forget: Sequences) -> dict[int, list[int]]:
        # The sample depends on the data alone: seeds of a sweep repeat the erasure, not the question.
        generator = torch.Generator().manual_seed(int(forget.digest[:8] or "0", 16))
        count = min(self.el_sequences or len(forget), len(forget))
        prefixes: dict[int, list[int]] = {}
        for row in sorted(torch.randperm(len(forget), generator=generator)[:count].tolist()):
            longest = int(forget.lengths_N[row]) - self.n
            is_table = self.definition == "table"
            prefixes[row] = [] if is_table else sampled_prefixes(longest, self.el_prefixes, generator)
        return prefixes

    def _greedy(
        self, model: Model, forget: Sequences, prefixes: list[list[int]], el_prefixes: dict[int, list[int]]
    ) -> _Greedy:
        greedy = _Greedy([[]] * len(forget), torch.full_like(forget.tokens_NT, -1), np.full(len(forget), np.nan))
        for members, continuations in continuations_by_group(model, forget, prefixes):
            rows = members.tolist()
            greedy.predicted_NT[members] = continuations.predicted_NT
            greedy.el_N[rows] = likelihoods(continuations, self.n, [el_prefixes.get(row, []) for row in rows])
            for row, tokens in zip(rows, after_prefix(continuations), strict=True):
                greedy.after_prefix[row] = tokens
            greedy.near_ties += continuations.near_ties
            greedy.near_tie_limit = continuations.near_tie_limit
        return greedy

    def _exact(self, task: EvaluationTask, greedy: _Greedy) -> dict[str, np.ndarray]:
        return {
            f"el_{self.n}": greedy.el_N,
            "ma": accuracies(task.forget, greedy.predicted_NT, first=task.forget.prefix_tokens, left_out=1),
            "ss": self._similarities(task, greedy.after_prefix, true_continuations(task.forget)),
        }

    def _table(
        self, model: Model, task: EvaluationTask, el_rows: Collection[int]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        forget = retokenized(task.tokenizer, task.forget)
        predicted_NT = greedy_continuations(model, forget, [[]] * len(forget)).predicted_NT
        hits, hit_rows, written, truth, written_by = [], [], [], [], []
        for window, rows in table_windows(forget.lengths_N.tolist()).items():
            hits += (predicted_NT[rows, window] == forget.tokens_NT[rows, window]).tolist()
            hit_rows += rows
            asked = [row for row in rows if row in el_rows]
            if asked:
                new_tokens = min(WINDOW_TOKENS, room_after(model, window))
                texts = sample(model, forget.tokens_NT[asked, :window], new_tokens, seed=task.seed + window, top_k=50)
                written += [before_end(text, task.tokenizer.eos_token_id) for text in texts.tolist()]
                truth += [forget.tokens_NT[row, window : int(forget.lengths_N[row])].tolist() for row in asked]
                written_by += asked
        generated = tokenized(task.tokenizer, decoded(task.tokenizer, written, clean=True))
        reference = tokenized(task.tokenizer, decoded(task.tokenizer, truth, clean=True))
        overlaps = [set_overlap(ours, theirs, self.n) for ours, theirs in zip(generated, reference, strict=True)]
        el_means, texts_by_row = means_by_row(written_by, overlaps, len(forget))
        ma_means, positions_by_row = means_by_row(hit_rows, hits, len(forget))
        ss_means, _ = means_by_row(written_by, self._similarities(task, generated, reference), len(forget))
        counts = {"texts": texts_by_row, "positions": positions_by_row}
        return {f"el_{self.n}": el_means, "ma": ma_means, "ss": ss_means}, counts

    def _similarities(self, task: EvaluationTask, generated: list[list[int]], reference: list[list[int]]) -> np.ndarray:
        embedder = task.judge("similarity", Embedder)
        table = self.definition == "table"
        embed = embedder.encode if table else embedder.embed
        ours = decoded(task.tokenizer, generated, special=table, clean=table)
        theirs = decoded(task.tokenizer, reference, special=table, clean=table)
        key = "similarity_reference", str(self.version), self.definition, embedder.digest, texts_key(theirs)
        truth = task.cached(key, lambda: {"embeddings": embed(theirs)})
        return row_cosine(embed(ours), truth["embeddings"]).astype(np.float64)

    def _continuations_of_original(self, task: EvaluationTask, load: Callable[[], Model]) -> list[list[int]]:
        def make() -> dict[str, np.ndarray]:
            prefixes = [[task.forget.prefix_tokens]] * len(task.forget)
            tokens = np.full(task.forget.tokens_NT.shape, -1)
            for row, continuation in enumerate(after_prefix(greedy_continuations(load(), task.forget, prefixes))):
                tokens[row, : len(continuation)] = continuation
            return {"tokens": tokens}

        key = "original_continuations", str(self.version), task.original_digest(), task.forget.digest
        return [row[row >= 0].tolist() for row in task.cached(key, make)["tokens"]]

    def _samples(self, task: EvaluationTask, generated: list[list[int]]) -> tuple[Sample, ...]:
        count = task.sample_count
        prompts = task.forget.tokens_NT[:count, : task.forget.prefix_tokens].tolist()
        parts = (prompts, generated[:count], true_continuations(task.forget)[:count])
        columns = [decoded(task.tokenizer, rows) for rows in parts]
        return tuple(Sample("forget", *texts) for texts in zip(*columns, strict=True))[:count]


def damage_metric(name: str, title: str, what: str, items: ItemKind, **others: Any) -> Metric:
    """Return an unranked metric, by default a mean NLL."""
    nll = {
        "better": "lower",
        "unit": "nats a token",
        "high": math.inf,
        "source": "Jelinek et al., J. Acoust. Soc. Am. 62, 1977",
    }
    about: dict[str, Any] = {"low": 0.0, "group": "damage", "ranked": False, "meaning": what} | nll | others
    return Metric(name=name, title=title, items=items, **about)


OF_MA = {"better": "higher", "unit": "fraction", "high": 1.0, "source": PAPER}
UNSEEN = "texts of the forget set's kind that the model never saw"
UNLIKELY = "mean negative log-likelihood that the model gives to the tokens of"
DAMAGE = (
    damage_metric("unseen_ma", "MA on unseen texts", f"MA on {UNSEEN}", "holdout", **OF_MA),
    damage_metric("unseen_nll", "NLL of unseen texts", f"{UNLIKELY} {UNSEEN}", "holdout", weights="unseen_tokens"),
    damage_metric(
        "general_nll", "NLL of general texts", f"{UNLIKELY} general texts", "validation", weights="general_tokens"
    ),
)


def mean_nll_by_text(texts: Sequences, nll_NT: torch.Tensor) -> np.ndarray:
    """Return the mean NLL of each text's tokens after its first, in nats; NaN without one.

    Example:
        >>> texts = Sequences(torch.tensor([[5, 6, 7], [5, 8, 0]]), torch.tensor([3, 2]), 1, "")
        >>> mean_nll_by_text(texts, torch.tensor([[math.nan, 1.0, 2.0], [math.nan, 3.0, math.nan]]))
        array([1.5, 3. ])
    """
    return np.array(
        [float(nll_T[1:length].mean()) for nll_T, length in zip(nll_NT, texts.lengths_N.tolist(), strict=True)]
    )


def erasure_metric(name: str, title: str, meaning: str, *, low: float = 0.0, **others: Any) -> Metric:
    """Return a metric that is better when lower."""
    about: dict[str, Any] = {"better": "lower", "group": "erasure", "items": "sequence", **others}
    return Metric(name=name, title=title, meaning=meaning, low=low, **about)


def after_prefix(continuations: Continuations) -> list[list[int]]:
    """Return each sequence's continuation after its prefix."""
    prefix = continuations.sequences.prefix_tokens
    return [continuations.of(row, prefix) for row in range(len(continuations.sequences))]


def match_lengths(generated: list[list[int]], reference: list[list[int]]) -> np.ndarray:
    """Return each sequence's number of tokens before the first difference."""
    return np.array([float(exact_match(ours, theirs)) for ours, theirs in zip(generated, reference, strict=True)])


def table_windows(lengths: Sequence[int]) -> dict[int, list[int]]:
    """Return the rows for each position of `table`, a fifth of their length.

    Example:
        >>> table_windows([5, 10])
        {1: [0], 2: [0, 1], 3: [0], 4: [0, 1], 6: [1], 8: [1]}
    """
    rows: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        for window in sorted({length * fifth // 5 for fifth in range(1, 5)} - {0}):
            rows.setdefault(window, []).append(row)
    return dict(sorted(rows.items()))
