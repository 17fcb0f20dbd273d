"""Ray: one real session, with workers that work, wait, fail and die."""

import json
import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from harness.errors import ExecutorError, StorageError
from harness.execution.jobs import Folders, Job, JobQueue
from harness.records.journal import Failed, Journal, Stopped
from harness.settings import replace

WORK = """
import ctypes, json, os, sys, time
from pathlib import Path
import torch
from harness.execution.jobs import Event
from harness.records.journal import Stopped

def work(job, folders, watch):
    for each in job.chain():
        do(each, folders, watch)

def do(job, folders, watch):
    said = job.spec.settings
    watch(Event(job=job.name, kind="started"))
    print("printed by", job.name)
    if "signal" in said:
        print("last words of", job.name, file=sys.stderr, flush=True)
        os.kill(os.getpid(), said["signal"])
    if "dies_once" in said and not Path(said["dies_once"]).exists():
        Path(said["dies_once"]).touch()
        os._exit(0)
    if "hangs" in said:
        ctypes.PyDLL(None).sleep(600)  # In C code that lets no other thread run.
    if "raises" in said:
        raise ValueError(said["raises"])
    time.sleep(said.get("seconds", 0))
    folders.journal.append(Stopped(trial_id=job.spec.trial_id, strength=1, reason="worked"))
    detail = {"threads": torch.get_num_threads(), "directory": os.getcwd()}
    watch(Event(job=job.name, kind="finished", done=1, total=1, message=json.dumps(detail)))
"""


def session_of_ray():
    from harness.execution.ray.tune import ray_executor  # It imports Ray, which takes seconds.

    return ray_executor(work="our_work:work")


class Watcher:
    """Keeps the events; like a live view, it cannot be pickled."""

    def __init__(self):
        self.lock = threading.Lock()
        self.events = []

    def __call__(self, event):
        assert threading.current_thread() is threading.main_thread()
        with self.lock:
            self.events.append(event)


