"""Relearning."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.nn.utils.rnn import pad_sequence

from evaluators.metrics import (
    accuracies,
    attack_share,
    extraction_strengths,
    item_evaluation,
    likelihoods,
    seeded_prefixes,
    weighted_mean,
)
from harness import contracts
from harness.contracts import EvaluationTask, Json, MeasuredCurve, Metric, Model, Positive, PositiveCount, Sequences
from harness.errors import TrialError
from harness.toolkit import (
    chosen_sequences,
    greedy_choices,
    greedy_continuations,
    room_after,
    trained_briefly,
    true_continuations,
)

MAX_TEXTS = 32
"""Default of texts shown, and of texts measured."""
RELEARNING = "after Lynch et al., arXiv:2402.16835; measured on texts that are not shown"
IN_CONTEXT = "after Lynch et al., arXiv:2402.16835; nothing but texts in the context"
RETAIN_ONLY = "after Siddiqui et al., arXiv:2505.22310"


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
        last = self.steps[-1]
        mean = f"of sequences that are not shown: its mean over {last} training steps on"
        worst = f"at the worst of {len(self.rates)} learning rates"
        shown = f"of a sequence that stands after up to {self.context} others of the forget set, without training"
        el = f"EL_{self.n}"
        meaning = f"{el} of sequences that are not shown, after {last} training steps on others of the set"
        likelihood = partial(attack_share, source=RELEARNING, meaning=meaning)
        return (
            *recall_metrics("relearned", "Relearned", RELEARNING, f"{mean} others of the forget set, {worst}"),
            likelihood(name=f"relearned_el_{self.n}", title=f"{el} (relearned)"),
            *recall_metrics("relearned_by_retain", "Retain only", RETAIN_ONLY, f"{mean} retain texts alone, {worst}"),
            *recall_metrics("in_context", "In context", IN_CONTEXT, shown),
        )

    def _counts(self, sequences: int) -> tuple[int, int]:
        shown = self.shown or min(MAX_TEXTS, sequences // 2, sequences - (self.measured or 1))
        return shown, self.measured or min(MAX_TEXTS, sequences - shown)

    def refuses_texts(self, forget: contracts.TextsShape) -> str | None:
        shown, measured = self._counts(forget.sequences)
        if min(shown, measured) >= 1 and shown + measured <= forget.sequences:
            return None
        return (
            f"shows {max(shown, 1)} forget sequences and measures {max(measured, 1)} others, and there are "
            f"{forget.sequences}. Lower shown or measured, or give it more sequences (data.forget.sequences)."
        )

    def evaluate(self, model: Model, task: EvaluationTask) -> contracts.Evaluation:
        texts = self._texts(task)
        warnings: list[str] = []
        if not texts.is_whole:
            warnings.append(
                f"{len(texts.rows)} sequences are measured after relearning, fewer than asked for: the continuations "
                "of all others are among those that are shown"
            )
        values, notes = self._attacked(model, texts, task, warnings) if texts.rows else ({}, {})
        per_item: dict[str, np.ndarray] = {}
        for metric in self.metrics:
            per_item[metric.name] = np.full(len(task.forget), np.nan)
            if metric.name in values:
                per_item[metric.name][texts.rows] = values[metric.name]
        notes |= {
            "shown": len(texts.shown),
            "shown_digest": texts.shown.digest,
            "retain_shown": len(texts.retain),
            "retain_digest": texts.retain.digest,
            "measured": len(texts.rows),
            "warnings": warnings,
        }
        return item_evaluation(per_item, notes, curves=worst_curves(notes))

    def _attacked(
        self, model: Model, texts: Texts, task: EvaluationTask, warnings: list[str]
    ) -> tuple[dict[str, np.ndarray], dict[str, Json]]:
        from harness.toolkit import PairModel

        values: dict[str, np.ndarray] = {}
        notes: dict[str, Json] = {}
        if isinstance(model, PairModel):
            warnings.append(
                "two models that are decoded together change no weights, so no relearning is measured: whoever has "
                "their weights has the original"
            )
        else:
            values, notes = self._relearned(model, texts, task, warnings)
        task.progress("other texts in the context")
        values["in_context_ma"], values["in_context_es"], others = self._in_context(model, texts)
        if without := others.count(0):
            warnings.append(
                f"{without} of {len(texts.rows)} sequences are not measured in context: the model has no positions for "
                "another one before them"
            )
        return values, notes | {"fewest_in_context": min(others), "most_in_context": max(others)}

    def _texts(self, task: EvaluationTask) -> Texts:
        forget, retain = task.forget, task.retain
        assert retain is not None
        shown, measured = self._counts(len(forget))
        order = shuffled(forget)
        continuations = [tuple(tokens) for tokens in true_continuations(forget)]
        rows = unseen(order[shown:], order[:shown], continuations, measured)
        return Texts(
            shown=chosen_sequences(forget, order[:shown]),
            retain=chosen_sequences(retain, shuffled(retain)[:shown]),
            measured=chosen_sequences(forget, rows),
            rows=rows,
            is_whole=len(rows) == measured,
        )

    def _relearned(
        self, model: Model, texts: Texts, task: EvaluationTask, warnings: list[str]
    ) -> tuple[dict[str, np.ndarray], dict[str, Json]]:
        values: dict[str, np.ndarray] = {}
        curves: dict[str, Json] = {}
        rates: dict[str, Json] = {}
        arms = (("forget", "relearned", texts.shown), ("retain", "relearned_by_retain", texts.retain))
        for arm, name, shown in arms:
            curves_SRKM = self._curves(model, arm, shown, texts.measured, task, warnings)
            heights_RKM = mean_height((0, *self.steps), curves_SRKM)
            worst = highest_row(heights_RKM[:, 0])
            if worst is not None:
                values[f"{name}_ma"], values[f"{name}_es"] = heights_RKM[worst]
            rates[arm] = None if worst is None else self.rates[worst]
            curves[arm] = {
                "steps": [0, *self.steps],
                "rates": list(self.rates),
                "ma": mean_curves(curves_SRKM[:, :, 0]),
                "extraction_strength": mean_curves(curves_SRKM[:, :, 1]),
            }
        if rates["forget"] is not None:
            (trained,) = self._trained(model, texts.shown, rates["forget"], self.steps[-1:])
            prefixes = seeded_prefixes(texts.measured, self.n, self.el_prefixes)
            continuations = greedy_continuations(trained, texts.measured, prefixes)
            values[f"relearned_el_{self.n}"] = likelihoods(continuations, self.n, prefixes)
        return values, {"by_rate": curves, "worst_rate": rates}

    def _curves(
        self,
        model: Model,
        arm: str,
        shown: Sequences,
        measured: Sequences,
        task: EvaluationTask,
        warnings: list[str],
    ) -> np.ndarray:
        curves_SRKM = np.full((1 + len(self.steps), len(self.rates), 2, len(measured)), np.nan)
        curves_SRKM[0] = recalled(model, measured)
        for number, rate in enumerate(self.rates):
            task.progress(f"training on {arm} texts, rate {number + 1} of {len(self.rates)}")
            try:
                for point, trained in enumerate(self._trained(model, shown, rate, self.steps), start=1):
                    curves_SRKM[point, number] = recalled(trained, measured)
            except TrialError as error:
                warnings.append(
                    f"training on {arm} texts at a rate of {rate:g} is left out, and the worst other rate counts: "
                    f"{error}"
                )
        return curves_SRKM

    def _trained(self, model: Model, shown: Sequences, rate: float, steps: Sequence[int]) -> Iterator[Model]:
        for _, trained in trained_briefly(model, shown, steps=steps, learning_rate=rate, batch=self.batch, seed=0):
            yield trained

    def _in_context(self, model: Model, texts: Texts) -> tuple[np.ndarray, np.ndarray, list[int]]:
        shown, measured = texts.shown, texts.measured
        whole, before, counts = [], [], []
        for row, length in enumerate(measured.lengths_N.tolist()):
            room = room_after(model, length)
            others = that_fit(shown.lengths_N.tolist(), first=row % len(shown), most=self.context, room=room)
            context = [shown.tokens_NT[other, : shown.lengths_N[other]] for other in others]
            whole.append(torch.cat([*context, measured.tokens_NT[row, :length]]))
            before.append(len(whole[-1]) - length)
            counts.append(len(others))
        lengths_N = torch.tensor([len(tokens) for tokens in whole], dtype=torch.long)
        joined = Sequences(pad_sequence(whole, batch_first=True), lengths_N, measured.prefix_tokens, digest="")
        joined_choices = greedy_choices(model, joined)
        predicted_NT = torch.full_like(measured.tokens_NT, -1)
        for row, length in enumerate(measured.lengths_N.tolist()):
            predicted_NT[row, :length] = joined_choices[row, before[row] : before[row] + length]
        values_KM = teacher_forced(measured, predicted_NT)
        values_KM[:, np.array(counts) == 0] = np.nan
        return values_KM[0], values_KM[1], counts


@dataclass(frozen=True)
class Texts:
    """Shown and measured texts."""

    shown: Sequences
    retain: Sequences
    measured: Sequences
    rows: list[int]
    """Measured positions in the forget set."""
    is_whole: bool
    """As many are measured as requested."""


def recall_metrics(name: str, attack: str, source: str, how: str) -> tuple[Metric, Metric]:
    """Return an attack's MA, in the table of attacks, and its extraction strength."""
    share = partial(attack_share, source=source)
    strength = f"Extraction strength ({attack.lower()})"
    return (
        share(name=f"{name}_ma", title=f"MA ({attack.lower()})", attack=attack, meaning=f"MA {how}"),
        share(name=f"{name}_es", title=strength, meaning=f"extraction strength {how}"),
    )


