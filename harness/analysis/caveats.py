"""Limits of a sweep's numbers: failures, unsuitable judges and the sweep's own design."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from harness import contracts, settings
from harness.analysis import damage, ranking, seeds
from harness.analysis.metrics import MetricInfo, is_aimless, lower_title, table_metrics
from harness.planning import setting_changes
from harness.records.results import PointResults, Results, find_edges_reached, measurements, point_name

MIN_MAUVE_PROMPTS = 256
"""Generated texts below which MAUVE is not trusted."""
UNKNOWN_LANGUAGE = 1000.0
"""Perplexity of human text above which a judge does not know the language."""
UNLIKE_HUMANS = 10.0
"""Ratio of human text's perplexity to the original's above which a judge knows only the original's style."""


class HumanReading(NamedTuple):
    """Perplexity that one judge gives to the human continuations of one model."""

    model: str
    role: str
    judge: str
    metric: contracts.Metric | None
    """First measured metric of this judge, if any."""
    perplexity: float
    """Perplexity of the human continuations."""
    original: float
    """Perplexity of the original model's text; NaN where not measured."""

    def __str__(self) -> str:
        own = "" if math.isnan(self.original) else f", and the original's texts one of {_rounded(self.original)}"
        judge = f"{self.model}: the judge of {self.role} ({self.judge})"
        return f"{judge} gives the human continuations a perplexity of {_rounded(self.perplexity)}{own}."


def human_readings(points: Sequence[PointResults], info: MetricInfo) -> list[HumanReading]:
    """Return the readings that evaluators noted under `human_perplexity` (by role), each once a model."""
    readings: dict[tuple[str, str], HumanReading] = {}
    for point, measurement in measurements(sorted(points, key=lambda point: point.spec.method != settings.ORIGINAL)):
        for role, perplexity in measurement.notes.get("human_perplexity", {}).items():
            key = point.spec.model.id, role
            if key in readings or role not in point.spec.judges or math.isnan(perplexity):
                continue
            judged = [metric for metric in info.values() if metric.judge == role]
            own = [metric.name for metric in judged if metric.unit == "perplexity"]
            is_original = own and point.spec.method == settings.ORIGINAL
            original = measurement.numbers.get(own[0], math.nan) if is_original else math.nan
            metric, judge = judged[0] if judged else None, point.spec.judges[role].id
            readings[key] = HumanReading(*key, judge, metric, float(perplexity), original)
    return list(readings.values())


def judge_warnings(readings: Sequence[HumanReading]) -> list[str]:
    """Return a warning for each judge whose perplexity of human text is implausible.

    A judge trained on a language gives it some tens. Above 1,000, which the frequencies of English tokens give, its
    perplexity ranks noise, and MAUVE calls anything healthy. Above 10 times the original's text, lower is no better.
    """
    warned = []
    for reading in readings:
        if reading.perplexity > UNKNOWN_LANGUAGE:
            reason = "It was not trained on this language"
        elif reading.perplexity > UNLIKE_HUMANS * reading.original:
            reason = "It fits the original's style and not human text"
        else:
            continue
        metric = lower_title(reading.metric) if reading.metric else "its metric"
        remedy = f"Name one that does in the sweep file (judges.{reading.role})"
        warned.append(f"{reading} {reason}, so {metric} says little here. {remedy}.")
    return warned


def _rounded(perplexity: float) -> str:
    return f"{perplexity:,.1f}" if perplexity < 1000 else f"{perplexity:,.0f}".replace("inf", "∞")


def unfinished_trials(results: Results) -> str:
    """Return the number of missing and failed trials, and of unfinished searches, as a sentence; '' if none."""
    trials = len(results.statuses)
    counts = [(trials - [*results.statuses.values()].count("done"), trials, "trials")]
    counts += [(len(results.unfinished_studies), len(results.studies), "searches")]
    texts = [f"{count} of {total} {name}" for count, total, name in counts if count]
    return f"Not finished: {' and '.join(texts)}." if texts else ""


def caveats(results: Results, ranked: ranking.RankedTable, readings: Sequence[HumanReading]) -> list[str]:
    """Return the limits of the numbers, as sentences."""
    sentences = []
    for trial in results.trials:
        if trial.failure:
            spec = trial.spec
            sentences.append(f"{spec.label} on {spec.model.id}, seed {spec.seed}, failed: {trial.failure.reason}")
    sentences += [*filter(None, [unfinished_trials(results)]), *results.plan.shared_texts]
    sentences += filter(None, [setting_changes.changed_code_sentence(results)])
    for study in results.studies:
        search = f"The search for {study.spec.trial.variant} on {study.spec.trial.model.id}, {study.spec.seeds_text}"
        sentences += [f"{search}: {edge}." for edge in find_edges_reached(study)]
        sentences += [f"{search}: {study.failure}"] if study.failure else []
    sentences += [*_few_texts(results.measured), *judge_warnings(readings)]
    sentences += changed_choices(results.measured)
    sentences += filter(None, [damage.unmeasured_damage(ranked.table)] if results.plan.erases else [])
    sentences += [*_unknown_health(results, ranked), *unranked_metrics(ranked.on_recited_texts)]
    sentences += _one_learning_rate(results.measured)
    return sentences + _warnings_of_plugins(results.measured)


