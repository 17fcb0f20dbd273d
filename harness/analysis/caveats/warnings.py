"""What limits a sweep's numbers: what went wrong, whom to trust, and what its design keeps them from telling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import pandas as pd

from harness.analysis.caveats.judges import HumanReading, judge_warnings
from harness.analysis.caveats.readings import large_batches
from harness.analysis.cells import number, strength_text
from harness.analysis.collapse import REPEATS, collapse_bounds, repetitions
from harness.analysis.erasure.recitation import NAME_A_HOLDOUT, Recitation
from harness.analysis.metrics import MetricInfo, in_sentence, is_aimless, table_metrics
from harness.analysis.ranking import RankedTable
from harness.analysis.seeds import mean_and_interval, ranked_rows, strengths
from harness.analysis.shown import UNFINISHED, ShownTable
from harness.contracts import Metric
from harness.records.results import PointResults, Results, TrialResults
from harness.specs import REFERENCE_ROWS, UNSEEN_ROWS

FEW_SEEDS = 3


def warnings(results: Results, shown: Results, table: ShownTable, readings: Sequence[HumanReading]) -> list[str]:
    """Return everything that limits what the numbers can carry.

    Args:
        results: All that was measured.
        shown: The part of it that is shown.
        table: Its points.
        readings: What the judges make of human text.
    """
    ranked = table.ranked
    return [
        *_unfinished(results),
        *_few_texts(results.measured, ranked.info),
        *judge_warnings(readings),
        *(_unknown_health(results, table.whole) if results.plan.erases else ()),
        *_doubtful_health(results, ranked),
        *design_limits(shown.measured, ranked),
        *_noted(shown.measured),
    ]


def _unfinished(results: Results) -> list[str]:
    failed = [trial for trial in results.trials if trial.failure]
    missing = sum(trial.status == "missing" for trial in results.trials)
    more = len(failed) - UNFINISHED
    return [
        *map(_failed, failed[:UNFINISHED]),
        *([f"{more} more trials failed: `--plan` names all of them."] if more > 0 else []),
        *([f"{missing} of {len(results.trials)} trials are not finished."] if missing else []),
    ]


def design_limits(points: Sequence[PointResults], ranked: RankedTable) -> list[str]:
    """Return a sentence for everything that the sweep's own design keeps its numbers from telling."""
    trained = [point for point in points if point.made and point.made.notes.get("optimizer_steps")]
    memorized = [(p.spec, "memorized_model") for p in points if p.spec.reference == "memorized_model"]
    return [
        *_stand_ins(ranked.recitations),
        *_without_retrained(ranked),
        *_not_of_recited(ranked),
        *_few_seeds(ranked.table),
        *_one_rate(trained),
        *_noise(ranked),
        *_early_stops(points),
        *large_batches([(point.spec, "training") for point in trained] + memorized),
    ]


def _failed(trial: TrialResults) -> str:
    spec, error = trial.spec, trial.failure.error if trial.failure else ""
    return f"{spec.label} on {spec.model.id}, seed {spec.seed}, failed: {error}"


def _few_texts(points: Sequence[PointResults], info: MetricInfo) -> list[str]:
    """Return a sentence for each metric that comes from fewer generated texts than it needs."""
    told = []
    for metric in [metric for metric in info.values() if metric.trusted_from]:
        counts = {
            measurement.notes.get("prompts", point.spec.utility.sequences)
            for point in points
            for measurement in point.measurements
            if metric.name in measurement.numbers
        }
        few = [count for count in counts if isinstance(count, int) and count < metric.trusted_from]
        flags = ", nor are collapse flags" if metric.collapse else ""
        if few:
            told.append(
                f"{metric.title} comes from {min(few)} prompts: under {metric.trusted_from} it is not to be "
                f"trusted{flags}."
            )
    return told


def _unknown_health(results: Results, ranked: RankedTable) -> list[str]:
    """Return how many points cannot be called healthy or collapsed, and what they lack."""
    points = ranked.table[~ranked.table["method"].isin(UNSEEN_ROWS)]
    unknown = points[points["collapsed"].isna()]
    if not len(unknown):
        return []
    rules = collapse_bounds(ranked.info, results.plan.collapse)
    lacking = [in_sentence(metric) for metric, _, _ in rules if unknown[metric.name].isna().any()]
    lacking += sorted(vars(results.plan.collapse).keys() - {metric.collapse for metric, _, _ in rules})
    lack = f"have no {' or '.join(lacking)}" if lacking else "have no original to be held against"
    return [f"{len(unknown)} of {len(points)} points {lack}: whether they collapsed is unknown."]


def _doubtful_health(results: Results, ranked: RankedTable) -> list[str]:
    """Return the ranked points that are called healthy and repeat themselves: no bound looks at repetition."""
    healthy = ranked_rows(ranked.table[ranked.table["collapse_class"] == "healthy"])
    judges = " nor ".join(in_sentence(metric) for metric, _, _ in collapse_bounds(ranked.info, results.plan.collapse))
    return [
        f"{row['label']} ({strength_text(row['strength_name'], row['strength'])}) on {row['model']}, seed "
        f"{row['seed']}, has a {name} of {number(row[name])}, yet neither {judges} calls it collapsed."
        for name in repetitions(ranked.info)
        for _, row in healthy[healthy[name] > REPEATS].iterrows()
    ]


