"""Relearning."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.nn.utils.rnn import pad_sequence

from evaluators.metrics import attack_share, item_evaluation, likelihoods, recalled, seeded_prefixes, weighted_mean
from harness import contracts, toolkit
from harness.contracts import EvaluationTask, Json, MeasuredCurve, Metric, Model, Positive, PositiveCount, Sequences
from harness.errors import TrialError

MAX_TEXTS = 32
"""Default of texts shown, and of texts measured."""
RELEARNING = "after Lynch et al., arXiv:2402.16835; measured on texts that are not shown"
IN_CONTEXT = "after Lynch et al., arXiv:2402.16835; nothing but texts in the context"
RETAIN_ONLY = "after Siddiqui et al., arXiv:2505.22310"
ARMS = {
    "forget": ("relearned", "Relearning on other forget texts"),
    "retain": ("relearned_by_retain", "Relearning on retain texts"),
}
"""Metrics' name and curve's title, by the texts that are trained on."""


@dataclass(frozen=True, kw_only=True)
class Relearning(contracts.Evaluator):
    """MA, extraction strength and EL_n of forget sequences that an attacker never shows, in three attacks.

    *Relearned*: a copy is trained for a few steps on some forget sequences, and others without copies are measured.
    *Retain only*: it is trained on retain texts. *In context*: as many shown texts as fit come before the measured one.

    MA and extraction strength of the first two are mean heights of curves over the steps, 0 included. The learning rate
    with the highest MA counts; EL_n is after its last step.
    """

    version = 1
    needs_fp32 = True
    reads = ("retain",)

    shown: PositiveCount | None = None
    """Forget sequences to train on; null: half of all, at most 32."""
    measured: PositiveCount | None = None
    """Other sequences to measure; null: the rest, at most 32."""
    steps: tuple[PositiveCount, ...] = (1, 2, 4, 8)
    """Training steps after which to measure."""
    rates: tuple[Positive, ...] = (2e-5, 1e-4, 5e-4)
    """AdamW's learning rates to try."""
    batch: PositiveCount = 8
    """Texts in one training step."""
    n: PositiveCount = 3
    """Length of EL's n-grams, in tokens."""
    el_prefixes: PositiveCount = 1
    """Prefixes of each sequence for EL."""
    context: PositiveCount = 5
    """Shown texts before a measured one."""

    def __post_init__(self) -> None:
        if not (self.steps and self.rates):
            raise ValueError(f"{'rates' if self.steps else 'steps'} is an empty list: give at least one number")
        object.__setattr__(self, "steps", tuple(sorted(set(self.steps))))
        object.__setattr__(self, "rates", tuple(sorted(set(self.rates))))

    @property
    def metrics(self) -> tuple[Metric, ...]:
        likelihood = partial(attack_share, name=f"relearned_el_{self.n}", title=f"EL_{self.n} (relearned)")
        return (
            *recall_metrics("relearned", "Relearned", RELEARNING),
            likelihood(source=RELEARNING),
            *recall_metrics("relearned_by_retain", "Retain only", RETAIN_ONLY),
            *recall_metrics("in_context", "In context", IN_CONTEXT),
        )

    def _counts(self, sequences: int) -> tuple[int, int]:
        shown = self.shown or min(MAX_TEXTS, sequences // 2, sequences - (self.measured or 1))
        return shown, self.measured or min(MAX_TEXTS, sequences - shown)

    def refuses_texts(self, forget: contracts.TextsShape) -> str | None:
        shown, measured = self._counts(forget.sequences)
        if min(shown, measured) >= 1 and shown + measured <= forget.sequences:
            return None
        asks = f"shows {max(shown, 1)} forget sequences and measures {max(measured, 1)} others"
        remedy = "Lower shown or measured, or give it more sequences (data.forget.sequences)."
        return f"{asks}, and there are {forget.sequences}. {remedy}"

    def evaluate(self, model: Model, task: EvaluationTask) -> contracts.Evaluation:
        from harness.toolkit import PairModel

        forget, retain = task.forget, task.retain
        assert retain is not None, "it is read"
        count, asked = self._counts(len(forget))
        order = shuffled(forget)
        continuations = [tuple(tokens) for tokens in toolkit.true_continuations(forget)]
        rows = unseen(order[count:], order[:count], continuations, asked)
        measured, shown = toolkit.chosen_sequences(forget, rows), toolkit.chosen_sequences(forget, order[:count])
        arms = {"forget": shown, "retain": toolkit.chosen_sequences(retain, shuffled(retain)[:count])}
        values: dict[str, np.ndarray] = {}
        curves: list[MeasuredCurve] = []
        notes: dict[str, Json] = {"shown": count, "measured": len(rows), "warnings": []}
        if len(rows) < asked:
            few = f"{len(rows)} sequences are measured after relearning, fewer than asked for"
            notes["warnings"].append(f"{few}: the continuations of all others are among those that are shown")
        if rows and isinstance(model, PairModel):
            reason = "two models that are decoded together change no weights: whoever has them has the original"
            notes["warnings"].append(f"no relearning is measured, since {reason}")
        elif rows:
            values, curves = self._relearned(model, arms, measured, task, notes)
        if rows:
            task.progress("other texts in the context")
            values |= self._in_context(model, shown, measured, notes["warnings"])
        per_item: dict[str, np.ndarray] = {}
        for metric in self.metrics:
            per_item[metric.name] = np.full(len(forget), np.nan)
            per_item[metric.name][rows] = values.get(metric.name, np.nan)
        return item_evaluation(per_item, notes, curves=tuple(curves))

    def _relearned(
        self, model: Model, arms: Mapping[str, Sequences], measured: Sequences, task: EvaluationTask, notes: Json
    ) -> tuple[dict[str, np.ndarray], list[MeasuredCurve]]:
        values: dict[str, np.ndarray] = {}
        curves: list[MeasuredCurve] = []
        steps = (0, *self.steps)
        rates: dict[str, float | None] = dict.fromkeys(arms)
        for arm, shown in arms.items():
            name, title = ARMS[arm]
            curves_SRKM = self._curves(model, arm, shown, measured, task, notes["warnings"])
            heights_RKM = mean_height(steps, curves_SRKM)
            worst = highest_row(heights_RKM[:, 0])
            if worst is not None:
                rates[arm] = self.rates[worst]
                values[f"{name}_ma"], values[f"{name}_es"] = heights_RKM[worst]
                ma_S = tuple(map(weighted_mean, curves_SRKM[:, worst, 0]))
                xs = tuple(map(float, steps))
                curves.append(MeasuredCurve(f"relearned_by_{arm}", title, "steps", "MA, not shown", xs, ma_S))
        if (rate := rates["forget"]) is not None:
            last, shown = self.steps[-1:], arms["forget"]
            made = toolkit.trained_briefly(model, shown, steps=last, learning_rate=rate, batch=self.batch, seed=0)
            [(_, trained)] = made
            prefixes = seeded_prefixes(measured, self.n, self.el_prefixes)
            continuations = toolkit.greedy_continuations(trained, measured, prefixes)
            values[f"relearned_el_{self.n}"] = likelihoods(continuations, self.n, prefixes)
        notes["worst_rate"] = rates
        return values, curves

    def _curves(
        self, model: Model, arm: str, shown: Sequences, measured: Sequences, task: EvaluationTask, warnings: list[str]
    ) -> np.ndarray:
        curves_SRKM = np.full((1 + len(self.steps), len(self.rates), 2, len(measured)), np.nan)
        curves_SRKM[0] = recalled(measured, toolkit.greedy_choices(model, measured))
        for number, rate in enumerate(self.rates):
            task.progress(f"training on {arm} texts, rate {number + 1} of {len(self.rates)}")
            made = toolkit.trained_briefly(model, shown, steps=self.steps, learning_rate=rate, batch=self.batch, seed=0)
            try:
                for point, (_, trained) in enumerate(made, start=1):
                    curves_SRKM[point, number] = recalled(measured, toolkit.greedy_choices(trained, measured))
            except TrialError as error:
                left_out = f"training on {arm} texts at a rate of {rate:g} is left out"
                warnings.append(f"{left_out}, and the worst other rate counts: {error}")
        return curves_SRKM

    def _in_context(
        self, model: Model, shown: Sequences, measured: Sequences, warnings: list[str]
    ) -> dict[str, np.ndarray]:
        whole, before, is_alone = [], [], []
        for row, length in enumerate(measured.lengths_N.tolist()):
            room = toolkit.room_after(model, length)
            others = that_fit(shown.lengths_N.tolist(), first=row % len(shown), most=self.context, room=room)
            context = [shown.tokens_NT[other, : shown.lengths_N[other]] for other in others]
            whole.append(torch.cat([*context, measured.tokens_NT[row, :length]]))
            before.append(len(whole[-1]) - length)
            is_alone.append(not others)
        lengths_N = torch.tensor([len(tokens) for tokens in whole], dtype=torch.long)
        joined = Sequences(pad_sequence(whole, batch_first=True), lengths_N, measured.prefix_tokens, digest="")
        joined_choices = toolkit.greedy_choices(model, joined)
        predicted_NT = torch.full_like(measured.tokens_NT, -1)
        for row, length in enumerate(measured.lengths_N.tolist()):
            predicted_NT[row, :length] = joined_choices[row, before[row] : before[row] + length]
        values_KM = recalled(measured, predicted_NT)
        values_KM[:, is_alone] = np.nan
        if any(is_alone):
            reason = "the model has no positions for another one before them"
            warnings.append(f"{sum(is_alone)} of {len(measured)} sequences are not measured in context: {reason}")
        return {"in_context_ma": values_KM[0], "in_context_es": values_KM[1]}


def recall_metrics(name: str, attack: str, source: str) -> tuple[Metric, Metric]:
    """Return an attack's MA, in the table of attacks, and its extraction strength."""
    share = partial(attack_share, source=source)
    return (
        share(name=f"{name}_ma", title=f"MA ({attack.lower()})", attack=attack),
        share(name=f"{name}_es", title=f"Extraction strength ({attack.lower()})"),
    )


def shuffled(sequences: Sequences) -> list[int]:
    """Return the sequences' indices in a random order that depends only on them."""
    generator = torch.Generator().manual_seed(int(sequences.digest[:8] or "0", 16))
    order: list[int] = torch.randperm(len(sequences), generator=generator).tolist()
    return order


def mean_height(steps: Sequence[int], values_S: ArrayLike) -> np.ndarray:
    """Return the mean height of curves over steps from 0: the area by trapezoids, divided by the last step.

    The first dimension is the steps.

    Example:
        >>> float(mean_height([0, 1, 2], [0.0, 1.0, 1.0]))
        0.75
    """
    heights = np.asarray(values_S, dtype=float)
    return np.asarray(np.trapezoid(heights, steps, axis=0) / steps[-1])


def highest_row(values_RM: ArrayLike) -> int | None:
    """Return the index of the first row with the highest mean; None if no row has one.

    Example:
        >>> highest_row([[0.0, 0.4], [0.3, float("nan")], [float("nan"), float("nan")]])
        1
    """
    means = np.array([weighted_mean(values_M) for values_M in np.asarray(values_RM)])
    return None if np.isnan(means).all() else int(np.nanargmax(means))


def unseen(candidates: Iterable[int], shown: Iterable[int], keys: Sequence[Hashable], most: int) -> list[int]:
    """Return the first `most` candidates whose key is none of the shown ones'.

    Example:
        >>> unseen([2, 3, 4], [0, 1], keys=["a", "b", "a", "c", "d"], most=1)
        [3]
    """
    taught = {keys[row] for row in shown}
    return [row for row in candidates if keys[row] not in taught][:most]


def that_fit(lengths: Sequence[int], *, first: int, most: int, room: int) -> list[int]:
    """Return at most `most` texts that fit in `room` tokens together, cyclically from `first` on.

    Example:
        >>> that_fit([50, 90, 40], first=2, most=2, room=100)
        [2, 0]
    """
    fitting: list[int] = []
    for turn in range(len(lengths)):
        number = (first + turn) % len(lengths)
        if len(fitting) < most and lengths[number] <= room:
            fitting.append(number)
            room -= lengths[number]
    return fitting
