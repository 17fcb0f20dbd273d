"""Generation."""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from evaluators.metrics import ngrams, weighted_mean
from evaluators.metrics.semantic_similarity import Embedder, row_cosine
from harness import contracts
from harness.contracts import Evaluation, EvaluationTask, Generations, Metric, Model, PositiveCount, Sample, exponential
from harness.toolkit import CausalJudge, Scores

FIRST_KMEANS_SEED = 25
TABLE_COHERENCE_TOKENS = 128
"""Limit of SimCSE's own package."""


@dataclass(frozen=True, kw_only=True)
class Generation(contracts.Evaluator):
    """Perplexity under a judge, rep_n, div_n, coherence and MAUVE of sampled continuations.

    `exact`: the judge scores only the generated tokens, diversity is a share of n-grams, MAUVE compares texts of one
    length and is averaged over clusterings. `table`: as in the published tables.
    """

    version = 5
    judges = ("perplexity", "features", "coherence")

    rep: PositiveCount = 2
    """rep_n's n, in words."""
    div: PositiveCount = 3
    """div_n's n, in words."""
    mauve_seeds: PositiveCount = 5
    """Clusterings to average MAUVE over (`exact`)."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        share = partial(Metric, better="higher", unit="fraction", low=0.0, high=1.0, group="generation")
        of_prompt = partial(share, items="prompt")
        su = partial(of_prompt, source="Su et al., arXiv:2202.06417")
        # `table` averages over batches of texts with their padding: no text has a perplexity of its own.
        base = share if self.definition == "table" else of_prompt
        surprise = partial(base, better="lower", unit="perplexity", low=1.0, high=math.inf, aggregate="exp_mean")
        return (
            surprise(name="perplexity", title="Perplexity", source="EMSO paper, appendix E"),
            su(name=f"rep_{self.rep}", title=f"Rep_{self.rep}", better="lower"),
            su(name=f"div_{self.div}", title=f"Div_{self.div}"),
            of_prompt(name="coherence", title="Coherence", low=-1.0, source="Gao et al., arXiv:2104.08821"),
            share(name="mauve", title="MAUVE", source="Pillutla et al., arXiv:2102.01454"),
        )

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        written = task.generations(self.definition)
        texts = written.texts
        table = self.definition == "table"
        judge = task.judge("perplexity", CausalJudge)
        # The table's perplexity is of padded batches, which say nothing that MAUVE could use.
        scores = None if table else self._score(judge, written.prompts, texts)
        surprise = perplexity(scores.nll) if scores else table_perplexity(judge, written.prompts, texts)
        scored = {judge.digest: scores} if scores else {}
        human = {"perplexity": self._human_perplexity(task, written, judge)}
        del judge  # Makes room: the judges of the paper's size do not fit together.
        mauve_by_seed, human["features"] = self._mauve(task, written, scored)
        repeats, differs = (table_rep_n, table_div_n) if table else (rep_n, div_n)
        per_item = {
            f"rep_{self.rep}": np.array([repeats(text, self.rep) for text in texts]),
            f"div_{self.div}": np.array([differs(text, self.div) for text in texts]),
            "coherence": self._coherences(task, written),
        }
        # Lists, so that a mean of fp32 values is taken in fp64.
        numbers = {name: weighted_mean(values.tolist()) for name, values in per_item.items()}
        numbers["perplexity"] = surprise
        numbers["mauve"] = float(np.mean(mauve_by_seed)) if mauve_by_seed else math.nan
        weights = {}
        if scores:
            per_item["perplexity"] = np.array([float(np.mean(row)) if row else math.nan for row in scores.nll])
            weights["perplexity"] = np.array([len(row) for row in scores.nll])
        notes = {"prompts": len(written.prompts), "human_perplexity": human}
        columns = zip(written.prompts, texts, written.references, strict=True)
        samples = tuple(Sample("utility", *column) for column in islice(columns, task.sample_count))
        return Evaluation(numbers, samples, notes, per_item, item_weights=weights)

    def _score(self, judge: CausalJudge, prompts: Sequence[str], texts: Sequence[str]) -> Scores:
        if self.definition == "table":
            joined = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
            return judge.score([""] * len(texts), joined, names=True)
        return judge.score(prompts, texts)

    def _coherences(self, task: EvaluationTask, written: Generations) -> np.ndarray:
        embedder = task.judge("coherence", Embedder)
        table = self.definition == "table"
        embed = partial(embedder.encode, tokens=TABLE_COHERENCE_TOKENS) if table else embedder.embed
        key = "coherence_prompts", str(self.version), self.definition, embedder.digest, written.digest
        prompts = task.cached(key, lambda: {"embeddings": embed(written.prompts)})
        return row_cosine(prompts["embeddings"], embed(written.texts))

    def _human(self, task: EvaluationTask, written: Generations, judge: CausalJudge) -> dict[str, np.ndarray]:
        def make() -> dict[str, np.ndarray]:
            scores = self._score(judge, written.prompts, written.references)
            return {"features": self._features(scores), "perplexity": np.array([perplexity(scores.nll)])}

        return task.cached(("human", str(self.version), self._reading, judge.digest, written.digest), make)

    def _human_perplexity(self, task: EvaluationTask, written: Generations, judge: CausalJudge) -> float:
        def make() -> dict[str, np.ndarray]:
            return {"perplexity": np.array([table_perplexity(judge, written.prompts, written.references)])}

        if self.definition == "table":
            key = "human_perplexity", str(self.version), self._reading, judge.digest, written.digest
            return float(task.cached(key, make)["perplexity"][0])
        return float(self._human(task, written, judge)["perplexity"][0])

    @property
    def _reading(self) -> str:
        return "table, names are tokens" if self.definition == "table" else self.definition

    def _features(self, scores: Scores) -> np.ndarray:
        return scores.last_ND if self.definition == "table" else scores.mean_ND

    def _mauve(
        self, task: EvaluationTask, written: Generations, scored: Mapping[str, Scores]
    ) -> tuple[list[float], float]:
        """Return MAUVE for each clustering, and its judge's perplexity of the human texts.

        Differs from the paper: under `exact` a text's feature is the mean of its hidden states. By a small judge's last
        state, text of perplexity 1,500 scored 0.72; by the mean, 0.01.
        """
        judge = task.judge("features", CausalJudge)
        scores = scored.get(judge.digest) or self._score(judge, written.prompts, written.texts)
        human = self._human(task, written, judge)
        seeds = [FIRST_KMEANS_SEED + extra for extra in range(1 if self.definition == "table" else self.mauve_seeds)]
        return mauve_score(self._features(scores), human["features"], seeds), float(human["perplexity"][0])


TABLE_BATCH = 16
TABLE_TOKENS = 200
"""Texts in a batch, and tokens of a text, under `table`."""


def perplexity(nll: Sequence[Sequence[float]]) -> float:
    """Return exp of the judge's mean NLL over all generated tokens; NaN without one.

    A model that repeats itself falls far below the original.

    Differs from the paper: the prompt's own tokens are not counted.

    Source: EMSO paper, appendix E.

    Example:
        >>> perplexity([[0.0], [0.0, 0.0]]), perplexity([[800.0]])
        (1.0, inf)
    """
    values = [value for row in nll for value in row]
    return exponential(float(np.mean(values))) if values else float("nan")


def table_perplexity(judge: CausalJudge, prompts: Sequence[str], texts: Sequence[str]) -> float:
    """Return the published tables' perplexity, almost certainly; NaN below 16 texts.

    Prompt and generation are cut at 200 tokens, in full batches of 16; padding is predicted too, as ends of text, but
    not attended to. The result is exp of the mean of the batches' means.

    Differs from the paper: it does not describe this; these are the habits of arXiv:2402.10052's code.
    """
    joined = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    whole = len(joined) - len(joined) % TABLE_BATCH
    batches = (joined[start : start + TABLE_BATCH] for start in range(0, whole, TABLE_BATCH))
    return perplexity([[judge.padded_mean_nll(batch, TABLE_TOKENS) for batch in batches]])


def rep_n(text: str, n: int) -> float:
    """Return 1 − unique / all n-grams of whitespace words: 0 without repetition, near 1 for one n-gram.

    A text without an n-gram gets 1.0, the worst.

    Source: Su et al., arXiv:2202.06417, rep-n; EMSO paper, appendix E.

    Example:
        Of the bigrams "a b", "b a", "a b" two are different:

        >>> round(rep_n("a b a b", 2), 4)
        0.3333
    """
    return 1.0 - div_n(text, n)


def div_n(text: str, n: int) -> float:
    """Return unique / all n-grams of whitespace words; 0.0, the worst, for a text without one.

    Example:
        >>> round(div_n("a b a b", 2), 4)
        0.6667
    """
    grams = ngrams(text.split(), n)
    return len(set(grams)) / len(grams) if grams else 0.0


def table_rep_n(text: str, n: int) -> float:
    """Return rep-n as in the published tables: 0 without repetition, NaN without an n-gram.

    Words are separated by single spaces: two spaces contain an empty word, and newlines do not split.

    Differs from the paper: these are the habits of arXiv:2402.10052's code, which returns 0 where every text is left
    out.

    Example:
        Of the bigrams "a b", "b ", " a", "a b" three are different:

        >>> table_rep_n("a b  a b", 2), table_rep_n("word", 2)
        (0.25, nan)
    """
    grams = ngrams(text.split(" "), n)
    return 1.0 - len(set(grams)) / len(grams) if grams else math.nan


def table_div_n(text: str, n: int) -> float:
    """Return unique n-grams / words, the published tables' diversity; words and NaN as in `table_rep_n`.

    Differs from the paper: it cites Su et al., whose diversity is a product over n; its numbers fit only this.

    Example:
        Two different bigrams in four words:

        >>> table_div_n("a b a b", 2), table_div_n("word", 2)
        (0.5, nan)
    """
    words = text.split(" ")
    return len(set(ngrams(words, n))) / len(words) if len(words) >= n else math.nan


def mauve_score(generated_ND: np.ndarray, human_ND: np.ndarray, seeds: Sequence[int]) -> list[float]:
    """Return MAUVE for each k-means seed, from one model's features of N generated and N human texts.

    There are none without the optional package, or if a feature is not finite.

    Source: Pillutla et al., arXiv:2102.01454; the package's defaults: scaling 5, N / 10 clusters.
    """
    try:
        import mauve
    except ImportError:
        return []
    if not (np.isfinite(generated_ND).all() and np.isfinite(human_ND).all()):
        return []
    state = np.random.get_state()
    try:
        with _silence():
            compute = partial(mauve.compute_mauve, p_features=generated_ND, q_features=human_ND, verbose=False)
            return [float(compute(seed=seed).mauve) for seed in seeds]
    finally:
        np.random.set_state(state)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    stderr = os.dup(2)
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - os.devnull is a name, not a path of ours
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
