"""Who ranks where: ranks of metrics, of the two groups, and of both together, for each model.

A rank is a competition rank: one more than the number of rows that are strictly better, so equal
rows share a rank and the next one is skipped. Within a group the metrics' ranks are averaged and
ranked; the two group ranks are averaged and ranked again. This gives all 33 ranks printed in the
EMSO paper's Table 1 (its caption describes a count of best and second-best results, which gives
other ranks than it prints).

Array letters: B bootstrap draws, S seeds, R rows (variants of one model), M metrics of one group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.contracts import Metric
from harness.errors import DataError
from harness.reporting.facts import RANKED_GROUPS, Facts, ranked_metrics
from harness.reporting.seeds import CONFIDENCE, ranked_rows, strengths, worst_class

Floats = NDArray[np.float64]

RANKS = ("rank_erasure", "rank_generation", "rank_average")
COLUMNS = (
    *("model", "method", "variant", "label", "reference", "strength_name", "strength", *RANKS),
    *("collapsed", "collapse_class", "seeds", "unranked"),
)
RESAMPLES = 1000


def competition_ranks(scores_R: Floats) -> Floats:
    """Return the rank of every score along the last axis; 1 is the lowest. NaN has no rank: NaN.

    Example:
        >>> competition_ranks(np.array([0.2, 0.1, 0.2, np.nan, 0.3]))
        array([ 2.,  1.,  2., nan,  4.])
    """
    better = (scores_R[..., None, :] < scores_R[..., :, None]).sum(axis=-1)
    ranks: Floats = np.where(np.isnan(scores_R), np.nan, better + 1.0)
    return ranks


def group_ranks(scores_RM: Floats) -> Floats:
    """Return the ranks of the rows' mean ranks over a group's metrics; lower scores are better.

    A row that lacks any metric is not ranked, and no other row is ranked against it. In a group without
    metrics no row is ranked.

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
    """Return the ranks as a table prints them: ties as `=2`, no rank as ''.

    Example:
        >>> printed([4, 2, 2, 1, float("nan")])
        ['4', '=2', '=2', '1', '']
    """
    known = [rank for rank in ranks if not np.isnan(rank)]
    return ["" if np.isnan(rank) else "=" * (known.count(rank) > 1) + f"{rank:.0f}" for rank in ranks]


