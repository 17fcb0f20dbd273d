"""Runs jobs as Ray Tune trials, on this machine or, where RAY_ADDRESS is set, on that cluster.

Ray only places jobs: what is done and what is left is the journal's business, so Tune's own
experiment folder is temporary. A job's events come back through `tune.report`. On CPUs one worker
process runs job after job, since a new one spends seconds on imports; on GPUs, and where a plugin of another package
is used, each job has its own.

On this machine Ray listens on the loopback interface alone, behind a token that exists only in the
environment of its own processes; when the driver is killed, they end too.
"""

from __future__ import annotations

import gc
import json
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from harness.errors import WorkerDiedError
from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.guard.redaction import Policy, failure_for_report, line_for_report, log_for_report
from harness.execution.guard.time_limits import Clocks, seconds_of
from harness.execution.isolate import has_outside_plugins
from harness.execution.job import Event, Folders, Job, Watcher
from harness.execution.job_queue import JobQueue
from harness.execution.ray.node_check import refusal
from harness.execution.ray.placement import trial_resources, trials_at_once
from harness.execution.ray.session import is_death, last_words, node_label, ray_session, ray_watched
from harness.execution.ray.temporary_folder import temporary_folder
from harness.execution.ray_settings import IS_LOCAL, PASSED_BY_TUNE, set_ray_environment
from harness.plans import StudySpec

set_ray_environment()

import ray  # noqa: E402
from ray import tune  # noqa: E402
from ray.tune.execution import class_cache  # noqa: E402
from ray.tune.experiment import Trial  # noqa: E402
from ray.tune.search import Searcher  # noqa: E402

class_cache.ENV_VARS_TO_PROPAGATE &= PASSED_BY_TUNE
if IS_LOCAL:  # Workers inherit them; an actor with variables of its own could not use those that Ray has started.
    class_cache.ENV_VARS_TO_PROPAGATE = set()
    class_cache.DEFAULT_ENV_VARS.clear()

RUN_JOB = "harness.execution.trial.run:run_job"
_LOG_LINES = 40
_SHORT_OF_MEMORY = (
    "WorkerDied: its process was stopped because memory ran short. Close what else needs memory, lower "
    "`training.micro_batch`, or give each trial more `resources.cpus`, so that fewer run at once."
)
_DIED = "WorkerDied: its process ended before the job did, and did so again: killed, or crashed"


def run_with_ray(
    jobs: Sequence[Job], folders: Folders, watch: Watcher, studies: Sequence[StudySpec] = (), *, work: str = RUN_JOB
) -> None:
    """Run every job, and every candidate of the studies, as a Ray Tune trial; return when all are over.

    Args:
        jobs: In the order of preference.
        folders: On a cluster, shared by all of its machines.
        watch: Called in this process.
        studies: Whose candidates are to be tried.
        work: `module:function`, called in a worker with a job, the folders and a watcher.

    Raises:
        StorageError: The journal, or Ray's temporary folder, cannot be written.
        ExecutorError: Ray itself died.
    """
    # Tune does not know of a trial's own workers, so only trials with equally many run at the same time.
    specs = [*(job.spec for job in jobs), *(study.trial for study in studies)]
    for workers in sorted({spec.engine.workers for spec in specs}):
        alike = [job for job in jobs if job.spec.engine.workers == workers]
        searched = [study for study in studies if study.trial.engine.workers == workers]
        with INTERRUPTION.watched():
            _run_alike(JobQueue(alike, folders, watch, studies=searched), work)


def _run_alike(queue: JobQueue, work: str) -> None:
    with temporary_folder() as temporary:
        for _ in range(queue.most_attempts):  # Every session that ends early uses up at least one of them.
            with ray_session(temporary) as has, ray_watched():
                queue.capacity = has if IS_LOCAL else None
                # Tune starts one worker after the other unless as many trials may be pending.
                os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(1, int(has.get("CPU", 1))))
                try:
                    _tuner(queue, temporary, work, trials_at_once(queue.specs, has)).fit()
                except _RoomHeldError:
                    queue.put_running_back()
                except RuntimeError as error:  # Tune breaks if a worker is stopped for memory while it starts.
                    if "low on memory" not in str(error) or not queue.lose_running(_SHORT_OF_MEMORY):
                        raise
            if queue.is_over():
                break
        queue.close("Ray ended before this job did")
        queue.check_writable()


class _RoomHeldError(Exception):
    """A trial with workers was killed: what Ray Train reserved for them may stay reserved in this session."""


class _Search(Searcher):  # type: ignore[misc]
    """Gives Tune one job after the other."""

    def __init__(self, queue: JobQueue) -> None:
        super().__init__()
        self._queue = queue

    def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
        # Tune pickles its parts for a restore that never comes; a watcher may not be picklable.
        return Searcher, ()

    def suggest(self, trial_id: str) -> dict[str, str] | str | None:
        job = self._queue.next()
        if job is not None:
            return {"job": json.dumps(job.to_json())}  # As text, since Tune would resolve references in data.
        return str(Searcher.FINISHED) if self._queue.is_over() else None

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Do nothing: `_Forward` gets this too, with the trial."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the journal is what a sweep resumes from."""


