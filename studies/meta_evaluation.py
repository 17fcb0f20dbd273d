"""Trust in metrics: do they tell memorised models from retrained ones, and still once these are disturbed?

    python -m studies.meta_evaluation results/meta

Every erased model of a finished sweep, and every retrained one, is trained for one epoch on the forget set and, apart
from that, rounded to 4 bits; and measured again. Numbers that are measured are kept: a run that was ended goes on. It
writes meta.csv and meta.md next to the sweep's tables. docs/results/trust.md has the result.

Array letters: P models with the forget set, N without it, T texts that all of them have.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtri, stdtrit

from harness.analysis.metrics import MetricInfo, metric_info, number
from harness.analysis.table import csv_text
from harness.base.files import digest_of, write_whole
from harness.base.messages import tell
from harness.contracts import CloserTo, Metric, Model, Number
from harness.errors import DataError, LetheError, TrialError
from harness.execution.tasks import MeasuredModel, measured_set
from harness.execution.trial import run_evaluator, yield_models
from harness.library import load_results
from harness.planning.published import PUBLISHED
from harness.records.artifacts import ARRAYS, Artifacts
from harness.records.results import PointResults, Results
from harness.settings import ORIGINAL, RETRAINED, EvaluatorSpec, Trial
from harness.toolkit.cached_models import PairModel
from harness.toolkit.finetune import trained_briefly
from harness.toolkit.rounding import make_rounding, rounded_copy

LEAST_UTILITY = 0.8
"""Of the original's: a model that lost more is left out, as the public study leaves it out."""
CONFIDENCE = 0.95
BATCH = 8
SCHEME: Final = "nf4"
DISTURBED_VERSION = "1"
Floats = NDArray[np.float64]
Disturbed = Mapping[str, Mapping[str, float]]
"""By the disturbance, each metric's number as measured; none where it was not."""


class Estimate(NamedTuple):
    """A number and its 95 % interval; NaN where one is not known."""

    value: float
    low: float
    high: float


UNKNOWN = Estimate(math.nan, math.nan, math.nan)


class Stability(NamedTuple):
    """R and Q of one metric on one erased point (`agreements`)."""

    model: str
    is_counted: bool
    """Whether it kept its utility and the metric itself calls it erased."""
    agreements: tuple[float, float]
    is_unmoved: bool


def model_auc(first_P: ArrayLike, second_N: ArrayLike) -> Estimate:
    """Return the share of pairs with the higher number in the first group; a NaN is left out.

    Example:
        >>> separated = model_auc([6, 7, 8, 9, 10], [1, 2, 3, 4, 5])
        >>> separated.value, round(separated.low, 3), separated.high
        (1.0, 0.643, 1.0)
    """
    known_P, known_N = (np.array([v for v in np.asarray(each, float) if v == v]) for each in (first_P, second_N))
    if not (len(known_P) and len(known_N)):
        return UNKNOWN
    value = float(_wins(known_P[:, None], known_N[None, :]).mean())
    return Estimate(value, *auc_interval(value, len(known_P), len(known_N)))


def auc_interval(value: float, first: int, second: int) -> tuple[float, float]:
    """Return the 95 % interval of an AUC of so many values in either group; it has a width at 0 and 1 too.

    Source: R. G. Newcombe, "Confidence intervals for an effect size measure based on the Mann–Whitney statistic. Part
    2", Statistics in Medicine 25, 2006, method 5.

    Example:
        >>> [round(bound, 3) for bound in auc_interval(0.5, 5, 5)]
        [0.206, 0.794]
    """
    width, more = float(ndtri((1 + CONFIDENCE) / 2)), (first + second) / 2 - 1

    def beyond(bound: float) -> float:
        shape = 1 + more * ((1 - bound) / (2 - bound) + bound / (1 + bound))
        return (value - bound) ** 2 - width**2 * bound * (1 - bound) / (first * second) * shape

    # At an estimate of 0 or 1 the estimate itself solves the equation of its bound too.
    low = 0.0 if value == 0.0 else float(brentq(beyond, 0.0, value - 1e-12))
    high = 1.0 if value == 1.0 else float(brentq(beyond, value + 1e-12, 1.0))
    return low, high