def shuffled(sequences: Sequences) -> list[int]:
    """Return the sequences' indices in a random order that depends only on them."""
    generator = torch.Generator().manual_seed(int(sequences.digest[:8] or "0", 16))
    order: list[int] = torch.randperm(len(sequences), generator=generator).tolist()
    return order


def recalled(model: Model, sequences: Sequences) -> np.ndarray:
    """Return MA and extraction strength of each sequence, 2 by M."""
    return teacher_forced(sequences, greedy_choices(model, sequences))


def teacher_forced(sequences: Sequences, predicted_NT: torch.Tensor) -> np.ndarray:
    """Return the same from the first choice for each token."""
    ma = accuracies(sequences, predicted_NT, first=sequences.prefix_tokens, left_out=1)
    return np.stack([ma, extraction_strengths(sequences, predicted_NT)])


def worst_curves(notes: Mapping[str, Json]) -> tuple[MeasuredCurve, ...]:
    """Return MA after each step at the worst rate, for either kind of texts."""
    curves = []
    for arm, title in (("forget", "Relearning on other forget texts"), ("retain", "Relearning on retain texts")):
        rate = notes.get("worst_rate", {}).get(arm)
        if rate is not None:
            arm_notes = notes["by_rate"][arm]
            heights = arm_notes["ma"][arm_notes["rates"].index(rate)]
            steps = tuple(map(float, arm_notes["steps"]))
            curves.append(MeasuredCurve(f"relearned_by_{arm}", title, "steps", "MA, not shown", steps, tuple(heights)))
    return tuple(curves)


def mean_curves(curves_SRM: np.ndarray) -> list[list[float]]:
    """Return the mean over texts after each step, for each rate."""
    means = []
    for rate_curves_SM in np.moveaxis(curves_SRM, 1, 0):
        means.append([weighted_mean(step_values) for step_values in rate_curves_SM])
    return means


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
    """Return at most `most` texts that fit in `room` tokens together, from `first` on, cyclically.

    Example:
        >>> that_fit([50, 90, 40], first=1, most=2, room=100), that_fit([50, 90, 40], first=2, most=2, room=100)
        ([1], [2, 0])
    """
    fitting: list[int] = []
    for turn in range(len(lengths)):
        number = (first + turn) % len(lengths)
        if len(fitting) < most and lengths[number] <= room:
            fitting.append(number)
            room -= lengths[number]
    return fitting
