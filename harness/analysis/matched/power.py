"""What would tell two methods apart at equal erasure: how many seeds or models, and how many prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.analysis.matched.comparison import MatchedRow
from harness.analysis.matched.verdicts import VerdictTable
from harness.contracts import Metric
from harness.metric import exponential
from harness.statistics.contrasts import Contrast, paired_contrast
from harness.statistics.power import contrast_power, items_to_find, replicates_to_find


@dataclass(frozen=True)
class PairPower:
    """One method against the reference, at one limit: what it takes to tell them apart."""

    row: MatchedRow
    contrast: Contrast
    ratio: float
    """The difference that is to be found, as a ratio of costs: the measured one, or a hypothetical one."""
    deviation: float
    """Standard deviation between replicates of their paired differences of logarithms; NaN with a single replicate."""
    power_alone: float
    """How often as many replicates, on as many items, would find it by this one test."""
    power: float
    """The same among all planned contrasts."""
    needed_alone: int | None
    """How many replicates find it in 8 of 10 tries by this one test, on the same items; None: no number of them."""
    needed: int | None
    """The same among all planned contrasts."""
    items: int
    """How many prompts, or clusters of them, were measured."""
    items_needed: int | None
    """How many of them, and as many times more of the matched metric's items, find a difference of the margin in 8 of
    10 tries if replicates do not differ at all; None: no number of them."""


@dataclass(frozen=True)
class PowerTable:
    """One model's methods against a reference, at one limit, by one metric of utility."""

    model: str
    limit: str
    metric: Metric
    reference: MatchedRow
    replicates: int
    replicates_are: Literal["seeds", "models"]
    pairs: tuple[PairPower, ...]
    not_compared: tuple[MatchedRow, ...]
    """Methods that are not at the limit, or have no items in common with the reference."""


def planned_contrasts(tables: Sequence[VerdictTable]) -> int:
    """Return how many contrasts a page tests together, or would with another replicate of each."""
    return sum(judged.contrast is not None for table in tables for judged in table.rows)


def power_tables(
    tables: Sequence[VerdictTable], tests: int, margin: float, difference: float | None = None
) -> list[PowerTable]:
    """Return what would tell each contrast's two methods apart.

    Args:
        tables: The contrasts, as measured.
        tests: How many are planned together.
        margin: The difference that prompts are counted for: 0.1 for 10 %.
        difference: The one that replicates are counted for, in the same way; None: what was measured of each contrast.
    """
    of_limits = []
    for table in tables:
        pairs, not_compared = [], []
        for judged in table.rows:
            if judged.contrast is None:
                not_compared.append(judged.row)
            else:
                pairs.append(_pair_power(judged.row, judged.contrast, table, tests, margin, difference))
        price = table.reference.prices.get(table.metric.name)
        models = 1 if price is None else len(np.unique(price.models_R))
        of_limits.append(
            PowerTable(
                model=table.matched.model,
                limit=table.matched.limit.text,
                metric=table.metric,
                reference=table.reference,
                replicates=pairs[0].contrast.replicates if pairs else 0,
                replicates_are="models" if models > 1 else "seeds",
                pairs=tuple(pairs),
                not_compared=tuple(not_compared),
            )
        )
    return of_limits


def _pair_power(
    row: MatchedRow, contrast: Contrast, table: VerdictTable, tests: int, margin: float, difference: float | None
) -> PairPower:
    looked_for = contrast.difference if difference is None else math.log1p(difference)
    prompts = _prompts(row, table)
    of_margin = math.log1p(margin)
    return PairPower(
        row=row,
        contrast=contrast,
        ratio=exponential(looked_for),
        deviation=(
            math.sqrt(contrast.replicates_variance * contrast.replicates) if contrast.replicates > 1 else math.nan
        ),
        power_alone=contrast_power(looked_for, contrast, contrast.replicates),
        power=contrast_power(looked_for, contrast, contrast.replicates, tests),
        needed_alone=replicates_to_find(looked_for, contrast),
        needed=replicates_to_find(looked_for, contrast, tests),
        items=prompts,
        items_needed=items_to_find(of_margin, contrast.items_variance, prompts),
    )


def _prompts(row: MatchedRow, table: VerdictTable) -> int:
    ours, theirs = row.prices[table.metric.name].items, table.reference.prices[table.metric.name].items
    shared = paired_contrast(ours, theirs) if ours is not None and theirs is not None else None
    return shared.clusters if shared is not None else 0
