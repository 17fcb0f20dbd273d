"""Which methods differ in a column of a table beyond chance: paired tests on the same items, shown by letters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd

from harness.analysis.evidence import Evidence
from harness.analysis.metrics import Aims
from harness.contracts import CloserTo, Metric
from harness.statistics.bootstrap import CONFIDENCE
from harness.statistics.contrasts import paired_p
from harness.statistics.item_values import ItemValues, Match
from harness.statistics.significance import groups, holm

LEVEL = 1 - CONFIDENCE

Letters = Mapping[tuple[str, str], str]
"""By variant and metric: variants that share a letter do not differ by it beyond chance."""


def significance_groups(
    rows_by_variant: Mapping[str, pd.DataFrame], metrics: Sequence[Metric], evidence: Evidence, aims: Aims
) -> dict[tuple[str, str], str]:
    """Return the letters of a table's variants in each of its columns, best first; none where nothing was compared.

    All pairs in all columns are one family of tests (Holm): letters that part what is alike come at most once in
    twenty tables. A metric without items, such as MAUVE, is not tested; nor are two that share a single training run,
    since items say nothing of what another run would give.
    """
    if not rows_by_variant or not any(evidence.by_point.values()):
        return {}
    tests: dict[tuple[str, str, str], float] = {}
    all_rows = pd.concat(rows_by_variant.values())
    costs: dict[tuple[str, str], float] = {}
    places: dict[str, dict[tuple[str, int], int]] = {}
    start = 0
    for variant, rows in rows_by_variant.items():
        replicates = zip(rows["model"], rows["seed"], strict=True)
        places[variant] = dict(zip(replicates, range(start, start + len(rows)), strict=True))
        start += len(rows)
        costs |= {(variant, metric.name): aims.cost(rows, metric) for metric in metrics}
    for one, other in combinations(rows_by_variant, 2):
        shared = sorted(places[one].keys() & places[other].keys())
        rows = all_rows.iloc[[places[variant][replicate] for variant in (one, other) for replicate in shared]]
        for metric in metrics:
            values = evidence.of(rows, metric) if len(shared) > 1 and metric.items else None
            tests[metric.name, one, other] = math.nan
            if values:
                both = np.split(aims.deviations(rows, metric), 2)
                pair = split_rows(values, len(shared))
                tests[metric.name, one, other] = p_of_pair(metric, *pair, (both[0].mean(), both[1].mean()))
    return letters_of(tests, costs, metrics)


def p_of_pair(
    metric: Metric,
    one: ItemValues,
    other: ItemValues,
    sides: tuple[float, float],
    matches: tuple[Match | None, Match | None] = (None, None),
) -> float:
    """Return the p-value of two being equally good by a metric; NaN where that is not known.

    Two on the same side of what they should be close to are equally good if their values are the same. Of two on
    either side of a number, one is mirrored there first; on either side of a retrained model, which has noise of its
    own, or of an `exp_mean`, whose items are logarithms, nothing is known.

    Args:
        metric: What they are values of.
        one: Of one method.
        other: Of the other: row by row the same replicates, column by column the same items.
        sides: How far, and to which side, the mean of each deviates from the aim.
        matches: How uncertain it is where each meets the limit at which they are compared.
    """
    if not isinstance(metric.better, CloserTo) or sides[0] * sides[1] > 0:
        return paired_p(one, other, *matches)
    aim = metric.better.aim
    if isinstance(aim, str) or metric.aggregate != "mean":
        return math.nan
    return paired_p(one, replace(other, values_RN=2 * aim - other.values_RN))


def letters_of(
    tests: Mapping[tuple[str, str, str], float], costs: Mapping[tuple[str, str], float], metrics: Sequence[Metric]
) -> dict[tuple[str, str], str]:
    """Return the letters that follow from a table's tests.

    Args:
        tests: p-values of (metric, variant, other variant); NaN where that is not known.
        costs: Of (variant, metric), by which the best, which is the least, comes first.
        metrics: The columns.
    """
    adjusted = holm(list(tests.values()))
    letters: dict[tuple[str, str], str] = {}
    for metric in metrics:
        tested: dict[str, float] = {}
        different = set()
        for (name, one, other), p in zip(tests, adjusted, strict=True):
            if name == metric.name and not math.isnan(p):
                tested |= {one: costs[one, name], other: costs[other, name]}
                if p < LEVEL:
                    different.add(frozenset((one, other)))
        if tested:
            for variant, text in groups(sorted(tested, key=tested.__getitem__), different).items():
                letters[variant, metric.name] = text
    return letters


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
