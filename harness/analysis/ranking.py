"""Ranks by the paper's rule, their bounds, and reasons for having no rank.

A rank is one more than the number of rows that are strictly better. Within a group the metrics' ranks are averaged and
ranked; the two group ranks are averaged and ranked again. This gives all 33 ranks of the EMSO paper's Table 1. Groups
that evaluators declare have ranks of their own, outside the average.

Bounds come from the same rule applied to draws of every number: over its items, over seeds where there are several,
else by the metric's declared noise. All rows share the drawn items. A metric without any of these is left out.

Array letters: D draws, K kinds of ranks, R rows (variants of one model), M metrics of one group; `...` leading axes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from harness import errors, settings
from harness.analysis import damage, recitation
from harness.analysis.evidence import Evidence
from harness.analysis.metrics import RANKED_GROUPS, Aims, MetricInfo, is_aimless, own_groups, select_metrics
from harness.analysis.seeds import ranked_rows, rename_replicates, strengths, worst_class
from harness.contracts import Metric
from harness.statistics import bootstrap
from harness.statistics.bootstrap import Floats

RANKS = ("rank_erasure", "rank_generation", "rank_average")
IDENTITY = ("model", "method", "variant", "label", "reference", "strength_name", "strength")
STATE = ("collapsed", "collapse_class", "collapse_reason", "over_erased", "seeds", "recited", "unranked")
CONTROL = "a control"
"""Reason for a row that is shown and deliberately unranked."""
NOTHING_TO_ERASE = "nothing to erase"
"""Reason for all rows of a model that does not recite the forget set."""
ERASED_NOTHING = "erased nothing"
"""Reason for a row whose erasure may be chance: see `has_erased_nothing`."""
OVER_ERASED = "over-erased"
"""Reason for a row with damage to unseen texts."""
RANK_DRAWS = 2000
"""Draws of ranks; more do not move their bounds."""
INFINITE = 1e300
"""Finite stand-in for infinity, so that means and draws stay comparable."""


@dataclass(frozen=True, eq=False)
class RankedTable:
    """A table with its ranking; equal only to itself."""

    table: pd.DataFrame
    """Rows as they are averaged: see `rename_replicates`."""
    info: MetricInfo
    ranking: pd.DataFrame
    """A row for every model and variant: its ranks, and why it lacks one."""
    recitations: Mapping[str, recitation.Recitation]
    evidence: Evidence = field(default_factory=Evidence)
    """Empty for a table that was read from a file."""
    without_interval: Mapping[str, tuple[Metric, ...]] = field(default_factory=dict)
    """Metrics that are left out of the draws of ranks, by model."""

    @cached_property
    def aims(self) -> Aims:
        """Aims of its rows."""
        return Aims(self.table)

    @property
    def is_of_references(self) -> bool:
        """True if nothing in it was erased."""
        return bool(self.table["method"].isin(settings.REFERENCE_ROWS).all())

    @property
    def headline_warnings(self) -> list[str]:
        """Warnings to print before any number: nothing to erase, or nothing erased."""
        if self.is_of_references:
            return recitation.recitation_sentences(self.recitations, "answer")
        return self.idle_warnings + recitation.recitation_sentences(self.recitations, "warning")

    @property
    def idle_warnings(self) -> list[str]:
        """A warning if no method erased anything from a model."""
        reasons_by_model = self.ranking[self.ranking["unranked"] != CONTROL].groupby("model", sort=False)["unranked"]
        idle = [str(model) for model, reasons in reasons_by_model if reasons.eq(ERASED_NOTHING).all()]
        where = f" on {', '.join(idle)}" if len(self.recitations) > 1 else ""
        walked = self.table["until"].ne("").any()
        raise_them = "Raise the strengths or training.learning_rate, or have them searched (tune)"
        remedy = "Take a lower level (until), or more texts" if walked else raise_them
        sentence = f"No method erased anything{where} that chance could not have: nothing is ranked. {remedy}."
        return [sentence] if idle else []

    @cached_property
    def on_recited_texts(self) -> Self:
        """The same table, with erasure on the recited texts only where means over all texts hide them."""
        ids_by_model = {model: result.ranked_on for model, result in self.recitations.items() if result.ranked_on}
        if not ids_by_model or self.is_of_references:
            return self
        table, evidence = recitation.restrict_to_texts(self.table, self.info, self.evidence, ids_by_model)
        return replace(self, table=table, evidence=evidence)

    def unknown_of_recited(self, model: str) -> list[Metric]:
        """Return the metrics of erasure that are not known of the texts that a model is ranked on."""
        if not self.recitations[model].ranked_on:
            return []
        originals = self.originals(model)
        return [metric for metric in select_metrics(self.info, "erasure") if originals[metric.name].isna().any()]

    def originals(self, model: str) -> pd.DataFrame:
        """Return the rows of a model's original, as in `on_recited_texts`."""
        rows = self.on_recited_texts.table
        return rows[(rows["model"] == model) & (rows["method"] == settings.ORIGINAL)]


