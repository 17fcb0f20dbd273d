"""The copy of a sweep in MLflow, on disk or on a server. `mlflow_runs` has what each run holds.

MLflow is imported when it is first needed, which takes seconds, as creating its database does.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from traceback import extract_tb
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from harness.base.files import digest_of, locked
from harness.base.messages import tell
from harness.errors import DataError, LetheError
from harness.records.artifacts import Artifacts
from harness.records.mlflow_runs import (
    RunContent,
    candidate_run,
    experiment_tags,
    kept_tags,
    milliseconds,
    point_run,
    source_tags,
    trial_run,
    view_addresses,
)
from harness.records.results import Results, TrialResults
from harness.settings import Plan

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_LOG = logging.getLogger(__name__)
EXPERIMENT = "lethe"
PointTags = Mapping[str, Mapping[str, str]]
"""By a point's id: what only the whole table shows of it."""
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A server has ten seconds for an answer, and a second try.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    # Jitter is drawn from the random numbers that a trial in this process draws from.
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
}
# Here, since what is set while a module is imported is nobody's accident: after a trial it stays.
for _name, _value in _DEFAULTS.items():
    os.environ.setdefault(_name, _value)


class LiveCopy:
    """Copies a sweep to MLflow while it runs, in a thread; the first failure ends that with one warning.

    The thread is a daemon: a sweep that is interrupted does not wait for it.

    Args:
        folder: `results/<sweep>`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._is_over = folder.resolve(), False
        self._steps: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="mlflow", daemon=True)

    def __enter__(self) -> LiveCopy:
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        self._steps.put(None)

    def start(self) -> None:
        """Import MLflow and create the database, so that the first trial need not wait."""
        self._steps.put(lambda: connect(self._folder.parent))
        self._thread.start()

    def log_trial(self, plan: Plan, trial: TrialResults) -> None:
        """Have a trial's runs written; return at once."""
        self._steps.put(lambda: copy_trial(self._folder, plan, trial))

    def finish(self, results: Results, point_tags: PointTags, files: Iterable[Path], answer: str) -> None:
        """Have the whole sweep written as `copy_sweep` does, and wait for that."""
        self._steps.put(lambda: copy_sweep(self._folder, results, point_tags, files, answer))
        self._steps.put(None)
        self._thread.join()

    def _work(self) -> None:
        try:
            while (step := self._steps.get()) and not self._is_over:
                step()
        except Exception as error:
            if not self._is_over:
                reason = failure_of(error, self._folder.parent)
                _LOG.warning("%s The sweep needs no MLflow: lethe collate %s fills it in later.", reason, self._folder)


def copy_trial(folder: Path, plan: Plan, trial: TrialResults) -> None:
    """Write the runs of one trial of a sweep that goes on."""
    with _opened(folder, plan, f" AND tags.trial_id = '{trial.spec.trial_id}'") as copy:
        sweep = copy.write(Results(plan, (trial,)), {})
        copy.client.update_run(sweep, "RUNNING")


def copy_sweep(
    folder: Path, results: Results, point_tags: PointTags, files: Iterable[Path] = (), answer: str = ""
) -> None:
    """Make a sweep's runs equal to its journal, however often it is called, and end the sweep's run.

    Args:
        folder: `results/<sweep>`.
        results: What the journal holds of the sweep; a trial that was not begun gets no run.
        point_tags: What only the whole table shows of each point, by its id.
        files: Those that exist are attached, but for a report with samples in plain text.
        answer: What the sweep found, as Markdown.
    """
    with _opened(folder, results.plan) as copy:
        sweep = copy.write(results, point_tags)
        for file in files:
            if file.exists() and not (file.suffix == ".html" and results.plan.samples == "plain"):
                copy.client.log_artifact(sweep, str(file))
        if answer:
            copy.client.set_tag(sweep, "mlflow.note.content", answer)
        statuses = set(results.statuses.values())
        status = "KILLED" if "missing" in statuses else "FAILED" if "failed" in statuses else "FINISHED"
        ended = max((milliseconds(at) for trial in results.trials for at in trial.written), default=None)
        copy.client.set_terminated(sweep, status, ended)


