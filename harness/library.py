"""Results of a sweep from Python: tables, curves, and kept erased models with their cards."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from harness.analysis.analysis import Analysis
from harness.analysis.curves import Curve, curves
from harness.analysis.damage import verdict
from harness.analysis.metrics import MetricInfo, arrow, lower_title
from harness.analysis.ranking import RankedTable
from harness.analysis.seeds import restore_replicates
from harness.analysis.table import joined_lists
from harness.base import files, messages
from harness.contracts import Checkpoint, Json, Model
from harness.errors import DataError, ModelError
from harness.models import loading, resolving
from harness.models.adapters import ADAPTER_FILE, Adapter, load_erased, read_adapter, save_adapter
from harness.records.artifacts import damage
from harness.records.journal import Journal
from harness.records.results import PointResults, Results, TrialResults, find_one_point, read_results
from harness.reporting.render import fill_template
from harness.settings import ORIGINAL


@dataclass(frozen=True)
class SweepResults:
    """Results of a sweep so far, with its table, ranking and models; missing ones raise a DataError."""

    folder: Path
    """`results/<sweep>`."""
    analysis: Analysis
    """Everything in the report."""

    @property
    def results(self) -> Results:
        """Trials as in the journal."""
        return self.analysis.results

    @property
    def ranked(self) -> RankedTable:
        """The table with the ranks of every variant."""
        return self.analysis.ranked

    @property
    def table(self) -> pd.DataFrame:
        """One row for each measured point, with the columns of table.csv."""
        return joined_lists(restore_replicates(self.ranked.table))

    @property
    def ranking(self) -> pd.DataFrame:
        """One row for each model and variant: its ranks, and why it lacks one."""
        return joined_lists(self.ranked.ranking)

    @property
    def unfinished(self) -> list[TrialResults]:
        """Trials with something left to measure, with the error of those that failed."""
        return self.results.unfinished

    @property
    def metrics(self) -> MetricInfo:
        """Declaration of each metric, in the order of the table's columns."""
        return self.ranked.info

    @property
    def report(self) -> Path:
        """Path of the report."""
        return self.folder / "report.html"

    def curves(self, model: str, x: str, y: str) -> list[Curve]:
        """Return a model's curves in the plane of two metrics: a variant's points by rising strength."""
        for kind, names, choices in (("model", [model], set(self.table["model"])), ("metric", [x, y], self.metrics)):
            for name in names:
                if name not in choices:
                    raise DataError(f"this sweep measured no {kind} called '{name}'. It has {', '.join(choices)}.")
        return curves(restore_replicates(self.ranked.table), model, self.metrics[x], self.metrics[y])

    def items(self, point: str) -> pd.DataFrame:
        """Return each item's values in a point's metrics: one row for each metric and item.

        Its columns are `metric`, `item` (a stable id), `text` (where a text to forget stands in its file: `line 12`),
        `cluster` (copies share one), `value`, `weight` and `quantity`:
        `log` for a metric that is the exponential of a mean, such as perplexity (the item's mean NLL of a token, in
        nats), else `value`. Metrics without items, such as MAUVE, have no rows.
        """
        tables = [pd.DataFrame(columns=["metric", "item", "text", "cluster", "value", "weight", "quantity"])]
        for name, items in self.results.items(self.point(point)).items():
            values = {"cluster": items.clusters, "value": items.values_N, "weight": items.weights_N}
            quantity = "log" if self.metrics[name].aggregate == "exp_mean" else "value"
            texts = [self.results.plan.text_names.get(id, "") for id in items.ids]
            frame = {"metric": name, "item": items.ids, "text": texts, **values, "quantity": quantity}
            tables.append(pd.DataFrame(frame))
        return pd.concat(tables, ignore_index=True)

    def point(self, point: str) -> PointResults:
        """Return a measured point: its trial's spec, its measurements, the erasure's notes.

        Args:
            point: `emso@3`, its id as in `table`, or a beginning of the id; `letters:emso@3` includes the sweep.
        """
        return find_one_point(point, {self.folder.name: self.results})[1]

    def model(self, point: str, original: Checkpoint | None = None) -> Model:
        """Return the model of a point, which is a reference or was kept.

        `original` is the original's location, as by `resolve_model`; None: as when the sweep ran.
        """
        point_results, spec = self.point(point), self.point(point).spec
        if original is not None and original.digest != spec.model.digest:
            digests = f"has the digest {spec.model.digest}, and '{original.id}' has {original.digest}"
            raise ModelError(f"the original of '{point}' {digests}: it is another model.")
        if spec.is_reference:
            return loading.load_model(spec.retrained or original or spec.model)
        return load_erased(original or spec.model, self._kept(point_results))

    def adapter(self, point: str) -> Adapter:
        """Return the LoRA adapter of a point, without loading a model."""
        point_results = self.point(point)
        if point_results.spec.is_reference or point_results.spec.training.lora is None:
            raise DataError(f"'{point}' was not trained with LoRA, so it has no adapter.")
        folder = self._kept(point_results)
        if not (folder / ADAPTER_FILE).is_file():
            raise DataError(
                f"'{point}' changed more of the original than an adapter holds, so only its whole model was kept: "
                "export that, without --adapter."
            )
        return read_adapter(folder, point_results.spec.model.digest)

    def export(
        self, point: str, out: Path, original: Checkpoint | None = None, *, adapter_alone: bool = False
    ) -> list[str]:
        """Write a point's model, its tokenizer and a certificate to a new folder, atomically; return its faults.

        `adapter_alone` writes only the LoRA adapter, not merged.
        """
        if out.exists():
            raise DataError(f"{out} exists already; name a new folder.")
        point_results, table = self.point(point), self.analysis.table
        [row] = table[table["point_id"] == point_results.spec.point_id(point_results.strength)].to_dict("records")
        recorded, reason = original or point_results.spec.model, verdict(row["collapse_class"], row["collapse_reason"])
        faults = [f"This model has collapsed ({reason})."] if row["collapsed"] is True else []
        if row["over_erased"] is True:
            over = "it lost more than the forget set, or damages texts of its kind more than general ones"
            faults.append(f"This model is over-erased: {over}.")
        with files.folder_whole(out, "the exported model") as folder:
            if adapter_alone:
                save_adapter(self.adapter(point), recorded, folder)
            else:
                loading.save_model(self.model(point, original), folder)
            resolving.copy_tokenizer(recorded, folder)
            weights = {file.name: files.file_digest(file) for file in sorted(folder.glob("*.safetensors"))}
            made_by = ", ".join(f"{name} {version(name)}" for name in ("lethe", "transformers", "peft"))
            parts = {"weights": weights, "made_by": made_by, "faults": faults, "is_adapter": adapter_alone}
            (folder / "README.md").write_text(_certificate(point_results, row, self.analysis, parts), encoding="utf-8")
        return faults

    def _kept(self, point: PointResults) -> Path:
        folder = self.folder.parent / "artifacts" / "erased" / point.erased_key
        name = f"{point.spec.label} (point {point.spec.point_id(point.strength)})"
        remove = f"Remove {self.folder / 'journal' / f'{point.spec.trial_id}.jsonl'}"
        again = f"{remove}, and run the sweep again with --set keep_erased=all: the same model is made and kept."
        if point.made and point.made.is_pair:
            raise DataError(f"{name} is two models that decode together, and no single model: it cannot be exported.")
        if not folder.exists():
            raise DataError(f"the erased model of {name} was not kept. {again}")
        if clause := damage(folder):
            raise ModelError(f"{folder} is damaged ({clause}), and is not used. {again}")
        return folder


