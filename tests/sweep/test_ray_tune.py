"""Ray: one real session, with workers that work, wait, fail and die."""

import fcntl
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

from harness.errors import ExecutorError
from harness.execution.job import Event, Folders
from harness.plans import StudySpec, Target
from harness.records.journal import Journal
from harness.records.record import Failed, Stopped
from harness.search_space import Choice
from harness.specs import Source, TimeLimit

WORK = """
import ctypes, json, os, signal, sys, time
from pathlib import Path
import ray, torch
from harness.execution.job import Event
from harness.records.journal import Journal
from harness.records.record import Candidate, Stopped

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
    if "fails" in said:
        watch(Event(job=job.name, kind="failed", message=said["fails"]))
        return
    time.sleep(said.get("seconds", 0))
    record = Stopped(trial_id=job.spec.trial_id, strength=1, reason="worked")
    if job.candidate:
        task, ended = job.candidate, dict(probes=(), targets={}, original={}, end="whole", seconds=1.0)
        record = Candidate(trial_id=task.study.study_id, number=task.number, settings=task.settings, **ended)
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
from harness.execution.ray.tune import run_with_ray
import json
jobs = [Job.from_json(data) for data in json.loads(sys.argv[1])]
folders = Folders(results=Path(sys.argv[2]) / "results", artifacts=Path(sys.argv[2]) / "artifacts")
run_with_ray(jobs, folders, lambda event: print(event.job, event.kind, event.message, flush=True), work="our_work:work")
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
    from harness.execution.ray.tune import run_with_ray

    root = tmp_path_factory.mktemp("ray")
    (root / "our_work.py").write_text(WORK)
    (root / "home").mkdir()
    limit = TimeLimit(minutes=0.02, setting="timeout_minutes")
    jobs = [
        # A worker takes seconds to start. Those that end their worker wait, so that the first two do all the others.
        make_job("memory", provides="k", settings={"seconds": 5}),
        make_job("needs-memory", needs="k"),
        make_job("free"),
        make_job("killed", needs="k", settings={"signal": signal.SIGKILL}, samples="plain"),
        make_job("bad-memory", provides="k2", settings={"fails": "ValueError: NaN loss"}),
        make_job("needs-bad-memory", needs="k2"),
        make_job("dies-once", needs="k", settings={"dies_once": str(root / "died")}),
        make_job("too-big", cpus=9999),
        make_job("last"),
        make_job("hangs", needs="k", settings={"hangs": True}, time_limit=limit),
        make_job("raises", needs="k", settings={"raises": "a bug of our own"}),
    ]
    study = StudySpec(
        study_id="study",
        trial=make_spec(trial_id="study", strengths=(), settings={}),
        seeds=(0,),
        space={"epochs": Choice(values=(1,)), "k": Choice(values=(1, 2, 3))},
        defaults={"epochs": 1, "k": 2},
        is_cumulative=True,
        is_trained=True,
        search="optuna",
        trials=9,
        targets=(Target(metric="ma", at_most=0.5),),
        utility="perplexity",
        utility_bounds=(0.5, 5.0),
        selection=Source(source="miniature"),
        retrained=None,
    )
    folders = Folders(results=root / "results" / "s", artifacts=root / "results" / "artifacts")
    watcher = Watcher()
    for name in ("lethe-abandoned", "lethe-alive"):
        (Path(short_folder) / name).mkdir()
        (Path(short_folder) / name / "in-use").touch()
        os.utime(Path(short_folder) / name / "in-use", (0, 0))
    alive = (Path(short_folder) / "lethe-alive" / "in-use").open("ab")
    fcntl.flock(alive, fcntl.LOCK_EX)
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
                run_with_ray(jobs, folders, watcher, [study], work="our_work:work")
            finally:
                for place, handle in enumerate(saved, start=1):
                    os.dup2(handle, place)
                    os.close(handle)
    alive.close()
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
        "memory": ["started", "finished"],
        "needs-memory": ["started", "finished"],
        "free": ["started", "finished"],
        "killed": ["started", "lost", "started", "failed"],
        "dies-once": ["started", "lost", "started", "finished"],
        "hangs": ["started", "failed"],
        "bad-memory": ["started", "failed"],
        "needs-bad-memory": ["failed"],
        "raises": ["started", "failed"],
        "too-big": ["failed"],
        "last": ["started", "finished"],
        **{f"emso-miniature-m-candidate-{number}-stud": ["started", "finished"] for number in range(3)},
    }
    for name in ("memory", "needs-memory", "free", "dies-once", "last"):
        assert ran["journal"].read(f"id-{name}") == [Stopped(trial_id=f"id-{name}", strength=1, reason="worked")]


def test_an_uncaught_exception_is_told_without_asking_a_ray_that_may_be_dead(ran):
    import ray

    assert sys.excepthook is not ray._private.worker.custom_excepthook


def test_a_studys_candidates_run_until_it_has_nothing_left_to_try(ran):
    records = ran["journal"].read("study")
    assert sorted(record.number for record in records) == [0, 1, 2]
    assert sorted(record.settings["k"] for record in records) == [1, 2, 3]
    assert next(record.settings["k"] for record in records if record.number == 0) == 2


def test_who_needs_something_starts_after_it_was_provided(ran):
    order = [(event.job, event.kind) for event in ran["events"]]
    assert order.index(("memory", "finished")) < order.index(("needs-memory", "started"))


def test_a_worker_that_dies_becomes_a_failed_record_with_its_last_words(ran):
    [record] = ran["journal"].read("id-killed")
    assert isinstance(record, Failed)
    assert record.error == "WorkerDied: its process ended before the job did, and did so again: killed, or crashed"
    assert "last words of killed" in record.log


def test_a_worker_that_hangs_in_c_code_is_killed_when_its_time_is_over(ran):
    [record] = ran["journal"].read("id-hangs")
    assert record.error.startswith("TrialError: it ran longer than timeout_minutes: 0.02 allows. Raise timeout_min")


def test_a_fault_of_the_work_itself_becomes_one_too(ran):
    [record] = ran["journal"].read("id-raises")
    assert record.error.startswith("ValueError: its message may quote the forget set; ")
    assert any("our_work.py, line " in line for line in record.log)
    assert not any("a bug of our own" in line for line in record.log)


def test_what_cannot_run_says_why(ran):
    errors = {name: ran["journal"].read(f"id-{name}")[0].error for name in ("needs-bad-memory", "too-big")}
    assert errors["needs-bad-memory"] == "the memorised model could not be built: ValueError: NaN loss"
    assert errors["too-big"].startswith("it asks for 9999 CPUs and 0 GPUs, and this machine has ")
    assert ran["journal"].read("id-bad-memory") == []


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
    assert ran["temporary"] == ["lethe-alive"]
    assert [path.name for path in ran["results"].rglob("*") if path.is_file() and path.suffix != ".jsonl"] == []


def test_without_jobs_ray_is_not_started():
    from harness.execution.ray.tune import run_with_ray

    run_with_ray([], Folders(Path("/nowhere"), Path("/nowhere")), lambda event: pytest.fail("an event"))


def test_where_ray_does_not_start_it_is_said(monkeypatch, tmp_path):
    from harness.execution.ray import session

    errors = iter([RuntimeError("The current node timed out during startup.\nThis could"), OSError("disk is full")])

    def init(**options):
        raise next(errors)

    monkeypatch.setattr(session.ray, "init", init)
    said = r"^Ray did not start: The current node timed out during startup\. What is measured is kept: run the same"
    with pytest.raises(ExecutorError, match=said):
        session.start(tmp_path)
    with pytest.raises(OSError, match="disk is full"):
        session.start(tmp_path)


def test_an_event_is_plain_data():
    event = Event(job="j", kind="measured", message="m", done=1, total=2)
    assert Event(**event.to_json()) == event


@pytest.mark.soak
def test_when_memory_runs_short_again_the_job_fails_and_the_sweep_goes_on(tmp_path, short_folder, make_job):
    (tmp_path / "our_work.py").write_text(WORK)
    jobs = [make_job(name, settings={"seconds": 60}) for name in ("one", "two")]
    command = [sys.executable, "-c", DRIVER, json.dumps([job.to_json() for job in jobs]), str(tmp_path)]
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
    jobs = json.dumps([make_job("long", settings={"seconds": 600}).to_json()])
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