def connect(root: Path) -> MlflowClient:
    """Return a client of the server that MLFLOW_TRACKING_URI names, or of the database in a results folder.

    Raises:
        DataError: What is there is no database of MLflow.
    """
    from mlflow import MlflowClient

    for noisy in ("mlflow", "alembic", "urllib3.connectionpool"):  # What fails is reported once, by the caller.
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    if server := _server():
        return MlflowClient(server)
    database, unfinished = root / "mlflow.db", root / ".mlflow-unfinished.db"
    with _alone(root):
        if not database.exists():  # MLflow does not mend one that it was making when it was killed.
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


def place_of(root: Path) -> str:
    """Return where runs are written, as people know it: without the password that a server's address may hold."""
    if server := _server():
        address = urlsplit(server)
        return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
    return str(root / "mlflow.db")


def failure_of(error: Exception, root: Path) -> str:
    """Return what failed as a sentence without the message of a library or a server, which may quote anything."""
    if isinstance(error, LetheError):
        return str(error)
    cause: BaseException = error
    while earlier := cause.__cause__ or cause.__context__:
        cause = earlier
    system = os.strerror(cause.errno) if isinstance(cause, OSError) and isinstance(cause.errno, int) else ""
    kinds = " from ".join(dict.fromkeys([type(error).__name__, type(cause).__name__]))
    named = getattr(cause, "sqlite_errorname", system)
    last = extract_tb(error.__traceback__)[-1]
    at = f"{Path(last.filename).name}, line {last.lineno}"
    return f"MLflow at {place_of(root)} failed: {kinds}{f' ({named})' if named else ''}, raised in {at}."