class _Forward(tune.Callback):  # type: ignore[misc]
    """Reports what happens to Tune's trials to the queue."""

    def __init__(self, queue: JobQueue, temporary: Path) -> None:
        self._queue = queue
        self._temporary = temporary
        self._clocks = Clocks()
        self._running: dict[str, Trial] = {}
        self._died: dict[str, tuple[str, list[str]]] = {}
        """Jobs of which a worker died: the error, and the workers' last lines."""
        self._is_room_held = False

    def __reduce__(self) -> tuple[type[tune.Callback], tuple[()]]:
        return tune.Callback, ()

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        for name in self._clocks.overdue():
            self._clocks.stop(name)
            trial = self._running[name]
            job = _job_of(trial.config)
            self._queue.exceed(job)
            ray.kill(trial.temporary_state.ray_actor)  # It may hang in code that no signal reaches.
            self._is_room_held |= job.spec.engine.workers > 1
        if self._is_room_held:
            raise _RoomHeldError

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        job = _job_of(trial.config)
        if "refusal" in result:
            self._queue.fail(job, result["refusal"])
        elif "died" in result:
            self._died[job.name] = result["died"], result["log"]
        else:
            event = Event(**result["event"])
            if event.kind == "started":
                self._running[job.name] = trial
                self._clocks.start(job.name, seconds_of(job.spec))
            self._queue.report(event)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        job = _job_of(trial.config)
        self._clocks.stop(job.name)
        if job.name in self._died:
            self._lose(job, *self._died.pop(job.name))
        else:
            self._queue.finish(job)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        job = _job_of(trial.config)
        self._clocks.stop(job.name)
        error, log, has_died = _postmortem(trial, self._temporary, job.spec.samples)
        if has_died:
            self._lose(job, error, log)
        else:
            self._queue.fail(job, error, log)

    def _lose(self, job: Job, error: str, log: list[str]) -> None:
        self._queue.lose(job, error, log)
        self._is_room_held |= job.spec.engine.workers > 1


def _job_of(config: dict[str, str]) -> Job:
    return Job.from_json(json.loads(config["job"]))


def _tuner(queue: JobQueue, temporary: Path, work: str, at_once: int) -> tune.Tuner:
    """Return the tuner; `at_once` bounds the trials that have workers of their own, 0 where they have none."""
    folders = queue.folders

    def trainable(config: dict[str, str]) -> None:
        _run_job(work, _job_of(config), folders)

    def resources(config: dict[str, str]) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory([trial_resources(_job_of(config).spec)])

    def name_of(trial: Trial) -> str:
        return _job_of(trial.config).name

    return tune.Tuner(
        tune.with_resources(trainable, resources),
        tune_config=tune.TuneConfig(
            search_alg=_Search(queue),
            num_samples=queue.most_attempts,
            max_concurrent_trials=at_once or None,
            reuse_actors=all(spec.gpus == 0 for spec in queue.specs) and not has_outside_plugins(queue.specs),
            trial_name_creator=name_of,
            trial_dirname_creator=lambda trial: f"{name_of(trial)}-{trial.trial_id}",  # Of each attempt.
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(temporary),
            verbose=0,
            callbacks=[_Forward(queue, temporary)],
            failure_config=tune.FailureConfig(max_failures=0),
        ),
    )


def _run_job(work: str, job: Job, folders: Folders) -> None:
    """Do one job, in a worker; on a cluster only where its node has what the driver has."""
    import torch

    if folders.marker is not None:
        node = ray.get_runtime_context().get_node_id()
        label = node_label(ray.util.get_node_ip_address(), socket.gethostname())
        if why_not := refusal(folders, node, label):
            tune.report({"refusal": why_not})
            return
        job = replace(job, node=label)
    torch.set_num_threads(max(1, job.spec.cpus))
    run = resolve_name(work)
    _freeze_imports()
    try:
        run(job, folders, lambda event: tune.report({"event": event.to_json()}))
    except WorkerDiedError as error:
        sentence, log = failure_for_report(error, job.spec.samples)
        tune.report({"died": sentence, "log": log})


@cache
def _freeze_imports() -> None:
    """Have no collection after this look through what was imported, which stays and takes .2 seconds each time."""
    gc.collect()
    gc.freeze()


def _postmortem(trial: Trial, temporary: Path, policy: Policy) -> tuple[str, list[str], bool]:
    """Return why a job failed, its worker's last lines as far as they may be kept, and whether the worker died."""
    text = re.sub(r"\x1b\[\d+m", "", Path(trial.error_file).read_text(errors="replace"))
    report = [line for line in text.splitlines()[1:] if line.strip(" ^")]
    if "low on memory" in text:
        return _SHORT_OF_MEMORY, log_for_report(report[-_LOG_LINES:], policy), True
    if not is_death(report):
        return line_for_report(report[-1], policy), log_for_report(report[-_LOG_LINES:], policy), False
    pid = re.search(r"pid: (\d+)", text)
    return _DIED, log_for_report((last_words(temporary, pid[1]) if pid else report)[-_LOG_LINES:], policy), True
