"""Runs a queue's jobs as Ray Tune trials, here or on the cluster at RAY_ADDRESS.

Tune takes a job when it has room. One whose process died runs once more. On CPUs one worker process runs many jobs; on
GPUs each job has its own.
"""

import gc
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from harness.errors import StorageError
from harness.execution import isolate
from harness.execution.jobs import Event, Executor, Folders, Job, JobQueue, record_exceeded, record_failure
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
_SHORT_OF_MEMORY = f"WorkerDiedError: its process was stopped because memory ran short. {_REMEDY}"
_DIED = "WorkerDiedError: its process ended before the job did, and did so again: killed, or crashed"


@contextmanager
def ray_executor(*, work: str = RUN_JOB) -> Iterator[Executor]:
    """Yield an executor in a session of Ray; workers call `work`: `module:function` of (job, folders, watcher)."""
    with session.ray_session() as temporary:
        yield partial(_run, temporary, work)


def _run(temporary: Path, work: str, queue: JobQueue) -> None:
    folders = queue.folders
    if not session.IS_LOCAL:
        folders = replace(folders, inputs=machine.node_inputs(queue.specs, folders.journal.plan_file))
    feeder = _Feeder(queue)
    while True:
        _tuner(feeder, folders, work, temporary).fit()
        if not feeder.is_room_held:
            return
        session.stop()
        session.start(temporary)
        feeder.is_room_held = False


def _tuner(feeder: "_Feeder", folders: Folders, work: str, temporary: Path) -> tune.Tuner:
    # Tune starts one worker after the other unless as many trials may be pending.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(1, int(ray.cluster_resources().get("CPU", 1))))

    def trainable(config: dict[str, Job]) -> None:
        _run_job(work, config["job"], folders)

    def resources(config: dict[str, Job]) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory([session.trial_resources(config["job"].spec)])

    return tune.Tuner(
        tune.with_resources(trainable, resources),
        tune_config=tune.TuneConfig(
            search_alg=_Searcher(feeder),
            num_samples=-1,
            reuse_actors=all(spec.gpus == 0 for spec in feeder.queue.specs),
            trial_name_creator=lambda trial: trial.config["job"].name,
            trial_dirname_creator=lambda trial: f"{trial.config['job'].name}-{trial.trial_id}",
        ),
        run_config=tune.RunConfig(
            name=f"jobs-{time.monotonic_ns()}", storage_path=str(temporary / "tune"), verbose=0, callbacks=[feeder]
        ),
    )


class _Searcher(tune.search.Searcher):  # type: ignore[misc]
    def __init__(self, feeder: "_Feeder") -> None:
        super().__init__()
        self._feeder = feeder

    def __reduce__(self) -> tuple[type[tune.search.Searcher], tuple[()]]:
        return tune.search.Searcher, ()  # As for _Feeder.

    def suggest(self, trial_id: str) -> dict[str, Job] | str | None:
        return self._feeder.next_config()

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass

    def save(self, *arguments: Any) -> None:
        pass


class _Feeder(tune.Callback):  # type: ignore[misc]
    """Hands Tune the queue's jobs, and the queue their events."""

    def __init__(self, queue: JobQueue) -> None:
        self.queue = queue
        self._end_by_trial: dict[RayTrial, float] = {}
        self._running: list[Job] = []
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

    def next_config(self) -> dict[str, Job] | str | None:
        """Return a trial's configuration; None while none can begin."""
        job = None if self.is_room_held else self.queue.next_job(self._is_possible)
        if job is not None:
            self._running.append(job)
            return {"job": job}
        return None if self._running else tune.search.Searcher.FINISHED

    def _is_possible(self, job: Job) -> bool:
        specs = [job.spec, *(other.spec for other in self._running)]
        return len(specs) <= session.trials_at_once(specs, ray.cluster_resources())

    def on_step_begin(self, **info: Any) -> None:
        if self.unwritable:
            raise StorageError(self.unwritable)
        for trial in [trial for trial, end in self._end_by_trial.items() if time.monotonic() > end]:
            self._end_by_trial[trial] = math.inf
            if job := self.queue.first_left(trial.config["job"]):
                record_exceeded(job, self.queue.folders, self.queue.watch)
            ray.kill(trial.temporary_state.ray_actor)  # It may hang in code that no signal reaches.

    def on_trial_result(self, *, trial: RayTrial, result: dict[str, Any], **info: Any) -> None:
        job = trial.config["job"]
        if "refusal" in result:
            for each in job.chain():
                record_failure(each, self.queue.folders, self.queue.watch, result["refusal"], ())
        elif "raised" in result:
            self._raised[job.name] = result["raised"], result["log"]
        else:
            event = Event(**result["event"])
            if event.kind == "started" and job.spec.time_limit is not None:
                self._end_by_trial[trial] = time.monotonic() + 60 * job.spec.time_limit
            self.queue.watch(event)

    def on_trial_complete(self, *, trial: RayTrial, **info: Any) -> None:
        self._end_by_trial.pop(trial, None)
        self._running.remove(trial.config["job"])

    def on_trial_error(self, *, trial: RayTrial, **info: Any) -> None:
        first = trial.config["job"]
        self._running.remove(first)
        self.is_room_held |= first.spec.engine.workers > 1
        is_short_of_memory = "low on memory" in Path(trial.error_file).read_text(errors="replace")
        error, log = self._raised.pop(first.name, (_SHORT_OF_MEMORY if is_short_of_memory else _DIED, []))
        job, has_exceeded = self.queue.first_left(first), self._end_by_trial.pop(trial, 0) == math.inf
        if error.startswith("StorageError: "):
            self.unwritable = error.removeprefix("StorageError: ")
        elif job and job.name in self._lost_jobs and not has_exceeded:
            record_failure(job, self.queue.folders, self.queue.watch, error, log)
        elif job and not has_exceeded:
            self._lost_jobs.add(job.name)
            self.queue.watch(Event(job=job.name, kind="lost", message="its process died: it is tried once more"))
        self.queue.return_job(first)


def _run_job(work: str, job: Job, folders: Folders) -> None:
    try:
        run = resolve_name(work)
        gc.freeze()  # No collection looks through imported modules, which stay and take .2 seconds each time.
        if folders.inputs is not None:
            job = replace(job, node=session.node_name())
            inputs = machine.node_inputs([job.spec], folders.journal.plan_file)
            if clause := machine.input_differences(folders.inputs, inputs):
                tune.report({"refusal": f"TrialError: {job.node} {clause}."})
                return
        run(job, folders, lambda event: tune.report({"event": event.model_dump()}))
    except Exception as error:
        sentence, log = isolate.failure_for_report(error, job.spec.samples)
        tune.report({"raised": sentence, "log": log})
        raise
