"""Ray: one real session, with workers that work, wait, fail and die."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from harness.errors import ExecutorError, StorageError
from harness.execution.job import Event, Folders
from harness.records.journal import Journal
from harness.records.record import Failed, Stopped
from harness.settings import TimeLimit

WORK = """
import ctypes, json, os, signal, sys, time
from pathlib import Path
import ray, torch
from harness.errors import StorageError
from harness.execution.job import Event
from harness.records.journal import Journal
from harness.records.record import Stopped

def in_logs():
    folder = Path(ray._private.worker._global_node.get_session_dir_path())
    return [file.name for file in folder.rglob("*") if file.is_file() and b"MARKED" in file.read_bytes()]

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
    detail = {
        "pid": os.getpid(),
        "threads": torch.get_num_threads(),
        "address": ray.util.get_node_ip_address(),
        "directory": os.getcwd(),
        "inherits": "AWS_SECRET_ACCESS_KEY" in os.environ,
        "logged": in_logs(),
    }
    watch(Event(job=job.name, kind="finished", done=1, total=1, message=json.dumps(detail)))
"""

DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it.
from pathlib import Path
from harness.execution.job import Folders, Job
from harness.execution.ray.tune import ray_executor
import json
jobs = [Job.model_validate_json(data) for data in json.loads(sys.argv[1])]
folders = Folders(results=Path(sys.argv[2]) / "results", artifacts=Path(sys.argv[2]) / "artifacts")
with ray_executor(work="our_work:work") as execute:
    execute(jobs, folders, lambda event: print(event.job, event.kind, event.message, flush=True))
"""


SECRETS = [
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET"),
    *("HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "RAY_REDIS_PASSWORD", "OF_MY_OWN"),
]


@contextmanager
def command_lines_watched():
    """Yield a set of the command lines of this machine that hold a secret, as they are seen meanwhile."""
    seen, over = set(), threading.Event()

    def look():
        while not over.wait(0.2):  # More often, it would take half a core from what is tested.
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if b"MARKED" in (line := (process / "cmdline").read_bytes()):
                        seen.add(line)

    looking = threading.Thread(target=look)
    looking.start()
    yield seen
    over.set()
    looking.join()


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
        for name in SECRETS:
            patch.setenv(name, f"MARKED {name}")
        output = root / "output"
        with output.open("w") as file, command_lines_watched() as telling:
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
        "telling": telling,
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
    assert record.error.startswith("ValueError: raised at our_work.py, line ")
    assert any("our_work.py, line " in line for line in record.log)
    assert not any("a bug of our own" in line for line in record.log)


def test_a_worker_has_its_threads_stays_in_our_folder_and_listens_to_this_machine_alone(ran):
    details = [json.loads(event.message) for event in ran["events"] if event.kind == "finished"]
    assert {detail["threads"] for detail in details} == {1}
    assert {detail["directory"] for detail in details} == {str(Path.cwd())}
    assert {detail["address"] for detail in details} == {"127.0.0.1"}


def test_no_secret_of_the_environment_is_on_a_command_line_or_in_a_log_and_workers_inherit_it(ran):
    details = [json.loads(event.message) for event in ran["events"] if event.kind == "finished"]
    assert all(detail["inherits"] for detail in details)
    assert [detail["logged"] for detail in details] == [[]] * len(details)
    assert ran["telling"] == set()


def test_ray_says_nothing_and_leaves_nothing(ran):
    assert ran["output"] == ""
    assert list(ran["home"].iterdir()) == []
    assert ran["temporary"] == [f"lethe-{os.getpid()}-alive"], "what a killed driver left is gone"
    assert [path.name for path in ran["results"].rglob("*") if path.is_file() and path.suffix != ".jsonl"] == []


@pytest.mark.soak
def test_a_journal_that_cannot_be_written_ends_the_sweep(tmp_path, monkeypatch, make_job):
    from harness.execution.ray.tune import ray_executor

    (tmp_path / "our_work.py").write_text(WORK)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with (
        pytest.raises(StorageError, match="the journal cannot be written"),
        ray_executor(work="our_work:work") as execute,
    ):
        execute([make_job("j", settings={"unwritable": True})], Folders(tmp_path / "s", tmp_path / "a"), Watcher())


def test_where_ray_does_not_start_it_is_said(monkeypatch, tmp_path):
    from harness.execution.ray import session

    def init(**options):
        raise RuntimeError("The current node timed out during startup.\nThis could")

    monkeypatch.setattr(session.ray, "init", init)
    reason = r"^Ray did not start: The current node timed out during startup\. Run the same command again"
    with pytest.raises(ExecutorError, match=reason), session.ray_session():
        pass


def test_an_event_is_plain_data():
    event = Event(job="j", kind="measured", message="m", done=1, total=2)
    assert Event(**event.model_dump(mode="json")) == event


@pytest.mark.soak
def test_when_memory_runs_short_again_the_job_fails_and_the_sweep_goes_on(tmp_path, short_folder, make_job):
    (tmp_path / "our_work.py").write_text(WORK)
    jobs = [make_job(name, settings={"seconds": 60}) for name in ("one", "two")]
    command = [sys.executable, "-c", DRIVER, json.dumps([job.model_dump_json() for job in jobs]), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": short_folder}
    # To Ray, a machine that has given a thousandth of its memory away has none left.
    environment |= {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "100"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    for job in jobs:
        [record] = Journal(tmp_path / "results" / "journal").read(job.spec.trial_id)
        assert "stopped because memory ran short" in record.error


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to see what became of the workers")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_when_the_driver_is_ended_its_workers_end(tmp_path, short_folder, ending, make_job):
    (tmp_path / "our_work.py").write_text(WORK.replace('kind="started"', 'kind="started", message=str(os.getpid())'))
    jobs = json.dumps([make_job("long", settings={"seconds": 600}).model_dump_json()])
    command = [sys.executable, "-c", DRIVER, jobs, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": short_folder}
    driver = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    worker = int(driver.stdout.readline().split()[2])
    assert alive(worker)
    driver.send_signal(ending)
    _, errors = driver.communicate()
    assert ("KeyboardInterrupt" in errors) == (ending == signal.SIGINT)
    for _ in range(600):
        if not alive(worker):
            break
        time.sleep(0.1)
    assert not alive(worker)
    assert Journal(tmp_path / "results" / "journal").read("id-long") == []
