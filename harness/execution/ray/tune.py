"""Runs a wave of jobs as Ray Tune trials, here or on the cluster at RAY_ADDRESS.

Tune places jobs and restarts a job once if its process died; the journal contains the finished points. Events come back
through `tune.report`. On CPUs one worker process runs many jobs, since imports take seconds. On GPUs, and with plugins
of other packages, each job has its own.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from harness.errors import StorageError, WorkerDiedError
from harness.execution.environment import input_differences, inputs_of
from harness.execution.isolate import has_outside_plugins
from harness.execution.job import Event, Executor, Folders, Job, Watcher, record_exceeded, record_failure
from harness.execution.ray.session import node_name, ray_session, restart, trial_resources, trials_at_once
from harness.execution.ray.settings import IS_LOCAL, PASSED_BY_TUNE
from harness.execution.redact import failure_for_report, line_for_report, log_for_report
from harness.settings import replace

import ray  # isort: skip
from ray import tune  # isort: skip
from ray.tune.execution import class_cache  # isort: skip
from ray.tune.experiment import Trial  # isort: skip

class_cache.ENV_VARS_TO_PROPAGATE &= PASSED_BY_TUNE
if IS_LOCAL:  # Workers inherit them; an actor with variables of its own could not use those that Ray has started.
    class_cache.ENV_VARS_TO_PROPAGATE = set()
    class_cache.DEFAULT_ENV_VARS.clear()

RUN_JOB = "harness.execution.trial.run:run_job"
_MAX_LOG_LINES = 40
_SHORT_OF_MEMORY = (
    "WorkerDied: its process was stopped because memory ran short. Close what else needs memory, lower "
    "`training.micro_batch`, or give each trial more `resources.cpus`, so that fewer run at once."
)
_DIED = "WorkerDied: its process ended before the job did, and did so again: killed, or crashed"
_DEATH = re.compile(r"^The (actor|worker|node)\b|\b(actor|worker|node) (has )?(died|crashed)", re.IGNORECASE)


@contextmanager
def ray_executor(*, work: str = RUN_JOB) -> Iterator[Executor]:
    """Yield an executor within a session of Ray.

    Args:
        work: `module:function` of (job, folders, watcher), called in a worker.

    Raises:
        ExecutorError: Ray did not start.
    """
    with ray_session() as temporary:
        yield partial(_run, temporary, work)


def _run(temporary: Path, work: str, jobs: Sequence[Job], folders: Folders, watch: Watcher) -> None:
    if not IS_LOCAL:
        folders = replace(
            folders, inputs=inputs_of([job.spec for job in jobs], [folders.results / "journal" / "plan.json"])
        )
    # Tune does not know of a trial's own workers, so only trials with equally many run at the same time.
    for workers in sorted({job.spec.engine.workers for job in jobs}):
        alike = [job for job in jobs if job.spec.engine.workers == workers]
        reporter = _Reporter({job.name: job for job in alike}, folders, watch)
        while alike:
            try:
                _tuner(alike, folders, reporter, work, temporary).fit()
                break
            except _RoomHeldError:
                restart(temporary)
                alike = [job for job in alike if job.name not in reporter.over]


class _RoomHeldError(Exception):
    """A trial with workers died, and Ray keeps their resources reserved."""


def _tuner(jobs: Sequence[Job], folders: Folders, reporter: _Reporter, work: str, temporary: Path) -> tune.Tuner:
    specs, has = [job.spec for job in jobs], ray.cluster_resources()
    job_by_name = {job.name: job for job in jobs}
    # Tune starts one worker after the other unless as many trials may be pending.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(1, int(has.get("CPU", 1))))

    def trainable(config: dict[str, str]) -> None:
        _run_job(work, job_by_name[config["job"]], folders)

    def resources(config: dict[str, str]) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory([trial_resources(job_by_name[config["job"]].spec)])

    return tune.Tuner(
        tune.with_resources(trainable, resources),
        param_space={"job": tune.grid_search(list(job_by_name))},
        tune_config=tune.TuneConfig(
            max_concurrent_trials=trials_at_once(specs, has) or None,
            reuse_actors=all(spec.gpus == 0 for spec in specs) and not has_outside_plugins(specs),
            trial_name_creator=lambda trial: trial.config["job"],
            trial_dirname_creator=lambda trial: f"{trial.config['job']}-{trial.trial_id}",
        ),
        run_config=tune.RunConfig(
            name=f"wave-{time.monotonic_ns()}",
            storage_path=str(temporary / "tune"),
            verbose=0,
            callbacks=[reporter],
            failure_config=tune.FailureConfig(max_failures=1),
        ),
    )


class _Reporter(tune.Callback):  # type: ignore[misc]
    """Forwards events of Tune's trials, records failures and stops trials at their time limit."""

    def __init__(self, job_by_name: dict[str, Job], folders: Folders, watch: Watcher) -> None:
        self._job_by_name, self._folders, self._watch = job_by_name, folders, watch
        self._end_by_trial: dict[Trial, float] = {}
        """Monotonic seconds at which a running trial's time is over."""
        self.over: set[str] = set()
        self._is_room_held = False
        self._lost: set[str] = set()
        """Jobs with workers whose own process died once."""
        self._exceeded: set[str] = set()
        self._died: dict[str, tuple[str, list[str]]] = {}
        """Error and last log lines of jobs with a dead worker."""

    def __reduce__(self) -> tuple[type[tune.Callback], tuple[()]]:
        # Tune pickles its parts for a restore that never comes; a watcher may not be picklable.
        return tune.Callback, ()

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        for trial in [trial for trial, end in self._end_by_trial.items() if time.monotonic() > end]:
            del self._end_by_trial[trial]
            self._exceeded.add(trial.config["job"])
            trial.max_failures = 0
            ray.kill(trial.temporary_state.ray_actor)  # It may hang in code that no signal reaches.
        if self._is_room_held:
            self._is_room_held = False
            self._end_by_trial.clear()
            raise _RoomHeldError

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        job = self._job_by_name[trial.config["job"]]
        if "refusal" in result:
            record_failure(job, self._folders, self._watch, result["refusal"], ())
        elif "died" in result:
            self._died[job.name] = result["died"], result["log"]
        else:
            event = Event(**result["event"])
            if event.kind == "started" and job.spec.time_limit is not None:
                self._end_by_trial[trial] = time.monotonic() + 60 * job.spec.time_limit
            self._watch(event)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._end_by_trial.pop(trial, None)
        self.over.add(trial.config["job"])

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._end_by_trial.pop(trial, None)
        _raise_if_unwritable(trial)
        job = self._job_by_name[trial.config["job"]]
        if job.spec.engine.workers > 1 and _has_died(_report_of(trial)):
            self._is_room_held = True
            if job.name in self._lost:
                self.over.add(job.name)
                record_failure(job, self._folders, self._watch, *_postmortem(trial, job))
                return
            self._lost.add(job.name)
        self._watch(Event(job=trial.config["job"], kind="lost", message="its process died: it is tried once more"))

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._end_by_trial.pop(trial, None)
        job = self._job_by_name[trial.config["job"]]
        self.over.add(job.name)
        self._is_room_held |= job.spec.engine.workers > 1 and _has_died(_report_of(trial))
        if job.name in self._exceeded:
            record_exceeded(job, self._folders, self._watch)
            return
        _raise_if_unwritable(trial)
        error, log = self._died.get(job.name) or _postmortem(trial, job)
        record_failure(job, self._folders, self._watch, error, log)


