"""What limits a sweep's numbers: what went wrong, whom to trust, and what its design keeps them from showing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

import pandas as pd

from harness.analysis.caveats.judges import HumanReading, judge_warnings
from harness.analysis.caveats.readings import large_batches
from harness.analysis.cells import duration_text, number, strength_text
from harness.analysis.collapse import REPEATS, collapse_bounds, repetitions
from harness.analysis.damage import unmeasured_damage
from harness.analysis.erasure.recitation import NAME_A_HOLDOUT
from harness.analysis.metrics import MetricInfo, in_sentence, is_aimless, is_within_noise, table_metrics
from harness.analysis.ranking import RankedTable
from harness.analysis.seeds import mean_and_interval, ranked_rows, seconds_per_seed, strengths
from harness.analysis.shown import UNFINISHED, ShownTable
from harness.contracts import Metric
from harness.records.point_names import point_name
from harness.records.ranges import edges_reached, widened_ranges
from harness.records.results import PointResults, Results, StudyResults
from harness.records.setting_changes import changed_plugins
from harness.specs import ORIGINAL, REFERENCE_ROWS, UNSEEN_ROWS

FEW_SEEDS = 3


def warnings(results: Results, shown: Results, table: ShownTable, readings: Sequence[HumanReading]) -> list[str]:
    """Return everything that limits what the numbers can carry.

    Args:
        results: All that was measured.
        shown: The part of it that is shown.
        table: Its points.
        readings: What the judges make of human text.
    """
    said = []
    failed = [trial for trial in results.trials if trial.failure]
    for trial in failed[:UNFINISHED]:
        error = trial.failure.reason if trial.failure else ""
        said.append(f"{trial.spec.label} on {trial.spec.model.id}, seed {trial.spec.seed}, failed: {error}")
    if len(failed) > UNFINISHED:
        said.append(f"{len(failed) - UNFINISHED} more trials failed: `--plan` names all of them.")
    if missing := list(results.statuses.values()).count("missing"):
        said.append(f"{missing} of {len(results.trials)} trials are not finished.")
    said += results.plan.shared_texts
    for file, clause in changed_plugins(results):
        said.append(f"{file}, or code that it imports, has changed since {clause}: these numbers are older code's.")
    for study in results.studies:
        of_study = f"The search for {study.spec.trial.variant} on {study.spec.trial.model.id}, {study.spec.seeds_text}"
        said += [f"{of_study}: {chosen}." for chosen in edges_reached(study)]
        for name, wide in widened_ranges(study).items():
            said.append(f"{of_study}: {name} was widened to {wide.low:.3g} to {wide.high:.3g}.")
    said += _few_texts(results.measured, table.ranked.info)
    said += judge_warnings(readings)
    said += changed_choices(results.measured)
    if results.plan.erases:
        said += _unknown_health(results, table.whole)
        said += filter(None, [unmeasured_damage(table.whole.table)])
    said += _doubtful_health(results, table.ranked)
    said += design_limits(shown.measured, table.ranked, shown.studies)
    return said + _warnings_of_plugins(shown.measured)


def design_limits(
    points: Sequence[PointResults], ranked: RankedTable, studies: Sequence[StudyResults] = ()
) -> list[str]:
    """Return a sentence for everything that the sweep's own design keeps its numbers from showing."""
    said = []
    models = [model for model, known in ranked.recitations.items() if known.by_stand_in and known.recites]
    if models:
        said.append(
            f"Only validation texts, which are of another kind, show that {', '.join(models)} recites the forget set. "
            f"{NAME_A_HOLDOUT}."
        )
    said += _unranked_metrics(ranked)
    seeds = ranked.table.loc[~ranked.table["method"].isin(REFERENCE_ROWS), "seed"].nunique()
    if seeds == 1:
        said.append(_one_seed(points, studies))
    elif 0 < seeds < FEW_SEEDS:
        said.append(f"{seeds} seeds: intervals over fewer than {FEW_SEEDS} are very wide.")
    if any(study.spec.per == "model" for study in studies) and seeds > 1:
        said.append(
            "All seeds share one search of each method, so its luck is in no interval: tune.per: seed makes one for "
            "each."
        )
    trained, trained_on, memorized_on = [], [], []
    for point in points:
        if point.made and point.made.notes.get("optimizer_steps"):
            trained.append(point)
            trained_on.append((point.spec, "training"))
        if point.spec.reference == "memorized_model":
            memorized_on.append((point.spec, "memorized_model"))
    said += _one_learning_rate(trained)
    said += _below_noise(ranked)
    said += _early_stops(points)
    return said + large_batches(trained_on + memorized_on)


