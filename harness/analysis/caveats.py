"""What limits a sweep's numbers: what went wrong, whom to trust, and what its design keeps them from showing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from harness.analysis.cells import number, strength_text
from harness.analysis.collapse import REPEATS, collapse_bounds, repetitions
from harness.analysis.damage import unmeasured_damage
from harness.analysis.metrics import MetricInfo, in_sentence, is_aimless, table_metrics
from harness.analysis.ranking import RankedTable
from harness.analysis.seeds import ranked_rows
from harness.contracts import Metric
from harness.records.results import PointResults, Results, point_name
from harness.records.setting_changes import changed_plugins
from harness.records.tuned import edges_reached
from harness.settings import ORIGINAL, UNSEEN_ROWS

MAX_FAILURES = 40
"""Trials that failed, named one by one."""
UNKNOWN_LANGUAGE = 1000.0
"""Perplexity of human text from which on a judge knows no more of it than how frequent its tokens are."""
UNLIKE_HUMANS = 10.0
"""Times the perplexity of what the original wrote: the judge then knows its habits better than human ones."""


@dataclass(frozen=True)
class HumanReading:
    """What one judge makes of the human continuations that one model's are compared with."""

    model: str
    role: str
    judge: str
    metric: Metric | None
    """What comes from this judge, if it was measured."""
    perplexity: float
    """That of the human continuations, by the formula of the role's metric."""
    original: float
    """That of what the original model wrote; NaN where it is not measured."""

    def __str__(self) -> str:
        """Return what a report says of it."""
        said = f"{self.model}: the judge of {self.role} ({self.judge}) gives the human continuations a perplexity of "
        own = "" if math.isnan(self.original) else f", and what the original wrote one of {_rounded(self.original)}"
        return f"{said}{_rounded(self.perplexity)}{own}."


def human_readings(points: Sequence[PointResults], info: MetricInfo) -> list[HumanReading]:
    """Return what each model's judges make of human text, as evaluators noted it under `human_perplexity`.

    The note is a mapping of a judge's role to a perplexity. It is the same for every point of a model,
    so each comes back once.
    """
    readings: dict[tuple[str, str], HumanReading] = {}
    for point in sorted(points, key=lambda point: point.spec.method != ORIGINAL):
        for measurement in point.measurements:
            noted = measurement.notes.get("human_perplexity")
            for role, perplexity in noted.items() if isinstance(noted, dict) else ():
                key = point.spec.model.id, role
                if key in readings or role not in point.spec.judges or math.isnan(perplexity):
                    continue
                judged = [metric for metric in info.values() if metric.judge == role]
                own = [metric.name for metric in judged if metric.unit == "perplexity"]
                is_original = own and point.spec.method == ORIGINAL
                original = measurement.numbers.get(own[0], math.nan) if is_original else math.nan
                metric, judge = judged[0] if judged else None, point.spec.judges[role].id
                readings[key] = HumanReading(*key, judge, metric, float(perplexity), original)
    return list(readings.values())


def judge_warnings(readings: Sequence[HumanReading]) -> list[str]:
    """Return a warning for each judge whose reading of human text is out of reason.

    A judge that knows a language gives human text a perplexity of some tens (the embedded one, of its own
    small corpus, 3 to 5). Two bounds, neither of which a fitting judge comes near:

    - 1,000: what the frequencies of English tokens alone give. Above it the judge does not know the language:
      its perplexity ranks noise, and its features put all texts in one place, so that MAUVE calls anything healthy.
    - 10 times what the original wrote: such a judge knows how the original writes, and not how people do, so
      that a lower perplexity is no better text. Seen for perplexity alone; MAUVE has no such number.
    """
    warned = []
    for reading in readings:
        if reading.perplexity > UNKNOWN_LANGUAGE:
            reason = "It does not know this language"
        elif reading.perplexity > UNLIKE_HUMANS * reading.original:
            reason = "It knows how the original writes, and not how people do"
        else:
            continue
        metric = in_sentence(reading.metric) if reading.metric else "what it judges"
        remedy = f"Name one that does in the sweep file (judges.{reading.role})"
        warned.append(f"{reading} {reason}, so {metric} says little here. {remedy}.")
    return warned


