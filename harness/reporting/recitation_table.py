"""What models recite, where nothing was erased: a column for each set of texts, a row for each metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis.cells import Cell, interval_cell
from harness.analysis.evidence import Evidence
from harness.analysis.ranking import RankedTable
from harness.contracts import Metric
from harness.specs import HOLDOUT, ORIGINAL, REFERENCE_ROWS, RETRAINED, STAND_IN

COLUMNS = {
    ORIGINAL: "Forget set",
    RETRAINED: "Retrained model",
    HOLDOUT: "Unseen texts",
    STAND_IN: "Validation texts",
}
"""What each reference row was measured on, and by whom if not by the original."""


@dataclass(frozen=True)
class RecitationTable:
    """One model's part."""

    model: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Metric, tuple[Cell, ...]], ...]
    """Each metric with a cell for each column: a mean over seeds and its 95 % interval."""


def recitation_tables(ranked: RankedTable) -> list[RecitationTable]:
    """Return the reference rows of every model, with all that was measured of them but reasoning tasks."""
    metrics = [metric for metric in ranked.info.values() if metric.group != "reasoning"]
    by_model = ranked.table.groupby("model", sort=False)
    return [_table(str(model), rows, metrics, ranked.evidence) for model, rows in by_model]


def _table(model: str, rows: pd.DataFrame, metrics: Sequence[Metric], evidence: Evidence) -> RecitationTable:
    of_references = {kind: rows[rows["method"] == kind] for kind in REFERENCE_ROWS}
    measured = {kind: seeds for kind, seeds in of_references.items() if len(seeds)}
    return RecitationTable(
        model,
        tuple(COLUMNS[kind] for kind in measured),
        tuple((metric, tuple(_cell(seeds, metric, evidence) for seeds in measured.values())) for metric in metrics),
    )


def _cell(seeds: pd.DataFrame, metric: Metric, evidence: Evidence) -> Cell:
    mean = float(seeds[metric.name].mean(skipna=False))
    return interval_cell(mean, *evidence.interval(seeds, metric), metric)