@pytest.fixture(scope="module")
def short_folder():
    """A temporary folder with a name that is short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name:
        yield name


@pytest.fixture(scope="module")
def make_job(make_spec):
    """Return a maker of jobs, each for a trial of its own."""
    return lambda name, **changes: Job(name=name, kind="trial", spec=make_spec(trial_id=f"id-{name}", **changes))


@pytest.fixture(scope="module")
def ran(tmp_path_factory, short_folder, make_job):
    """What one session left: its events, its journal, its folders, its output, and the home folder."""
    root = tmp_path_factory.mktemp("ray")
    (root / "our_work.py").write_text(WORK)
    (root / "home").mkdir()
    doing = {"first": {"seconds": 1}, "killed": {"signal": signal.SIGKILL}, "dies-once": {"dies_once": f"{root}/died"}}
    doing |= {"hangs": {"hangs": True}, "raises": {"raises": "a bug of our own"}, "last": {"k": 2}}
    more = {"killed": {"samples": "plain"}, "hangs": {"time_limit": 0.02}}
    jobs = {name: make_job(name, settings=settings, **more.get(name, {})) for name, settings in doing.items()}
    # What goes on after a job that ends, and after one whose time is over, runs all the same.
    for name, after in {"first": "dies-once", "hangs": "last"}.items():
        jobs[name] = replace(jobs[name], then=jobs.pop(after))
    folders = Folders(results=root / "results" / "s", artifacts=root / "results" / "artifacts")
    watcher = Watcher()
    for name in ("lethe-999999999-abandoned", f"lethe-{os.getpid()}-alive"):
        (Path(short_folder) / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(root))
        patch.setenv("HOME", str(root / "home"))
        patch.setattr(tempfile, "tempdir", short_folder)
        with (root / "output").open("w") as file:
            saved = os.dup(1), os.dup(2)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                with session_of_ray() as execute:
                    execute(JobQueue([*jobs.values()], (), folders, watcher))
            finally:
                for place, handle in enumerate(saved, start=1):
                    os.dup2(handle, place)
                    os.close(handle)
    left = {"root": root, "temporary": [path.name for path in Path(short_folder).iterdir()]}
    return {"events": watcher.events, "journal": Journal(folders.results / "journal"), **left}


def test_every_job_runs_once_and_those_without_a_fault_finish(ran):
    found = {}
    for event in ran["events"]:
        found.setdefault(event.job, []).append(event.kind)
    finished, failed = ["started", "finished"], ["started", "failed"]
    of_each = {"first": finished, "killed": ["started", "lost", *failed], "dies-once": ["started", "lost", *finished]}
    assert found == of_each | {"hangs": failed, "raises": ["started", "lost", *failed], "last": finished}
    for name in ("first", "dies-once", "last"):
        assert ran["journal"].read(f"id-{name}") == [Stopped(trial_id=f"id-{name}", strength=1, reason="worked")]


def test_a_worker_that_dies_twice_becomes_a_failed_record(ran):
    [record] = ran["journal"].read("id-killed")
    assert isinstance(record, Failed)
    assert record.error == "WorkerDiedError: its process ended before the job did, and did so again: killed, or crashed"


def test_a_worker_that_hangs_in_c_code_is_killed_when_its_time_is_over(ran):
    [record] = ran["journal"].read("id-hangs")
    assert record.error.startswith("TrialError: it ran longer than timeout_minutes: 0.02 allows. Raise timeout_min")


def test_a_fault_of_the_work_itself_becomes_one_too(ran):
    [record] = ran["journal"].read("id-raises")
    assert record.error.startswith("ValueError: raised at our_work.py, line ")
    assert any("our_work.py, line " in line for line in record.log)
    assert not any("a bug of our own" in line for line in record.log)


def test_a_worker_has_its_threads_and_stays_in_our_folder(ran):
    details = [json.loads(event.message) for event in ran["events"] if event.kind == "finished"]
    assert details == [{"threads": 1, "directory": str(Path.cwd())}] * 3


def test_ray_says_nothing_and_leaves_nothing(ran):
    assert (ran["root"] / "output").read_text() == ""
    assert list((ran["root"] / "home").iterdir()) == []
    assert ran["temporary"] == [f"lethe-{os.getpid()}-alive"], "what a killed driver left is gone"
    files = [path for path in (ran["root"] / "results").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".jsonl"}


def test_where_ray_does_not_start_it_is_said(monkeypatch):
    from harness.execution.ray import session

    def init(**options):
        raise RuntimeError("The current node timed out during startup.\nThis could")

    monkeypatch.setattr(session.ray, "init", init)
    reason = r"^Ray did not start: The current node timed out during startup\. Run the same command again"
    with pytest.raises(ExecutorError, match=reason), session.ray_session():
        pass


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a runner of jobs in a session of their own, which returns the folder of the journal."""
    (tmp_path / "our_work.py").write_text(WORK)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    def run(*jobs):
        with session_of_ray() as execute:
            execute(JobQueue(jobs, (), Folders(tmp_path / "results", tmp_path / "artifacts"), Watcher()))
        return Journal(tmp_path / "results" / "journal")

    return run


@pytest.mark.soak
def test_a_journal_that_cannot_be_written_ends_the_sweep(run, make_job, tmp_path):
    (tmp_path / "results" / "journal" / "id-j.jsonl").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"/id-j\.jsonl cannot be written \(the journal's .*Is a directory"):
        run(make_job("j"))


@pytest.mark.soak
def test_when_memory_runs_short_again_the_job_fails_and_the_sweep_goes_on(run, make_job, monkeypatch):
    # To Ray, a machine that has given a thousandth of its memory away has none left.
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.001")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    jobs = [make_job(name, settings={"seconds": 60}) for name in ("one", "two")]
    journal = run(*jobs)
    for job in jobs:
        [record] = journal.read(job.spec.trial_id)
        assert "stopped because memory ran short" in record.error
