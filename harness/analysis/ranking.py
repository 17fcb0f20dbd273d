"""Who ranks where by the paper's rule, how sure that is, and what takes no rank.

A rank is a competition rank: one more than the number of rows that are strictly better. Within a group the metrics'
ranks are averaged and ranked; the two group ranks are averaged and ranked again. This gives all 33 ranks printed in the
EMSO paper's Table 1 (its caption describes a count of best and second-best results, which gives other ranks than it
prints). A group that an evaluator declares of its own has ranks of its own, which no other rank looks at.

How sure ranks are is the same rule applied to draws of every number: the items that it is a mean of, the seeds where
there are several, and the noise that a metric declares where neither tells. The same items are drawn for all rows. A
metric of which none of these is known has no interval and takes no part.

Array letters: D draws, K kinds of ranks, R rows (variants of one model), M metrics of one group; `...` leading axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from harness.analysis.collapse import verdict
from harness.analysis.damage import is_broken
from harness.analysis.evidence import Evidence
from harness.analysis.metrics import (
    RANKED_GROUPS,
    Aims,
    MetricInfo,
    costs,
    deviations,
    is_aimless,
    metrics_in,
    own_groups,
)
from harness.analysis.recitation import (
    Recitation,
    has_erased_nothing,
    on_texts,
    recitation_answers,
    recitations,
    said_first,
)
from harness.analysis.seeds import ranked_rows, strengths, with_replicates, worst_class
from harness.contracts import Metric
from harness.errors import DataError
from harness.settings import ORIGINAL, REFERENCE_ROWS
from harness.statistics.bootstrap import CONFIDENCE, DRAWS
from harness.statistics.item_values import Floats

RANKS = ("rank_erasure", "rank_generation", "rank_average")
IDENTITY = ("model", "method", "variant", "label", "reference", "strength_name", "strength")
STATE = ("collapsed", "collapse_class", "collapse_reason", "over_erased", "seeds", "recited", "unranked")
CONTROL = "a control"
"""Why a row is shown and not ranked though nothing is wrong with it."""
NOTHING_TO_ERASE = "nothing to erase"
"""Why nothing is ranked of a model that does not recite the forget set."""
ERASED_NOTHING = "erased nothing"
"""Why a row is not ranked whose erasure chance alone may have made: see `has_erased_nothing`."""
OVER_ERASED = "over-erased"
"""Why a row is not ranked whose model writes worse on unseen texts of the forget set's kind than on others."""
MAX_VARIANTS = 40
"""Of each model on a page: every two of them are compared."""
RANK_DRAWS = 2000
"""Of 10,000: a rank is a whole number, and the bounds of 95 % of these are those of more."""
MIN_DRAWS = 200
"""However many rows there are."""
INFINITE = 1e300
"""Stands for an infinite number, so that it stays comparable when it is averaged and drawn."""
_AT_ONCE = 2**22
"""Drawn numbers that are ranked together: 32 MiB."""


@dataclass(frozen=True, eq=False)
class RankedTable:
    """A table and what was made of it: made once, and passed on to all that show it. It equals itself alone."""

    table: pd.DataFrame
    """As it is averaged: see `with_replicates`."""
    info: MetricInfo
    ranking: pd.DataFrame
    """A row for every model and variant: its ranks, and why it lacks one."""
    recitations: Mapping[str, Recitation]
    evidence: Evidence = field(default_factory=Evidence)
    """The items behind the table's numbers; nothing for a table that was read from a file."""
    without_interval: Mapping[str, tuple[Metric, ...]] = field(default_factory=dict)
    """By model: the metrics that take no part in the draws of its ranks."""
    note: str = ""
    """What `head` left out; '' where that is nothing."""

    @cached_property
    def aims(self) -> Aims:
        """What its rows are to be close to, for metrics that are the better the closer they are to something."""
        return Aims(self.table)

    @property
    def is_of_references(self) -> bool:
        """Return whether nothing in it was erased: it has models as they are, and no rank."""
        return bool(self.table["method"].isin(REFERENCE_ROWS).all())

    @property
    def said_first(self) -> list[str]:
        """Return what must be read before any number: whether there was anything to erase, if that is in doubt.

        And whether any method erased it. In a table of references it is the answer to whether the models recite.
        """
        if self.is_of_references:
            return recitation_answers(self.recitations)
        of_methods = self.ranking[self.ranking["unranked"] != CONTROL].groupby("model", sort=False)["unranked"]
        idle = [str(model) for model, reasons in of_methods if reasons.eq(ERASED_NOTHING).all()]
        where = f" on {', '.join(idle)}" if len(self.recitations) > 1 else ""
        said = (
            f"No method erased anything{where} that chance could not have: nothing is ranked. Raise the strengths or "
            "training.learning_rate, or have them searched (tune)."
        )
        return [*([said] if idle else []), *said_first(self.recitations)]

    @cached_property
    def on_recited(self) -> RankedTable:
        """The same, with erasure measured on the texts that a model recites where means over all do not show it."""
        ids_by_model = {model: known.ranked_on for model, known in self.recitations.items() if known.ranked_on}
        if not ids_by_model or self.is_of_references:
            return self
        table, evidence = on_texts(self.table, self.info, self.evidence, ids_by_model)
        return replace(self, table=table, evidence=evidence)

    def unknown_of_recited(self, model: str) -> list[Metric]:
        """Return the metrics of erasure that are not known of the texts that a model is ranked on."""
        if not self.recitations[model].ranked_on:
            return []
        originals = self.originals(model)
        return [metric for metric in metrics_in(self.info, "erasure") if originals[metric.name].isna().any()]

    def originals(self, model: str) -> pd.DataFrame:
        """Return the rows of a model's original, as `on_recited` has them."""
        rows = self.on_recited.table
        return rows[(rows["model"] == model) & (rows["method"] == ORIGINAL)]


