"""The journal as MLflow runs: a sweep's, in it each trial's and each candidate's, and in a trial's each point's.

A point whose erased model was kept has that as a logged model.

`Tracker.sync` makes MLflow equal to the journal, however often it is called and whatever is there,
so that a killed sweep, a lost database and a live run need no code of their own. The driver, or
`lethe collate`, is the only writer. MLflow gets numbers, settings and digests: no notes, samples or
error messages, and so no text of the forget set.

MLflow is imported when first needed: that, and creating the database, take several seconds. What may go wrong here is
raised as it is; `live_tracking` keeps it, and all waiting, from a sweep.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.plans import Plan
from harness.records.artifacts import Artifacts
from harness.records.record import kept_name
from harness.records.results import Results, TrialResults
from harness.records.tracking.database import (
    EXPERIMENT,
    artifacts_uri,
    check_database,
    connect,
    connect_alone,
    create_database,
    database_uri,
    place_of,
)
from harness.records.tracking.kept_models import kept_model
from harness.records.tracking.run_contents import candidate_run, trial_runs
from harness.records.tracking.run_writer import HeldRun, RunWriter
from harness.records.tracking.runs import RunContent, Span, source_tags
from harness.records.tracking.saved_views import experiment_tags

if TYPE_CHECKING:
    from mlflow import MlflowClient

Tags = Mapping[str, str]
_RUNS_TOGETHER = 50
"""In one transaction, of a second or two: that many are lost where a process is killed, and others wait that long."""


class Tracker:
    """Writes sweeps to `<results_root>/mlflow.db`, or to the server that MLFLOW_TRACKING_URI names."""

    def __init__(self, results_root: Path) -> None:
        self.root = results_root.resolve()
        server = os.environ.get("MLFLOW_TRACKING_URI", "")
        self._is_remote = server.startswith(("http://", "https://"))
        self.uri = server if self._is_remote else database_uri(self.root)
        self._client: MlflowClient
        self._together: Callable[[], AbstractContextManager[None]] = nullcontext
        self._writer: RunWriter
        self._experiment = ""  # until `prepare`
        self._experiment_tags: dict[str, str] = {}
        self._plan: Plan | None = None
        self._sweep: HeldRun | None = None
        self._span = Span()
        self._runs: dict[str, HeldRun] = {}

    @property
    def place(self) -> str:
        """Return where runs are written, as people know it."""
        return place_of(self.uri) if self._is_remote else str(self.root / "mlflow.db")

    def prepare(self) -> None:
        """Import MLflow and create the database and the experiment, unless this was done.

        Raises:
            DataError: The database is locked, damaged or another version's.
        """
        if self._experiment:
            return
        if self._is_remote:
            self._client = connect(self.uri)
        else:
            create_database(self.root)
            check_database(self.root)
            self._client, self._together = connect_alone(self.root)
        known = self._client.get_experiment_by_name(EXPERIMENT)
        if known and known.lifecycle_stage == "deleted":
            self._client.restore_experiment(known.experiment_id)
        self._experiment_tags = dict(known.tags) if known else {}
        self._experiment = known.experiment_id if known else self._create_experiment()
        self._writer = RunWriter(self._client, self._experiment)

    def _create_experiment(self) -> str:
        try:
            return str(
                self._client.create_experiment(EXPERIMENT, None if self._is_remote else artifacts_uri(self.root))
            )
        except Exception:  # Another sweep may have been faster.
            if known := self._client.get_experiment_by_name(EXPERIMENT):
                return str(known.experiment_id)
            raise

    def sync(self, results: Results, point_tags: Mapping[str, Tags] | None = None) -> None:
        """Make MLflow equal to the journal: write what is missing there, and nothing twice.

        Args:
            results: What the journal says of the sweep; trials that were not begun get no run.
            point_tags: What only the whole table says of each point, by its id, once that is known.
        """
        self.prepare()
        wanted: list[tuple[RunContent, str, Tags]] = []
        for trial in results.trials:
            if trial.is_begun:
                run, *points = self._runs_of(trial)
                tags_of_points = [(point_tags or {}).get(point.key, {}) for point in points]
                wanted.append((run, "", _joined_tags(tags_of_points)))
                for point, tags in zip(points, tags_of_points, strict=True):
                    wanted.append((point, run.key, tags))
        for study in results.studies:
            for candidate in study.candidates:
                wanted.append((candidate_run(study, candidate), "", {}))
        self._span = Span.around([content.span for content, parent, _ in wanted if not parent])
        sweep = self._open(results.plan)
        for start in range(0, len(wanted), _RUNS_TOGETHER):
            with self._together():
                for content, parent, tags in wanted[start : start + _RUNS_TOGETHER]:
                    nested = {"mlflow.parentRunId": (self._runs[parent] if parent else sweep).run_id, **tags}
                    if parent:
                        nested["sweep_run"] = sweep.run_id
                    self._runs[content.key] = self._writer.fill(self._runs.get(content.key), content, nested)
        if results.measured:
            for name, value in experiment_tags(results, sweep.started_ms).items():
                if self._experiment_tags.get(name) != value:
                    self._client.set_experiment_tag(self._experiment, name, value)
                    self._experiment_tags[name] = value

    def _runs_of(self, trial: TrialResults) -> list[RunContent]:
        """Return what the runs of a trial and of its points are to hold, and the models that were kept."""
        run, *points = trial_runs(trial)
        artifacts, contents = Artifacts(self.root / "artifacts"), [run]
        for point, content in zip(trial.measured, points, strict=True):
            if artifacts.has("erased", kept_name(content.key, point.made.code if point.made else "")):
                model = kept_model(point, self.root.name)
                contents.append(replace(content, spec=trial.spec, model=model))
            else:
                contents.append(content)
        return contents

    def log_trial(self, plan: Plan, trial: TrialResults) -> None:
        """Write what is new in one trial of a sweep that is running."""
        self.sync(Results(plan, (trial,)))
        assert self._sweep is not None
        self._writer.end(self._sweep, "RUNNING", self._span)

    def finish(self, paths: Iterable[Path], answer: str = "") -> None:
        """End the synced sweep's run, attach the files among `paths` that exist, unless they are, and describe it.

        A report that shows samples in plain text is not attached.
        """
        if self._sweep is None or self._plan is None:
            raise RuntimeError("finish needs a sweep: call sync first")
        shows_texts = self._plan.samples == "plain"
        files = {path.name: path for path in paths if path.exists() and not (path.suffix == ".html" and shows_texts)}
        self._writer.attach(self._sweep, files)
        if answer:
            self._writer.write(self._sweep, {}, {}, {"mlflow.note.content": answer})
        status = "FINISHED"
        for spec in self._plan.trials:
            run = self._runs.get(spec.trial_id)
            if run is None or run.status == "RUNNING":
                status = "KILLED"
            elif run.status == "FAILED" and status == "FINISHED":
                status = "FAILED"
        self._writer.end(self._sweep, status, self._span)

    def _open(self, plan: Plan) -> HeldRun:
        """Look for the sweep's run or create it, and load what the runs in it hold."""
        if self._sweep is None or self._plan is None or self._plan.sweep != plan.sweep:
            identity = {"kind": "sweep", "sweep": plan.sweep}
            if self._is_remote:  # Others may have a sweep of that name there.
                identity["results"] = str(self.root)
            sweeps = self._writer.search("tags.kind = 'sweep'")
            self._sweep = next((run for run in sweeps if identity.items() <= run.tags.items()), None)
            if self._sweep is None:
                name = {"mlflow.runName": plan.sweep, "mlflow.note.content": plan.question}
                self._sweep = self._writer.create({**identity, **name, **source_tags(plan.sweep)}, self._span)
            self._runs = {}
            for tag in ("mlflow.parentRunId", "sweep_run"):
                for run in self._writer.search(f"tags.{tag} = '{self._sweep.run_id}'"):
                    self._runs[run.tags.get("point_id", run.tags.get("trial_id", ""))] = run
            for model in list(self._writer.models.search(f"tags.sweep_run = '{self._sweep.run_id}'")):
                made_by = self._runs.get(model.tags.get("point_id", ""))
                if made_by and made_by.run_id == model.run_id and not made_by.model:
                    made_by.model = model
                else:  # Somebody deleted its run.
                    self._writer.models.delete(model)
        self._plan = plan
        return self._sweep


def _joined_tags(tags_of_points: Iterable[Tags]) -> dict[str, str]:
    values: dict[str, set[str]] = {}
    for tags in tags_of_points:
        for name, value in tags.items():
            values.setdefault(name, set()).add(value)
    return {name: ", ".join(sorted(of_tag)) for name, of_tag in values.items()}
