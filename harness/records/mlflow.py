"""The copy of a sweep in MLflow, on disk or on a server, and the view on which its page opens.

Runs contain numbers, settings and digests: no samples or error messages, and no notes but the training's losses, hence
no text of the forget set. MLflow is imported late, since that takes seconds.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import quote, urlsplit

from harness.base.files import digest_of, locked
from harness.base.messages import tell
from harness.base.settings import flatten_texts
from harness.contracts import Json, Metric, Number, parse_metric
from harness.errors import DataError, LetheError
from harness.records.journal import DIRTY, parse_time
from harness.records.results import PointResults, Results, TrialResults, point_name
from harness.settings import Plan, Trial

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_VIEW = "mlflow.sharedViewState."
_STATUS = {"done": "FINISHED", "failed": "FAILED", "missing": "RUNNING"}


class RunContent(NamedTuple):
    """The content of one run."""

    key: str
    """Unique in the sweep."""
    tags: dict[str, str]
    settings: dict[str, Json]
    numbers: dict[tuple[str, int], float]
    """By name and step."""
    status: str
    started_ms: int
    ended_ms: int

    @property
    def params(self) -> dict[str, str]:
        """Return the settings as MLflow's texts."""
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in self.settings.items()}
        return {_legal(name): text for name, text in texts.items()}

    @property
    def metrics(self) -> list[tuple[str, int, float]]:
        """Return the finite numbers: name, step, value."""
        return [(_legal(name), step, value) for (name, step), value in self.numbers.items() if math.isfinite(value)]


def trial_run(trial: TrialResults) -> RunContent:
    """Return a trial's run; the step of a number is its strength if all are whole, else the strength's index."""
    spec, strengths = trial.spec, [point.strength for point in trial.points]
    numbers: dict[tuple[str, int], float] = {}
    integers = [strength for strength in strengths if isinstance(strength, int)]
    steps = integers if len(integers) == len(strengths) else range(len(strengths))
    for point, step in zip(trial.points, steps, strict=True):
        numbers |= {(name, step): value for name, value in _numbers(point).items()}
    for point in trial.points:
        losses = point.made.notes.get("loss_by_step", ()) if point.made else ()
        numbers |= {("training/loss", step): loss for step, loss in enumerate(losses, start=1)}
    tags = _tags(spec, "trial", spec.strengths[0] if len(spec.strengths) == 1 else None)
    tags |= _measured_tags(trial, trial.points, trial.stop.reason if trial.stop else "")
    tags["strengths"] = ", ".join(f"{strength:g}" for strength in strengths if strength is not None) or "none"
    error = trial.failure.error if trial.failure else "none"
    exception = re.match(r"[A-Za-z_][\w.]*(?=:|$)", error)  # Its message may quote a text.
    tags["error"] = exception.group() if exception else "see the journal"
    tags["versions"] = ", ".join(" ".join(item) for item in trial.versions[-1].items()) if trial.versions else "none"
    started, ended = map(milliseconds, trial.written or (None, None))
    # Records have whole seconds; a short trial begins and ends in one.
    seconds = sum(measurement.seconds for point in trial.points for measurement in point.measurements)
    started = min(started, ended - int(seconds * 1000))
    return RunContent(spec.trial_id, tags, run_settings(spec), numbers, _STATUS[trial.status], started, ended)


def point_run(trial: TrialResults, point: PointResults) -> RunContent:
    """Return a point's run, a row of the table; it starts when the model was erased."""
    spec, strength = point.spec, point.strength
    numbers = {(name, 0): value for name, value in _numbers(point).items()}
    settings, key = run_settings(spec), spec.point_id(strength)
    if strength is not None:
        settings |= {"strength": strength, f"settings.{spec.strength_name}": strength}
    tags = _tags(spec, "point", strength) | _measured_tags(trial, (point,), point.stop_reason)
    is_whole = strength not in dict(trial.remaining)
    ends = [milliseconds(measurement.at) for measurement in point.measurements]
    starts = [end - int(each.seconds * 1000) for end, each in zip(ends, point.measurements, strict=True)]
    starts += [milliseconds(point.made.at)] if point.made else []
    status = "FINISHED" if is_whole else _STATUS[trial.status]
    return RunContent(key, tags | {"point_id": key}, settings, numbers, status, min(starts), max(ends))


def run_settings(spec: Trial) -> dict[str, Json]:
    """Return a trial's settings by dotted path; reference rows have no settings of a method."""
    names = ("variant", "method", "method_version", "label", "seed", "strength_name")
    settings: dict[str, Json] = {name: getattr(spec, name) for name in names}
    settings |= {"engine": str(spec.engine), "model": spec.model.id, "model_digest": spec.model.digest}
    if not spec.is_reference:
        settings |= flatten_texts({"settings": spec.settings, "training": spec.training.describe()})
    return settings


