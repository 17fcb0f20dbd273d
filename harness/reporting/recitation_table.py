"""What models recite, where nothing was erased: a column for each set of texts, a row for each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.cells import Cell, interval_cell
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
    columns: Sequence[str]
    rows: Sequence[tuple[Metric, Mapping[str, Cell]]]
    """Each metric with a cell for each column: a mean over seeds and its 95 % interval."""


def recitation_tables(ranked: RankedTable) -> list[RecitationTable]:
    """Return the reference rows of every model, with all that was measured of them but reasoning tasks."""
    tables = []
    for model, of_model in ranked.table.groupby("model", sort=False):
        measured = [method for method in REFERENCE_ROWS if (of_model["method"] == method).any()]
        rows = []
        for metric in [metric for metric in ranked.info.values() if metric.group != "reasoning"]:
            cells = {}
            for method in measured:
                seeds = of_model[of_model["method"] == method]
                mean = float(seeds[metric.name].mean(skipna=False))
                cells[COLUMNS[method]] = interval_cell(mean, *ranked.evidence.interval(seeds, metric), metric)
            rows.append((metric, cells))
        tables.append(RecitationTable(str(model), [COLUMNS[method] for method in measured], rows))
    return tables
