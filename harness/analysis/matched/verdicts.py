"""Who is better than the reference: planned contrasts at equal erasure, one family of tests for a whole page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.matched.comparison import MatchedRow, MatchedTable
from harness.contracts import Metric
from harness.metric import exponential
from harness.plans import Plan
from harness.statistics.contrasts import Contrast, Verdict, paired_contrast, verdicts

VERDICT_MEANINGS: Mapping[Verdict, str] = {
    "better": "pays less than {reference}",
    "worse": "pays more than {reference}",
    "equivalent": "within {margin} of {reference}",
    "undecided": "undecided",
}
"""What a verdict says of a method, beside the reference."""


@dataclass(frozen=True)
class Judged:
    """One method against the reference, at one limit."""

    row: MatchedRow
    ratio: tuple[float, float, float]
    """What it costs, times the reference, and the ends of the 95 % interval; NaN where it is not known."""
    contrast: Contrast | None
    """Of the logarithms; None where the two cannot be compared."""
    verdict: Verdict | None
    """None where nothing may be said: the two were not compared, or there is one replicate."""


@dataclass(frozen=True)
class VerdictTable:
    """One model's methods against the reference, at one limit, by one metric of utility."""

    matched: MatchedTable
    metric: Metric
    reference: MatchedRow
    rows: tuple[Judged, ...]

    @property
    def has_one_replicate(self) -> bool:
        """Return whether there is one training run of each method: then there are intervals over items, no verdicts."""
        of_reference = self.reference.prices.get(self.metric.name)
        return of_reference is not None and len(of_reference.replicates) == 1

    def of(self, row: MatchedRow) -> Judged | None:
        """Return what is said of a row; None of the reference itself."""
        return next((judged for judged in self.rows if judged.row is row), None)

    def labels(self, verdict: Verdict) -> list[str]:
        """Return the labels of the methods of which this is said."""
        return [judged.row.label for judged in self.rows if judged.verdict == verdict]


def reference_variant(plan: Plan, row: str | None) -> str:
    """Return the variant that the others are compared with: the first that the file has of a row.

    The order is the file's, so that no number has a say in it. Without a row it is the first that is no control.

    Args:
        plan: Of the sweep.
        row: A row of the sweep file, or a variant of it.
    """
    trials = [study.trial for study in plan.studies] + [spec for spec in plan.trials if not spec.is_reference]
    variants = dict.fromkeys(spec.variant for spec in trials)
    for variant in variants:
        is_named = row in (variant, variant.partition("(")[0])
        if is_named or (row is None and variant not in plan.controls):
            return variant
    return row or ""


def verdict_tables(tables: Sequence[MatchedTable], reference_name: str, margin: float) -> list[VerdictTable]:
    """Return each erasure limit's contrasts against the reference, cheapest first.

    The reference and the margin are named in the sweep file, before any number is seen. All contrasts that come from
    several replicates are one family (Holm).

    Args:
        tables: The matched comparison.
        reference_name: The variant that the others are compared with.
        margin: Methods whose prices differ by less than this share are equivalent.
    """
    compared, planned = [], []
    for table in tables:
        reference = next((row for row in table.rows if row.variant == reference_name), None)
        for metric in table.limit.reported if table.limit.is_erasure else ():
            if reference is None or metric.aggregate != "exp_mean":
                continue
            contrasts = []
            for row in table.rows:
                if row is not reference:
                    contrasts.append((row, _contrast(row, reference, metric)))
            compared.append((table, metric, reference, contrasts))
            planned += [contrast for _, contrast in contrasts if contrast and contrast.replicates > 1]
    said = dict(zip(map(id, planned), verdicts(planned, math.log1p(margin)), strict=True))
    judged_tables = []
    for table, metric, reference, contrasts in compared:
        rows = [Judged(row, _ratio(contrast), contrast, said.get(id(contrast))) for row, contrast in contrasts]
        judged_tables.append(VerdictTable(table, metric, reference, tuple(rows)))
    return judged_tables


def _contrast(row: MatchedRow, reference: MatchedRow, metric: Metric) -> Contrast | None:
    """Return the contrast of two rows; None where either is not at the limit, or they have no items in common."""
    if not (row.is_at_limit and reference.is_at_limit and metric.name in row.prices):
        return None
    ours, theirs = row.prices[metric.name], reference.prices[metric.name]
    if not ours.is_paired_with(theirs) or ours.items is None or theirs.items is None:
        return None
    return paired_contrast(ours.items, theirs.items, ours.match, theirs.match)


def _ratio(contrast: Contrast | None) -> tuple[float, float, float]:
    if contrast is None:
        return math.nan, math.nan, math.nan
    low, high = contrast.interval()
    return exponential(contrast.difference), exponential(low), exponential(high)


def verdict_clause(table: VerdictTable, margin: float) -> str:
    """Return what follows the name of a limit in a sentence, made from verdicts and never from the order of numbers."""
    reference = table.reference.label
    there = [row for row in table.matched.rows if row.cells]
    if not there:
        is_known = all(row.how == "not reached" for row in table.matched.rows)
        return ": no method gets there" if is_known else ": no method has been measured there yet"
    if all(row.collapsed for row in there):
        return ": no method gets there without collapsing"
    if not table.reference.is_at_limit:
        row = table.reference
        state = f"was measured at {row.matched.text}" if row.how == "measured" else f"{row.how} ({row.note})"
        return f": {reference}, the reference, {state}, so nothing is compared with it"
    if table.has_one_replicate:
        return (
            f": one training seed, so no method is called better or worse than {reference}. The intervals are over "
            "items: they say what other texts would have given, not what another training run would"
        )
    clauses = []
    for verdict, meaning in VERDICT_MEANINGS.items():
        if labels := table.labels(verdict):
            clauses.append(f"{meaning.format(reference=reference, margin=f'{margin:.0%}')}: {', '.join(labels)}")
    if missing := [judged.row for judged in table.rows if judged.verdict is None]:
        named = [f"{row.label} ({row.note})" if row.note else row.label for row in missing]
        clauses.append(f"not compared there: {', '.join(named)}")
    return f", {table.metric.title}: {'; '.join(clauses)}"