def serve_dashboard(results_root: Path, port: int = 5000) -> NoReturn:
    """Become MLflow's web server for these results, on 127.0.0.1 only.

    Raises:
        DataError: Nothing has been written here yet, or no database of MLflow.
    """
    root = results_root.resolve()
    if not (root / "mlflow.db").exists():
        raise DataError(f"there is no {root}/mlflow.db. Run a sweep first: python -m harness.sweep FILE.")
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # This server has the database.
    known = connect(root).get_experiment_by_name(EXPERIMENT)
    if known:  # MLflow's own front page is that of chat traces.
        for name, page in view_addresses(known.experiment_id, known.tags).items():
            tell(f"{name}, in a moment: http://127.0.0.1:{port}/{page}")
    stores = ["--backend-store-uri", f"sqlite:///{root}/mlflow.db"]
    stores += ["--artifacts-destination", (root / "mlartifacts").as_uri()]
    server = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", "server", *stores, *server]
    os.execve(sys.executable, command, {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"})


def _server() -> str:
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    return uri if uri.startswith(("http://", "https://")) else ""


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Keep other sweeps and `lethe collate` out: SQLite refuses a writer at once that read while another one wrote."""
    lock = root / ".mlflow-lock"
    busy = f"another process has held {lock} for ten minutes. End the sweep or lethe collate that is stuck."
    with locked(lock, wait=600, busy=busy):
        yield


@contextmanager
def _opened(folder: Path, plan: Plan, only: str = "") -> Iterator[_Copy]:
    root = folder.parent
    client = connect(root)
    with _alone(root):
        if not (experiment := client.get_experiment_by_name(EXPERIMENT)):
            artifacts = None if _server() else (root / "mlartifacts").as_uri()
            experiment = client.get_experiment(client.create_experiment(EXPERIMENT, artifacts))
        if experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        # On a server others may have a sweep of that name.
        identity = {"sweep": plan.sweep} | ({"results": str(root)} if _server() else {})
        copy = _Copy(client, experiment.experiment_id, Artifacts(root / "artifacts"), identity)
        for condition in (" AND tags.kind = 'sweep'", only):
            copy.look_up(condition)
        yield copy


@dataclass(frozen=True)
class _Copy:
    """A sweep's runs in MLflow, as far as they were looked up."""

    client: MlflowClient
    experiment: str
    artifacts: Artifacts
    identity: Mapping[str, str]
    """Tags of all runs of this sweep, and of no others."""
    runs: dict[str, Run] = field(default_factory=dict)

    def look_up(self, condition: str) -> None:
        """Find the runs of this sweep that meet a condition; of two with one key one is deleted.

        There are two where MLflow restored an experiment with the runs that had been replaced.
        """
        ours = " AND ".join(f"tags.{name} = '{value}'" for name, value in self.identity.items())
        for run in self.client.search_runs([self.experiment], ours + condition, max_results=50_000):
            key = run.data.tags.get("point_id", run.data.tags.get("trial_id", "sweep"))
            if self.runs.setdefault(key, run).info.run_id != run.info.run_id:
                self.client.delete_run(run.info.run_id)

    def write(self, results: Results, point_tags: PointTags) -> str:
        """Write the runs of a sweep, of its trials and of its candidates, and its view; return the sweep's id."""
        plan = results.plan
        if "sweep" not in self.runs:
            tags = {**self.identity, "kind": "sweep", "mlflow.note.content": plan.question, **source_tags(plan.sweep)}
            started = min((milliseconds(at) for trial in results.trials for at in trial.written), default=None)
            self.runs["sweep"] = self.client.create_run(self.experiment, started, tags, run_name=plan.sweep)
        sweep = str(self.runs["sweep"].info.run_id)
        for trial in results.trials:
            if trial.is_begun:
                points = [(point_run(trial, point), point) for point in trial.measured]
                tags_of_points = [set(point_tags.get(content.key, {}).items()) for content, _ in points]
                shared = set.intersection(*tags_of_points) if points else set()
                parent = self.put(trial_run(trial), sweep, dict(shared))
                for content, point in points:
                    self.put(content, parent, {**kept_tags(point, self.artifacts), **point_tags.get(content.key, {})})
        for study in results.studies:
            for candidate in study.candidates:
                self.put(candidate_run(study, candidate), sweep, {})
        if results.measured:
            for name, value in experiment_tags(results, self.runs["sweep"].info.start_time).items():
                self.client.set_experiment_tag(self.experiment, name, value)
        return sweep

    def put(self, content: RunContent, parent: str, more_tags: Mapping[str, str]) -> str:
        """Have a run hold what it is to hold, and return its id.

        One with other numbers or settings is replaced, and one that was cut off: it has not the status yet.
        """
        from mlflow.entities import Metric, Param, RunTag

        held, start = self.runs.get(content.key), content.started_ms
        digest = digest_of([content.params, content.metrics, content.status, start, content.ended_ms])
        tags = {**self.identity, **content.tags, **more_tags, "mlflow.parentRunId": parent, "content": digest}
        if held and (held.data.tags.get("content"), held.info.status) == (digest, content.status):
            changed = [RunTag(name, value) for name, value in tags.items() if held.data.tags.get(name) != value]
            self.client.log_batch(held.info.run_id, tags=changed)
            return str(held.info.run_id)
        if held:
            self.client.delete_run(held.info.run_id)
        # MLflow would draw a name from the random numbers that a trial in this process draws from.
        run = self.client.create_run(self.experiment, start, tags, run_name=tags["mlflow.runName"]).info.run_id
        metrics = [Metric(name, value, start, step) for name, step, value in content.metrics]
        self.client.log_batch(run, metrics, [Param(*param) for param in content.params.items()])
        if content.status != "RUNNING":
            self.client.set_terminated(run, content.status, content.ended_ms)
        return str(run)