def _one_seed(points: Sequence[PointResults], studies: Sequence[StudyResults]) -> str:
    """Return what a single training seed does not show, and what two more would take, where the journal says that."""
    said = (
        "One training seed: intervals are over items (what other texts would have given, not other training runs), so "
        "no letter compares methods and none is marked as the best. What is missing: two more seeds"
    )
    seconds = 2 * seconds_per_seed(points, studies)
    return f"{said}, about {duration_text(seconds)} by what this one took." if seconds > 0 else f"{said}."


def _few_texts(points: Sequence[PointResults], info: MetricInfo) -> Iterator[str]:
    """Yield a sentence for each metric that comes from fewer generated texts than it needs."""
    fewest: dict[str, int] = {}
    for point in points:
        for measurement in point.measurements:
            prompts = measurement.notes.get("prompts", point.spec.utility.sequences)
            for name in measurement.numbers if isinstance(prompts, int) else ():
                fewest[name] = min(prompts, fewest.get(name, prompts))
    for name, metric in info.items():
        least = metric.trusted_from
        if least and fewest.get(name, least) < least:
            flags = ", nor are collapse flags" if metric.collapse else ""
            yield f"{metric.title} comes from {fewest[name]} prompts: under {least} it is not to be trusted{flags}."


def _unknown_health(results: Results, ranked: RankedTable) -> Iterator[str]:
    """Yield how many points cannot be called healthy or collapsed, and what they lack."""
    points = ranked.table[~ranked.table["method"].isin(UNSEEN_ROWS)]
    unknown = points[points["collapsed"].isna()]
    lacking, unmeasured = [], set(vars(results.plan.collapse))
    for metric, _, _ in collapse_bounds(ranked.info, results.plan.collapse):
        unmeasured.discard(metric.collapse)
        if unknown[metric.name].isna().any():
            lacking.append(in_sentence(metric))
    lacking += sorted(unmeasured)
    lack = f"have no {' or '.join(lacking)}" if lacking else "have no original to be held against"
    if len(unknown):
        yield f"{len(unknown)} of {len(points)} points {lack}: whether they collapsed is unknown."


def _doubtful_health(results: Results, ranked: RankedTable) -> Iterator[str]:
    """Yield the ranked points that are called healthy and repeat themselves: no bound looks at repetition."""
    healthy = ranked_rows(ranked.table[ranked.table["collapse_class"] == "healthy"])
    bounds = collapse_bounds(ranked.info, results.plan.collapse)
    judges = " nor ".join(in_sentence(metric) for metric, _, _ in bounds)
    for name in repetitions(ranked.info):
        for _, row in healthy[healthy[name] > REPEATS].iterrows():
            yield (
                f"{row['label']} ({strength_text(row['strength_name'], row['strength'])}) on {row['model']}, seed "
                f"{row['seed']}, has a {name} of {number(row[name])}, yet neither {judges} calls it collapsed."
            )


def _warnings_of_plugins(points: Sequence[PointResults]) -> list[str]:
    """Return what methods and evaluators warned of: each once, with its trials.

    Of the notes' two keys `erasure_warnings` is left out of an original, which nobody erased from.
    """
    trials: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for point in points:
        notes = [point.made.notes] if point.made else []
        notes += [measurement.notes for measurement in point.measurements]
        keys = ("warnings",) if point.spec.method == ORIGINAL else ("warnings", "erasure_warnings")
        for noted in notes:
            for key in keys:
                for warning in noted.get(key, ()):
                    trials[str(warning)][f"{point.spec.label} on {point.spec.model.id}"] = None
    return [f"{'; '.join(names)}: {warning}" for warning, names in trials.items()]


def _unranked_metrics(ranked: RankedTable) -> Iterator[str]:
    """Yield which metrics rank nothing on a model, and why, and which take no part in the intervals of its ranks."""
    for model, rows in ranked_rows(ranked.table).groupby("model", sort=False):
        if titles := [metric.title for metric in table_metrics(ranked.info) if is_aimless(metric, ranked.aims, rows)]:
            yield (
                f"Nothing on {model} is ranked by {' and '.join(titles)}: it is the better, the closer it is to the "
                "retrained model's, and there is none. Name it in the sweep file: models: [{id: ..., retrained: ...}]."
            )
    for model in ranked.recitations:
        if titles := [metric.title for metric in ranked.unknown_of_recited(model)]:
            yield f"Nothing on {model} is ranked by {' and '.join(titles)}: it is not known of what is recited."
    for model, metrics in ranked.without_interval.items():
        if titles := list(map(attrgetter("title"), metrics)):
            yield (
                f"The intervals of ranks on {model} leave out {' and '.join(titles)}: "
                "without items, declared noise or several seeds nothing tells how far off a number is."
            )


