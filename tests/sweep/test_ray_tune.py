"""Ray: one real session, with workers that work, wait, fail and die."""

import json
import os
import shutil
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from harness.errors import ExecutorError
from harness.execution.job import Folders
from harness.records.journal import Journal
from harness.records.record import Failed, Stopped
from harness.settings import TimeLimit

WORK = """
import ctypes, json, os, signal, sys, time
from pathlib import Path
import torch
from harness.errors import StorageError
from harness.execution.job import Event
from harness.records.journal import Journal
from harness.records.record import Stopped

def work(job, folders, watch):
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
    if "unwritable" in said:
        raise StorageError("the journal cannot be written.")
    time.sleep(said.get("seconds", 0))
    record = Stopped(trial_id=job.spec.trial_id, strength=1, reason="worked")
    Journal(folders.results / "journal").append(record)
    detail = {"threads": torch.get_num_threads(), "directory": os.getcwd()}
    watch(Event(job=job.name, kind="finished", done=1, total=1, message=json.dumps(detail)))
"""


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
    name = tempfile.mkdtemp(prefix="t-", dir="/tmp")
    yield name
    shutil.rmtree(name)


@pytest.fixture(scope="module")
def ran(tmp_path_factory, short_folder, make_job, make_spec):
    """What one session left: its events, its journal, its folders, its output, and the home folder."""
    from harness.execution.ray.tune import ray_executor

    root = tmp_path_factory.mktemp("ray")
    (root / "our_work.py").write_text(WORK)
    (root / "home").mkdir()
    limit = TimeLimit(minutes=0.02, setting="timeout_minutes")
    jobs = [
        make_job("first", settings={"seconds": 5}),
        make_job("free"),
        make_job("killed", settings={"signal": signal.SIGKILL}, samples="plain"),
        make_job("dies-once", settings={"dies_once": str(root / "died")}),
        make_job("hangs", settings={"hangs": True}, time_limit=limit),
        make_job("raises", settings={"raises": "a bug of our own"}),
        make_job("last"),
    ]
    folders = Folders(results=root / "results" / "s", artifacts=root / "results" / "artifacts")
    watcher = Watcher()
    for name in ("lethe-999999999-abandoned", f"lethe-{os.getpid()}-alive"):
        (Path(short_folder) / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(root))
        patch.setenv("HOME", str(root / "home"))
        patch.setattr(tempfile, "tempdir", short_folder)
        output = root / "output"
        with output.open("w") as file:
            saved = os.dup(1), os.dup(2)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                with ray_executor(work="our_work:work") as execute:
                    execute([], folders, watcher)
                    execute(jobs, folders, watcher)
            finally:
                for place, handle in enumerate(saved, start=1):
                    os.dup2(handle, place)
                    os.close(handle)
    return {
        "events": watcher.events,
        "journal": Journal(folders.results / "journal"),
        "results": root / "results",
        "output": output.read_text(),
        "home": root / "home",
        "temporary": [path.name for path in Path(short_folder).iterdir()],
    }


def kinds(ran):
    found = {}
    for event in ran["events"]:
        found.setdefault(event.job, []).append(event.kind)
    return found


def test_every_job_runs_once_and_those_without_a_fault_finish(ran):
    assert kinds(ran) == {
        "first": ["started", "finished"],
        "free": ["started", "finished"],
        "killed": ["started", "lost", "started", "failed"],
        "dies-once": ["started", "lost", "started", "finished"],
        "hangs": ["started", "failed"],
        "raises": ["started", "lost", "started", "failed"],
        "last": ["started", "finished"],
    }
    for name in ("first", "free", "dies-once", "last"):
        assert ran["journal"].read(f"id-{name}") == [Stopped(trial_id=f"id-{name}", strength=1, reason="worked")]


def test_a_worker_that_dies_twice_becomes_a_failed_record(ran):
    [record] = ran["journal"].read("id-killed")
    assert isinstance(record, Failed)
    assert record.error == "WorkerDied: its process ended before the job did, and did so again: killed, or crashed"


def test_a_worker_that_hangs_in_c_code_is_killed_when_its_time_is_over(ran):
    [record] = ran["journal"].read("id-hangs")
    assert record.error.startswith("TrialError: it ran longer than timeout_minutes: 0.02 allows. Raise timeout_min")


def test_a_fault_of_the_work_itself_becomes_one_too(ran):
    [record] = ran["journal"].read("id-raises")
    assert record.error.startswith("ValueError: its message may quote the forget set; ")
    assert any("our_work.py, line " in line for line in record.log)
    assert not any("a bug of our own" in line for line in record.log)


def test_a_worker_has_its_threads_and_stays_in_our_folder(ran):
    details = [json.loads(event.message) for event in ran["events"] if event.kind == "finished"]
    assert {detail["threads"] for detail in details} == {1}
    assert {detail["directory"] for detail in details} == {str(Path.cwd())}


def test_ray_says_nothing_and_leaves_nothing(ran):
    assert ran["output"] == ""
    assert list(ran["home"].iterdir()) == []
    assert ran["temporary"] == [f"lethe-{os.getpid()}-alive"], "what a killed driver left is gone"
    assert [path.name for path in ran["results"].rglob("*") if path.is_file() and path.suffix != ".jsonl"] == []


def test_where_ray_does_not_start_it_is_said(monkeypatch, tmp_path):
    from harness.execution.ray import session

    def init(**options):
        raise RuntimeError("The current node timed out during startup.\nThis could")

    monkeypatch.setattr(session.ray, "init", init)
    reason = r"^Ray did not start: The current node timed out during startup\. Run the same command again"
    with pytest.raises(ExecutorError, match=reason), session.ray_session():
        pass
