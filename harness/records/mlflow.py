"""The copy of a sweep in MLflow, on disk or on a server; `mlflow_runs` makes the content of each run.

MLflow is imported late, since that takes seconds.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from harness.base.files import digest_of, locked
from harness.base.messages import tell
from harness.errors import DataError, LetheError
from harness.records import mlflow_runs
from harness.records.results import Results, TrialResults
from harness.settings import Plan

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_LOG = logging.getLogger(__name__)
EXPERIMENT = "lethe"
LOOPBACK = "127.0.0.1"
PointTags = Mapping[str, Mapping[str, str]]
"""Tags that depend on the whole table, by point id."""
_DEFAULTS = {"DISABLE_TELEMETRY": "true", "SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
# Ten seconds for a server's answer, and one retry. Jitter would consume random numbers of a trial in this process.
_DEFAULTS |= {"HTTP_REQUEST_TIMEOUT": "10", "HTTP_REQUEST_MAX_RETRIES": "1", "HTTP_REQUEST_BACKOFF_FACTOR": "1"}
_DEFAULTS |= {"HTTP_RESPECT_RETRY_AFTER_HEADER": "false", "HTTP_REQUEST_BACKOFF_JITTER": "0"}
# Set at import: after a trial only the variables of the process's start are restored.
for _name, _value in _DEFAULTS.items():
    os.environ.setdefault(f"MLFLOW_{_name}", _value)


class LiveCopy:
    """Copies a running sweep to MLflow; the first failure ends that with a warning."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._is_broken = folder.resolve(), False

    def attempt(self, copy: Callable[..., None], *arguments: Any) -> None:
        """Call `copy_trial` or `copy_sweep` with the sweep's folder and `arguments`."""
        if self._is_broken:
            return
        try:
            copy(self._folder, *arguments)
        except Exception as error:
            self._is_broken = True
            reason = describe_failure(error, self._folder.parent)
            _LOG.warning("%s The sweep needs no MLflow: lethe collate %s fills it in later.", reason, self._folder)


def copy_trial(folder: Path, plan: Plan, trial: TrialResults) -> None:
    """Write one trial's runs of an unfinished sweep."""
    with _open_copy(folder, plan, f" AND tags.trial_id = '{trial.spec.trial_id}'") as copy:
        copy.client.update_run(copy.write(Results(plan, (trial,)), {}), "RUNNING")


def copy_sweep(
    folder: Path, results: Results, point_tags: PointTags, files: Iterable[Path] = (), answer: str = ""
) -> None:
    """Update a sweep's runs from its results, and end the sweep's run; repeated calls change nothing.

    Trials without records get no run. Files are attached if they exist; a report with plain samples never is.
    """
    with _open_copy(folder, results.plan) as copy:
        sweep = copy.write(results, point_tags)
        for file in files:
            if file.exists() and not (file.suffix == ".html" and results.plan.samples == "plain"):
                copy.client.log_artifact(sweep, str(file))
        if answer:
            copy.client.set_tag(sweep, "mlflow.note.content", answer)
        statuses = set(results.statuses.values())
        status = "KILLED" if "missing" in statuses else "FAILED" if "failed" in statuses else "FINISHED"
        ended = max((mlflow_runs.milliseconds(at) for trial in results.trials for at in trial.written), default=None)
        copy.client.set_terminated(sweep, status, ended)