def _one_learning_rate(trained: Sequence[PointResults]) -> Iterator[str]:
    """Yield the learning rate that all trained methods of every model ran at, if several methods did."""
    rates: defaultdict[str, set[float]] = defaultdict(set)
    variants: defaultdict[str, set[str]] = defaultdict(set)
    for point in trained:
        rates[point.spec.model.id].add(point.spec.training.learning_rate)
        variants[point.spec.model.id].add(point.spec.variant)
    compared: set[float] = set()
    for model, names in variants.items():
        if len(names) > 1:
            compared |= rates[model]
            if len(rates[model]) > 1:
                return
    if compared:
        listed = ", ".join(f"{rate:g}" for rate in sorted(compared))
        yield f"All trained methods ran at one learning rate ({listed}): a ranking at one rate ranks rates."


def _below_noise(ranked: RankedTable) -> Iterator[str]:
    """Yield for each model which neighbours in a column may differ by noise alone."""
    rows = ranked_rows(ranked.table)
    for model, of_model in rows[~rows["collapsed"].eq(True)].groupby("model", sort=False):
        seeds = of_model["seed"].nunique()
        alike, floors = [], []
        for metric in table_metrics(ranked.info):
            if metric.noise is not None:
                floor = f"{100 * metric.noise:g} %" if math.isinf(metric.high) else f"{metric.noise:g}"
                floors.append(f"{metric.title} {floor}")
            if (seeds > 1 or metric.noise is not None) and (runs := list(_alike_neighbours(of_model, metric))):
                alike.append(f"{metric.title}: {', '.join(runs)}")
        if alike and ranked.recitations[str(model)].recites is not False:
            shown_by = f"one seed; floors: {', '.join(floors)}"
            if seeds > 1:
                shown_by = f"the 95 % intervals over {seeds} seeds overlap"
            yield (f"Below the noise on {model} ({shown_by}) are the differences of neighbours in {'; '.join(alike)}.")


def _alike_neighbours(rows: pd.DataFrame, metric: Metric) -> Iterator[str]:
    """Yield the runs of neighbours, by rising value, that noise alone could set apart: `EMSO ≈ TA`."""
    known = []
    for _, seeds in rows.groupby("variant"):
        mean, half = mean_and_interval(list(seeds[metric.name]))
        if not math.isnan(mean):
            known.append((mean, half, str(seeds["label"].iloc[0])))
    known.sort(key=lambda variant: variant[0])
    runs = [[label] for _, _, label in known[:1]]
    for (low, low_half, _), (high, high_half, label) in pairwise(known):
        halves = low_half + high_half
        if is_within_noise(low, high, metric) if math.isnan(halves) else high - low <= halves:
            runs[-1].append(label)
        else:
            runs.append([label])
    for run in runs:
        if len(run) > 1:
            yield " ≈ ".join(run)


def _early_stops(points: Sequence[PointResults]) -> Iterator[str]:
    """Yield how many trials were ended by the early stop, and at which strengths."""
    models, erased, stopped = set(), set(), set()
    ends: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for point in points:
        spec = point.spec
        models.add(spec.model.id)
        if not spec.is_reference:
            erased.add(spec.trial_id)
        if point.stop_reason and not spec.is_reference:
            stopped.add(spec.trial_id)
            ends[spec.label, spec.model.id, spec.strength_name].append(float(point.strength or 0))
    listed = []
    for (label, model, name), values in ends.items():
        where = f" on {model}" if len(models) > 1 else ""
        listed.append(f"{label}{where} at {name} {strengths(values)}")
    if stopped:
        were = "was" if len(stopped) == 1 else "were"
        yield f"{len(stopped)} of {len(erased)} trials {were} ended by the early stop: {', '.join(listed)}."


def changed_choices(points: Sequence[PointResults]) -> Iterator[str]:
    """Yield for each model how many greedy choices its precision changed: the original's, and the most of any point."""
    by_model: dict[tuple[str, str], list[tuple[PointResults, Mapping[str, Any]]]] = {}
    for point in points:
        for measurement in point.measurements:
            if noted := measurement.notes.get("changed_choices"):
                by_model.setdefault((point.spec.model.short_name, noted["precision"]), []).append((point, noted))
    for (model, precision), counted in by_model.items():
        most, of_most = max(counted, key=lambda pair: pair[1]["changed"] / pair[1]["choices"])
        of_original = ""
        for point, noted in counted:
            if point.spec.method == ORIGINAL:
                of_original = f"{_share_changed(noted)} of the original's, and "
        yield (
            f"{model} is measured in {precision}. Of its greedy choices on the texts, that makes others than fp32 of "
            f"{of_original}at most {_share_changed(of_most)} ({point_name(most)})."
        )


def _share_changed(noted: Mapping[str, Any]) -> str:
    return f"{noted['changed']:,} of {noted['choices']:,} ({noted['changed'] / noted['choices']:.2%})"