def _rounded(perplexity: float) -> str:
    return f"{perplexity:,.1f}" if perplexity < 1000 else f"{perplexity:,.0f}".replace("inf", "∞")


def caveats(results: Results, whole: RankedTable, shown: RankedTable, readings: Sequence[HumanReading]) -> list[str]:
    """Return everything that limits what the numbers can carry.

    Args:
        results: All that was measured.
        whole: Its points.
        shown: Those that a page shows.
        readings: What the judges make of human text.
    """
    said = []
    failed = [trial for trial in results.trials if trial.failure]
    for trial in failed[:MAX_FAILURES]:
        error = trial.failure.reason if trial.failure else ""
        said.append(f"{trial.spec.label} on {trial.spec.model.id}, seed {trial.spec.seed}, failed: {error}")
    if len(failed) > MAX_FAILURES:
        said.append(f"{len(failed) - MAX_FAILURES} more trials failed: `--plan` names all of them.")
    if missing := list(results.statuses.values()).count("missing"):
        said.append(f"{missing} of {len(results.trials)} trials are not finished.")
    said += results.plan.shared_texts
    for file, clause in changed_plugins(results):
        said.append(f"{file}, or code that it imports, has changed since {clause}: these numbers are older code's.")
    for study in results.studies:
        of_study = f"The search for {study.spec.trial.variant} on {study.spec.trial.model.id}, {study.spec.seeds_text}"
        said += [f"{of_study}: {chosen}." for chosen in edges_reached(study)]
    said += [*_few_texts(results.measured, whole.info), *judge_warnings(readings)]
    said += changed_choices(results.measured)
    said += [sentence for sentence in [unmeasured_damage(whole.table)] if sentence and results.plan.erases]
    said += [*_doubtful_health(results, whole), *design_limits(results.measured, shown)]
    return said + _warnings_of_plugins(results.measured)


def design_limits(points: Sequence[PointResults], ranked: RankedTable) -> list[str]:
    """Return a sentence for everything that the sweep's own design keeps its numbers from showing."""
    return [*_unranked_metrics(ranked), *_one_learning_rate(points)]


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


def _doubtful_health(results: Results, whole: RankedTable) -> Iterator[str]:
    """Yield how many points cannot be called healthy or collapsed, and which healthy ones repeat themselves."""
    bounds = collapse_bounds(whole.info, results.plan.collapse)
    points = whole.table[~whole.table["method"].isin(UNSEEN_ROWS)]
    unknown = points[points["collapsed"].isna()]
    unmeasured = set(vars(results.plan.collapse)) - {metric.collapse for metric, _, _ in bounds}
    lacking = [in_sentence(metric) for metric, _, _ in bounds if unknown[metric.name].isna().any()]
    lacking += sorted(unmeasured)
    lack = f"have no {' or '.join(lacking)}" if lacking else "have no original to be held against"
    if len(unknown) and results.plan.erases:
        yield f"{len(unknown)} of {len(points)} points {lack}: whether they collapsed is unknown."
    healthy = ranked_rows(whole.table[whole.table["collapse_class"] == "healthy"])
    judges = " nor ".join(in_sentence(metric) for metric, _, _ in bounds)
    for name in repetitions(whole.info):
        for row in healthy[healthy[name] > REPEATS].to_dict("records"):
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


def _one_learning_rate(points: Sequence[PointResults]) -> Iterator[str]:
    """Yield the learning rate that all trained methods of every model ran at, if several methods did."""
    rates: defaultdict[str, set[float]] = defaultdict(set)
    variants: defaultdict[str, set[str]] = defaultdict(set)
    for point in points:
        if point.made and point.made.notes.get("optimizer_steps"):
            rates[point.spec.model.id].add(point.spec.training.learning_rate)
            variants[point.spec.model.id].add(point.spec.variant)
    compared = [rates[model] for model, names in variants.items() if len(names) > 1]
    if compared and max(map(len, compared)) == 1:
        listed = ", ".join(f"{rate:g}" for rate in sorted(set().union(*compared)))
        yield f"All trained methods ran at one learning rate ({listed}): a comparison at one rate compares rates."


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
