"""The copy of a sweep in MLflow, on disk or on a server; `mlflow_runs` makes the content of each run.

MLflow is imported late, since that takes seconds.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from harness.base.files import digest_of, locked
from harness.base.messages import tell
from harness.errors import DataError, LetheError
from harness.records import mlflow_runs
from harness.records.artifacts import Artifacts
from harness.records.results import Results

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_LOG = logging.getLogger(__name__)
EXPERIMENT = "lethe"
PointTags = Mapping[str, Mapping[str, str]]
"""Tags that depend on the whole table, by point id."""
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # Ten seconds for a server's answer, and one retry.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
}
os.environ.update(_DEFAULTS | dict(os.environ))


def copy_or_warn(folder: Path, results: Results, point_tags: PointTags, files: Iterable[Path], answer: str) -> None:
    """Copy a sweep by `copy_sweep`; a failure is a warning."""
    folder = folder.resolve()
    try:
        copy_sweep(folder, results, point_tags, files, answer)
    except Exception as error:
        reason = describe_failure(error, folder.parent)
        _LOG.warning("%s The sweep needs no MLflow: lethe collate %s fills it in later.", reason, folder)


def copy_sweep(
    folder: Path, results: Results, point_tags: PointTags, files: Iterable[Path] = (), answer: str = ""
) -> None:
    """Update a sweep's runs from its results; repeated calls change nothing.

    Args:
        folder: `results/<sweep>`.
        results: Its results; trials without records get no run.
        point_tags: Tags that depend on the whole table.
        files: Attached if they exist; a report with plain samples never is.
        answer: The sweep's answer as Markdown.
    """
    lock = folder.parent / ".mlflow-lock"  # SQLite fails at once where two writers meet.
    busy = f"another process has held {lock} for ten minutes. End the sweep or lethe collate that is stuck."
    with locked(lock, wait=600, busy=busy):
        copy = _Copy(folder.parent, results.plan.sweep)
        sweep = copy.write(results, point_tags)
        for file in files:
            if file.exists() and not (file.suffix == ".html" and results.plan.samples == "plain"):
                copy.client.log_artifact(sweep, str(file))
        copy.client.set_tag(sweep, "mlflow.note.content", answer or results.plan.question)
        statuses = set(results.statuses.values())
        status = "KILLED" if "missing" in statuses else "FAILED" if "failed" in statuses else "FINISHED"
        ended = max((mlflow_runs.milliseconds(at) for trial in results.trials for at in trial.written), default=None)
        copy.client.set_terminated(sweep, status, ended)


def connect(root: Path) -> MlflowClient:
    """Return a client of the server in MLFLOW_TRACKING_URI, or of the results folder's database.

    Raises:
        DataError: The file there is no MLflow database.
    """
    from mlflow import MlflowClient

    for noisy in ("mlflow", "alembic", "urllib3.connectionpool"):  # What fails is reported once, by the caller.
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    if server := _server():
        return MlflowClient(server)
    database = root / "mlflow.db"
    try:  # MLflow itself would try for minutes.
        if database.exists():
            with closing(sqlite3.connect(database)) as connection:
                connection.execute("SELECT version_num FROM alembic_version")
    except sqlite3.Error as error:
        raise DataError(
            f"{database} cannot be read as a database of MLflow ({error}). If no other program holds it, move it away: "
            f"a new one is made, and lethe collate fills it in for each sweep of {root}."
        ) from error
    return MlflowClient(f"sqlite:///{database}")


def describe_store(root: Path) -> str:
    """Return the server's address without a password, or the database's path."""
    if server := _server():
        address = urlsplit(server)
        return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
    return str(root / "mlflow.db")


def describe_failure(error: Exception, root: Path) -> str:
    """Return a sentence about a failure without the library's or server's message, which may quote anything."""
    if isinstance(error, LetheError):
        return str(error)
    cause: BaseException = error
    while earlier := cause.__cause__ or cause.__context__:
        cause = earlier
    kinds = " from ".join(dict.fromkeys([type(error).__name__, type(cause).__name__]))
    code = getattr(cause, "sqlite_errorname", getattr(cause, "strerror", None))
    frame = extract_tb(error.__traceback__)[-1]
    location = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"MLflow at {describe_store(root)} failed: {kinds}{f' ({code})' if code else ''}, raised in {location}."


def serve_dashboard(results_root: Path, port: int = 5000) -> NoReturn:
    """Replace this process by MLflow's web server on 127.0.0.1.

    Raises:
        DataError: There is no database, or it is not MLflow's.
    """
    root = results_root.resolve()
    if not (root / "mlflow.db").exists():
        raise DataError(f"there is no {root}/mlflow.db. Run a sweep first: python -m harness.sweep FILE.")
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # This server serves the database.
    experiment = connect(root).get_experiment_by_name(EXPERIMENT)
    if experiment:  # MLflow's front page shows chat traces.
        for name, page in mlflow_runs.view_addresses(experiment.experiment_id, experiment.tags).items():
            tell(f"{name}, in a moment: http://127.0.0.1:{port}/{page}")
    stores = ["--backend-store-uri", f"sqlite:///{root}/mlflow.db"]
    stores += ["--artifacts-destination", (root / "mlartifacts").as_uri()]
    server = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", "server", *stores, *server]
    os.execve(sys.executable, command, {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"})


def _server() -> str:
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    return uri if uri.startswith(("http://", "https://")) else ""


class _Copy:
    """A sweep's runs in MLflow, by their keys."""

    def __init__(self, root: Path, sweep: str) -> None:
        self.client, self.artifacts = connect(root), Artifacts(root / "artifacts")
        self.runs: dict[str, Run] = {}
        # A server may have another results folder's sweep of the same name.
        self.identity = {"sweep": sweep} | ({"results": str(root)} if _server() else {})
        if not (experiment := self.client.get_experiment_by_name(EXPERIMENT)):
            location = None if _server() else (root / "mlartifacts").as_uri()
            experiment = self.client.get_experiment(self.client.create_experiment(EXPERIMENT, location))
        self.experiment = str(experiment.experiment_id)
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(self.experiment)
        ours = " AND ".join(f"tags.{name} = '{value}'" for name, value in self.identity.items())
        for run in self.client.search_runs([self.experiment], ours, max_results=50_000):
            key = run.data.tags.get("point_id", run.data.tags.get("trial_id", "sweep"))
            if self.runs.setdefault(key, run) is not run:  # Restoring an experiment brings replaced runs back.
                self.client.delete_run(run.info.run_id)

    def write(self, results: Results, point_tags: PointTags) -> str:
        """Write the runs and the view of a sweep; return the id of the sweep's run."""
        plan = results.plan
        if "sweep" not in self.runs:
            tags = {**self.identity, "kind": "sweep", **mlflow_runs.source_tags(plan.sweep)}
            moments = [mlflow_runs.milliseconds(at) for trial in results.trials for at in trial.written]
            self.runs["sweep"] = self.client.create_run(
                self.experiment, min(moments, default=None), tags, run_name=plan.sweep
            )
        sweep = str(self.runs["sweep"].info.run_id)
        for trial in results.trials:
            if trial.is_begun:
                points = [(mlflow_runs.point_run(trial, point), point) for point in trial.measured]
                tags_of_points = [set(point_tags.get(content.key, {}).items()) for content, _ in points]
                shared = set.intersection(*tags_of_points) if points else set()
                parent = self.put(mlflow_runs.trial_run(trial), sweep, dict(shared))
                for content, point in points:
                    tags = mlflow_runs.erased_tags(point, self.artifacts)
                    self.put(content, parent, {**tags, **point_tags.get(content.key, {})})
        for study in results.studies:
            for candidate in study.candidates:
                self.put(mlflow_runs.candidate_run(study, candidate), sweep, {})
        if results.measured:
            for name, value in mlflow_runs.experiment_tags(results, self.runs["sweep"].info.start_time).items():
                self.client.set_experiment_tag(self.experiment, name, value)
        return sweep

    def put(self, content: mlflow_runs.RunContent, parent: str, more_tags: Mapping[str, str]) -> str:
        """Write a run and return its id; an interrupted run, or one with other content, is replaced."""
        from mlflow.entities import Metric, Param

        tags = {**self.identity, **content.tags, **more_tags, "mlflow.parentRunId": parent}
        tags["content"] = digest_of([tags, content.params, content.metrics, content.started_ms, content.ended_ms])
        if run := self.runs.get(content.key):
            if (run.data.tags.get("content"), run.info.status) == (tags["content"], content.status):
                return str(run.info.run_id)
            self.client.delete_run(run.info.run_id)
        start = content.started_ms
        run_id = self.client.create_run(self.experiment, start, tags, run_name=tags["mlflow.runName"]).info.run_id
        metrics = [Metric(name, value, start, step) for name, step, value in content.metrics]
        self.client.log_batch(run_id, metrics, [Param(*param) for param in content.params.items()])
        if content.status != "RUNNING":
            self.client.set_terminated(run_id, content.status, content.ended_ms)
        return str(run_id)