def text_auc(first_PT: Floats, second_NT: Floats, clusters_T: NDArray[np.int64]) -> Estimate:
    """Return the share of texts and pairs of models whose value is higher in the model of the first group.

    Models of either group and texts are crossed, and each is a sample: the variance is that of the means by model, by
    model of the other group and by cluster, each over its number; the interval is Student's t with Satterthwaite's
    degrees of freedom. Where no comparison differs from another, the interval is that of as many models.

    Example:
        >>> apart = text_auc(np.array([[3.0, 4, 5], [3, 5, 6]]), np.array([[1.0, 1, 1], [3, 1, 1]]), np.arange(3))
        >>> round(apart.value, 4)
        0.9167
    """
    wins_PNT = _wins(first_PT[:, None], second_NT[None, :])
    wins_PNT[np.isnan(first_PT[:, None] + second_NT[None, :])] = np.nan
    known_T = ~np.isnan(wins_PNT).all(axis=(0, 1))
    if not known_T.any():
        return UNKNOWN
    value = float(np.nanmean(wins_PNT))
    cluster_means = [np.nanmean(wins_PNT[..., clusters_T == code]) for code in np.unique(clusters_T[known_T])]
    samples = [_row_means(wins_PNT), _row_means(wins_PNT.swapaxes(0, 1)), np.array(cluster_means)]
    parts = [(means.var(ddof=1) / len(means), len(means) - 1) for means in samples if len(means) > 1]
    variance = float(sum(part for part, _ in parts))
    if variance < 1e-18:
        return Estimate(value, *auc_interval(value, len(first_PT), len(second_NT)))
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return Estimate(value, max(0.0, value - reach), min(1.0, value + reach))


def _wins(first: Floats, second: Floats) -> Floats:
    return np.asarray((first > second) + 0.5 * (first == second), dtype=np.float64)


def _row_means(values: Floats) -> Floats:
    rows = values.reshape(len(values), -1)
    return np.asarray(np.nanmean(rows[~np.isnan(rows).all(axis=1)], axis=1))


def agreement(value: float, other: float) -> float:
    """Return 1 − |a − b| / (|a| + |b|): 1 where two numbers are equal, 0 where one is 0 or their signs differ.

    Relearning (R): how far the erased and the retrained model's m rose. Rounding (Q): m before and after.

    Source: `docs/paper_guide.md`, section 4.1, of github.com/gnueaj/unlearning-depth-score (arXiv:2605.24614).

    Example:
        >>> round(agreement(0.3, 0.1), 9), agreement(-0.1, 0.1), agreement(0.0, 0.0)
        (0.5, 0.0, 1.0)
    """
    size = abs(value) + abs(other)
    return 1.0 if size == 0.0 else 1.0 - abs(value - other) / size


def harmonic_mean(first: float, second: float) -> float:
    """Return 2ab / (a + b): 0 where either is 0.

    Example:
        The published logit lens: R .8116 and Q .9587.

        >>> round(harmonic_mean(0.8116, 0.9587), 4)
        0.879
    """
    total = first + second
    return 0.0 if total == 0 else 2 * first * second / total


def pools(results: Results) -> tuple[list[PointResults], list[PointResults]]:
    """Return models that memorised the forget set and their retrained twins, in the same order."""
    by_kind: dict[str, dict[str, PointResults]] = {ORIGINAL: {}, RETRAINED: {}}
    for point in results.measured:
        if point.spec.method in by_kind:
            by_kind[point.spec.method].setdefault(point.spec.model.digest, point)
    both = [digest for digest in by_kind[ORIGINAL] if digest in by_kind[RETRAINED]]
    if len(both) < 2:
        raise DataError(
            f"the sweep '{results.plan.sweep}' has {len(both)} model with its retrained twin, and a meta-evaluation "
            "needs at least 2 of each kind, five or more to say anything: models: [{id: ..., retrained: FOLDER}]."
        )
    return [by_kind[ORIGINAL][digest] for digest in both], [by_kind[RETRAINED][digest] for digest in both]


