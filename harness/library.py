"""A sweep's results from Python: tables, curves and the erased models that were kept."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from harness.errors import DataError
from harness.execution.tuned import unfinished_studies
from harness.records.journal import Journal
from harness.records.results import PointResults, Results, TrialResults, read_results
from harness.records.studies import StudyResults
from harness.reporting.aggregate import as_measured
from harness.reporting.curves import Curve, curves
from harness.reporting.evidence import read_evidence
from harness.reporting.metric_info import MetricInfo, metric_info
from harness.reporting.ranking import RankedTable, rank
from harness.reporting.table import table

if TYPE_CHECKING:
    from harness.contracts import Model


@dataclass(frozen=True)
class SweepResults:
    """What a sweep has measured so far, and what was made of it."""

    folder: Path
    """`results/<sweep>`."""
    results: Results
    """What the journal says of every trial."""
    ranked: RankedTable

    @property
    def table(self) -> pd.DataFrame:
        """Return one row for each measured point, with the columns of table.csv."""
        return as_measured(self.ranked.table)

    @property
    def ranking(self) -> pd.DataFrame:
        """Return one row for each model and variant: its ranks, and why it lacks one."""
        return self.ranked.ranking

    @property
    def unfinished(self) -> list[TrialResults]:
        """Return the trials that leave something to be measured, with how they failed, if they did."""
        return self.results.unfinished

    @property
    def unfinished_studies(self) -> list[StudyResults]:
        """Return the searches of a tuned sweep that have candidates left to try: what they choose is not known yet."""
        return unfinished_studies(self.results)

    @property
    def metrics(self) -> MetricInfo:
        """Return what its evaluator declared of each metric, in the order of the table's columns."""
        return self.ranked.info

    @property
    def report(self) -> Path:
        """Return where the sweep's report is."""
        return self.folder / "report.html"

    def curves(self, model: str, x: str, y: str) -> list[Curve]:
        """Return a model's curves in the plane of two metrics: a variant's points by rising strength.

        Raises:
            DataError: No such model or metric was measured.
        """
        models = list(self.table["model"].unique())
        for kind, name, known in (("model", model, models), *(("metric", name, self.metrics) for name in (x, y))):
            if name not in known:
                raise DataError(f"this sweep measured no {kind} called '{name}'. It has {', '.join(known)}.")
        return curves(self.table, model, x, y)

    def items(self, point_id: str) -> pd.DataFrame:
        """Return what each item has of a point's metrics: one row for each metric and item.

        Its columns are `metric`, `item` (a stable id), `cluster` (items that share a text are one), `value` and
        `weight`. A metric that is not made of items, such as MAUVE, has no rows.

        Raises:
            DataError: No point has this id, or what it kept is damaged.
        """
        rows = [
            pd.DataFrame(
                {
                    "metric": name,
                    "item": items.ids,
                    "cluster": items.clusters,
                    "value": items.values_N,
                    "weight": items.weights_N,
                }
            )
            for name, items in self.results.items(self._point(point_id)).items()
        ]
        return pd.concat([pd.DataFrame(columns=["metric", "item", "cluster", "value", "weight"]), *rows])

    def _point(self, point_id: str) -> PointResults:
        points = {point.spec.point_id(point.strength): point for point in self.results.measured}
        if point_id not in points:
            raise DataError(f"no measured point of this sweep is called '{point_id}': see .table['point_id'].")
        return points[point_id]

    def model(self, point_id: str) -> Model:
        """Return the model of a point, as `table` has its id: a reference, or an erased model that was kept.

        Raises:
            DataError: No point has this id, or its erased model was not kept.
        """
        from harness.models.loading import load_model
        from harness.models.patch import load_erased
        from harness.records.artifacts import Artifacts

        spec = self._point(point_id).spec
        if spec.is_reference:
            return load_model(spec.retrained or spec.model)
        folder = Artifacts(self.folder.parent / "artifacts").find("erased", point_id)
        if folder is None:
            raise DataError(
                f"the erased model of '{spec.variant}' (point {point_id}) was not kept: the sweep file says "
                f"keep_erased: {spec.keep_erased}. Say keep_erased: all, remove {self.folder}/journal/"
                f"{spec.trial_id}.jsonl, and run the sweep again: the same model is made and measured anew, and kept. "
                "(Two models that decode together are never kept.)"
            )
        return load_erased(spec.model, folder)


def load_results(folder: str | PathLike[str]) -> SweepResults:
    """Return the results in a sweep's folder, such as `results/tradeoff`, from its journal alone.

    Raises:
        DataError: The folder has no sweep, or its numbers cannot be ranked together.
    """
    refuse_without_results(Path(folder))
    journal = Journal(Path(folder) / "journal")
    results = read_results(journal.read_plan(), journal)
    info = metric_info(results)
    evidence = read_evidence(results)
    return SweepResults(Path(folder), results, rank(table(results, info, evidence), info, evidence))


def refuse_without_results(folder: Path) -> None:
    """Raise a DataError, which names the sweeps nearby, if a folder holds no plan of a sweep."""
    if not (folder / "journal" / "plan.json").is_file():
        around = folder if folder.is_dir() else folder.parent
        sweeps = sorted(str(plan.parents[1]) for plan in around.glob("*/journal/plan.json"))
        there = f"Below {around} there are results in {', '.join(sweeps)}." if sweeps else "Run the sweep first."
        state = "holds no results of a sweep" if folder.is_dir() else "is no results folder"
        raise DataError(f"{folder} {state} (no journal/plan.json). {there}")