def rank_names(info: MetricInfo) -> tuple[str, ...]:
    """Return the ranking's columns: the paper's three ranks, and one for each group of an evaluator's own."""
    return (*RANKS, *(f"rank_{group}" for group in own_groups(info)))


def rank(table: pd.DataFrame, info: MetricInfo, evidence: Evidence | None = None) -> RankedTable:
    """Return the table with the ranks of every model and variant, and why one lacks them.

    The table's `ranked` rows are ranked, as means over seeds. A variant that is broken on any seed, or erased nothing,
    is unranked; so are all of a model that recites nothing. `rank_*_low` and `rank_*_high` bound 95 % of the drawn
    ranks; '' where a row is unranked or no metric has an interval.

    Raises:
        DataError: The table mixes definitions, or has two ranked rows of one variant and seed.
    """
    _refuse_mixed_definitions(table, info)
    table = rename_replicates(table)
    evidence = evidence or Evidence()
    bounds = [f"{name}_{side}" for name in rank_names(info) for side in ("low", "high")]
    nothing = pd.DataFrame(columns=[*IDENTITY, *rank_names(info), *bounds, *STATE], dtype=object)
    unranked = RankedTable(table, info, nothing, recitation.recitations(table, info, evidence), evidence)
    rankings, without_interval = [nothing], {}
    for model, rows in ranked_rows(unranked.on_recited_texts.table).groupby("model", sort=False):
        ranking, without_interval[str(model)] = _rank_model(rows, unranked)
        rankings.append(ranking)
    return replace(unranked, ranking=pd.concat(rankings, ignore_index=True), without_interval=without_interval)


def _refuse_mixed_definitions(table: pd.DataFrame, info: MetricInfo) -> None:
    names = [metric.name for metric in select_metrics(info, *RANKED_GROUPS)]
    rows = table[table[names].notna().any(axis=1)].reset_index(drop=True)
    firsts = rows["definition"].astype(str).str.split("+").explode().drop_duplicates().head(2)
    if len(firsts) > 1:
        texts = (firsts.replace("", "(not stated)"), rows.loc[firsts.index, "variant"], rows.loc[firsts.index, "model"])
        mixed = (f"'{definition}' ({variant} on {model})" for definition, variant, model in zip(*texts, strict=True))
        raise errors.DataError(
            f"the table mixes the definitions {' and '.join(mixed)}. Their numbers mean different things and cannot be "
            "ranked together: measure everything with one definition."
        )


