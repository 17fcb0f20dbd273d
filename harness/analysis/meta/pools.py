"""The models of a sweep by what they know of the forget set: those that memorised it, and those that never saw it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from harness.analysis.metrics import MetricInfo
from harness.contracts import CloserTo, Metric
from harness.errors import DataError, unknown
from harness.records.results import PointResults, Results
from harness.specs import ORIGINAL, RETRAINED
from harness.statistics.auc import AUC, UNKNOWN, model_auc, text_auc
from harness.statistics.item_values import Floats

LEAST_MODELS = 2
"""Of either kind: of one model nothing is known of the next."""
NOT_JUDGED = ("generation", "reasoning")
"""Groups of metrics that say nothing of the forget set."""


@dataclass(frozen=True)
class Pools:
    """The reference rows that tell whether a metric can be trusted, one of each kind for every pretrained model."""

    originals: tuple[PointResults, ...]
    """The models that memorised the forget set."""
    retrained: tuple[PointResults, ...]
    """The same, pretrained without it, in the same order."""


def pools(results: Results) -> Pools:
    """Return both groups of models; of several seeds of a sweep, which measure the same model, the first.

    Raises:
        DataError: There are fewer than two models of either kind.
    """
    by_kind: dict[str, dict[str, PointResults]] = {ORIGINAL: {}, RETRAINED: {}}
    for point in results.measured:
        if point.spec.method in by_kind:
            by_kind[point.spec.method].setdefault(point.spec.model.digest, point)
    originals, retrained = by_kind[ORIGINAL], by_kind[RETRAINED]
    if not retrained:
        raise DataError(
            f"the sweep '{results.plan.sweep}' measured no retrained model, so no metric can be asked to tell one from "
            "a model that memorised the forget set. Name one for each model (models: [{id: ..., retrained: FOLDER}])."
        )
    both = [digest for digest in originals if digest in retrained]
    if len(both) < LEAST_MODELS:
        raise DataError(
            f"the sweep '{results.plan.sweep}' has {len(both)} model with its retrained twin, and a meta-evaluation "
            f"needs at least {LEAST_MODELS} of each kind, five or more to say anything. Train more (lethe pretrain "
            "--seed 1 --size s) and name them in `models`."
        )
    return Pools(tuple(originals[digest] for digest in both), tuple(retrained[digest] for digest in both))


def judged_metrics(info: MetricInfo, chosen: Sequence[str] = ()) -> dict[str, Metric]:
    """Return the metrics that are judged: those of the forget set that each sequence has a part in.

    Left out are metrics of the model's own writing, of its weights, and of the texts without a model.

    Args:
        info: Of all that the sweep measured.
        chosen: Names of those that are wanted; (): all.

    Raises:
        DataError: A chosen name is not among them.
    """
    judged: dict[str, Metric] = {}
    for name, metric in info.items():
        aims_at_number = isinstance(metric.better, CloserTo) and metric.better.aim != RETRAINED
        if metric.group not in NOT_JUDGED and metric.items is not None and not aims_at_number:
            judged[name] = metric
    for name in chosen:
        if name not in judged:
            raise DataError(unknown("metric of erasure or robustness in this sweep", name, list(judged)))
    return {name: metric for name, metric in judged.items() if not chosen or name in chosen}


def knowledge(metric: Metric, value: float) -> float:
    """Return the side of a metric that is higher the more a model knows of the forget set.

    That is the metric itself, unless a higher number is better: then it is what is left up to its upper bound, as the
    public study takes 1 − UDS. An AUC of membership is taken as it is, though its aim is the retrained model's.

    Example:
        >>> about = dict(name="depth", unit="", low=0.0, high=1.0, group="robustness", source="", title="Depth")
        >>> knowledge(Metric(better="higher", **about), 0.75), knowledge(Metric(better="lower", **about), 0.75)
        (0.25, 0.75)
    """
    if metric.better != "higher":
        return value
    return metric.high - value if math.isfinite(metric.high) else -value


def is_circular(metric: Metric, point: PointResults) -> bool:
    """Return whether a metric compares a model with the original or the retrained model: itself, in the pools."""
    return metric.agrees_with == ORIGINAL or any(
        evaluator.retrained is not None and evaluator.key in _keys(point, metric.name)
        for evaluator in point.spec.evaluators
    )


def _keys(point: PointResults, metric: str) -> set[str]:
    return {measurement.key for measurement in point.measurements if metric in measurement.numbers}


def measured_number(point: PointResults, metric: Metric) -> float:
    """Return what was measured of a point; NaN where nothing was."""
    for measurement in point.measurements:
        if metric.name in measurement.numbers:
            return measurement.numbers[metric.name]
    return math.nan


def number_of(point: PointResults, metric: Metric) -> float:
    """Return what a point knows of the forget set by a metric; NaN where it was not measured."""
    return knowledge(metric, measured_number(point, metric))


@dataclass(frozen=True)
class Faithfulness:
    """How well a metric tells models that memorised the forget set from models that never saw it."""

    models: AUC
    """Of one number for each model."""
    texts: AUC
    """Text by text; not known of an AUC, of which no text has a value of its own."""
    threshold: float
    """The number that separates the models with the fewest mistakes: below it a metric says that a model is erased."""


def faithfulness(metric: Metric, both: Pools, results: Results) -> Faithfulness:
    """Return how well a metric tells the models apart."""
    first, second = ([number_of(point, metric) for point in group] for group in (both.originals, both.retrained))
    threshold = best_threshold(first, second)
    if is_circular(metric, both.originals[0]):
        return Faithfulness(UNKNOWN, UNKNOWN, threshold)
    texts = UNKNOWN
    if metric.items == "sequence":
        values_PT, clusters = _text_values(metric, both.originals, results)
        values_NT, _ = _text_values(metric, both.retrained, results)
        codes_T = np.unique(clusters, return_inverse=True)[1]
        texts = text_auc(values_PT, values_NT, np.asarray(codes_T, dtype=np.int64))
    return Faithfulness(model_auc(first, second), texts, threshold)


def _text_values(metric: Metric, points: Sequence[PointResults], results: Results) -> tuple[Floats, tuple[str, ...]]:
    """Return what each model (rows) knows of each text by a metric, and the texts' clusters."""
    rows: list[Mapping[str, float]] = []
    for point in points:
        rows.append(results.items(point)[metric.name].by_id())
    items = results.items(points[0])[metric.name]
    sign = -1.0 if metric.better == "higher" else 1.0
    values = [[sign * row.get(text, math.nan) for text in items.ids] for row in rows]
    return np.array(values, dtype=np.float64), items.clusters


def best_threshold(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the midpoint of two neighbouring values that puts most models on the right side; of equal ones the lowest.

    Source: the public study's `scripts/meta_eval_robustness.py`: models above it are left out of a metric's robustness,
    since by that metric nothing was erased from them.

    Example:
        >>> best_threshold([0.9, 0.7], [0.1, 0.3])
        0.5
    """
    known = sorted({value for value in (*first, *second) if not math.isnan(value)})
    best, most = math.nan, -1
    for below, above in pairwise(known):
        middle = (below + above) / 2
        right = sum(value >= middle for value in first) + sum(value < middle for value in second)
        if right > most:
            best, most = middle, right
    return best
