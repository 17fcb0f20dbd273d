"""Who ranks where: ranks of metrics, of the two groups, and of both together, for each model.

A rank is a competition rank: one more than the number of rows that are strictly better, so equal
rows share a rank and the next one is skipped. Within a group the metrics' ranks are averaged and
ranked; the two group ranks are averaged and ranked again. This gives all 33 ranks printed in the
EMSO paper's Table 1 (its caption describes a count of best and second-best results, which gives
other ranks than it prints). The groups that evaluators declare of their own have ranks of their own, which no other
rank looks at.

Array letters: B bootstrap draws, S seeds, R rows (variants of one model), M metrics of one group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from harness.analysis.collapse import verdict
from harness.analysis.erasure.recitation import Recitation, recitation_answers, recitations, said_first
from harness.analysis.erasure.recited_texts import has_erased_nothing, on_texts
from harness.analysis.evidence import Evidence
from harness.analysis.metrics import RANKED_GROUPS, Aims, MetricInfo, costs, is_aimless, metrics_in, own_groups
from harness.analysis.seeds import ranked_rows, strengths, with_replicates, worst_class
from harness.contracts import Metric
from harness.errors import DataError
from harness.specs import ORIGINAL, REFERENCE_ROWS
from harness.statistics.bootstrap import CONFIDENCE

Floats = NDArray[np.float64]

RANKS = ("rank_erasure", "rank_generation", "rank_average")
IDENTITY = ("model", "method", "variant", "label", "reference", "strength_name", "strength")
STATE = ("collapsed", "collapse_class", "collapse_reason", "seeds", "recited", "unranked")
RESAMPLES = 1000
CONTROL = "a control"
"""Why a row is shown and not ranked though nothing is wrong with it."""
NOTHING_TO_ERASE = "nothing to erase"
"""Why nothing is ranked of a model that does not recite the forget set."""
ERASED_NOTHING = "erased nothing"
"""Why a row is not ranked whose erasure chance alone may have made: see `has_erased_nothing`."""


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
        said = f"No method erased anything{where} that chance could not have: nothing is ranked."
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


def rank_names(info: MetricInfo) -> tuple[str, ...]:
    """Return the ranking's columns of ranks: the paper's three, and one for each group of an evaluator's own."""
    return (*RANKS, *(f"rank_{group}" for group in own_groups(info)))


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

    Example:
        The second row is best in one metric and second in the other; the last lacks one:

        >>> group_ranks(np.array([[3.0, 1.0], [1.0, 2.0], [2.0, 3.0], [0.0, np.nan]]))
        array([ 2.,  1.,  3., nan])
    """
    if not scores_RM.shape[-1]:
        return np.full(scores_RM.shape[:-1], np.nan)
    whole_R1 = ~np.isnan(scores_RM).any(axis=-1, keepdims=True)
    kept_RM = np.where(whole_R1, scores_RM, np.nan)
    return competition_ranks(competition_ranks(kept_RM.swapaxes(-1, -2)).mean(axis=-2))


def average_ranks(erasure_R: Floats, generation_R: Floats) -> Floats:
    """Return the ranks of the mean of both group ranks; a row that lacks one has none.

    Example:
        >>> average_ranks(np.array([4.0, 2.0, 3.0, 1.0]), np.array([4.0, 3.0, 2.0, 1.0]))
        array([4., 2., 2., 1.])
    """
    return competition_ranks((erasure_R + generation_R) / 2)


def printed(ranks: Sequence[float]) -> list[str]:
    """Return the ranks as a table prints them: ties as `=2`, no rank as ''."""
    count_of = Counter(ranks)
    return ["" if np.isnan(rank) else f"{'=' if count_of[rank] > 1 else ''}{rank:.0f}" for rank in ranks]


def rank(table: pd.DataFrame, info: MetricInfo, evidence: Evidence | None = None) -> RankedTable:
    """Return the table with one row for every model and variant: its ranks, and why it lacks one.

    Ranked are the table's `ranked` rows, as means over their seeds. A variant that collapsed on any
    seed, or erased nothing, is shown and not ranked; nothing is, of a model that recites nothing (`recited`).
    Where a model has several seeds, `rank_*_low` and `rank_*_high` bound 95 % of the ranks that resampled
    seeds give (each draw is the same for every variant).

    Raises:
        DataError: The table mixes definitions, or holds two ranked rows of one variant and seed.
    """
    _refuse_mixed_definitions(table, info)
    table = with_replicates(table)
    evidence = evidence or Evidence()
    nothing = pd.DataFrame(columns=[*IDENTITY, *rank_names(info), *STATE], dtype=object)
    unranked = RankedTable(table, info, nothing, recitations(table, info, evidence), evidence)
    rankings = [nothing]
    for _, rows in ranked_rows(unranked.on_recited.table).groupby("model", sort=False):
        rankings.append(_rank_model(rows, unranked))
    return replace(unranked, ranking=pd.concat(rankings, ignore_index=True))


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


def _rank_model(rows: pd.DataFrame, whole: RankedTable) -> pd.DataFrame:
    """Return the ranking of one model's variants, best first, the unranked last; `whole` lacks its ranking yet."""
    model, info, aims = str(rows["model"].iloc[0]), whole.info, whole.on_recited.aims
    recites, unknown = whole.recitations[model].recites, whole.unknown_of_recited(model)
    groups = []
    for name in (*RANKED_GROUPS, *own_groups(info)):
        known = [metric for metric in metrics_in(info, name) if metric not in unknown]
        groups.append([metric for metric in known if not is_aimless(metric, aims, rows)])
    originals, evidence = whole.originals(model), whole.on_recited.evidence
    seeds = sorted(rows["seed"].unique())
    variants, states, run_RS = [], [], []
    for _, group in rows.groupby("variant", sort=False):
        is_idle = recites is not False and has_erased_nothing(group, originals, groups[0], evidence, aims)
        variants.append(group.assign(idle=is_idle))
        states.append(_without_ranks(variants[-1], [*groups[0], *groups[1]]))
        run_RS.append(np.isin(seeds, group["seed"]))
    ranking = pd.DataFrame(states)
    run_SR = np.array(run_RS, dtype=float).T
    scores = [np.stack([_scores(group, metrics, seeds, aims) for group in variants], axis=1) for metrics in groups]
    ranks_KR = _ranks(groups, scores, run_SR, np.ones((1, len(seeds))))[0]
    ranking["recited"] = recites
    if recites is False:
        ranks_KR = np.full_like(ranks_KR, np.nan)
        ranking.loc[~ranking["collapsed"].eq(True), "unranked"] = NOTHING_TO_ERASE
    names = rank_names(info)
    for name, ranks_R in zip(names, ranks_KR, strict=True):
        ranking[name] = printed(list(ranks_R))
    if len(seeds) > 1:
        draws = np.random.default_rng(0).multinomial(len(seeds), np.full(len(seeds), 1 / len(seeds)), RESAMPLES)
        _add_intervals(ranking, names, _ranks(groups, scores, run_SR, draws.astype(float)))
    return ranking.iloc[np.lexsort((ranks_KR[0], ranks_KR[2], ranking["collapsed"].eq(True)))]