def _noted(points: Sequence[PointResults]) -> list[str]:
    """Return what methods and evaluators warned of (the notes' key `warnings`): each once, with its trials."""
    trials: dict[str, dict[str, None]] = {}
    for point in points:
        notes = [point.made.notes] if point.made else []
        for warning in [
            text for note in [*notes, *(m.notes for m in point.measurements)] for text in note.get("warnings", ())
        ]:
            trials.setdefault(str(warning), {})[f"{point.spec.label} on {point.spec.model.id}"] = None
    return [f"{'; '.join(names)}: {warning}" for warning, names in trials.items()]


def _stand_ins(by_model: Mapping[str, Recitation]) -> list[str]:
    models = [model for model, recitation in by_model.items() if recitation.by_stand_in and recitation.recites]
    if not models:
        return []
    return [
        f"That {', '.join(models)} recites the forget set was told by validation texts, which are of another kind. "
        f"{NAME_A_HOLDOUT}."
    ]


def _without_retrained(ranked: RankedTable) -> Iterator[str]:
    """Yield which metrics rank nothing on a model, since they ask how close it is to a retrained one."""
    for model, rows in ranked_rows(ranked.table).groupby("model", sort=False):
        titles = [metric.title for metric in table_metrics(ranked.info) if is_aimless(metric, ranked.aims, rows)]
        if titles:
            yield (
                f"Nothing on {model} is ranked by {' and '.join(titles)}: it is the better, the closer it is to the "
                "retrained model's, and there is none. Name it in the sweep file: models: [{id: ..., retrained: ...}]."
            )


def _not_of_recited(ranked: RankedTable) -> Iterator[str]:
    """Yield which metrics of erasure rank nothing on a model whose single texts are ranked on."""
    for model in ranked.recitations:
        if titles := [metric.title for metric in ranked.unknown_of_recited(model)]:
            yield (f"Nothing on {model} is ranked by {' and '.join(titles)}: it is not known of what is recited.")


def _few_seeds(table: pd.DataFrame) -> list[str]:
    count = table.loc[~table["method"].isin(REFERENCE_ROWS), "seed"].nunique()
    if count == 1:
        return ["One seed: intervals are over items alone, and another seed may give another order."]
    return [f"{count} seeds: intervals over fewer than {FEW_SEEDS} are very wide."] if 0 < count < FEW_SEEDS else []


def _one_rate(trained: Sequence[PointResults]) -> list[str]:
    rates: dict[str, set[float]] = {}
    variants: dict[str, set[str]] = {}
    for point in trained:
        rates.setdefault(point.spec.model.id, set()).add(point.spec.training.learning_rate)
        variants.setdefault(point.spec.model.id, set()).add(point.spec.variant)
    compared = {model for model, names in variants.items() if len(names) > 1}
    if not compared or any(len(rates[model]) > 1 for model in compared):
        return []
    told = ", ".join(f"{rate:g}" for rate in sorted(set().union(*(rates[model] for model in compared))))
    return [f"All trained methods ran at one learning rate ({told}): a ranking at one rate ranks rates."]


def _noise(ranked: RankedTable) -> list[str]:
    rows = ranked_rows(ranked.table)
    told = []
    for model, of_model in rows[~rows["collapsed"].eq(True)].groupby("model", sort=False):
        seeds = of_model["seed"].nunique()
        metrics = [m for m in table_metrics(ranked.info) if seeds > 1 or m.noise is not None]
        alike = [f"{m.title}: {', '.join(runs)}" for m in metrics if (runs := list(_alike(of_model, m)))]
        if not alike or ranked.recitations[str(model)].recites is False:
            continue
        floors = ", ".join(f"{m.title} {_floor_text(m)}" for m in metrics if m.noise is not None)
        told_by = f"the 95 % intervals over {seeds} seeds overlap" if seeds > 1 else f"one seed; floors: {floors}"
        told.append(f"Below the noise on {model} ({told_by}) are the differences of neighbours in {'; '.join(alike)}.")
    return told


def _floor_text(metric: Metric) -> str:
    return f"{100 * (metric.noise or 0):g} %" if math.isinf(metric.high) else f"{metric.noise:g}"


def _alike(rows: pd.DataFrame, metric: Metric) -> Iterator[str]:
    """Yield the runs of neighbours, by rising value, that noise alone could set apart: `EMSO ≈ TA`."""
    by_variant = [(str(seeds["label"].iloc[0]), list(seeds[metric.name])) for _, seeds in rows.groupby("variant")]
    known = [(label, *mean_and_interval(values)) for label, values in by_variant if not math.isnan(sum(values))]
    known.sort(key=lambda variant: variant[1])
    run = [label for label, _, _ in known[:1]]
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
    noise = metric.noise or 0.0
    return high - low < (noise * low if math.isinf(metric.high) else noise)


def _early_stops(points: Sequence[PointResults]) -> list[str]:
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
    told = ", ".join(f"{name} {strengths(values)}" for name, values in ends.items())
    count = len({point.spec.trial_id for point in stopped})
    return [f"{count} of {len(trials)} trials {'was' if count == 1 else 'were'} ended by the early stop: {told}."]
