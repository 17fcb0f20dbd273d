"""Which texts are recited word for word: what means over all texts hide where they are few, and ranks on them alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from harness.analysis.evidence import Evidence, chosen_items, interval_columns
from harness.analysis.metrics import MetricInfo, exact_matches, metrics_in
from harness.records.items import MetricItems, aggregated
from harness.specs import HOLDOUT, ORIGINAL, RETRAINED, STAND_IN, UNSEEN_ROWS

TOKENS = 50
"""A text is recited where its continuation is said for so many tokens to the letter, or wholly where it is shorter.

Source: Carlini et al., "Quantifying Memorization Across Neural Language Models", 2022, arXiv:2202.07646.
"""
LEAST_TOKENS = 32
"""Of a continuation that is to show anything: shorter ones are guessed too often.

Source: Biderman et al., "Emergent and Predictable Memorization in Large Language Models", 2023, arXiv:2304.11158.
"""
NAMED = 8
"""Ids of texts that a sentence lists."""


@dataclass(frozen=True)
class RecitedTexts:
    """What one model recites of some texts; copies of a text are one."""

    clusters: Mapping[str, str]
    """Of every item that is long enough: the text that it is, or is a copy of."""
    ids: frozenset[str]
    """The items that it recites."""
    least: float
    """For how many tokens at least it recites each."""

    @property
    def texts(self) -> int:
        """Return how many texts there are."""
        return len(set(self.clusters.values()))

    @property
    def recited(self) -> int:
        """Return how many of them it recites."""
        return len({self.clusters[id] for id in self.ids})

    @property
    def share(self) -> tuple[float, float]:
        """Return the share that it recites, and its standard error; NaN for a single text."""
        share = self.recited / self.texts
        return share, math.sqrt(share * (1 - share) / (self.texts - 1)) if self.texts > 1 else math.nan

    @property
    def named(self) -> str:
        """Return the ids of what it recites: never its text."""
        firsts: dict[str, str] = {}
        for id, cluster in self.clusters.items():
            if id in self.ids:
                firsts.setdefault(cluster, id)
        names = sorted(firsts.values())
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return ", ".join(names[:NAMED]) + more


def recited_texts(rows: pd.DataFrame, info: MetricInfo, evidence: Evidence) -> dict[str, RecitedTexts]:
    """Return what each reference row of one model recites; without those whose items do not show it.

    Seeds, and replicates, of a row count together: a text is recited if any of them recites it.
    """
    metrics = exact_matches(info)
    if metrics is None or not any(evidence.by_point.values()):
        return {}
    by_text, by_original = metrics
    points = {}
    for kind in (ORIGINAL, RETRAINED, HOLDOUT, STAND_IN):
        points[kind] = list(rows.loc[rows["method"] == kind, "point_id"])
    lengths: dict[str, float] = {}
    for point_id in [*points[ORIGINAL], *points[HOLDOUT], *points[STAND_IN]]:
        # The original agrees with itself as long as a continuation is.
        items = evidence.items(point_id, by_original)
        lengths |= items.by_id() if items else {}
    recited = {}
    for kind, point_ids in points.items():
        known = filter(None, (evidence.items(point_id, by_text) for point_id in point_ids))
        texts = _recited(known, lengths)
        if texts.clusters:
            recited[kind] = texts
    return recited


def _recited(of_rows: Iterable[MetricItems], lengths: Mapping[str, float]) -> RecitedTexts:
    clusters: dict[str, str] = {}
    recited: set[str] = set()
    least = math.inf
    for items in of_rows:
        for id, cluster, tokens in zip(items.ids, items.clusters, items.values_N, strict=True):
            if lengths.get(id, 0.0) >= LEAST_TOKENS:
                clusters[id] = cluster
                least = min(least, TOKENS, lengths[id])
                if tokens >= min(TOKENS, lengths[id]):
                    recited.add(id)
    return RecitedTexts(clusters, frozenset(recited), least)


def on_texts(
    table: pd.DataFrame, info: MetricInfo, evidence: Evidence, ids_by_model: Mapping[str, frozenset[str]]
) -> tuple[pd.DataFrame, Evidence]:
    """Return a table and its evidence with the ranked metrics of erasure measured on some texts of each model alone.

    Rows of unseen texts are of other texts, and stay as they are. A metric that is not known of any of the texts,
    or has no items, is NaN.
    """
    metrics = {metric.name: metric for metric in metrics_in(info, "erasure")}
    is_chosen = table["model"].isin([*ids_by_model]) & ~table["method"].isin(UNSEEN_ROWS)
    chosen = table[is_chosen]
    by_point = dict(evidence.by_point)
    columns: dict[str, list[float]] = {name: [] for name in metrics}
    for point_id, model in zip(chosen["point_id"], chosen["model"], strict=True):
        kept = dict(evidence.by_point.get(point_id, {}))
        for name, metric in metrics.items():
            items = chosen_items(kept.pop(name), ids_by_model[model]) if name in kept else None
            columns[name].append(math.nan)
            if items and items.ids:
                kept[name] = items
                columns[name][-1] = aggregated(items.values_N, items.weights_N, metric.aggregate)
        by_point[point_id] = kept
    restricted = Evidence(by_point)
    bounds = interval_columns(list(chosen["point_id"]), metrics, restricted)
    shown = {}
    for name, values in {**columns, **bounds}.items():
        if name in table.columns:
            shown[name] = table[name].where(~is_chosen, pd.Series(values, chosen.index, dtype=float))
    return table.assign(**shown), restricted
