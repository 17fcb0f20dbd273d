"""Which texts are recited word for word: what means over all texts hide where they are few, and ranks on them alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis.evidence import Evidence, chosen_items, interval_columns
from harness.analysis.metrics import MetricInfo, exact_matches, metrics_in
from harness.contracts import Metric
from harness.records.items import MetricItems, aggregated
from harness.specs import HOLDOUT, ORIGINAL, RETRAINED, STAND_IN, UNSEEN_ROWS

TOKENS = 50
"""A text is recited where its continuation is said for so many tokens to the letter, or wholly where it is shorter.

Source: Carlini et al., "Quantifying Memorization Across Neural Language Models", 2022, arXiv:2202.07646.
"""
LEAST_TOKENS = 32
"""Of a continuation that is to tell anything: shorter ones are guessed too often.

Source: Biderman et al., "Emergent and Predictable Memorization in Large Language Models", 2023, arXiv:2304.11158.
"""
NAMED = 8
"""Ids of texts that a sentence lists."""


@dataclass(frozen=True)
class RecitedTexts:
    """What one model recites of some texts; copies of a text are one."""

    clusters: Mapping[str, str]
    """Of every item that is long enough to tell: the text that it is, or is a copy of."""
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
        firsts = {cluster: id for id, cluster in reversed([*self.clusters.items()]) if id in self.ids}
        names = sorted(firsts.values())
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return ", ".join(names[:NAMED]) + more


def recited_texts(rows: pd.DataFrame, info: MetricInfo, evidence: Evidence) -> dict[str, RecitedTexts]:
    """Return what each reference row of one model recites; without those whose items tell nothing of it.

    Seeds, and replicates, of a row count together: a text is recited if any of them recites it.
    """
    metrics = exact_matches(info)
    if metrics is None or not any(evidence.by_point.values()):
        return {}
    by_text, by_original = metrics
    points = {
        kind: [evidence.by_point.get(point_id, {}) for point_id in rows.loc[rows["method"] == kind, "point_id"]]
        for kind in (ORIGINAL, RETRAINED, HOLDOUT, STAND_IN)
    }
    lengths: dict[str, float] = {}
    for kind in (ORIGINAL, *UNSEEN_ROWS):  # The original agrees with itself as long as a continuation is.
        for items in points[kind]:
            lengths |= items[by_original.name].by_id() if by_original.name in items else {}
    told = {
        kind: _recited([items[by_text.name] for items in of_kind if by_text.name in items], lengths)
        for kind, of_kind in points.items()
    }
    return {kind: recited for kind, recited in told.items() if recited.clusters}


def _recited(of_rows: Sequence[MetricItems], lengths: Mapping[str, float]) -> RecitedTexts:
    clusters: dict[str, str] = {}
    recited: set[str] = set()
    for items in of_rows:
        for id, cluster, tokens in zip(items.ids, items.clusters, items.values_N, strict=True):
            if lengths.get(id, 0.0) >= LEAST_TOKENS:
                clusters[id] = cluster
                if tokens >= min(TOKENS, lengths[id]):
                    recited.add(id)
    return RecitedTexts(clusters, frozenset(recited), min((min(TOKENS, lengths[id]) for id in clusters), default=0.0))


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
    for point_id, model in zip(chosen["point_id"], chosen["model"], strict=True):
        items = {
            name: chosen_items(of_metric, ids_by_model[model]) if name in metrics else of_metric
            for name, of_metric in evidence.by_point.get(point_id, {}).items()
        }
        by_point[point_id] = {name: of_metric for name, of_metric in items.items() if of_metric.ids}
    restricted = Evidence(by_point)
    columns = {
        name: [_number(by_point.get(point_id, {}).get(name), metric) for point_id in chosen["point_id"]]
        for name, metric in metrics.items()
    }
    bounds = interval_columns(list(chosen["point_id"]), metrics, restricted)
    shown = {
        name: table[name].where(~is_chosen, pd.Series(values, chosen.index, dtype=float))
        for name, values in {**columns, **bounds}.items()
        if name in table.columns
    }
    return table.assign(**shown), restricted


def _number(items: MetricItems | None, metric: Metric) -> float:
    return aggregated(items.values_N, items.weights_N, metric.aggregate) if items else math.nan
