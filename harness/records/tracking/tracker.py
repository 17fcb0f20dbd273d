"""The journal as MLflow runs: a sweep's, in it each trial's and each candidate's, and in a trial's each point's.

`Tracker.sync` makes MLflow equal to the journal, however often it is called and whatever it finds,
so that a killed sweep, a lost database and a live run need no code of their own. The driver, or
`lethe track`, is the only writer. MLflow gets numbers, settings and digests: no notes, samples or
error messages, and so no text of the forget set.

MLflow is imported when first needed: that, and creating the database, take several seconds. What may go wrong here is
raised as it is; `live_tracking` keeps it, and all waiting, from a sweep.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from harness.plans import Plan
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
from harness.records.tracking.run_contents import candidate_run, trial_runs
from harness.records.tracking.run_writer import HeldRun, RunWriter
from harness.records.tracking.runs import RunContent, Span, commit_tag
from harness.records.tracking.saved_views import EXPERIMENT_TAGS, points_view, view_tag

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
            point_tags: What only the whole table tells of each point, by its id, once that is known.
        """
        self.prepare()
        trials = [trial_runs(trial) for trial in results.trials if trial.is_begun]
        candidates = [candidate_run(study, candidate) for study in results.studies for candidate in study.candidates]
        self._span = Span.around([content.span for content in (*(trial for trial, *_ in trials), *candidates)])
        sweep = self._open(results.plan)
        wanted: list[tuple[RunContent, str, Tags]] = []
        for trial, *points in trials:
            of_points = [(point_tags or {}).get(point.key, {}) for point in points]
            wanted.append((trial, "", _summed(of_points)))
            wanted += [
                (point, trial.key, {**tags, "sweep_run": sweep.run_id})
                for point, tags in zip(points, of_points, strict=True)
            ]
        wanted += [(candidate, "", {}) for candidate in candidates]
        for start in range(0, len(wanted), _RUNS_TOGETHER):
            with self._together():
                for content, parent, tags in wanted[start : start + _RUNS_TOGETHER]:
                    self._fill(content, self._runs[parent] if parent else sweep, tags)
        if results.measured:
            state = points_view(results)
            self._set_experiment_tags({**EXPERIMENT_TAGS, **view_tag(results.plan.sweep, state, sweep.started_ms)})

    def log_trial(self, plan: Plan, trial: TrialResults) -> None:
        """Write what is new in one trial of a sweep that is running."""
        self.sync(Results(plan, (trial,)))
        assert self._sweep is not None
        self._writer.end(self._sweep, "RUNNING", self._span)

    def finish(self, paths: Iterable[Path]) -> None:
        """End the synced sweep's run, and attach the files among `paths` that exist, unless they are attached.

        A report that shows samples in plain text is not attached.
        """
        if self._sweep is None or self._plan is None:
            raise RuntimeError("finish needs a sweep: call sync first")
        shows_texts = self._plan.samples == "plain"
        files = {path.name: path for path in paths if path.exists() and not (path.suffix == ".html" and shows_texts)}
        self._writer.attach(self._sweep, files)
        runs = [self._runs.get(spec.trial_id) for spec in self._plan.trials]
        ends = {run.status if run else "RUNNING" for run in runs}
        failed = "FAILED" if "FAILED" in ends else "FINISHED"
        self._writer.end(self._sweep, "KILLED" if "RUNNING" in ends else failed, self._span)

    def _open(self, plan: Plan) -> HeldRun:
        """Find or create the sweep's run, and load what the runs in it hold."""
        if self._sweep is None or self._plan is None or self._plan.sweep != plan.sweep:
            identity = {"kind": "sweep", "sweep": plan.sweep}
            if self._is_remote:  # Others may have a sweep of that name there.
                identity["results"] = str(self.root)
            found = self._writer.search("tags.kind = 'sweep'")
            sweep = next((run for run in found if identity.items() <= run.tags.items()), None)
            name = {"mlflow.runName": plan.sweep, "mlflow.note.content": plan.question}
            self._sweep = sweep or self._writer.create({**identity, **name, **commit_tag()}, self._span)
            self._runs = {run.tags.get("point_id", run.tags.get("trial_id", "")): run for run in self._nested()}
        self._plan = plan
        return self._sweep

    def _nested(self) -> Iterator[HeldRun]:
        assert self._sweep is not None
        yield from self._writer.search(f"tags.mlflow.parentRunId = '{self._sweep.run_id}'")
        yield from self._writer.search(f"tags.sweep_run = '{self._sweep.run_id}'")

    def _fill(self, content: RunContent, parent: HeldRun, tags: Tags) -> HeldRun:
        nested = {"mlflow.parentRunId": parent.run_id, **tags}
        held = self._runs[content.key] = self._writer.fill(self._runs.get(content.key), content, nested)
        return held

    def _set_experiment_tags(self, tags: Tags) -> None:
        for name, value in tags.items():
            if self._experiment_tags.get(name) != value:
                self._client.set_experiment_tag(self._experiment, name, value)
                self._experiment_tags[name] = value


def _summed(of_points: Iterable[Tags]) -> dict[str, str]:
    """Return the tags of a trial's points as one value each: `false, true`."""
    values: dict[str, dict[str, None]] = {}
    for tags in of_points:
        for name, value in tags.items():
            values.setdefault(name, {})[value] = None
    return {name: ", ".join(sorted(of_tag)) for name, of_tag in values.items()}