def head(whole: RankedTable) -> RankedTable:
    """Return the rows that a page has room for: of each model the variants that rank best, among all rows.

    Erasure is as it is ranked.
    """
    ranked = whole.on_recited
    table = ranked.table
    is_reference = table["method"].isin(REFERENCE_ROWS)
    rank_order = ranked.ranking[["model", "variant"]]
    in_order = pd.concat([rank_order, table.loc[~is_reference, ["model", "variant"]]]).drop_duplicates()
    kept = pd.MultiIndex.from_frame(in_order.groupby("model", sort=False).head(MAX_VARIANTS))
    is_shown = is_reference | pd.MultiIndex.from_frame(table[["model", "variant"]]).isin(kept)
    if is_shown.all() and len(kept) == len(in_order):
        return ranked
    note = (
        f"Shown are {int(is_shown.sum()):,} of {len(table):,} points, of {len(kept):,} of {len(in_order):,} rows: "
        "those that rank best on each model. table.csv and ranking.csv have all of them, and the ranks are among all."
    )
    ranking = ranked.ranking[pd.MultiIndex.from_frame(rank_order).isin(kept)]
    return replace(ranked, table=table[is_shown], ranking=ranking, note=note)


def rank_names(info: MetricInfo) -> tuple[str, ...]:
    """Return the ranking's columns of ranks: the paper's three, and one for each group of an evaluator's own."""
    return (*RANKS, *(f"rank_{group}" for group in own_groups(info)))


def rank(table: pd.DataFrame, info: MetricInfo, evidence: Evidence | None = None) -> RankedTable:
    """Return the table with one row for every model and variant: its ranks, and why it lacks one.

    Ranked are the table's `ranked` rows, as means over their seeds. A variant that collapsed or is
    over-erased on any seed, or erased nothing, is shown and not ranked; nothing is, of a model that recites nothing.
    `rank_*_low` and `rank_*_high` bound 95 % of the ranks that draws of the numbers give; '' where a row is unranked,
    or no metric has an interval.

    Raises:
        DataError: The table mixes definitions, or holds two ranked rows of one variant and seed.
    """
    _refuse_mixed_definitions(table, info)
    table = with_replicates(table)
    evidence = evidence or Evidence()
    bounds = [f"{name}_{side}" for name in rank_names(info) for side in ("low", "high")]
    columns = [*IDENTITY, *rank_names(info), *bounds, *STATE]
    nothing = pd.DataFrame(columns=columns, dtype=object)
    unranked = RankedTable(table, info, nothing, recitations(table, info, evidence), evidence)
    rankings, without_interval = [nothing], {}
    for model, rows in ranked_rows(unranked.on_recited.table).groupby("model", sort=False):
        ranking, without_interval[str(model)] = _rank_model(rows, unranked)
        rankings.append(ranking)
    return replace(
        unranked,
        ranking=pd.concat(rankings, ignore_index=True),
        without_interval=without_interval,
    )


