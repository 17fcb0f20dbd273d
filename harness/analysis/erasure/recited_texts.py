"""Whether a variant erased anything, and which texts are recited word for word: means over many texts hide a few."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis.evidence import REPLICATE, Evidence, chosen_items, interval_columns
from harness.analysis.grouping import LEVEL, p_of_pair, split_rows
from harness.analysis.metrics import Aims, MetricInfo, exact_matches, metrics_in
from harness.base.messages import first_names
from harness.contracts import Metric
from harness.records.items import MetricItems, aggregated
from harness.specs import HOLDOUT, ORIGINAL, RETRAINED, STAND_IN, UNSEEN_ROWS
from harness.statistics.significance import holm

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
LEAST_TEXTS = 8
"""Of fewer no test shows anything: not even that they all changed alike (a sign test of seven, by three metrics)."""


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
        return first_names(sorted(firsts.values()), NAMED)


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

    Rows of unseen texts are of other texts, and stay as they are. A metric is NaN that is not known of any of the
    texts, has no items, or compares all texts with unseen ones: what a text adds to that depends on all others.
    """
    metrics = {metric.name: metric for metric in metrics_in(info, "erasure")}
    is_chosen = table["model"].isin([*ids_by_model]) & ~table["method"].isin(UNSEEN_ROWS)
    chosen = table[is_chosen]
    by_point = dict(evidence.by_point)
    columns: dict[str, list[float]] = {name: [] for name in metrics}
    for point_id, model in zip(chosen["point_id"], chosen["model"], strict=True):
        kept = dict(evidence.by_point.get(point_id, {}))
        for name, metric in metrics.items():
            whole = kept.pop(name, None)
            is_of_text = metric.items == "sequence"
            items = chosen_items(whole, ids_by_model[model]) if whole and is_of_text else None
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


def has_erased_nothing(
    rows: pd.DataFrame, originals: pd.DataFrame, metrics: Sequence[Metric], evidence: Evidence, aims: Aims
) -> bool:
    """Return whether no metric shows that a variant erased anything; False where that is not known.

    A metric shows it where it is better than the original's, and the paired test over texts (copies are one; the mean
    of the seeds of each) gives p < 0.05, corrected for the number of metrics (Holm). There is no floor: it is the same
    texts and the same model, so that chance alone stands between a difference and an erasure, and what erased little
    has the last rank. Of fewer than eight texts any improvement counts.

    Args:
        rows: The points that stand for the variant, one for each seed of a model.
        originals: The rows of the original.
        metrics: The ranked ones of erasure.
        evidence: The items behind both.
        aims: What metrics are to be close to.
    """
    starts = _starts(rows, originals)
    if starts is None or not metrics:
        return False
    both, p_values = pd.concat([rows, starts]), []
    for metric in metrics:
        values = evidence.of(both, metric) if metric.items else None
        if values is None:
            return False
        erased, original = (half.averaged() for half in split_rows(values, len(rows)))
        p, texts = 1.0, min(erased.known_clusters(), original.known_clusters())
        if aims.cost(rows, metric) < aims.cost(starts, metric):
            sides = aims.deviations(rows, metric).mean(), aims.deviations(starts, metric).mean()
            p = p_of_pair(metric, erased, original, sides) if texts >= LEAST_TEXTS else math.nan
        if math.isnan(p):
            return False
        p_values.append(p)
    return min(holm(p_values)) >= LEVEL


def _starts(rows: pd.DataFrame, originals: pd.DataFrame) -> pd.DataFrame | None:
    """Return each row's original, of its seed or else the first of its model; None where one has none."""
    starts = []
    for replicate, seed in zip(rows[REPLICATE], rows["seed"], strict=True):
        of_model = originals[originals[REPLICATE] == replicate]
        if not len(of_model):
            return None
        of_seed = of_model[of_model["seed"] == seed]
        starts.append((of_seed if len(of_seed) else of_model).head(1))
    of_rows: pd.DataFrame = pd.concat(starts)
    return of_rows