def connect(root: Path) -> MlflowClient:
    """Return a client of the server in MLFLOW_TRACKING_URI, or of the results folder's database."""
    from mlflow import MlflowClient

    for noisy in ("mlflow", "alembic", "urllib3.connectionpool"):  # What fails is reported once, by the caller.
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    if server := _server():
        return MlflowClient(server)
    database, unfinished = root / "mlflow.db", root / ".mlflow-unfinished.db"
    with _locked(root):
        if not database.exists():  # MLflow does not repair one whose creation was interrupted.
            unfinished.unlink(missing_ok=True)
            MlflowClient(f"sqlite:///{unfinished}")
            unfinished.rename(database)
    try:  # MLflow itself would try for minutes.
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("SELECT version_num FROM alembic_version")
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        raise DataError(
            f"{database} cannot be read as a database of MLflow ({name}). If no other program holds it, move it away: "
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
    system = os.strerror(cause.errno) if isinstance(cause, OSError) and isinstance(cause.errno, int) else ""
    kinds = " from ".join(dict.fromkeys([type(error).__name__, type(cause).__name__]))
    code = getattr(cause, "sqlite_errorname", system)
    frame = extract_tb(error.__traceback__)[-1]
    location = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"MLflow at {describe_store(root)} failed: {kinds}{f' ({code})' if code else ''}, raised in {location}."


def serve_dashboard(results_root: Path, port: int, host: str) -> NoReturn:
    """Replace this process by MLflow's web server."""
    root = results_root.resolve()
    if not (root / "mlflow.db").exists():
        raise DataError(f"there is no {root}/mlflow.db. Run a sweep first: python -m harness.sweep FILE.")
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # This server serves the database.
    experiment = connect(root).get_experiment_by_name(EXPERIMENT)
    if experiment:  # MLflow's front page shows chat traces.
        for name, page in mlflow_runs.view_addresses(experiment.experiment_id, experiment.tags).items():
            tell(f"{name}, in a moment: http://{host}:{port}/{page}")
    if host != LOOPBACK:
        tell(f"Anybody who reaches {host}:{port} can read and delete every run: it asks for no password.")
    tell("MLflow's telemetry is off. Ctrl-C ends the dashboard.")
    names = "*" if host == "0.0.0.0" else ",".join(f"{name}:{port}" for name in {host, LOOPBACK, "localhost"})
    server = [f"--{kind}-store-uri=sqlite:///{root}/mlflow.db" for kind in ("backend", "registry")]
    server += [f"--artifacts-destination={(root / 'mlartifacts').as_uri()}", "--workers=1", f"--allowed-hosts={names}"]
    command = [sys.executable, "-m", "mlflow", "server", *server, f"--host={host}", f"--port={port}"]
    variables = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    os.execve(sys.executable, command, {**os.environ, **variables, "PYTHONWARNINGS": "ignore"})


def _server() -> str:
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    return uri if uri.startswith(("http://", "https://")) else ""


def _locked(root: Path) -> AbstractContextManager[None]:
    # SQLite fails at once where two writers meet.
    lock = root / ".mlflow-lock"
    busy = f"another process has held {lock} for ten minutes. End the sweep or lethe collate that is stuck."
    return locked(lock, wait=600, busy=busy)


@contextmanager
def _open_copy(folder: Path, plan: Plan, condition: str = "") -> Iterator[_Copy]:
    root = folder.parent
    client = connect(root)
    with _locked(root):
        if not (experiment := client.get_experiment_by_name(EXPERIMENT)):
            artifacts = None if _server() else (root / "mlartifacts").as_uri()
            experiment = client.get_experiment(client.create_experiment(EXPERIMENT, artifacts))
        if experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        # A server may have another results folder's sweep of the same name.
        identity = {"sweep": plan.sweep} | ({"results": str(root)} if _server() else {})
        copy = _Copy(client, experiment.experiment_id, root, identity)
        copy.look_up(" AND tags.kind = 'sweep'")
        copy.look_up(condition)
        yield copy


@dataclass(frozen=True)
class _Copy:
    """A sweep's runs in MLflow that were looked up."""

    client: MlflowClient
    experiment: str
    root: Path
    identity: Mapping[str, str]
    """Tags that identify this sweep's runs."""
    runs: dict[str, Run] = field(default_factory=dict)

    def look_up(self, condition: str) -> None:
        """Find the sweep's runs that meet a condition.

        One of two runs with the same key is deleted: restoring an experiment brings replaced runs back.
        """
        ours = " AND ".join(f"tags.{name} = '{value}'" for name, value in self.identity.items())
        for run in self.client.search_runs([self.experiment], ours + condition, max_results=50_000):
            key = run.data.tags.get("point_id", run.data.tags.get("trial_id", "sweep"))
            if self.runs.setdefault(key, run).info.run_id != run.info.run_id:
                self.client.delete_run(run.info.run_id)

    def write(self, results: Results, point_tags: PointTags) -> str:
        """Write the runs and the view of a sweep; return the id of the sweep's run."""
        plan = results.plan
        if "sweep" not in self.runs:
            tags = {**self.identity, "kind": "sweep", "mlflow.note.content": plan.question}
            moments = [mlflow_runs.milliseconds(at) for trial in results.trials for at in trial.written]
            started = min(moments, default=None)
            self.runs["sweep"] = self.client.create_run(self.experiment, started, tags, run_name=plan.sweep)
        sweep = str(self.runs["sweep"].info.run_id)
        for trial in results.trials:
            if trial.is_begun:
                points = [(mlflow_runs.point_run(trial, point), point) for point in trial.measured]
                tags_of_points = [set(point_tags.get(content.key, {}).items()) for content, _ in points]
                shared = set.intersection(*tags_of_points) if points else set()
                parent = self.put(mlflow_runs.trial_run(trial), sweep, dict(shared))
                for content, point in points:
                    table_tags = point_tags.get(content.key, {})
                    self.put(content, parent, {**mlflow_runs.erased_tags(point, self.root, table_tags), **table_tags})
        if results.measured:
            for name, value in mlflow_runs.experiment_tags(results, self.runs["sweep"].info.start_time).items():
                self.client.set_experiment_tag(self.experiment, name, value)
        return sweep

    def put(self, content: mlflow_runs.RunContent, parent: str, more_tags: Mapping[str, str]) -> str:
        """Write a run and return its id; an interrupted run, or one with other numbers or settings, is replaced."""
        from mlflow.entities import Metric, Param, RunTag

        run, start = self.runs.get(content.key), content.started_ms
        digest = digest_of([content.params, content.metrics, content.status, start, content.ended_ms])
        tags = {**self.identity, **content.tags, **more_tags, "mlflow.parentRunId": parent, "content": digest}
        if run and (run.data.tags.get("content"), run.info.status) == (digest, content.status):
            changed_tags = [RunTag(name, value) for name, value in tags.items() if run.data.tags.get(name) != value]
            self.client.log_batch(run.info.run_id, tags=changed_tags)
            return str(run.info.run_id)
        if run:
            self.client.delete_run(run.info.run_id)
        # Without a name MLflow would consume random numbers of a trial in this process.
        run_id = self.client.create_run(self.experiment, start, tags, run_name=tags["mlflow.runName"]).info.run_id
        metrics = [Metric(name, value, start, step) for name, step, value in content.metrics]
        self.client.log_batch(run_id, metrics, [Param(*param) for param in content.params.items()])
        if content.status != "RUNNING":
            self.client.set_terminated(run_id, content.status, content.ended_ms)
        return str(run_id)