def _rank_model(rows: pd.DataFrame, whole: RankedTable) -> tuple[pd.DataFrame, tuple[Metric, ...]]:
    model, info, aims = str(rows["model"].iloc[0]), whole.info, whole.on_recited_texts.aims
    recites, unknown = whole.recitations[model].recites, whole.unknown_of_recited(model)
    groups = []
    for name in (*RANKED_GROUPS, *own_groups(info)):
        metrics = [metric for metric in select_metrics(info, name) if metric not in unknown]
        groups.append([metric for metric in metrics if not is_aimless(metric, aims, rows)])
    originals, evidence = whole.originals(model), whole.on_recited_texts.evidence
    variants, states = [], []
    for _, group in rows.groupby("variant", sort=False):
        is_idle = recites is not False and recitation.has_erased_nothing(group, originals, groups[0], evidence, aims)
        variants.append(group.assign(idle=is_idle))
        states.append(_without_ranks(variants[-1], [*groups[0], *groups[1]]))
    ranking = pd.DataFrame(states).assign(recited=recites)
    if recites is False:
        ranking.loc[~ranking["collapsed"].eq(True), "unranked"] = NOTHING_TO_ERASE
    scores = []
    for metrics in groups:
        scores_RM = np.array([_scores(group, metrics, aims) for group in variants]).reshape(len(variants), len(metrics))
        scores.append(np.full_like(scores_RM, np.nan) if recites is False else scores_RM)
    ranks_KR = all_ranks(scores)
    ranks_DKR, without_interval = drawn_ranks(variants, groups, scores, whole.on_recited_texts)
    order = np.lexsort((ranks_KR[0], ranks_KR[2], ranking["collapsed"].eq(True)))
    for kind, name in enumerate(rank_names(info)):
        ranking[name] = printed(list(ranks_KR[kind]))
        ranking[f"{name}_low"], ranking[f"{name}_high"] = zip(*rank_bounds(ranks_DKR[:, kind]), strict=True)
    return ranking.iloc[order], without_interval


def _without_ranks(rows: pd.DataFrame, averaged: Sequence[Metric]) -> dict[str, Any]:
    first, collapsed, over_erased = rows.iloc[0], rows["collapsed"].eq(True), damage.are_over_erased(rows)
    lacking = [metric.name for metric in averaged if rows[metric.name].isna().any()]
    worst = worst_class(list(rows["collapse_class"]))
    reasons = tuple(sorted(set().union(*rows["collapse_reason"])))
    broken = collapsed if collapsed.any() else rows["over_erased"].eq(True)
    seeds = f" on {broken.sum()} of {len(rows)} seeds" if len(rows) > 1 else ""
    if collapsed.any():
        unranked = f"collapsed{seeds} ({damage.verdict(worst, reasons)})"
    elif over_erased:
        unranked = f"{OVER_ERASED}{seeds}"
    elif first["control"]:
        unranked = CONTROL
    elif lacking:
        unranked = f"not measured: {', '.join(lacking)}"
    else:
        unranked = ERASED_NOTHING if first["idle"] else ""
    state: dict[str, Any] = {"collapse_class": worst, "collapse_reason": reasons, "seeds": len(rows)}
    state |= {"collapsed": True if collapsed.any() else None if worst == "unknown" else False}
    state |= {"over_erased": over_erased, "unranked": unranked}
    return dict(first[list(IDENTITY)]) | {"strength": strengths(list(rows["strength"]))} | state


def _scores(rows: pd.DataFrame, metrics: Sequence[Metric], aims: Aims) -> Floats:
    """Return the costs of one variant's means over its seeds (M,).

    A metric missing on any seed is NaN; all are if the variant is broken, erased nothing or is a control.
    """
    if damage.state_of_repeats(rows) or (rows["idle"] | rows["control"]).any():
        return np.full(len(metrics), np.nan)
    finite = rows.assign(**{metric.name: rows[metric.name].clip(-INFINITE, INFINITE) for metric in metrics})
    return np.array([aims.cost(finite, metric) for metric in metrics])