def judged_metrics(info: MetricInfo) -> list[Metric]:
    """Return the metrics of the forget set that each sequence has a part in, without those of the texts themselves."""
    candidates = [metric for metric in info.values() if metric.group not in ("generation", "reasoning")]
    aims = {metric.name: metric.better.aim for metric in candidates if isinstance(metric.better, CloserTo)}
    return [metric for metric in candidates if metric.items and aims.get(metric.name, RETRAINED) == RETRAINED]


def knowledge(metric: Metric, value: float) -> float:
    """Return the side of a metric that is higher the more a model knows of the forget set."""
    if metric.better != "higher":
        return value
    return metric.high - value if math.isfinite(metric.high) else -value


def measured_number(point: PointResults, metric: Metric) -> float:
    """Return a point's number; NaN where it was not measured."""
    numbers = (measured.numbers[metric.name] for measured in point.measurements if metric.name in measured.numbers)
    return next(numbers, math.nan)


def is_circular(metric: Metric, point: PointResults) -> bool:
    """Return whether a metric compares a model with the original or the retrained model, so that it has no AUC."""
    keys = {measurement.key for measurement in point.measurements if metric.name in measurement.numbers}
    compared = [spec.key for spec in point.spec.evaluators if spec.retrained is not None]
    return metric.agrees_with == ORIGINAL or not keys.isdisjoint(compared)


