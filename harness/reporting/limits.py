"""What a sweep's own design keeps its numbers from telling: seeds, rates, noise, early stops, batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pandas as pd

from harness.contracts import Metric
from harness.reporting.facts import RANKED_GROUPS, Facts, ranked_metrics
from harness.reporting.recitation import NAME_A_HOLDOUT, recitations
from harness.reporting.seeds import mean_and_interval, ranked_rows, strengths
from harness.reporting.table import Reached
from harness.specs import REFERENCE_ROWS

FEW_SEEDS = 3
NOISE = {"mauve": ("0.07", 0.07, 0.0), "perplexity": ("6 %", 0.0, 0.06)}
"""Differences that one seed cannot tell from none: as said, as a number, and as a share of the smaller number.

Ten copies of one 1.3B model, sampled anew, gave MAUVE a standard deviation of 0.033 and perplexity one of
3 % (the published logs of dong-river/LLM_unlearning); this is 1.5 times that of a difference of two.
"""


def limits(points: Sequence[Reached], table: pd.DataFrame, facts: Facts) -> list[str]:
    """Return a sentence for everything that holds; `points` are those of the table."""
    trained = [each for each in points if each.point and each.point.notes.get("optimizer_steps")]
    return [
        *_stand_ins(table, facts),
        *_few_seeds(table),
        *_one_rate(trained),
        *_noise(table, facts),
        *_early_stops(points),
        *_large_batches(points, trained),
    ]


def _stand_ins(table: pd.DataFrame, facts: Facts) -> list[str]:
    found = recitations(table, facts)
    models = [model for model, each in found.items() if each.by_stand_in and each.recites]
    if not models:
        return []
    return [
        f"That {', '.join(models)} recites the forget set was told by validation texts, which are of another kind. "
        f"{NAME_A_HOLDOUT}."
    ]


def _few_seeds(table: pd.DataFrame) -> list[str]:
    count = table.loc[~table["method"].isin(REFERENCE_ROWS), "seed"].nunique()
    if count == 1:
        return ["One seed: no number has an interval, and another seed may give another order."]
    return [f"{count} seeds: intervals over fewer than {FEW_SEEDS} are very wide."] if 0 < count < FEW_SEEDS else []


def _one_rate(trained: Sequence[Reached]) -> list[str]:
    rates: dict[str, set[float]] = {}
    variants: dict[str, set[str]] = {}
    for point in trained:
        rates.setdefault(point.spec.model.id, set()).add(point.spec.training.learning_rate)
        variants.setdefault(point.spec.model.id, set()).add(point.spec.variant)
    compared = {model for model, names in variants.items() if len(names) > 1}
    if not compared or any(len(rates[model]) > 1 for model in compared):
        return []
    shown = ", ".join(f"{rate:g}" for rate in sorted(set().union(*(rates[model] for model in compared))))
    return [f"All trained methods ran at one learning rate ({shown}): a ranking at one rate ranks rates."]


def _noise(table: pd.DataFrame, facts: Facts) -> list[str]:
    recited = recitations(table, facts)
    rows = ranked_rows(table)
    found = []
    for model, of_model in rows[~rows["collapsed"].eq(True)].groupby("model", sort=False):
        seeds = of_model["seed"].nunique()
        metrics = [m for m in ranked_metrics(facts, *RANKED_GROUPS) if seeds > 1 or m.name in NOISE]
        alike = [f"{m.title}: {', '.join(runs)}" for m in metrics if (runs := list(_alike(of_model, m)))]
        if not alike or recited[str(model)].recites is False:
            continue
        floors = ", ".join(f"{m.title} {NOISE[m.name][0]}" for m in metrics if m.name in NOISE)
        told_by = f"the 95 % intervals over {seeds} seeds overlap" if seeds > 1 else f"one seed; floors: {floors}"
        found.append(f"Below the noise on {model} ({told_by}) are the differences of neighbours in {'; '.join(alike)}.")
    return found


def _alike(rows: pd.DataFrame, metric: Metric) -> Iterator[str]:
    """Yield the runs of neighbours, by rising value, that noise alone could set apart: `EMSO ≈ TA`."""
    by_variant = [(str(seeds["label"].iloc[0]), list(seeds[metric.name])) for _, seeds in rows.groupby("variant")]
    known = [(label, *mean_and_interval(values)) for label, values in by_variant if not math.isnan(sum(values))]
    known.sort(key=lambda each: each[1])
    run = [each[0] for each in known[:1]]
    for (_, low, low_half), (label, high, high_half) in pairwise(known):
        if _is_noise(metric, low, high, low_half + high_half):
            run.append(label)
            continue
        if len(run) > 1:
            yield " ≈ ".join(run)
        run = [label]
    if len(run) > 1:
        yield " ≈ ".join(run)


def _is_noise(metric: Metric, low: float, high: float, halves: float) -> bool:
    if not math.isnan(halves):
        return high - low <= halves
    _, floor, share = NOISE.get(metric.name, ("", 0.0, 0.0))
    return high - low < floor + share * low


def _early_stops(points: Sequence[Reached]) -> list[str]:
    erased = [point for point in points if not point.spec.is_reference]
    stopped = [point for point in erased if point.stop_reason]
    if not stopped:
        return []
    trials = {point.spec.trial_id for point in erased}
    many = len({point.spec.model.id for point in points}) > 1
    ends: dict[str, list[float]] = {}
    for point in stopped:
        where = f" on {point.spec.model.id}" if many else ""
        ends.setdefault(f"{point.spec.label}{where} at {point.spec.strength_name}", []).append(
            float(point.strength or 0)
        )
    shown = ", ".join(f"{name} {strengths(values)}" for name, values in ends.items())
    count = len({point.spec.trial_id for point in stopped})
    return [f"{count} of {len(trials)} trials {'was' if count == 1 else 'were'} ended by the early stop: {shown}."]


def _large_batches(points: Sequence[Reached], trained: Sequence[Reached]) -> list[str]:
    """Return the batches that hold the whole forget set with room to spare."""
    batches = [(point.spec, "training", point.spec.training.global_batch) for point in trained]
    batches += [
        (point.spec, "memorized_model", point.spec.memorization.global_batch)
        for point in points
        if point.spec.reference == "memorized_model"
    ]
    large = {(name, batch, spec.forget.rows): None for spec, name, batch in batches if 0 < spec.forget.rows < batch}
    return [
        f"{name}.global_batch ({batch}) is above the number of forget sequences ({rows}): every epoch is one step on "
        "all of them."
        for name, batch, rows in large
    ]
