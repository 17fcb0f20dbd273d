"""Memorisation."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from evaluators import metrics as formulas
from evaluators.metrics.semantic_similarity import Embedder, row_cosine
from harness import contracts, toolkit
from harness.contracts import Evaluation, EvaluationTask, Metric, Model, PositiveCount, Sample, Sequences

PAPER = "EMSO paper, section 4.1.3"
WINDOW_TOKENS = 200
"""New tokens after each window under `table`, at most."""


@dataclass(frozen=True, kw_only=True)
class Memorization(contracts.Evaluator):
    """EL_n, MA, SS and exact match on the forget set, and the damage to unseen and general texts.

    Damage is teacher-forced: MA and mean NLL on unseen texts, and mean NLL on general texts.

    `exact`: greedy decoding after every prefix. `table`: texts decoded and tokenised again, up to 200 tokens sampled
    after each fifth of the length, sets of n-grams, and MA only at those four places.
    """

    version = 5
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
        share = partial(Metric, better="lower", unit="fraction", low=0.0, high=1.0, group="erasure", items="sequence")
        main = partial(share, source=PAPER)
        tokens = partial(share, unit="tokens", high=math.inf, ranked=False)
        every = partial(share, source="Tirumala et al., arXiv:2205.10770", ranked=False)
        return (
            main(name=f"el_{self.n}", title=f"EL_{self.n}"),
            main(name="ma", title="MA", attack="As erased"),
            main(name="ss", title="SS", low=-1.0),
            tokens(name="exact_match", title="Exact match", source="EMSO paper, section 4.4"),
            tokens(name="exact_match_original", title="Exact match with the original", source="EMSO paper, figure 5"),
            every(name="ma_all", title="MA (all positions)"),
            *DAMAGE,
        )

    def refuses_texts(self, forget: contracts.TextsShape) -> str | None:
        first = forget.longest // 5 if self.definition == "table" else 1
        most = forget.longest - max(first, 1)
        if self.n <= most:
            return None
        has = f"the longest sequence of the forget set has {most} there"
        remedy = f"set `n` to at most {most}, or name longer sequences"
        return f"EL_{self.n} needs {self.n} tokens after a prefix, and {has}: {remedy}."

    def prepare(self, original: Model, task: EvaluationTask) -> None:
        self._continuations_of_original(task, lambda: original)

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        forget = task.forget
        el_prefixes = self._el_prefixes(forget)
        prefixes = [[forget.prefix_tokens, *el_prefixes.get(row, ())] for row in range(len(forget))]
        after_prefixes, predicted_NT, el_N, near_ties = self._greedy(model, forget, prefixes, el_prefixes)
        weights: dict[str, np.ndarray] = {}
        if self.definition == "table":
            per_item, weights = self._table(model, task, el_prefixes)
        else:
            per_item = {
                f"el_{self.n}": el_N,
                "ma": toolkit.accuracies(forget, predicted_NT, first=forget.prefix_tokens, left_out=1),
                "ss": self._similarities(task, after_prefixes, toolkit.true_continuations(forget)),
            }
        original_continuations = after_prefixes
        if not task.is_original:
            original_continuations = self._continuations_of_original(task, task.load_original)
        per_item |= {
            "exact_match": match_lengths(after_prefixes, toolkit.true_continuations(forget)),
            "exact_match_original": match_lengths(after_prefixes, original_continuations),
            "ma_all": toolkit.accuracies(forget, predicted_NT, first=1, left_out=0),
        }
        for kind, texts in (("unseen", task.holdout), ("general", task.validation)):
            if texts is not None:
                predicted_NT, nll_NT = toolkit.score_tokens(model, texts)
                if kind == "unseen":
                    ma_N = toolkit.accuracies(texts, predicted_NT, first=texts.prefix_tokens, left_out=1)
                    per_item["unseen_ma"] = ma_N
                per_item[f"{kind}_nll"] = mean_nll_by_text(texts, nll_NT)
                weights[f"{kind}_nll"] = texts.lengths_N.numpy() - 1.0
        numbers = dict.fromkeys((metric.name for metric in self.metrics), math.nan)
        for name, values in per_item.items():
            numbers[name] = formulas.weighted_mean(values, weights.get(name))
        errors = {name: formulas.standard_error(per_item[name]) for name in (f"el_{self.n}", "ma")}
        notes = {"near_ties": near_ties, "standard_errors": errors}
        samples = self._samples(task, after_prefixes)
        return Evaluation(numbers, samples, notes, per_item, item_weights=weights)

    def _el_prefixes(self, forget: Sequences) -> dict[int, list[int]]:
        # The sample depends only on the data: seeds of a sweep repeat the erasure, not the question.
        generator = torch.Generator().manual_seed(int(forget.digest[:8] or "0", 16))
        count = min(self.el_sequences or len(forget), len(forget))
        prefixes: dict[int, list[int]] = {}
        for row in sorted(torch.randperm(len(forget), generator=generator)[:count].tolist()):
            longest = int(forget.lengths_N[row]) - self.n
            is_table = self.definition == "table"
            prefixes[row] = [] if is_table else formulas.sampled_prefixes(longest, self.el_prefixes, generator)
        return prefixes

    def _greedy(
        self, model: Model, forget: Sequences, prefixes: list[list[int]], el_prefixes: dict[int, list[int]]
    ) -> tuple[list[list[int]], torch.Tensor, np.ndarray, int]:
        """Return the model's continuation of each prefix, its first choices, EL_n, and the number of near-ties."""
        after_prefixes: list[list[int]] = [[]] * len(forget)
        predicted_NT, el_N, near_ties = torch.full_like(forget.tokens_NT, -1), np.full(len(forget), np.nan), 0
        for members, continuations in toolkit.continuations_by_group(model, forget, prefixes):
            rows = members.tolist()
            predicted_NT[members] = continuations.predicted_NT
            el_N[rows] = formulas.likelihoods(continuations, self.n, [el_prefixes.get(row, []) for row in rows])
            for row, tokens in zip(rows, after_prefix(continuations), strict=True):
                after_prefixes[row] = tokens
            near_ties += continuations.near_ties
        return after_prefixes, predicted_NT, el_N, near_ties

    def _table(
        self, model: Model, task: EvaluationTask, el_rows: Collection[int]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        forget = toolkit.retokenized(task.tokenizer, task.forget)
        predicted_NT = toolkit.greedy_continuations(model, forget, [[]] * len(forget)).predicted_NT
        hits, hit_rows, written, truth, written_by = [], [], [], [], []
        for window, rows in table_windows(forget.lengths_N.tolist()).items():
            hits += (predicted_NT[rows, window] == forget.tokens_NT[rows, window]).tolist()
            hit_rows += rows
            asked = [row for row in rows if row in el_rows]
            if asked:
                new_tokens = min(WINDOW_TOKENS, toolkit.room_after(model, window))
                prompts_NT = forget.tokens_NT[asked, :window]
                texts = toolkit.sample(model, prompts_NT, new_tokens, seed=task.seed + window, top_k=50)
                written += [toolkit.before_end(text, task.tokenizer.eos_token_id) for text in texts.tolist()]
                truth += [forget.tokens_NT[row, window : int(forget.lengths_N[row])].tolist() for row in asked]
                written_by += asked
        generated = toolkit.tokenized(task.tokenizer, toolkit.decoded(task.tokenizer, written, clean=True))
        reference = toolkit.tokenized(task.tokenizer, toolkit.decoded(task.tokenizer, truth, clean=True))
        overlaps = [set_overlap(ours, theirs, self.n) for ours, theirs in zip(generated, reference, strict=True)]
        el_means, texts_by_row = means_by_row(written_by, overlaps, len(forget))
        ma_means, positions_by_row = means_by_row(hit_rows, hits, len(forget))
        ss_means, _ = means_by_row(written_by, self._similarities(task, generated, reference), len(forget))
        # A longer sequence has more texts and positions, each of which counts the same.
        weights = {f"el_{self.n}": texts_by_row, "ma": positions_by_row, "ss": texts_by_row}
        return {f"el_{self.n}": el_means, "ma": ma_means, "ss": ss_means}, weights

    def _similarities(self, task: EvaluationTask, generated: list[list[int]], reference: list[list[int]]) -> np.ndarray:
        embedder = task.judge("similarity", Embedder)
        table = self.definition == "table"
        embed = embedder.encode if table else embedder.embed
        ours = toolkit.decoded(task.tokenizer, generated, special=table, clean=table)
        theirs = toolkit.decoded(task.tokenizer, reference, special=table, clean=table)
        key = "similarity_reference", str(self.version), self.definition, embedder.digest, toolkit.texts_key(theirs)
        truth = task.cached(key, lambda: {"embeddings": embed(theirs)})
        return row_cosine(embed(ours), truth["embeddings"]).astype(np.float64)

    def _continuations_of_original(self, task: EvaluationTask, load: Callable[[], Model]) -> list[list[int]]:
        def make() -> dict[str, np.ndarray]:
            prefixes = [[task.forget.prefix_tokens]] * len(task.forget)
            tokens = np.full(task.forget.tokens_NT.shape, -1)
            continuations = toolkit.greedy_continuations(load(), task.forget, prefixes)
            for row, continuation in enumerate(after_prefix(continuations)):
                tokens[row, : len(continuation)] = continuation
            return {"tokens": tokens}

        key = "original_continuations", str(self.version), task.original_digest(), task.forget.digest
        return [row[row >= 0].tolist() for row in task.cached(key, make)["tokens"]]

    def _samples(self, task: EvaluationTask, generated: list[list[int]]) -> tuple[Sample, ...]:
        count = task.sample_count
        prompts = task.forget.tokens_NT[:count, : task.forget.prefix_tokens].tolist()
        parts = (prompts, generated[:count], toolkit.true_continuations(task.forget)[:count])
        columns = [toolkit.decoded(task.tokenizer, rows) for rows in parts]
        return tuple(Sample("forget", *texts) for texts in zip(*columns, strict=True))[:count]


_damage = partial(Metric, unit="nats a token", low=0.0, high=math.inf, group="damage", ranked=False)
_share = partial(_damage, better="higher", unit="fraction", high=1.0, source=PAPER)
_nll = partial(_damage, better="lower", source="Jelinek et al., J. Acoust. Soc. Am. 62, 1977")
DAMAGE = (
    _share(name="unseen_ma", title="MA on unseen texts", items="holdout"),
    _nll(name="unseen_nll", title="NLL of unseen texts", items="holdout"),
    _nll(name="general_nll", title="NLL of general texts", items="validation"),
)


def mean_nll_by_text(texts: Sequences, nll_NT: torch.Tensor) -> np.ndarray:
    """Return the mean NLL of each text's tokens after its first, in nats; NaN without one.

    Example:
        >>> texts = Sequences(torch.tensor([[5, 6, 7], [5, 8, 0]]), torch.tensor([3, 2]), 1, "")
        >>> mean_nll_by_text(texts, torch.tensor([[math.nan, 1.0, 2.0], [math.nan, 3.0, math.nan]]))
        array([1.5, 3. ])
    """
    pairs = zip(nll_NT, texts.lengths_N.tolist(), strict=True)
    return np.array([float(nll_T[1:length].mean()) for nll_T, length in pairs])


def after_prefix(continuations: toolkit.Continuations) -> list[list[int]]:
    """Return each sequence's continuation after its prefix."""
    prefix = continuations.sequences.prefix_tokens
    return [continuations.of(row, prefix) for row in range(len(continuations.sequences))]


def match_lengths(generated: list[list[int]], reference: list[list[int]]) -> np.ndarray:
    """Return each sequence's number of tokens before the first difference."""
    pairs = zip(generated, reference, strict=True)
    return np.array([float(formulas.exact_match(ours, theirs)) for ours, theirs in pairs])


def means_by_row(
    rows: Sequence[int], values: Sequence[float] | np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each row's values and their number; `rows` has the row of each value.

    Example:
        >>> means_by_row([1, 0, 1], [0.0, 0.5, 1.0], 3)
        (array([0.5, 0.5, nan]), array([1., 2., 0.]))
    """
    counts = np.bincount(rows, minlength=count).astype(float)
    sums = np.bincount(rows, weights=values, minlength=count)
    means = np.divide(sums, counts, out=np.full(count, math.nan), where=counts > 0)
    return means, counts


def set_overlap(generated: Sequence[int], reference: Sequence[int], n: int) -> float:
    """Return the share of `generated`'s distinct n-grams that occur in `reference`; 0 if either has none.

    Source: Jang et al., arXiv:2210.01504, OVERLAP_n; EMSO paper, section 4.1.3.

    Differs from the paper: it says lists, and the published tables were almost certainly made with sets.

    Example:
        >>> set_overlap([1, 2, 1, 2, 1], [1, 2], n=2)
        0.5
    """
    grams = set(formulas.ngrams(generated, n))
    return len(grams & set(formulas.ngrams(reference, n))) / len(grams) if grams else 0.0


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
