"""Per-item values of evaluations, checked against their aggregates."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from harness.base.files import digest_of
from harness.contracts import Evaluation, ItemKind, Metric, MoreTexts, Sequences
from harness.data import overlap, sequences
from harness.errors import TrialError
from harness.records.items import MetricItems, aggregated

TOLERANCE = 1e-5
"""Relative tolerance of an aggregate: fp32 sums differ by less."""
# Smaller numbers are compared as of this size.
_MIN_SIZE = 1e-3

Identities = tuple[tuple[str, ...], tuple[str, ...]]
"""Ids of the items, and their clusters."""
TokenRows = tuple[tuple[int, ...], ...]


def metric_items(
    evaluation: Evaluation,
    metrics: Sequence[Metric],
    forget: Sequences,
    utility: sequences.Utility,
    more: Mapping[MoreTexts, Sequences] = MappingProxyType({}),
) -> dict[str, MetricItems]:
    """Return the items of every measured metric that declares some; `more` has those of `holdout` and `validation`."""
    prompts = tuple(map(tuple, utility.prompts_NT.tolist()))
    prompt_identities = _identities(tuple(map(tuple, sequences.token_rows(utility))), prompts, prompts)
    identities: dict[ItemKind, Identities] = {"sequence": sequence_identities(forget), "prompt": prompt_identities}
    identities |= {role: sequence_identities(more[role]) for role in ("holdout", "validation") if role in more}
    if "holdout" in more:
        # One text in both is an item of each.
        ids, clusters = ([f"holdout-{each}" for each in part] for part in identities["holdout"])
        forget_ids, forget_clusters = identities["sequence"]
        identities["sequence_and_holdout"] = (*forget_ids, *ids), (*forget_clusters, *clusters)
    items = {}
    for metric in metrics:
        is_unknown = math.isnan(evaluation.numbers[metric.name]) and metric.name not in evaluation.per_item
        if metric.items and not is_unknown:
            items[metric.name] = _checked_items(evaluation, metric, identities)
    return items


def sequence_identities(forget: Sequences) -> Identities:
    """Return each sequence's id and cluster; related texts share a cluster."""
    rows = tuple(map(tuple, sequences.token_rows(forget)))
    return _identities(rows, rows, tuple(row[forget.prefix_tokens :] for row in rows))


@lru_cache(maxsize=8)
def _identities(texts: TokenRows, items: TokenRows, parts: TokenRows) -> Identities:
    """Return an id for each item, numbered where it repeats, and its cluster's smallest digest.

    A cluster's texts share their part or half of their n-grams. Computed once a sweep.
    """
    count_by_digest: Counter[str] = Counter()
    ids = []
    for digest in map(digest_of, items):
        count_by_digest[digest] += 1
        ids.append(digest if count_by_digest[digest] == 1 else f"{digest}-{count_by_digest[digest]}")
    digests = tuple(map(digest_of, parts))
    groups = overlap.near_duplicate_groups(texts, digests, overlap.RELATED_SHARE)
    cluster_by_group = dict(sorted(zip(groups, digests, strict=True), reverse=True))
    return tuple(ids), tuple(cluster_by_group[group] for group in groups)


def _checked_items(evaluation: Evaluation, metric: Metric, identities: dict[ItemKind, Identities]) -> MetricItems:
    assert metric.items is not None
    ids, clusters = identities.get(metric.items, ((), ()))
    if metric.name in evaluation.item_ids:
        ids = clusters = tuple(evaluation.item_ids[metric.name])
    if len(set(ids)) < len(ids):
        raise TrialError(f"the items of '{metric.name}' have ids that come twice: each item needs one of its own.")
    values = _per_item(evaluation.per_item, metric, len(ids))
    is_weighted = metric.name in evaluation.item_weights
    weights = _per_item(evaluation.item_weights, metric, len(ids)) if is_weighted else np.ones(len(ids))
    number, total = evaluation.numbers[metric.name], aggregated(values, weights, metric.aggregate)
    are_close = math.isclose(number, total, rel_tol=TOLERANCE, abs_tol=TOLERANCE * _MIN_SIZE)
    if not are_close and not (math.isnan(number) and math.isnan(total)):
        mismatch = f"'{metric.name}' is {number:.9g}, and the {metric.aggregate} of its {len(ids)} items is {total:.9g}"
        raise TrialError(f"{mismatch}: the number must be the declared aggregate of what `per_item` holds.")
    return MetricItems(ids, clusters, values, weights)


def _per_item(arrays: Mapping[str, np.ndarray], metric: Metric, count: int) -> NDArray[np.float64]:
    values = np.array(arrays.get(metric.name, ()), dtype=np.float64)
    if values.shape != (count,):
        declared = f"'{metric.name}' declares items ('{metric.items}'), of which there are {count}"
        rule = "one value for each is needed, NaN where it is not known"
        raise TrialError(f"{declared}, and its array has the shape {values.shape}: {rule}.")
    return values