def rank_bounds(ranks_DR: Floats) -> list[tuple[str, str]]:
    """Return the bounds of 95 % of each row's drawn ranks, as text; '' where not known."""
    tail = (1 - bootstrap.CONFIDENCE) / 2
    bounds = []
    for drawn_D in ranks_DR.T:
        ranks_D = drawn_D[~np.isnan(drawn_D)]
        low, high = np.quantile(ranks_D, [tail, 1 - tail], method="inverted_cdf") if len(ranks_D) else ("", "")
        bounds.append((f"{low:.0f}", f"{high:.0f}") if len(ranks_D) else ("", ""))
    return bounds


def drawn_ranks(
    variants: Sequence[pd.DataFrame], groups: Sequence[Sequence[Metric]], scores: Sequence[Floats], ranked: RankedTable
) -> tuple[Floats, tuple[Metric, ...]]:
    """Return the ranks of rows in every draw (D, K, R), and the metrics without an interval.

    A rank is NaN where a row is unranked, or no metric of its group has an interval.
    """
    group_draws, left_out, evidence = [], [], ranked.evidence
    for metrics, scores_RM in zip(groups, scores, strict=True):
        metric_draws = []
        for metric, scores_R in zip(metrics, scores_RM.T, strict=True):
            drawn_DR = np.full((RANK_DRAWS, len(variants)), np.nan)
            for row in map(int, np.flatnonzero(~np.isnan(scores_R))):
                is_infinite = np.isinf(variants[row][metric.name].to_numpy(dtype=float)).any()
                drawn_D = np.full(bootstrap.DRAWS, INFINITE) if is_infinite else evidence.draws(variants[row], metric)
                drawn_DR[:, row] = ranked.aims.drawn_costs(drawn_D, variants[row], metric)[:RANK_DRAWS]
            if np.isnan(drawn_DR).all(axis=0)[~np.isnan(scores_R)].any():
                left_out.append(metric)
            else:
                metric_draws.append(drawn_DR)
        none = np.empty((RANK_DRAWS, len(variants), 0))
        group_draws.append(np.stack(metric_draws, axis=-1) if metric_draws else none)
    return all_ranks(group_draws), tuple(left_out)


def competition_ranks(scores_R: Floats) -> Floats:
    """Return the rank of every score along the last axis; 1 is the lowest, NaN has none.

    Example:
        >>> competition_ranks(np.array([0.2, 0.1, 0.2, np.nan, 0.3]))
        array([ 2.,  1.,  2., nan,  4.])
    """
    # Means that are equal on paper may differ in their last bit.
    alike_R = np.where(np.abs(scores_R) < 1e6, np.round(np.clip(scores_R, -1e6, 1e6), 12), scores_R)
    return np.asarray(rankdata(alike_R, method="min", axis=-1, nan_policy="omit"), dtype=np.float64)


def group_ranks(scores_RM: Floats) -> Floats:
    """Return the ranks of the rows' mean ranks over a group's metrics; lower scores are better.

    A row that lacks a metric is left out; so are all in a group without metrics.
    """
    if not scores_RM.shape[-1]:
        return np.full(scores_RM.shape[:-1], np.nan)
    kept_RM = np.where(np.isnan(scores_RM).any(axis=-1, keepdims=True), np.nan, scores_RM)
    return competition_ranks(competition_ranks(kept_RM.swapaxes(-1, -2)).mean(axis=-2))


def all_ranks(scores: Sequence[Floats]) -> Floats:
    """Return the ranks (..., K, R) of rows: in erasure, in generation, of both, and in each other group.

    Scores are (..., R, M) for each group, in this order; lower is better.
    """
    erasure, generation, *own = map(group_ranks, scores)
    average = competition_ranks((erasure + generation) / 2)  # NaN for a row that lacks one.
    return np.stack([erasure, generation, average, *own], axis=-2)


def printed(ranks: Sequence[float]) -> list[str]:
    """Return ranks as text: ties as `=2`, no rank as ''."""
    counts = Counter(ranks)
    return ["" if np.isnan(rank) else f"{'=' if counts[rank] > 1 else ''}{rank:.0f}" for rank in ranks]