def erased_tags(point: PointResults, results: Path, table_tags: Mapping[str, str]) -> dict[str, str]:
    """Return the folder of a point's erased model, and the command that exports it; nothing for a broken model."""
    spec, kept_in = point.spec, f"artifacts/erased/{point.erased_key}"
    is_sound = table_tags and "true" not in (table_tags.get("collapsed"), table_tags.get("over_erased"))
    if not is_sound or not (results / kept_in).exists():
        return {}
    name, out = f"{spec.sweep}:{spec.point_id(point.strength)}", f"{spec.sweep}-{point_name(point)}"
    folder = [] if results.name == "results" else ["--results", results.name]
    return {"kept_in": kept_in, "export": shlex.join(["lethe", "export", name, *folder, "--out", out])}


def milliseconds(at: str | None) -> int:
    """Return a record's time in milliseconds; 0 if unknown."""
    return int(parse_time(at).timestamp() * 1000) if at else 0


def _tags(spec: Trial, kind: str, strength: Number | None) -> dict[str, str]:
    at = "" if strength is None else f"{spec.strength_name} {strength:g}"
    name = ", ".join(filter(None, [spec.label, str(spec.until or ""), at, spec.model.id, f"seed {spec.seed}"]))
    tags = {"mlflow.runName": name, "mlflow.source.name": f"sweep {spec.sweep}", "mlflow.source.type": "LOCAL"}
    tags |= {name: getattr(spec, name) for name in ("variant", "method", "trial_id")}
    return tags | {"kind": kind, "model": spec.model.id}


def _measured_tags(trial: TrialResults, points: Sequence[PointResults], stop_reason: str) -> dict[str, str]:
    not_finite = {name for point in points for name, value in _numbers(point).items() if not math.isfinite(value)}
    definitions = {measurement.definition for point in points for measurement in point.measurements}
    tags = {"forget_digest": trial.spec.forget.digest, "stop_reason": stop_reason or "none"}
    for name, values in (("definition", definitions), ("not_finite", not_finite)):
        tags[name] = ", ".join(sorted(values)) or "none"
    for attempt in trial.attempts[-1:]:
        tags |= {"node": attempt.node, "mlflow.source.git.commit": attempt.commit.removesuffix(DIRTY)}
    return {name: value for name, value in tags.items() if value}


def _numbers(point: PointResults) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, metric in _declared([point]).items():
        if point.spec.shows(metric.group, metric.items) and metric.name in point.numbers:
            numbers[name] = value = point.numbers[metric.name]
            if _is_unbounded(metric) and 0 < value < math.inf:
                numbers[_logarithm(name)] = math.log10(value)
    numbers["resources/measure_seconds"] = sum(measurement.seconds for measurement in point.measurements)
    if point.made:
        numbers["resources/erase_seconds"] = point.made.erase_seconds
        if point.made.peak_memory_bytes is not None:
            numbers["resources/peak_memory_bytes"] = point.made.peak_memory_bytes
    return numbers


def _legal(name: str) -> str:
    return re.sub(r"[^\w\-./: ]", "_", name)


def _declared(points: Iterable[PointResults]) -> dict[str, Metric]:
    declared: dict[str, Metric] = {}
    for point in points:
        for measurement in point.measurements:
            declared |= {f"{metric.group}/{metric.name}": metric for metric in map(parse_metric, measurement.metrics)}
    return declared


def _is_unbounded(metric: Metric) -> bool:
    """Return whether a metric is logged as its logarithm: MLflow's charts have no such scale."""
    return metric.axis is not None and math.isinf(metric.high)


def _logarithm(name: str) -> str:
    group, _, metric = name.partition("/")
    return f"{group}/log10_{metric}"


def experiment_tags(results: Results, made_ms: int) -> dict[str, str]:
    """Return the experiment's kind, and the sweep's two views in the form that MLflow's page saves.

    One has the points: table, trade-off (erasure upwards, generation across), and parallel coordinates. The other has a
    line of each trial through its strengths, in the method's colour, and its loss by step.
    """
    sweep, declared = results.plan.sweep, _declared(results.measured)
    run_name, columns = "attributes.`Run Name`", _columns(declared)
    saved = json.loads(Path(__file__).with_name("mlflow_view.json").read_text(encoding="utf-8"))
    layout = {"selectedColumns": columns, "columnOrder": [run_name, *columns], "columnWidths": {run_name: 330}}
    tags = {"mlflow.experimentKind": "custom_model_development"}
    for kind, key, charts in zip(("point", "trial"), (sweep, f"{sweep}: lines"), _charts(declared, saved), strict=True):
        state = saved["state"] | layout | {"searchFilter": f"tags.kind = '{kind}' AND tags.sweep = '{sweep}'"}
        state["compareRunCharts"] = charts
        view = {"name": f"{sweep}: {kind}s", "createdAt": made_ms, "updatedAt": made_ms, "state": json.dumps(state)}
        tags[_VIEW + _legal(key)] = json.dumps(view)
    return tags