def best_threshold(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the midpoint of two neighbouring values that puts most models on the right side; of equal ones the lowest.

    Example:
        >>> best_threshold([0.9, 0.7], [0.1, 0.3])
        0.5
    """
    values = sorted({value for value in (*first, *second) if not math.isnan(value)})

    def right(middle: float) -> int:
        return sum(value >= middle for value in first) + sum(value < middle for value in second)

    return max(((below + above) / 2 for below, above in pairwise(values)), key=right, default=math.nan)


def text_values(metric: Metric, points: Sequence[PointResults], results: Results) -> tuple[Floats, tuple[str, ...]]:
    """Return each model's (rows) knowledge of each text by a metric, and the texts' clusters."""
    by_id = [results.items(point)[metric.name].by_id() for point in points]
    items = results.items(points[0])[metric.name]
    sign = -1.0 if metric.better == "higher" else 1.0
    return np.array([[sign * row.get(text, math.nan) for text in items.ids] for row in by_id]), items.clusters


def stabilities(
    metric: Metric, results: Results, disturbed: Mapping[str, Disturbed], threshold: float, utility: Metric | None
) -> list[Stability]:
    """Return R and Q of a metric on each erased point, next to the retrained model of its own."""
    originals, retrained = ({point.spec.model.digest: point for point in group} for group in pools(results))
    outcomes = []
    for point in [point for point in results.measured if not point.spec.is_reference]:
        digest = point.spec.model.digest
        if digest not in retrained:
            continue
        share = 1.0
        if utility is not None:
            ours, whole = (measured_number(each, utility) for each in (point, originals[digest]))
            ours, whole = (whole, ours) if utility.better == "lower" else (ours, whole)
            share = ours / whole if whole else math.nan

        def after(one: PointResults, kind: str) -> float:
            numbers = disturbed.get(one.spec.point_id(one.strength), {}).get(kind, {})
            return knowledge(metric, numbers.get(metric.name, math.nan))

        start, rounded = knowledge(metric, measured_number(point, metric)), after(point, "rounded")
        twin = retrained[digest]
        rise = after(point, "relearned") - start
        rise_of_twin = after(twin, "relearned") - knowledge(metric, measured_number(twin, metric))
        agreements = agreement(rise, rise_of_twin), agreement(start, rounded)
        is_counted = share >= LEAST_UTILITY and start <= threshold
        outcomes.append(Stability(digest, is_counted, agreements, is_unmoved=rise == rise_of_twin == 0.0))
    return outcomes


def robustness(points: Sequence[Stability], prefix: str) -> dict[str, float]:
    """Return R, Q and their harmonic mean as columns: means over points, with intervals over pretrained models."""
    by_model: list[dict[str, list[float]]] = [{}, {}]
    for point in points:
        for group, value in zip(by_model, point.agreements, strict=True):
            if not math.isnan(value):
                group.setdefault(point.model, []).append(value)
    relearned, rounded = ([value for values in group.values() for value in values] for group in by_model)
    means = [{model: _mean(values) for model, values in group.items()} for group in by_model]
    both = [harmonic_mean(value, means[1][model]) for model, value in means[0].items() if model in means[1]]
    columns = _columns(f"{prefix}relearning", _with_interval(_mean(relearned), [*means[0].values()]))
    columns |= _columns(f"{prefix}rounding", _with_interval(_mean(rounded), [*means[1].values()]))
    mean_of_both = harmonic_mean(_mean(relearned), _mean(rounded))
    columns |= _columns(f"{prefix}robustness", _with_interval(mean_of_both, both))
    columns |= {f"{prefix}relearned_points": len(relearned), f"{prefix}rounded_points": len(rounded)}
    return columns | {f"{prefix}unmoved_points": sum(point.is_unmoved for point in points)}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _with_interval(value: float, model_values: Sequence[float]) -> Estimate:
    error = float(np.std(model_values, ddof=1)) / math.sqrt(len(model_values)) if len(model_values) > 1 else 0.0
    if math.isnan(value) or error < 1e-9:  # No variance to be seen is no certainty.
        return Estimate(value, math.nan, math.nan)
    reach = float(stdtrit(len(model_values) - 1, (1 + CONFIDENCE) / 2)) * error
    return Estimate(value, max(0.0, value - reach), min(1.0, value + reach))


def _columns(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def meta_evaluation(results: Results, disturbed: Mapping[str, Disturbed]) -> pd.DataFrame:
    """Return a row for each metric, by falling overall score: the harmonic mean of its AUC and its robustness."""
    info, (originals, retrained) = metric_info(results), pools(results)
    rows = []
    for metric in judged_metrics(info):
        first, second = (
            [knowledge(metric, measured_number(point, metric)) for point in group] for group in (originals, retrained)
        )
        threshold, auc, texts = best_threshold(first, second), model_auc(first, second), UNKNOWN
        if is_circular(metric, originals[0]):
            auc = UNKNOWN
        elif metric.items == "sequence":
            values_PT, clusters = text_values(metric, originals, results)
            codes_T = np.unique(clusters, return_inverse=True)[1].astype(np.int64)
            texts = text_auc(values_PT, text_values(metric, retrained, results)[0], codes_T)
        points = stabilities(metric, results, disturbed, threshold, info.get(results.plan.compare.cost))
        counted = [point for point in points if point.is_counted]
        row = _columns("auc", auc) | _columns("text_auc", texts) | robustness(counted, "")
        row |= robustness(points, "all_")
        row |= {"overall": harmonic_mean(auc.value, row["robustness"]), "threshold": threshold}
        rows.append({"metric": metric.name, "title": metric.title} | row)
    table = pd.DataFrame(rows)
    return table.sort_values(["overall", "robustness"], ascending=False, na_position="last", kind="stable")


class Task(NamedTuple):
    """A trial whose models are disturbed and measured: plain data, for another process."""

    spec: Trial
    strengths: tuple[Number | None, ...]
    evaluators: tuple[str, ...]
    """Names of those that measure again."""
    learning_rate: float
    artifacts: Path
    codes: Mapping[str, str]
    """Digest of the code that made each point."""

    def measurements(self, strength: Number | None) -> list[tuple[str, EvaluatorSpec, tuple[str, ...]]]:
        """Return a point's measurements: disturbance, evaluator, and the key of the kept numbers."""
        texts = (self.spec.measured or self.spec.forget).digest
        point = self.spec.point_id(strength), self.spec.model.digest, texts
        settings = {"relearned": {"learning_rate": self.learning_rate, "batch": BATCH}, "rounded": {"scheme": SCHEME}}
        return [
            (kind, each, ("disturbed", DISTURBED_VERSION, kind, digest_of(settings[kind]), *point, each.key))
            for kind in (list(settings)[:1] if self.spec.is_reference else settings)
            for each in self.spec.evaluators
            if each.name in self.evaluators
        ]


def disturbed_tasks(results: Results, artifacts: Path, learning_rate: float) -> list[Task]:
    """Return the tasks: each trial's erased models disturbed both ways, retrained models relearned."""
    _, retrained = pools(results)
    points = [point for point in results.measured if not point.spec.is_reference]
    if not points:
        raise DataError(f"the sweep '{results.plan.sweep}' erased nothing, so nothing shows what disturbing changes.")
    judged = {metric.name for metric in judged_metrics(metric_info(results))}
    names = [each.evaluator for each in points[0].measurements if judged & each.numbers.keys()]
    by_trial: dict[str, list[PointResults]] = {}
    for point in (*retrained, *points):
        by_trial.setdefault(point.spec.trial_id, []).append(point)
    codes = {point.made.point_id: point.made.code for point in points if point.made}
    return [
        Task(group[0].spec, tuple(point.strength for point in group), tuple(names), learning_rate, artifacts, codes)
        for group in by_trial.values()
    ]


def measure(task: Task) -> list[str]:
    """Measure the missing numbers of a trial's disturbed models, keep them, and return why some could not be measured.

    Two models that are decoded together have no weights to relearn: that is no failure.
    """
    torch.set_num_threads(max(1, task.spec.cpus))
    artifacts, failures = Artifacts(task.artifacts), list[str]()
    missing: dict[Number | None, dict[str, list[tuple[EvaluatorSpec, tuple[str, ...]]]]] = {}
    for strength in task.strengths:
        for kind, evaluator, key in task.measurements(strength):
            if not (artifacts.root / ARRAYS / digest_of(list(key))).exists():
                missing.setdefault(strength, {}).setdefault(kind, []).append((evaluator, key))
    strengths = [strength for strength in missing if strength is not None]
    with closing(yield_models(task.spec, artifacts, strengths, _ignored, task.codes)) as erasures:
        while missing and (erasure := next(erasures, None)) is not None:
            strength, model = None if task.spec.is_reference else erasure.erased.strength, erasure.erased.model.eval()
            for kind, measurements in missing.pop(strength, {}).items():
                if kind == "relearned" and isinstance(model, PairModel):
                    continue
                try:
                    disturbed = MeasuredModel(disturbed_model(task, model, kind))
                    for evaluator, key in measurements:
                        artifacts.arrays(key, partial(_numbers, task.spec, evaluator, disturbed, artifacts))
                except TrialError as error:
                    failures.append(f"{task.spec.label} at {strength}, {kind}: {error}")
    return failures


def disturbed_model(task: Task, model: Model, kind: str) -> Model:
    """Return a copy of a model after one epoch on a trial's forget set, or with its linear layers rounded."""
    if kind == "rounded":
        return rounded_copy(model, make_rounding(SCHEME)).eval()
    forget = measured_set(task.spec)
    steps = [-(-len(forget) // BATCH)]
    [(_, trained)] = trained_briefly(model, forget, steps=steps, learning_rate=task.learning_rate, batch=BATCH, seed=0)
    return trained


def _numbers(
    spec: Trial, evaluator: EvaluatorSpec, model: MeasuredModel, artifacts: Artifacts
) -> Mapping[str, NDArray[np.float64]]:
    numbers = run_evaluator(spec, evaluator, model, artifacts, _ignored).numbers
    return {name: np.array([float(value)]) for name, value in numbers.items()}


def _ignored(message: str) -> None:
    pass


def kept_numbers(tasks: Sequence[Task]) -> dict[str, Disturbed]:
    """Return the numbers of disturbed models, by the id of the point that they were before."""
    by_point: dict[str, Disturbed] = {}
    for task in tasks:
        artifacts = Artifacts(task.artifacts)
        for strength in task.strengths:
            numbers: dict[str, dict[str, float]] = {}
            for kind, _, key in task.measurements(strength):
                if artifacts.find(ARRAYS, digest_of(list(key))) is not None:
                    values = {name: float(value[0]) for name, value in artifacts.arrays(key, dict).items()}
                    numbers.setdefault(kind, {}).update(values)
            by_point[task.spec.point_id(strength)] = numbers
    return by_point


def meta_markdown(table: pd.DataFrame, question: str) -> str:
    """Return meta.md: the table, all points, and the public study's."""
    three = ("relearning", "rounding", "robustness")
    parts = [
        f"# {question}",
        _markdown(table, ["auc", "text_auc", *three, "overall", "rounded_points", "unmoved_points"]),
        "All points:",
        _markdown(table, [f"all_{name}" for name in three]),
    ]
    with (PUBLISHED / "metric_meta_evaluation.csv").open(encoding="utf-8", newline="") as file:
        study = {row["ours"]: row for row in csv.DictReader(file)}
    beside = table[table["metric"].isin(set(study))].copy()
    for name in ("auc", *three):
        beside[f"{name} there"] = [float(study[metric][name]) for metric in beside["metric"]]
    columns = [column for name in ("auc", *three) for column in (name, f"{name} there")]
    return "\n\n".join([*parts, "The public study (arXiv:2605.24614):", _markdown(beside, columns)]) + "\n"


def _markdown(table: pd.DataFrame, columns: Sequence[str]) -> str:
    lines = [f"| metric | {' | '.join(columns)} |", "| --- |" + " --: |" * len(columns)]
    for row in table.to_dict("records"):
        cells = []
        for name in columns:
            bounds = [row.get(f"{name}_{end}", math.nan) for end in ("low", "high")]
            interval = "" if math.isnan(bounds[0]) else f" <sub>{number(bounds[0])}–{number(bounds[1])}</sub>"
            cells.append(str(row[name]) if name.endswith("points") else number(row[name]) + interval)
        lines.append(f"| {row['title']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure missing numbers of the disturbed models and write the tables; return 1 if some cannot, 2 if none can."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a finished sweep's results: results/meta")
    parser.add_argument(
        "--rate", type=float, default=1e-4, help="of the epoch on the forget set (default: %(default)g)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="trials at the same time")
    arguments = parser.parse_args(argv)
    folder: Path = arguments.folder
    try:
        outcome = load_results(folder)
        if outcome.unfinished:
            raise DataError(f"{len(outcome.unfinished)} trials in {folder} are not finished: run the sweep again.")
        tasks = disturbed_tasks(outcome.results, folder.resolve().parent / "artifacts", arguments.rate)
        with ProcessPoolExecutor(arguments.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            measured = (pool.map if arguments.jobs > 1 else map)(measure, tasks)
            failures = [failure for trial_failures in measured for failure in trial_failures]
        table = meta_evaluation(outcome.results, kept_numbers(tasks))
        write_whole(folder / "meta.csv", csv_text(table))
        tell(write_whole(folder / "meta.md", meta_markdown(table, outcome.results.plan.question)))
    except LetheError as error:
        tell(str(error), is_error=True)
        return 2
    tell(*(f"not measured: {failure}" for failure in failures), is_error=True)
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main())