def load_results(folder: str | PathLike[str]) -> SweepResults:
    """Return the results in a sweep's folder, such as `results/tradeoff`."""
    folder = _with_name(Path(folder))
    outcome = SweepResults(folder, Analysis(read_folder(folder)))
    _ = outcome.ranked  # Numbers that cannot be ranked together are refused here.
    return outcome


def _with_name(folder: Path) -> Path:
    return folder if folder.name.strip(".") else folder.resolve()


def read_folder(folder: Path) -> Results:
    """Return the trials in a folder's journal."""
    if not (folder / "journal" / "plan.json").is_file():
        around = folder if folder.is_dir() else folder.parent
        sweeps = ", ".join(map(str, find_sweeps(around)))
        there = f"Below {around} there are results in {sweeps}." if sweeps else "Run the sweep first."
        state = "holds no results of a sweep" if folder.is_dir() else "is no results folder"
        raise DataError(f"{folder} {state} (no journal/plan.json). {there}")
    journal = Journal(_with_name(folder) / "journal")
    return read_results(journal.read_plan(), journal)


def find_sweeps(folder: Path) -> list[Path]:
    """Return the results folders of sweeps in a folder, by name."""
    return sorted(plan_file.parents[1] for plan_file in folder.glob("*/journal/plan.json"))


def find_point(name: str, results: Path) -> tuple[Path, str]:
    """Return the folder and id of the measured point with a name, in the results of all sweeps or of one.

    Names are `SWEEP:VARIANT@STRENGTH`, an id, or a beginning of one; without `SWEEP:` all sweeps are searched.
    """
    wanted_sweep, results = name.rpartition(":")[0], _with_name(results)
    sweeps = [results] if (results / "journal" / "plan.json").is_file() else find_sweeps(results)
    by_name = {folder.name: folder for folder in sweeps}
    searched = {wanted_sweep: by_name[wanted_sweep]} if wanted_sweep in by_name else by_name
    sweep, point = find_one_point(name, {sweep: read_folder(folder) for sweep, folder in searched.items()})
    return by_name[sweep], point.spec.point_id(point.strength)


def _certificate(point: PointResults, row: Mapping[Hashable, Any], analysis: Analysis, parts: dict[str, Any]) -> str:
    spec, table, cost = point.spec, analysis.table, analysis.results.plan.compare.cost
    originals = table[(table["model"] == spec.model.id) & (table["method"] == ORIGINAL)]
    originals = originals.sort_values("seed", key=lambda seeds: seeds != spec.seed, kind="stable")
    original = next(iter(originals.to_dict("records")), {})
    parts |= {"spec": spec, "point": point, "row": row, "original_row": original, "info": analysis.info}
    parts |= {"price": row.get(cost, math.nan) / original.get(cost, math.nan), "cost": analysis.info.get(cost)}
    parts |= {"arrow": arrow, "lower_title": lower_title, "without_folders": _without_folders, "nan": math.nan}
    return messages.printable(fill_template("harness.reporting", "templates/card.md.j2", **parts))


def _without_folders(value: Json) -> Json:
    is_path = isinstance(value, str) and value.startswith((".", "/", "~"))
    return Path(value).name if is_path else value