def _columns(declared: Mapping[str, Metric]) -> list[str]:
    ranked = sorted((name for name, metric in declared.items() if metric.ranked), key=lambda name: declared[name].group)
    params = [f"params.`{name}`" for name in ("variant", "strength", "training.learning_rate")]
    metrics = [f"metrics.`{_legal(name)}`" for name in ranked]
    return [*params, *metrics, "tags.`collapse_class`", "tags.`over_erased`", "tags.`ranked`"]


def _charts(declared: Mapping[str, Metric], saved: Mapping[str, Any]) -> tuple[list[Json], list[Json]]:
    unbounded, axes = {name for name, metric in declared.items() if _is_unbounded(metric)}, {}
    for group in ("generation", "erasure"):
        names = [name for name, metric in declared.items() if metric.group == group and metric.axis is not None]
        # Perplexity, the cost of comparisons, comes first.
        names.sort(key=lambda name: (group == "generation" and name not in unbounded, declared[name].axis))
        axes[group] = [_legal(_logarithm(name) if name in unbounded else name) for name in names]
    points, lines = list[Json](), list[Json]()
    for number, (x, y) in enumerate(zip(axes["generation"], axes["erasure"], strict=False)):
        both = {"xaxis": {"key": x, "type": "METRIC"}, "yaxis": {"key": y, "type": "METRIC"}}
        points.append({**saved["scatter"], "uuid": f"scatter-{number}", **both})
        across = {"xAxisKey": "metric", "selectedXAxisMetricKey": x, "metricKey": y, "selectedMetricKeys": [y]}
        lines.append({**saved["line"], "uuid": f"line-{number}", **across})
    points.append({**saved["parallel"], "selectedMetrics": [*axes["erasure"], *axes["generation"]]})
    return points, [*lines, {**saved["line"], **saved["loss"]}]


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
    """Update a sweep's runs from its results, delete others, and end the sweep's run; repetition changes nothing.

    Trials without records get no run. Files are attached if they exist; a report with plain samples never is.
    """
    with _open_copy(folder, results.plan) as copy:
        sweep = copy.write(results, point_tags)
        for run in copy.runs.values():
            copy.client.delete_run(run.info.run_id)
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
    """Return a client of the server in MLFLOW_TRACKING_URI, or of the results folder's database."""
    from mlflow import MlflowClient

    for noisy in ("mlflow", "alembic", "urllib3.connectionpool"):  # The caller reports a failure once.
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
        raise DataError(f"there is no {root}/mlflow.db. Run a sweep first: lethe sweep FILE.")
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # This server serves the database.
    if experiment := connect(root).get_experiment_by_name(EXPERIMENT):  # MLflow's front page shows chat traces.
        views = f"http://{host}:{port}/#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning"
        for name in sorted(tag.removeprefix(_VIEW) for tag in experiment.tags if tag.startswith(_VIEW)):
            tell(f"{name}, in a moment: {views}&compareRunsMode=CHART&viewStateShareKey={quote(name)}")
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
        run = self.runs.pop("sweep", None)
        if run is None:
            tags = {**self.identity, "kind": "sweep", "mlflow.note.content": plan.question}
            started = min((milliseconds(at) for trial in results.trials for at in trial.written), default=None)
            run = self.client.create_run(self.experiment, started, tags, run_name=plan.sweep)
        sweep = str(run.info.run_id)
        for trial in results.trials:
            if trial.is_begun:
                points = [(point_run(trial, point), point) for point in trial.measured]
                tags_of_points = [set(point_tags.get(content.key, {}).items()) for content, _ in points]
                shared = set.intersection(*tags_of_points) if points else set()
                parent = self.put(trial_run(trial), sweep, dict(shared))
                for content, point in points:
                    table_tags = point_tags.get(content.key, {})
                    self.put(content, parent, {**erased_tags(point, self.root, table_tags), **table_tags})
        if results.measured:
            for name, value in experiment_tags(results, run.info.start_time).items():
                self.client.set_experiment_tag(self.experiment, name, value)
        return sweep

    def put(self, content: RunContent, parent: str, more_tags: Mapping[str, str]) -> str:
        """Write a run and return its id; an interrupted run, or one with other numbers or settings, is replaced."""
        from mlflow.entities import Metric, Param, RunTag

        run, start = self.runs.pop(content.key, None), content.started_ms
        digest = digest_of([content.params, content.metrics, content.status, start, content.ended_ms])
        tags = {**self.identity, **content.tags, **more_tags, "mlflow.parentRunId": parent, "content": digest}
        if run and (run.data.tags.get("content"), run.info.status) == (digest, content.status):
            changed_tags = [RunTag(name, value) for name, value in tags.items() if run.data.tags.get(name) != value]
            if changed_tags:
                self.client.log_batch(run.info.run_id, tags=changed_tags)
            for name in run.data.tags:
                if name not in tags and name.partition(".")[0] in ("export", "kept_in", "excess"):
                    self.client.delete_tag(run.info.run_id, name)
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
