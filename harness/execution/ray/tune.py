"""Runs a wave of jobs as Ray Tune trials, here or on the cluster at RAY_ADDRESS.

Tune places jobs and restarts a job once if its process died. On CPUs one worker process runs many jobs; on GPUs, and
with plugins of other packages, each job has its own.
"""

import gc
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from harness.errors import StorageError
from harness.execution import isolate
from harness.execution.job import Event, Executor, Folders, Job, Watcher, record_exceeded, record_failure
from harness.execution.ray import session
from harness.planning import machine
from harness.settings import replace

import ray  # isort: skip
from ray import tune  # isort: skip
from ray.tune.execution import class_cache  # isort: skip
from ray.tune.experiment import Trial as RayTrial  # isort: skip

class_cache.ENV_VARS_TO_PROPAGATE &= session.PASSED_BY_TUNE
if session.IS_LOCAL:  # Workers inherit them; an actor with variables of its own could use no worker that has started.
    class_cache.ENV_VARS_TO_PROPAGATE = set()
    class_cache.DEFAULT_ENV_VARS.clear()

RUN_JOB = "harness.execution.trial:run_job"
_REMEDY = "Lower `training.micro_batch`, or give each trial more `resources.cpus`, so that fewer run at once."
_SHORT_OF_MEMORY = f"WorkerDied: its process was stopped because memory ran short. {_REMEDY}"
_DIED = "WorkerDied: its process ended before the job did, and did so again: killed, or crashed"


@contextmanager
def ray_executor(*, work: str = RUN_JOB) -> Iterator[Executor]:
    """Yield an executor in a session of Ray; workers call `work`: `module:function` of (job, folders, watcher)."""
    with session.ray_session() as temporary:
        yield partial(_run, temporary, work)


def _run(temporary: Path, work: str, jobs: Sequence[Job], folders: Folders, watch: Watcher) -> None:
    if not session.IS_LOCAL:
        folders = replace(folders, inputs=machine.node_inputs([job.spec for job in jobs], folders.plan_file))
    # Tune does not know of a trial's own workers, so only trials with equally many run at the same time.
    for workers in sorted({job.spec.engine.workers for job in jobs}):
        chains = [job.chain() for job in jobs if job.spec.engine.workers == workers]
        reporter = _Reporter({job.name: job for chain in chains for job in chain}, folders, watch)
        while open_jobs := reporter.first_open(chains):
            with suppress(_EndedError):
                _tuner(open_jobs, folders, reporter, work, temporary).fit()
            if reporter.unwritable:
                raise StorageError(reporter.unwritable)
            if reporter.is_room_held:
                session.stop()
                session.start(temporary)
                reporter.is_room_held = False


class _EndedError(Exception):
    """Nothing more can run in this session, or at all."""


def _tuner(jobs: Sequence[Job], folders: Folders, reporter: "_Reporter", work: str, temporary: Path) -> tune.Tuner:
    specs, has = [job.spec for job in jobs], ray.cluster_resources()
    job_by_name = {job.name: job for job in jobs}
    # Tune starts one worker after the other unless as many trials may be pending.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(1, int(has.get("CPU", 1))))

    def trainable(config: dict[str, str]) -> None:
        _run_job(work, job_by_name[config["job"]], folders)

    def resources(config: dict[str, str]) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory([session.trial_resources(job_by_name[config["job"]].spec)])

    return tune.Tuner(
        tune.with_resources(trainable, resources),
        param_space={"job": tune.grid_search(list(job_by_name))},
        tune_config=tune.TuneConfig(
            max_concurrent_trials=session.trials_at_once(specs, has) or None,
            reuse_actors=all(spec.gpus == 0 for spec in specs) and not isolate.has_outside_plugins(specs),
            trial_name_creator=lambda trial: trial.config["job"],
            trial_dirname_creator=lambda trial: f"{trial.config['job']}-{trial.trial_id}",
        ),
        run_config=tune.RunConfig(
            name=f"wave-{time.monotonic_ns()}", storage_path=str(temporary / "tune"), verbose=0, callbacks=[reporter]
        ),
    )


