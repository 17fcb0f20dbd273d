"""The journal as MLflow runs: one for a sweep and, nested in it, one for each trial and each candidate of its tuning.

`Tracker.sync` makes MLflow equal to the journal, however often it is called and whatever it finds,
so that a killed sweep, a lost database and a live run need no code of their own. The driver, or
`lethe track`, is the only writer. MLflow gets numbers, settings and digests: no notes, samples or
error messages, and so no text of the forget set.

MLflow is imported when first needed: that, and creating the database, take several seconds. What may go wrong here is
raised as it is; `live_tracking` keeps it, and all waiting, from a sweep.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.digests import digest_of, file_digest
from harness.plans import Plan
from harness.records.mlflow_database import (
    EXPERIMENT,
    artifacts_uri,
    check_database,
    connect,
    connect_alone,
    create_database,
    database_uri,
    place_of,
)
from harness.records.results import Results, TrialResults
from harness.records.runs import (
    Metrics,
    candidate_id,
    candidate_run,
    commit_tag,
    contradicts,
    metrics_of,
    params_of,
    tags_of,
)
from harness.specs import UNSEEN_ROWS, TrialSpec

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Run

_RUN_STATUS = {"done": "FINISHED", "failed": "FAILED", "missing": "RUNNING"}


@dataclass
class _Held:
    """What MLflow holds of a run, so that only what is new is written."""

    run_id: str
    status: str
    tags: dict[str, str]
    params: set[str]
    metrics: Metrics
    has_inputs: bool


class Tracker:
    """Writes sweeps to `<results_root>/mlflow.db`, or to the server that MLFLOW_TRACKING_URI names."""

    def __init__(self, results_root: Path) -> None:
        self.root = results_root.resolve()
        server = os.environ.get("MLFLOW_TRACKING_URI", "")
        self._is_remote = server.startswith(("http://", "https://"))
        self.uri = server if self._is_remote else database_uri(self.root)
        self._client: MlflowClient
        self._experiment = ""  # until `prepare`
        self._plan: Plan | None = None
        self._sweep: _Held | None = None
        self._trials: dict[str, _Held] = {}

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
            self._client = connect_alone(self.root)
        known = self._client.get_experiment_by_name(EXPERIMENT)
        if known and known.lifecycle_stage == "deleted":
            self._client.restore_experiment(known.experiment_id)
        self._experiment = known.experiment_id if known else self._create_experiment()

    def _create_experiment(self) -> str:
        try:
            return str(
                self._client.create_experiment(EXPERIMENT, None if self._is_remote else artifacts_uri(self.root))
            )
        except Exception:  # Another sweep may have been faster.
            if known := self._client.get_experiment_by_name(EXPERIMENT):
                return str(known.experiment_id)
            raise

    def sync(self, results: Results, collapsed: Mapping[str, str] | None = None) -> None:
        """Make MLflow equal to the journal: write what is missing there, and nothing twice.

        Args:
            results: What the journal says of the sweep; trials that were not begun get no run.
            collapsed: What the tag `collapsed` of a trial is to say, by trial id, once that is known.
        """
        self.prepare()
        self._open(results.plan)
        for trial in results.trials:
            if trial.is_begun:
                self._sync_trial(trial, (collapsed or {}).get(trial.spec.trial_id))
        for study in results.studies:
            for candidate in study.candidates:
                metrics, params, tags = candidate_run(study, candidate)
                held = self._child(candidate_id(candidate), metrics)
                self._write(held, metrics, params, tags)
                self._end(held, "FINISHED")

    def log_trial(self, plan: Plan, trial: TrialResults) -> None:
        """Write what is new in one trial of a sweep that is running."""
        self.sync(Results(plan, (trial,)))
        assert self._sweep is not None
        self._end(self._sweep, "RUNNING")

    def finish(self, paths: Iterable[Path]) -> None:
        """End the synced sweep's run, and attach the files among `paths` that exist, unless they are attached.

        A report that shows samples in plain text is not attached.
        """
        if self._sweep is None or self._plan is None:
            raise RuntimeError("finish needs a sweep: call sync first")
        shows_texts = self._plan.samples == "plain"
        files = {path.name: path for path in paths if path.exists() and not (path.suffix == ".html" and shows_texts)}
        self._attach(self._sweep, files)
        runs = [self._trials.get(spec.trial_id) for spec in self._plan.trials]
        ends = {run.status if run else "RUNNING" for run in runs}
        failed = "FAILED" if "FAILED" in ends else "FINISHED"
        self._end(self._sweep, "KILLED" if "RUNNING" in ends else failed)

    def _attach(self, held: _Held, files: Mapping[str, Path]) -> None:
        """Attach files to a run; the tag `attached`, written last, says of what content they are."""
        content = digest_of({name: file_digest(path) for name, path in files.items()})
        there = {file.path for file in self._client.list_artifacts(held.run_id)}
        if held.tags.get("attached") == content and files.keys() <= there:
            return
        for path in files.values():
            self._client.log_artifact(held.run_id, str(path))
        self._write(held, {}, {}, {"attached": content})

    def _open(self, plan: Plan) -> None:
        """Find or create the sweep's run, and load what its trials' runs hold."""
        if self._plan is None or self._plan.sweep != plan.sweep:
            identity = {"kind": "sweep", "sweep": plan.sweep}
            if self._is_remote:  # Others may have a sweep of that name there.
                identity["results"] = str(self.root)
            runs = self._search("tags.kind = 'sweep'")
            run = next((run for run in runs if identity.items() <= run.data.tags.items()), None)
            name = {"mlflow.runName": plan.sweep, "mlflow.note.content": plan.question}
            self._sweep = self._load(run) if run else self._create({**identity, **name, **commit_tag()})
            children = self._search(f"tags.mlflow.parentRunId = '{self._sweep.run_id}'")
            self._trials = {run.data.tags.get("trial_id", ""): self._load(run) for run in children}
        self._plan = plan

    def _sync_trial(self, trial: TrialResults, collapsed: str | None) -> None:
        spec = trial.spec
        before = self._trials.get(spec.trial_id)
        metrics, lost = metrics_of(trial, before.metrics if before else {})
        held = self._child(spec.trial_id, metrics)
        if not held.has_inputs:
            self._client.log_inputs(held.run_id, _inputs(spec))
            held.has_inputs = True
        tags = {**tags_of(trial), **({"collapsed": collapsed} if collapsed else {})}
        self._write(held, metrics, params_of(spec), {**tags, "not_finite": ", ".join(lost) or "none"})
        self._end(held, _RUN_STATUS[trial.status])

    def _child(self, name: str, metrics: Metrics) -> _Held:
        """Return the run of a trial or candidate, nested in the sweep's; a new one if its numbers are others."""
        held = self._trials.get(name)
        if held and contradicts(held.metrics, metrics):
            # Measured numbers cannot be changed in MLflow; another evaluator setting makes a new run.
            self._client.delete_run(held.run_id)
            held = None
        if held is None:
            assert self._sweep is not None
            # MLflow would draw a name from the random numbers that a trial in this process draws from.
            parent = {"mlflow.parentRunId": self._sweep.run_id, "trial_id": name, "mlflow.runName": name}
            held = self._trials[name] = self._create({**parent, **commit_tag()})
        return held

    def _create(self, tags: Mapping[str, str]) -> _Held:
        run = self._client.create_run(self._experiment, tags=dict(tags), run_name=tags.get("mlflow.runName"))
        return self._load(run)

    def _load(self, run: Run) -> _Held:
        histories = (self._client.get_metric_history(run.info.run_id, key) for key in run.data.metrics)
        return _Held(
            run_id=run.info.run_id,
            status=run.info.status,
            tags=dict(run.data.tags),
            params=set(run.data.params),
            metrics={(entry.key, entry.step): entry.value for history in histories for entry in history},
            has_inputs=bool(run.inputs and run.inputs.dataset_inputs),
        )

    def _search(self, condition: str) -> Iterator[Run]:
        token = None
        while True:
            page = self._client.search_runs([self._experiment], condition, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    def _write(self, held: _Held, metrics: Metrics, params: dict[str, str], tags: dict[str, str]) -> None:
        from mlflow.entities import Metric, Param, RunTag

        now = int(time.time() * 1000)
        new = {key: value for key, value in metrics.items() if key not in held.metrics}
        points = [Metric(name, value, now, step) for (name, step), value in new.items()]
        settings = [Param(key, value) for key, value in params.items() if key not in held.params]
        changed = [RunTag(key, value) for key, value in tags.items() if held.tags.get(key) != value]
        while points or settings or changed:
            self._client.log_batch(held.run_id, points[:700], settings[:100], changed[:100])
            points, settings, changed = points[700:], settings[100:], changed[100:]
        held.metrics |= new
        held.params |= params.keys()
        held.tags |= tags

    def _end(self, held: _Held, run_status: str) -> None:
        if held.status == run_status:
            return
        if run_status == "RUNNING":
            self._client.update_run(held.run_id, status=run_status)
        else:
            self._client.set_terminated(held.run_id, run_status)
        held.status = run_status


def _inputs(spec: TrialSpec) -> list[DatasetInput]:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    roles = ("forget", "retain", "utility", "validation")
    names = {"forget": spec.method} if spec.method in UNSEEN_ROWS else {}
    texts = [(names.get(role, role), getattr(spec, role)) for role in roles if getattr(spec, role) is not None]
    titles = [f"{role}: {text.source}" for role, text in texts]
    digests = [text.digest[:36] or "none" for _, text in texts]  # It takes no longer ones.
    return [
        DatasetInput(Dataset(name, digest, "digest", "{}"), [InputTag("mlflow.data.context", role)])
        for name, digest, (role, _) in zip(titles, digests, texts, strict=True)
    ]