def _few_texts(points: Sequence[PointResults]) -> Iterator[str]:
    prompts = MIN_MAUVE_PROMPTS
    for point, measurement in measurements(points):
        if "mauve" in measurement.numbers:
            prompts = min(prompts, measurement.notes.get("prompts") or point.spec.utility.sequences or prompts)
    if prompts < MIN_MAUVE_PROMPTS:
        bound = f"under {MIN_MAUVE_PROMPTS} it is not to be trusted, nor are collapse flags"
        yield f"MAUVE comes from {prompts} prompts: {bound}."


def _unknown_health(results: Results, ranked: ranking.RankedTable) -> Iterator[str]:
    bounds = damage.collapse_bounds(ranked.info, results.plan.collapse)
    points = ranked.table[~ranked.table["method"].isin(settings.UNSEEN_ROWS)]
    unknown = points[points["collapsed"].isna()]
    lacking = [lower_title(metric) for metric, _, _ in bounds if unknown[metric.name].isna().any()]
    lacking += sorted(set(vars(results.plan.collapse)) - {metric.collapse for metric, _, _ in bounds})
    lack = f"have no {' or '.join(lacking)}" if lacking else "have no original to be held against"
    if len(unknown) and results.plan.erases:
        yield f"{len(unknown)} of {len(points)} points {lack}: whether they collapsed is unknown."
    healthy = seeds.ranked_rows(ranked.table[ranked.table["collapse_class"] == "healthy"])
    judges = " nor ".join(lower_title(metric) for metric, _, _ in bounds)
    for name in damage.repetitions(ranked.info):
        for row in healthy[healthy[name] > damage.REPEATS].to_dict("records"):
            place = f"{row['label']} ({seeds.strength_text(row['strength_name'], row['strength'])}) on {row['model']}"
            reason = f"has a {name} of {row[name]:.3f}, yet neither {judges} calls it collapsed"
            yield f"{place}, seed {row['seed']}, {reason}."


def _one_learning_rate(points: Sequence[PointResults]) -> Iterator[str]:
    trained = [point for point in points if point.made and point.made.notes.get("optimizer_steps")]
    rates = {point.spec.training.learning_rate for point in trained}
    if len(rates) == 1 and len({point.spec.variant for point in trained}) > 1:
        one = f"All trained methods ran at one learning rate ({rates.pop():g})"
        yield f"{one}. Methods need different rates, so this ranking depends on it."


def _warnings_of_plugins(points: Sequence[PointResults]) -> list[str]:
    places: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for point in points:
        notes = [measurement.notes for measurement in point.measurements]
        for note in [point.made.notes, *notes] if point.made else notes:
            erasing_warnings = () if point.spec.method == settings.ORIGINAL else note.get("erasure_warnings", ())
            for warning in (*note.get("warnings", ()), *erasing_warnings):
                places[str(warning)][f"{point.spec.label} on {point.spec.model.id}"] = None
    return [f"{'; '.join(names)}: {warning}" for warning, names in places.items()]


def unranked_metrics(ranked: ranking.RankedTable) -> Iterator[str]:
    """Yield a sentence for each model about metrics that rank nothing, or have no interval."""
    for model, rows in seeds.ranked_rows(ranked.table).groupby("model", sort=False):
        if titles := [metric.title for metric in table_metrics(ranked.info) if is_aimless(metric, ranked.aims, rows)]:
            yield (
                f"Nothing on {model} is ranked by {' and '.join(titles)}: it is compared with the retrained "
                "model's, and there is none. Name it in the sweep file: models: [{id: ..., retrained: ...}]."
            )
    for model in ranked.recitations:
        if titles := [metric.title for metric in ranked.unknown_of_recited(model)]:
            yield f"Nothing on {model} is ranked by {' and '.join(titles)}: nothing measures recitation."
    bounds = [f"{name}_low" for name in ranking.rank_names(ranked.info)]
    for model, metrics in ranked.without_interval.items():
        if metrics and (ranked.ranking.loc[ranked.ranking["model"] == model, bounds] != "").to_numpy().any():
            yield (
                f"The intervals of ranks on {model} leave out {' and '.join(metric.title for metric in metrics)}: "
                "without items, declared noise or several seeds their error is unknown."
            )


def changed_choices(points: Sequence[PointResults]) -> Iterator[str]:
    """Yield a sentence for each model about the greedy choices that its precision changed."""
    by_model: dict[tuple[str, str], list[tuple[PointResults, Mapping[str, Any]]]] = {}
    for point, measurement in measurements(points):
        if counts := measurement.notes.get("changed_choices"):
            by_model.setdefault((point.spec.model.id, counts["precision"]), []).append((point, counts))
    for (model, precision), counted in by_model.items():
        most, largest = max(counted, key=lambda pair: pair[1]["changed"] / pair[1]["choices"])
        own = next((counts for point, counts in counted if point.spec.method == settings.ORIGINAL), None)
        original = f"{_share_changed(own)} of the original's, and " if own else ""
        yield (
            f"{model} is measured in {precision}, which changes greedy choices of fp32 on the texts: "
            f"{original}at most {_share_changed(largest)} ({point_name(most)})."
        )


def _share_changed(counts: Mapping[str, Any]) -> str:
    return f"{counts['changed']:,} of {counts['choices']:,} ({counts['changed'] / counts['choices']:.2%})"
