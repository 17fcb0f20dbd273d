"""How sure ranks are: the paper's rule applied to draws of every number.

Drawn are the items that a number is a mean of, the seeds where there are several, and the noise that a metric declares
where neither tells. The same items are drawn for all rows, so ranks are compared within each draw. A metric of which
none of these is known has no interval and takes no part.

Array letters: D draws, K kinds of ranks, R rows (variants of one model), M metrics of one group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from harness.analysis.evidence import Evidence
from harness.analysis.metrics import Aims, costs, deviations
from harness.analysis.ranks.rule import all_ranks
from harness.contracts import Metric
from harness.statistics.bootstrap import CONFIDENCE, DRAWS
from harness.statistics.item_values import Floats
from harness.statistics.significance import groups as letters_of_groups

RANK_DRAWS = 2000
"""Of 10,000: a rank is a whole number, and the bounds of 95 % of these are those of more."""
FEWEST_DRAWS = 200
"""Of however many rows."""
COMPARED = 40
"""Rows of a model, the best ones, of which every two are compared: as many as a page shows."""
INFINITE = 1e300
"""Stands for an infinite number, so that it stays comparable when it is averaged and drawn."""
_AT_ONCE = 2**22
"""Drawn numbers that are ranked together: 32 MiB."""
_TOLD_APART = 0.5 + CONFIDENCE / 2
"""The share of draws in which the same one of two rows has to be strictly better."""
_AVERAGE = 2
"""The place of the average rank among the kinds; the two before it are what it is made of."""


@dataclass(frozen=True, eq=False)
class DrawnRanks:
    """The ranks of one model's rows in every draw."""

    ranks_DKR: Floats
    """In the order of `all_ranks`; NaN: unranked, or of a group in which no metric has an interval."""
    left_out: tuple[Metric, ...]
    """The metrics that have no interval."""

    def bounds(self, kind: int) -> list[tuple[str, str]]:
        """Return the bounds of 95 % of each row's ranks of a kind, as text; '' where they are not known."""
        tail = (1 - CONFIDENCE) / 2
        bounds = []
        for drawn_D in self.ranks_DKR[:, kind].T:
            known = drawn_D[~np.isnan(drawn_D)]
            low, high = np.quantile(known, [tail, 1 - tail], method="inverted_cdf") if len(known) else ("", "")
            bounds.append((f"{low:.0f}", f"{high:.0f}") if len(known) else ("", ""))
        return bounds

    def firsts(self) -> Floats:
        """Return the share of draws (R,) in which each row has the first average rank; NaN where it has none."""
        average_DR = self.ranks_DKR[:, _AVERAGE]
        known_R = ~np.isnan(average_DR).all(axis=0)
        return np.where(
            known_R, (average_DR == 1).sum(axis=0) / np.maximum(1, (~np.isnan(average_DR)).sum(axis=0)), np.nan
        )

    def groups(self, rows: Sequence[int], training_runs: Sequence[int]) -> list[str]:
        """Return the letters of rows, best first: two share one if they cannot be told apart by their average rank.

        They can where the mean of the two group ranks of the same one is strictly better in 97.5 % of the draws. These
        are letters for all pairs, not groups that begin again where a row differs from the first one: such a
        border would lie between two rows that nothing tells apart.

        Args:
            rows: Their places.
            training_runs: Of each row here: of a single one nothing is known of how another would rank, so it cannot be
                told apart.
        """
        means_DR = self.ranks_DKR[:, :_AVERAGE].mean(axis=1)
        runs = dict(zip(rows, training_runs, strict=True))
        different = set()
        for one, other in combinations(rows, 2):
            differences_D = means_DR[:, one] - means_DR[:, other]
            surest = max((differences_D < 0).mean(), (differences_D > 0).mean())
            if surest >= _TOLD_APART and min(runs[one], runs[other]) > 1:
                different.add(frozenset((str(one), str(other))))
        return list(letters_of_groups([str(row) for row in rows], different).values()) if rows else []


def drawn_ranks(
    variants: Sequence[pd.DataFrame],
    groups: Sequence[Sequence[Metric]],
    scores: Sequence[Floats],
    evidence: Evidence,
    aims: Aims,
) -> DrawnRanks:
    """Return the ranks of rows in every draw; `all_ranks` of `scores` are those of their estimates.

    Args:
        variants: The seeds of each row.
        groups: The metrics of each group.
        scores: Of each group (R, M); NaN takes no rank.
        evidence: The items behind the numbers.
        aims: What they are to be close to; it is taken as it was measured, without noise of its own.
    """
    numbers = max(1, len(variants) * sum(map(len, groups)))
    count = max(FEWEST_DRAWS, min(RANK_DRAWS, _AT_ONCE // numbers))
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
    return DrawnRanks(all_ranks(drawn), tuple(left_out))


def _drawn_costs(rows: pd.DataFrame, metric: Metric, evidence: Evidence, aims: Aims) -> Floats:
    """Return draws (D,) of what the mean over a row's seeds costs; an infinite one is the same in all."""
    is_infinite = np.isinf(rows[metric.name].to_numpy(dtype=float)).any()
    drawn_D = np.full(DRAWS, INFINITE) if is_infinite else evidence.draws(rows, metric)
    return costs(deviations(drawn_D, metric, float(aims.of(rows, metric).mean())), metric)