def _without_ranks(rows: pd.DataFrame, averaged: Sequence[Metric]) -> dict[str, Any]:
    """Return all of a variant's row in the ranking but the ranks; `rows` are its seeds."""
    first, worst, collapsed = rows.iloc[0], worst_class(list(rows["collapse_class"])), rows["collapsed"].eq(True)
    lacking = [metric.name for metric in averaged if rows[metric.name].isna().any()]
    reasons = tuple(sorted(set().union(*rows["collapse_reason"])))
    unranked = CONTROL if first["control"] else f"not measured: {', '.join(lacking)}" if lacking else ""
    unranked = unranked or (ERASED_NOTHING if first["idle"] else "")
    if collapsed.any():
        seeds = f" on {collapsed.sum()} of {len(rows)} seeds" if len(rows) > 1 else ""
        unranked = f"collapsed{seeds} ({verdict(worst_class(list(rows.loc[collapsed, 'collapse_class'])), reasons)})"
    return dict(first[list(IDENTITY)]) | {
        "strength": strengths(list(rows["strength"])),
        "collapsed": True if collapsed.any() else None if worst == "unknown" else False,
        "collapse_class": worst,
        "collapse_reason": reasons,
        "seeds": len(rows),
        "unranked": unranked,
    }


def _scores(rows: pd.DataFrame, metrics: Sequence[Metric], seeds: Sequence[int], aims: Aims) -> Floats:
    """Return one variant's deviations (S, M); 0 at a seed that it was not run with.

    A metric that it lacks on any seed is NaN, and all are if it collapsed, erased nothing or is a control: no mean may
    hide a hole.
    """
    scores_SM = np.zeros((len(seeds), len(metrics)))
    run_S = np.searchsorted(seeds, rows["seed"])
    for index, metric in enumerate(metrics):
        # Clipped, so that an infinite perplexity stays comparable when it is averaged and weighted.
        scores_SM[run_S, index] = np.clip(aims.deviations(rows, metric), -1e300, 1e300)
    takes_no_rank = rows["collapsed"].eq(True) | rows["idle"] | rows["control"]
    lost = np.isnan(scores_SM).any(axis=0) | takes_no_rank.any()
    return np.where(lost, np.nan, scores_SM)


def _ranks(groups: Sequence[Sequence[Metric]], scores: Sequence[Floats], run_SR: Floats, weights_BS: Floats) -> Floats:
    """Return the ranks (B, K, R), as `rank_names` lists them, when seed s counts `weights_BS[b, s]` times in draw b."""
    counts_BR1 = (weights_BS @ run_SR)[..., None]
    of_groups = []
    for metrics, scores_SRM in zip(groups, scores, strict=True):
        sums_BRM = np.einsum("bs,srm->brm", weights_BS, scores_SRM)
        means_BRM = np.divide(sums_BRM, counts_BR1, out=np.full_like(sums_BRM, np.nan), where=counts_BR1 > 0)
        for index, metric in enumerate(metrics):
            means_BRM[..., index] = costs(means_BRM[..., index], metric)
        of_groups.append(group_ranks(means_BRM))
    erasure, generation, *own = of_groups
    return np.stack([erasure, generation, average_ranks(erasure, generation), *own], axis=1)


def _add_intervals(ranking: pd.DataFrame, names: Sequence[str], ranks_BKR: Floats) -> None:
    """Set `rank_*_low` and `rank_*_high` to the bounds of 95 % of the drawn ranks; '' where unranked."""
    tail = (1 - CONFIDENCE) / 2
    for index, name in enumerate(names):
        for bound, share in (("low", tail), ("high", 1 - tail)):
            texts = []
            for rank, drawn_B in zip(ranking[name], ranks_BKR[:, index].T, strict=True):
                texts.append(f"{np.nanquantile(drawn_B, share, method='inverted_cdf'):.0f}" if rank else "")
            ranking[f"{name}_{bound}"] = texts