class _Reporter(tune.Callback):  # type: ignore[misc]
    def __init__(self, job_by_name: dict[str, Job], folders: Folders, watch: Watcher) -> None:
        self._job_by_name, self._folders, self._watch = job_by_name, folders, watch
        self._end_by_trial: dict[RayTrial, float] = {}
        self._over: set[str] = set()
        self._running = dict(job_by_name)
        """The job of each chain that runs, by the first one's name."""
        self.is_room_held = False
        """A trial with workers died, and Ray keeps their resources reserved until the session ends."""
        self.unwritable = ""
        """Why a record could not be written; nor could the next ones."""
        self._lost_jobs: set[str] = set()
        """Jobs whose process, or one of its workers, died once."""
        self._raised: dict[str, tuple[str, list[str]]] = {}
        """Error and log of jobs that raised."""

    def __reduce__(self) -> tuple[type[tune.Callback], tuple[()]]:
        # Tune pickles its parts for a restore that never comes; a watcher may not be picklable.
        return tune.Callback, ()

    def first_open(self, chains: Sequence[Sequence[Job]]) -> list[Job]:
        """Return the first job of each chain that is not over."""
        return [left[0] for chain in chains if (left := [job for job in chain if job.name not in self._over])]

    def on_step_begin(self, iteration: int, trials: list[RayTrial], **info: Any) -> None:
        if self.is_room_held or self.unwritable:
            self._end_by_trial.clear()
            raise _EndedError
        for trial in [trial for trial, end in self._end_by_trial.items() if time.monotonic() > end]:
            del self._end_by_trial[trial]
            job = self._running[trial.config["job"]]
            self._over.add(job.name)
            record_exceeded(job, self._folders, self._watch)
            ray.kill(trial.temporary_state.ray_actor)  # It may hang in code that no signal reaches.

    def on_trial_result(
        self, iteration: int, trials: list[RayTrial], trial: RayTrial, result: dict[str, Any], **info: Any
    ) -> None:
        job = self._running[trial.config["job"]]
        if "refusal" in result:
            for each in job.chain():
                record_failure(each, self._folders, self._watch, result["refusal"], ())
        elif "raised" in result:
            self._raised[job.name] = result["raised"], result["log"]
        else:
            event = Event(**result["event"])
            job = self._running[trial.config["job"]] = self._job_by_name[event.job]
            if event.kind in ("finished", "failed"):
                self._over.add(job.name)
            if event.kind == "started" and job.spec.time_limit is not None:
                self._end_by_trial[trial] = time.monotonic() + 60 * job.spec.time_limit
            self._watch(event)

    def on_trial_complete(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        self._end_by_trial.pop(trial, None)
        self._over |= {job.name for job in self._job_by_name[trial.config["job"]].chain()}

    def on_trial_error(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        self._end_by_trial.pop(trial, None)
        job = self._running[trial.config["job"]]
        self.is_room_held |= job.spec.engine.workers > 1
        is_short_of_memory = "low on memory" in Path(trial.error_file).read_text(errors="replace")
        error, log = self._raised.pop(job.name, (_SHORT_OF_MEMORY if is_short_of_memory else _DIED, []))
        if error.startswith("StorageError: "):
            self.unwritable = error.removeprefix("StorageError: ")
        elif job.name in self._over:
            return  # It ran too long, which is recorded.
        elif job.name in self._lost_jobs:
            self._over.add(job.name)
            record_failure(job, self._folders, self._watch, error, log)
        else:
            self._lost_jobs.add(job.name)
            self._watch(Event(job=job.name, kind="lost", message="its process died: it is tried once more"))


def _run_job(work: str, job: Job, folders: Folders) -> None:
    try:
        run = resolve_name(work)
        gc.freeze()  # No collection looks through imported modules, which stay and take .2 seconds each time.
        if folders.inputs is not None:
            job = replace(job, node=session.node_name())
            inputs = machine.node_inputs([job.spec], folders.plan_file)
            if clause := machine.input_differences(folders.inputs, inputs):
                tune.report({"refusal": f"NodeError: {job.node} {clause}."})
                return
        run(job, folders, lambda event: tune.report({"event": event.model_dump()}))
    except Exception as error:
        sentence, log = isolate.failure_for_report(error, job.spec.samples)
        tune.report({"raised": sentence, "log": log})
        raise
