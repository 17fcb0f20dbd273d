"""What is left of memorised and of other sequences as a table, and why a sweep that mixes them may have none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from harness.analysis.cells import NOTHING, strength_text
from harness.analysis.exact_match import (
    GROUP_NAMES,
    GROUPS,
    LEAST,
    AgreementPoint,
    ModelAgreement,
    group_text,
    memorized_ids,
)
from harness.analysis.metrics import exact_matches
from harness.analysis.ranking import RankedTable
from harness.analysis.tradeoff.curves import styles
from harness.base.csv_text import csv_text
from harness.records.results import Results
from harness.reporting.figures.exact_match import agreement_figure
from harness.reporting.section import Section
from harness.specs import ORIGINAL, RETRAINED

_POINT_COLUMNS = ("model", "variant", "label", "strength_name", "strength", "group")
_NUMBER_COLUMNS = ("sequences", "continuation_tokens", "agreeing_tokens", "low", "high")


class ExactMatch(Section):
    """What is left of memorised and of other sequences."""

    stems = ("exact_match_groups",)
    needs_points = True

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Both groups over the strength, and one against the other."""
        figure = agreement_figure(self.analysis.agreements, styles(self.analysis.points))
        return {"exact_match_groups": figure} if figure else {}

    def files(self) -> dict[str, str]:
        """Return the numbers as CSV."""
        agreements = self.analysis.agreements
        return {"exact_match_groups.csv": csv_text(agreement_frame(agreements))} if agreements else {}

    def context(self) -> dict[str, Any]:
        """Return the rows of each model, or why there are none where a reader expects some."""
        agreements = self.analysis.agreements
        reason = "" if agreements else why_no_groups(self.analysis.shown, self.analysis.shown_table.ranked)
        groups = {}
        for agreement in agreements:
            lengths = list(zip(GROUP_NAMES.values(), agreement.lengths.values(), strict=True))
            groups[agreement.model] = lengths, agreement_rows(agreement)
        return {"groups": groups, "why_no_groups": reason, "group_text": group_text}


def agreement_frame(of_models: Sequence[ModelAgreement]) -> pd.DataFrame:
    """Return a row for each model, variant, strength and group, the original's first; no variant repeats its numbers.

    `low` and `high` bound the 95 % interval of `agreeing_tokens`; `sequences` are those of the replicate that has
    fewest of the group.
    """
    rows = []
    for agreement in of_models:
        for variant, label, strength_name, point in _table_points(agreement):
            for group in GROUPS:
                lengths, left = agreement.lengths[group], point.by_group[group]
                about = (agreement.model, variant, label, strength_name, point.strength, group)
                numbers = (lengths.sequences[0], lengths.tokens, left.tokens, left.low, left.high)
                rows.append((*about, *numbers, point.collapsed))
    return pd.DataFrame(rows, columns=[*_POINT_COLUMNS, *_NUMBER_COLUMNS, "collapsed"])


def agreement_rows(agreement: ModelAgreement) -> list[tuple[str, str, bool, list[tuple[str, str]]]]:
    """Return what the report prints of a model: label, strength, whether it collapsed, and each group's cell.

    A cell is the mean and its interval, `31.4` and `27.0–35.9`.
    """
    rows = []
    for _, label, strength_name, point in _table_points(agreement):
        cells = []
        for group in GROUPS:
            left = point.by_group[group]
            mean = NOTHING if math.isnan(left.tokens) else f"{left.tokens:.1f}"
            cells.append((mean, "" if math.isnan(left.low) else f"{left.low:.1f}–{left.high:.1f}"))
        strength = strength_text(strength_name, point.strength) if strength_name else ""
        rows.append((label, strength, point.collapsed, cells))
    return rows


def why_no_groups(results: Results, ranked: RankedTable) -> str:
    """Return why a sweep whose forget set was mixed on purpose shows nothing of its groups; '' if nobody expects it."""
    if all(spec.forget.not_memorized is None for spec in results.plan.trials):
        return ""
    metrics = exact_matches(ranked.info)
    if metrics is None:
        return (
            "The forget set has texts that are not memorised, but no evaluator measured exact match with the text and "
            "with the original: add memorization to the sweep's evaluators."
        )
    originals = ranked.table[ranked.table["method"] == ORIGINAL]
    if (memorized := memorized_ids(originals, ranked.evidence, *metrics)) is None:
        return (
            "The forget set has texts that are not memorised, but the original's values for each sequence are not "
            "there: run the sweep again, which measures what is missing."
        )
    counts = ", ".join(f"{sum(of_ids.values())} of {len(of_ids)}" for of_ids in memorized.values())
    return (
        f"The original recites {counts} sequences wholly; {LEAST} that it recites and {LEAST} that it does not are "
        "needed to compare what is left of both."
    )


def _table_points(agreement: ModelAgreement) -> Iterator[tuple[str, str, str, AgreementPoint]]:
    if agreement.curves:
        yield ORIGINAL, "Original", "", agreement.curves[0].points[0]
    if agreement.retrained:
        yield RETRAINED, "Retrained", "", agreement.retrained
    for curve in agreement.curves:
        for point in curve.points[1:]:
            yield curve.variant, curve.label, curve.strength_name, point
