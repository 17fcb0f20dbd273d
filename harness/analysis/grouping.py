"""Which methods can be told apart in a column of a table: paired tests on the same items, and letters that say so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd

from harness.analysis.evidence import Evidence
from harness.analysis.metrics import Aims
from harness.contracts import CloserTo, Metric
from harness.statistics.bootstrap import CONFIDENCE
from harness.statistics.item_values import ItemValues
from harness.statistics.significance import groups, holm, paired_p

LEVEL = 1 - CONFIDENCE

Letters = Mapping[tuple[str, str], str]
"""By variant and metric: variants that share a letter cannot be told apart by it."""


def significance_groups(
    rows_by_variant: Mapping[str, pd.DataFrame], metrics: Sequence[Metric], evidence: Evidence, aims: Aims
) -> dict[tuple[str, str], str]:
    """Return the letters of a table's variants in each of its columns, best first; none where nothing was compared.

    All pairs in all columns are one family of tests (Holm): letters that part what is alike come at most once in
    twenty tables. A metric without items, such as MAUVE, is not tested.
    """
    if not rows_by_variant or not any(evidence.by_point.values()):
        return {}
    tests: dict[tuple[str, str, str], float] = {}
    all_rows = pd.concat(rows_by_variant.values())
    places = dict(zip(rows_by_variant, _places(rows_by_variant.values()), strict=True))
    for one, other in combinations(rows_by_variant, 2):
        shared = sorted(places[one].keys() & places[other].keys())
        rows = all_rows.iloc[[places[variant][replicate] for variant in (one, other) for replicate in shared]]
        for metric in metrics:
            values = evidence.of(rows, metric) if len(rows) and metric.items else None
            tests[metric.name, one, other] = math.nan
            if values:
                both = np.split(aims.deviations(rows, metric), 2)
                pair = split_rows(values, len(rows) // 2)
                tests[metric.name, one, other] = p_of_pair(metric, *pair, (both[0].mean(), both[1].mean()))
    costs = {(v, m.name): aims.cost(rows, m) for v, rows in rows_by_variant.items() for m in metrics}
    return letters_of(tests, costs, metrics)


def p_of_pair(metric: Metric, one: ItemValues, other: ItemValues, sides: tuple[float, float]) -> float:
    """Return the p-value of two being equally good by a metric; NaN where it cannot be told.

    Two on the same side of what they should be close to are equally good if their values are the same. Of two on
    either side of a number, one is mirrored there first; on either side of a retrained model, which has noise of its
    own, or of an `exp_mean`, whose items are logarithms, nothing is told.

    Args:
        metric: What they are values of.
        one: Of one method.
        other: Of the other: row by row the same replicates, column by column the same items.
        sides: How far, and to which side, the mean of each deviates from the aim.
    """
    if not isinstance(metric.better, CloserTo) or sides[0] * sides[1] > 0:
        return paired_p(one, other)
    aim = metric.better.aim
    if isinstance(aim, str) or metric.aggregate != "mean":
        return math.nan
    return paired_p(one, replace(other, values_RN=2 * aim - other.values_RN))


def letters_of(
    tests: Mapping[tuple[str, str, str], float], costs: Mapping[tuple[str, str], float], metrics: Sequence[Metric]
) -> dict[tuple[str, str], str]:
    """Return the letters that follow from a table's tests.

    Args:
        tests: p-values of (metric, variant, other variant); NaN where it cannot be told.
        costs: Of (variant, metric), by which the best, which is the least, comes first.
        metrics: The columns.
    """
    adjusted = dict(zip(tests, holm(list(tests.values())), strict=True))
    letters: dict[tuple[str, str], str] = {}
    for metric in metrics:
        of_metric = {(one, other): p for (name, one, other), p in adjusted.items() if name == metric.name}
        tested = dict.fromkeys(variant for pair, p in of_metric.items() if not math.isnan(p) for variant in pair)
        order = sorted(tested, key=lambda variant: costs[variant, metric.name])
        different = {frozenset(pair) for pair, p in of_metric.items() if p < LEVEL}
        letters |= {(variant, metric.name): text for variant, text in groups(order, different).items()} if order else {}
    return letters


def _places(frames: Iterable[pd.DataFrame]) -> Iterator[dict[tuple[str, int], int]]:
    """Yield, for each frame, where its replicates, models and seeds, are in all of them on top of each other."""
    start = 0
    for frame in frames:
        yield {replicate: start + row for row, replicate in enumerate(zip(frame["model"], frame["seed"], strict=True))}
        start += len(frame)


def split_rows(values: ItemValues, first: int) -> tuple[ItemValues, ItemValues]:
    """Return the values of the first replicates, and of the others."""
    parts = slice(None, first), slice(first, None)
    one, other = (
        replace(
            values,
            values_RN=values.values_RN[part],
            weights_RN=values.weights_RN[part],
            models_R=None if values.models_R is None else values.models_R[part],
        )
        for part in parts
    )
    return one, other