def rank(table: pd.DataFrame, facts: Facts, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return one row for every model and variant: its ranks, and why it lacks one.

    Ranked are the table's `ranked` rows, as means over their seeds. A variant that collapsed on any
    seed is shown and not ranked. Where a model has several seeds, `rank_*_low` and `rank_*_high`
    bound 95 % of the ranks that resampled seeds give (each draw is the same for every variant).

    Raises:
        DataError: The table mixes definitions, or holds two ranked rows of one variant and seed.
    """
    refuse_mixed_definitions(table, facts)
    models = ranked_rows(table).groupby("model", sort=False)
    ranked = [_rank_model(rows, facts, resamples, seed) for _, rows in models]
    return pd.concat([pd.DataFrame(columns=COLUMNS, dtype=object), *ranked], ignore_index=True)


def refuse_mixed_definitions(table: pd.DataFrame, facts: Facts) -> None:
    """Do nothing if all ranked numbers of the table have one definition; else raise.

    Raises:
        DataError: Naming both definitions, each with a row that has it.
    """
    names = [metric.name for group in RANKED_GROUPS for metric in ranked_metrics(facts, group)]
    found: dict[str, str] = {}
    for _, row in table[table[names].notna().any(axis=1)].iterrows():
        for definition in str(row["definition"]).split("+"):
            found.setdefault(definition or "(not stated)", f"{row['variant']} on {row['model']}")
    if len(found) > 1:
        (one, here), (other, there), *_ = found.items()
        raise DataError(
            f"the table mixes the definitions '{one}' ({here}) and '{other}' ({there}). Their numbers mean "
            "different things and cannot be ranked together: measure everything with one definition."
        )


def _rank_model(rows: pd.DataFrame, facts: Facts, resamples: int, seed: int) -> pd.DataFrame:
    """Return the ranking of one model's variants, best first, the unranked last."""
    variants = [group for _, group in rows.groupby("variant", sort=False)]
    ranking = pd.DataFrame([_identity(group, facts) for group in variants])
    seeds = sorted(rows["seed"].unique())
    scores = [
        np.stack([_scores(group, ranked_metrics(facts, name), seeds) for group in variants], axis=1)
        for name in RANKED_GROUPS
    ]
    run_SR = np.array([[(group["seed"] == each).any() for group in variants] for each in seeds], dtype=float)
    ranks = _ranks(scores, run_SR, np.ones((1, len(seeds))))[0]
    ranking[list(RANKS)] = np.array([printed(list(each)) for each in ranks], dtype=object).T
    if len(seeds) > 1:
        weights_BS = np.random.default_rng(seed).multinomial(len(seeds), np.full(len(seeds), 1 / len(seeds)), resamples)
        _add_intervals(ranking, _ranks(scores, run_SR, weights_BS.astype(float)))
    return ranking.iloc[np.lexsort((ranks[0], ranks[2], ranking["collapsed"].eq(True)))]


def _identity(rows: pd.DataFrame, facts: Facts) -> dict[str, Any]:
    """Return all of a variant's row in the ranking but the ranks; `rows` are its seeds."""
    first, worst = rows.iloc[0], worst_class(list(rows["collapse_class"]))
    return {
        **{name: first[name] for name in ("model", "method", "variant", "label", "reference", "strength_name")},
        "strength": strengths(list(rows["strength"])),
        "collapsed": True if rows["collapsed"].eq(True).any() else None if worst == "unknown" else False,
        **{"collapse_class": worst, "seeds": len(rows), "unranked": _why_unranked(rows, facts)},
    }


def _why_unranked(rows: pd.DataFrame, facts: Facts) -> str:
    """Return why a variant lacks a rank, as a table's note says it; '' where it lacks none."""
    collapsed = rows[rows["collapsed"].eq(True)]
    if len(collapsed):
        seeds = f" on {len(collapsed)} of {len(rows)} seeds" if len(rows) > 1 else ""
        return f"collapsed{seeds} ({worst_class(list(collapsed['collapse_class']))})"
    names = [metric.name for group in RANKED_GROUPS for metric in ranked_metrics(facts, group)]
    lacking = [name for name in names if rows[name].isna().any()]
    return f"not measured: {', '.join(lacking)}" if lacking else ""


def _scores(rows: pd.DataFrame, metrics: Sequence[Metric], seeds: Sequence[int]) -> Floats:
    """Return one variant's scores (S, M), lower better; 0 at a seed that it was not run with.

    All of a metric is NaN if the variant lacks it on any seed or collapsed: no mean may hide a hole.
    """
    scores_SM = np.zeros((len(seeds), len(metrics)))
    for column, metric in enumerate(metrics):
        sign = 1.0 if metric.better == "lower" else -1.0
        # Clipped, so that an infinite perplexity stays comparable when it is averaged and weighted.
        values = np.clip(sign * rows[metric.name].to_numpy(dtype=float), -1e300, 1e300)
        scores_SM[[seeds.index(each) for each in rows["seed"]], column] = values
    lost = np.isnan(scores_SM).any(axis=0) | rows["collapsed"].eq(True).any()
    return np.where(lost, np.nan, scores_SM)


def _ranks(scores: Sequence[Floats], run_SR: Floats, weights_BS: Floats) -> Floats:
    """Return the three ranks (B, 3, R) when seed s counts `weights_BS[b, s]` times in draw b."""
    counts_BR1 = (weights_BS @ run_SR)[..., None]
    both = []
    for scores_SRM in scores:
        sums_BRM = np.einsum("bs,srm->brm", weights_BS, scores_SRM)
        means_BRM = np.divide(sums_BRM, counts_BR1, out=np.full_like(sums_BRM, np.nan), where=counts_BR1 > 0)
        both.append(group_ranks(means_BRM))
    return np.stack([*both, average_ranks(*both)], axis=1)


def _add_intervals(ranking: pd.DataFrame, ranks_B3R: Floats) -> None:
    """Set `rank_*_low` and `rank_*_high` to the bounds of 95 % of the drawn ranks; '' where unranked."""
    tail = (1 - CONFIDENCE) / 2
    for name, ranks_BR in zip(RANKS, ranks_B3R.swapaxes(0, 1), strict=True):
        drawn = [[value for value in column if not np.isnan(value)] for column in ranks_BR.T]
        for bound, share in (("low", tail), ("high", 1 - tail)):
            ends = [np.quantile(each, share, method="inverted_cdf") if each else np.nan for each in drawn]
            blank = ranking[name].eq("")
            ranking[f"{name}_{bound}"] = ["" if no else f"{end:.0f}" for no, end in zip(blank, ends, strict=True)]