def _refuse_mixed_definitions(table: pd.DataFrame, info: MetricInfo) -> None:
    """Raise if not all ranked numbers have one definition, naming a row of each."""
    names = [metric.name for metric in metrics_in(info, *RANKED_GROUPS)]
    examples: dict[str, str] = {}
    for _, row in table[table[names].notna().any(axis=1)].iterrows():
        for definition in str(row["definition"]).split("+"):
            examples.setdefault(definition or "(not stated)", f"{row['variant']} on {row['model']}")
    if len(examples) > 1:
        (one, here), (other, there), *_ = examples.items()
        raise DataError(
            f"the table mixes the definitions '{one}' ({here}) and '{other}' ({there}). Their numbers mean "
            "different things and cannot be ranked together: measure everything with one definition."
        )


def _rank_model(rows: pd.DataFrame, whole: RankedTable) -> tuple[pd.DataFrame, tuple[Metric, ...]]:
    """Return one model's ranking, best first, the unranked last; `whole` lacks its ranking yet.

    With it come the metrics without interval.
    """
    model, info, aims = str(rows["model"].iloc[0]), whole.info, whole.on_recited.aims
    recites, unknown = whole.recitations[model].recites, whole.unknown_of_recited(model)
    groups = []
    for name in (*RANKED_GROUPS, *own_groups(info)):
        known = [metric for metric in metrics_in(info, name) if metric not in unknown]
        groups.append([metric for metric in known if not is_aimless(metric, aims, rows)])
    originals, evidence = whole.originals(model), whole.on_recited.evidence
    variants, states = [], []
    for _, group in rows.groupby("variant", sort=False):
        is_idle = recites is not False and has_erased_nothing(group, originals, groups[0], evidence, aims)
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
    ranks_DKR, without_interval = drawn_ranks(variants, groups, scores, evidence, aims)
    order = np.lexsort((ranks_KR[0], ranks_KR[2], ranking["collapsed"].eq(True)))
    for kind, name in enumerate(rank_names(info)):
        ranking[name] = printed(list(ranks_KR[kind]))
        ranking[f"{name}_low"], ranking[f"{name}_high"] = zip(*rank_bounds(ranks_DKR[:, kind]), strict=True)
    return ranking.iloc[order], without_interval


def _without_ranks(rows: pd.DataFrame, averaged: Sequence[Metric]) -> dict[str, Any]:
    """Return all of a variant's row in the ranking but the ranks; `rows` are its seeds."""
    first, worst, collapsed = rows.iloc[0], worst_class(list(rows["collapse_class"])), rows["collapsed"].eq(True)
    lacking = [metric.name for metric in averaged if rows[metric.name].isna().any()]
    reasons = tuple(sorted(set().union(*rows["collapse_reason"])))
    unranked = CONTROL if first["control"] else f"not measured: {', '.join(lacking)}" if lacking else ""
    unranked = unranked or (ERASED_NOTHING if first["idle"] else "")
    is_over = rows["over_erased"].eq(True)
    broken = collapsed if collapsed.any() else is_over
    if broken.any():
        seeds = f" on {broken.sum()} of {len(rows)} seeds" if len(rows) > 1 else ""
        unranked = f"{OVER_ERASED}{seeds}"
    if collapsed.any():
        unranked = f"collapsed{seeds} ({verdict(worst_class(list(rows.loc[collapsed, 'collapse_class'])), reasons)})"
    return dict(first[list(IDENTITY)]) | {
        "strength": strengths(list(rows["strength"])),
        "collapsed": True if collapsed.any() else None if worst == "unknown" else False,
        "collapse_class": worst,
        "collapse_reason": reasons,
        "over_erased": True if is_over.any() else None if rows["over_erased"].isna().any() else False,
        "seeds": len(rows),
        "unranked": unranked,
    }


def _scores(rows: pd.DataFrame, metrics: Sequence[Metric], aims: Aims) -> Floats:
    """Return what one variant's means over its seeds cost (M,).

    A metric that it lacks on any seed is NaN, and all are if it is broken, erased nothing or is a control: no mean may
    hide a hole.
    """
    if (is_broken(rows) | rows["idle"] | rows["control"]).any():
        return np.full(len(metrics), np.nan)
    finite = rows.assign(**{metric.name: rows[metric.name].clip(-INFINITE, INFINITE) for metric in metrics})
    return np.array([aims.cost(finite, metric) for metric in metrics])


def rank_bounds(ranks_DR: Floats) -> list[tuple[str, str]]:
    """Return the bounds of 95 % of each row's drawn ranks, as text; '' where they are not known."""
    tail = (1 - CONFIDENCE) / 2
    bounds = []
    for drawn_D in ranks_DR.T:
        known = drawn_D[~np.isnan(drawn_D)]
        low, high = np.quantile(known, [tail, 1 - tail], method="inverted_cdf") if len(known) else ("", "")
        bounds.append((f"{low:.0f}", f"{high:.0f}") if len(known) else ("", ""))
    return bounds