def _run_job(work: str, job: Job, folders: Folders) -> None:
    """Run a job in a worker, if its node has the driver's inputs."""
    import torch

    if folders.inputs is not None:
        job = replace(job, node=node_name())
        if clauses := input_differences(folders.inputs, folders.inputs.like()):
            tune.report({"refusal": f"NodeError: {job.node} {'; it '.join(clauses)}."})
            return
    torch.set_num_threads(max(1, job.spec.cpus))
    run = resolve_name(work)
    gc.freeze()  # No collection looks through what was imported, which stays and takes .2 seconds each time.
    try:
        run(job, folders, lambda event: tune.report({"event": event.model_dump()}))
    except WorkerDiedError as error:
        sentence, log = failure_for_report(error, job.spec.samples)
        tune.report({"died": sentence, "log": log})
        raise


def _report_of(trial: Trial) -> list[str]:
    text = re.sub(r"\x1b\[\d+m", "", Path(trial.error_file).read_text(errors="replace"))
    return [line for line in text.splitlines()[1:] if line.strip(" ^")]


def _has_died(report: list[str]) -> bool:
    return any(_DEATH.search(line) for line in report[:2])


def _raise_if_unwritable(trial: Trial) -> None:
    """End the sweep if a job could not write its record."""
    _, found, message = _report_of(trial)[-1].partition("StorageError: ")
    if found:
        raise StorageError(message)


def _postmortem(trial: Trial, job: Job) -> tuple[str, list[str]]:
    """Return a job's error and the last lines of its log."""
    report = _report_of(trial)
    log = log_for_report(report[-_MAX_LOG_LINES:], job.spec.samples)
    if any("low on memory" in line for line in report):
        return _SHORT_OF_MEMORY, log
    return _DIED if _has_died(report) else line_for_report(report[-1], job.spec.samples), log