def drawn_ranks(
    variants: Sequence[pd.DataFrame],
    groups: Sequence[Sequence[Metric]],
    scores: Sequence[Floats],
    evidence: Evidence,
    aims: Aims,
) -> tuple[Floats, tuple[Metric, ...]]:
    """Return the ranks of rows in every draw (D, K, R), and the metrics that have no interval.

    A rank is NaN where a row is unranked, or no metric of its group has an interval.

    Args:
        variants: The seeds of each row.
        groups: The metrics of each group.
        scores: Of each group (R, M); NaN takes no rank.
        evidence: The items behind the numbers.
        aims: What they are to be close to; it is taken as it was measured, without noise of its own.
    """
    numbers = max(1, len(variants) * sum(map(len, groups)))
    count = max(MIN_DRAWS, min(RANK_DRAWS, _AT_ONCE // numbers))
    drawn, left_out = [], []
    for metrics, scores_RM in zip(groups, scores, strict=True):
        kept = []
        for metric, scores_R in zip(metrics, scores_RM.T, strict=True):
            drawn_DR = np.full((count, len(variants)), np.nan)
            for row, seeds in enumerate(variants):
                if not np.isnan(scores_R[row]):
                    drawn_DR[:, row] = _drawn_costs(seeds, metric, evidence, aims)[:count]
            if np.isnan(drawn_DR).all(axis=0)[~np.isnan(scores_R)].any():
                left_out.append(metric)
            else:
                kept.append(drawn_DR)
        drawn.append(np.stack(kept, axis=-1) if kept else np.empty((count, len(variants), 0)))
    return all_ranks(drawn), tuple(left_out)


def _drawn_costs(rows: pd.DataFrame, metric: Metric, evidence: Evidence, aims: Aims) -> Floats:
    """Return draws (D,) of what the mean over a row's seeds costs; an infinite one is the same in all."""
    is_infinite = np.isinf(rows[metric.name].to_numpy(dtype=float)).any()
    drawn_D = np.full(DRAWS, INFINITE) if is_infinite else evidence.draws(rows, metric)
    return costs(deviations(drawn_D, metric, float(aims.of(rows, metric).mean())), metric)


def competition_ranks(scores_R: Floats) -> Floats:
    """Return the rank of every score along the last axis; 1 is the lowest. NaN has no rank: NaN.

    Example:
        >>> competition_ranks(np.array([0.2, 0.1, 0.2, np.nan, 0.3]))
        array([ 2.,  1.,  2., nan,  4.])
    """
    # Means that are equal on paper may differ in their last bit.
    alike_R = np.where(np.abs(scores_R) < 1e6, np.round(np.clip(scores_R, -1e6, 1e6), 12), scores_R)
    return np.asarray(rankdata(alike_R, method="min", axis=-1, nan_policy="omit"), dtype=np.float64)


def group_ranks(scores_RM: Floats) -> Floats:
    """Return the ranks of the rows' mean ranks over a group's metrics; lower scores are better.

    A row that lacks any metric is not ranked, and no other row is ranked against it; nor is any in a
    group without metrics.
    """
    if not scores_RM.shape[-1]:
        return np.full(scores_RM.shape[:-1], np.nan)
    whole_R1 = ~np.isnan(scores_RM).any(axis=-1, keepdims=True)
    kept_RM = np.where(whole_R1, scores_RM, np.nan)
    return competition_ranks(competition_ranks(kept_RM.swapaxes(-1, -2)).mean(axis=-2))


def average_ranks(erasure_R: Floats, generation_R: Floats) -> Floats:
    """Return the ranks of the mean of both group ranks; a row that lacks one has none."""
    return competition_ranks((erasure_R + generation_R) / 2)


def all_ranks(scores: Sequence[Floats]) -> Floats:
    """Return the ranks (..., K, R) of rows: in erasure, in generation, of both together, and in each other group.

    Args:
        scores: Of each group (..., R, M), erasure and generation first; lower is better.
    """
    erasure, generation, *own = map(group_ranks, scores)
    return np.stack([erasure, generation, average_ranks(erasure, generation), *own], axis=-2)


def printed(ranks: Sequence[float]) -> list[str]:
    """Return the ranks as a table prints them: ties as `=2`, no rank as ''."""
    count_of = Counter(ranks)
    return ["" if np.isnan(rank) else f"{'=' if count_of[rank] > 1 else ''}{rank:.0f}" for rank in ranks]
