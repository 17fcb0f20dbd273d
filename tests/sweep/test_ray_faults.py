"""Ray when something dies or is to end: its own processes, its workers, the driver, by real signals."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from harness.records.journal import Journal
from harness.records.record import Failed, Stopped
from harness.specs import TimeLimit

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to see what became of the processes"),
]
WORK = """
import ctypes, os, signal, time
from harness.execution.job import Event
from harness.records.journal import Journal
from harness.records.record import Stopped

def work(job, folders, watch):
    said = job.spec.settings
    watch(Event(job=job.name, kind="started", message=str(os.getpid())))
    if said.get("stubborn") == "ignores SIGTERM":
        ctypes.CDLL(None).signal(signal.SIGTERM, 1)  # Python itself would let the main thread alone do so.
    if said.get("stubborn") == "hangs in C code":
        ctypes.PyDLL(None).sleep(600)  # It lets no other thread run.
    if said.get("crashes") == job.name:
        ctypes.string_at(0)
    time.sleep(said["seconds"])
    Journal(folders.results / "journal").append(Stopped(trial_id=job.spec.trial_id, strength=1, reason="worked"))
    watch(Event(job=job.name, kind="finished"))
"""
STUBBORN = ["ignores SIGTERM", "hangs in C code"]
DRIVER = """
import json, signal, sys
for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # A shell's background jobs ignore some.
    signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)
from pathlib import Path
from harness.errors import ExecutorError
from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.guard.threads import leave

def main():
    with INTERRUPTION.watched(signals=True):
        try:
            print("watched", flush=True)
            from harness.execution.job import Folders, Job
            from harness.execution.ray.tune import run_with_ray
            jobs = [Job.from_json(data) for data in json.loads(sys.argv[1])]
            folders = Folders(results=Path(sys.argv[2]) / "results", artifacts=Path(sys.argv[2]) / "artifacts")
            tell = lambda event: print(event.job, event.kind, event.message, flush=True)
            run_with_ray(jobs, folders, tell, work="our_work:work")
        except ExecutorError as error:
            print(error, file=sys.stderr)
            return 1
        except KeyboardInterrupt as error:
            INTERRUPTION.heard()
            return error.exit_code
    return 0

leave(main())
"""


@pytest.fixture
def base():
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def start(tmp_path, base, make_job):
    """Return a starter of drivers, each in a process group of its own, for two jobs that take so many seconds.

    `limit` is how many seconds they may take.
    """
    (tmp_path / "our_work.py").write_text(WORK)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}", "TMPDIR": str(base)}
    started = []

    def run(seconds, limit=None, **settings):
        time_limit = TimeLimit(minutes=limit / 60, setting="timeout_minutes") if limit else None
        settings = {"seconds": seconds, **settings}
        jobs = [make_job(name, settings=settings, time_limit=time_limit) for name in ("one", "two")]
        command = [sys.executable, "-c", DRIVER, json.dumps([job.to_json() for job in jobs]), str(tmp_path)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        driver = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
        assert driver.stdout is not None
        assert driver.stdout.readline() == "watched\n"
        started.append(driver)
        return driver

    yield run
    for driver in started:
        driver.kill()
        driver.communicate()


@pytest.fixture
def records(tmp_path):
    return lambda: [Journal(tmp_path / "results" / "journal").read(f"id-{name}") for name in ("one", "two")]


WORKED = [[Stopped(trial_id=f"id-{name}", strength=1, reason="worked")] for name in ("one", "two")]


def workers_of(driver, number=2):
    """Return the processes of the first jobs to start."""
    pids = []
    while len(pids) < number:
        line = driver.stdout.readline()
        assert line, driver.stderr.read()
        if line.split()[1] == "started":
            pids.append(int(line.split()[2]))
    return pids


def running(base):
    """Return the command lines of all processes that have a file of the folder open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(file.readlink().is_relative_to(base) for file in (process / "fd").iterdir()):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" "))
        except OSError:
            continue
    return found


def ended(driver, base, seconds=300):
    """Return how a driver ended, and what it said; nothing of it is left."""
    _, errors = driver.communicate(timeout=seconds)
    assert list(base.iterdir()) == []
    assert running(base) == []
    return driver.returncode, errors


def pid_of(base, name):
    """Return the process of Ray's own that is called so, below the driver's temporary folder."""
    [pid] = [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if (command := (process / "cmdline").read_bytes().split(b"\0"))
        and command[0].endswith(name.encode())
        and str(base).encode() in b" ".join(command)
    ]
    return pid


@pytest.mark.parametrize(("name", "says"), [("gcs_server", "control service"), ("raylet", "scheduler")])
def test_a_death_of_rays_own_is_told_and_the_next_run_is_right(start, base, records, name, says):
    driver = start(600)
    workers_of(driver)
    os.kill(pid_of(base, name), signal.SIGKILL)
    code, errors = ended(driver, base)
    assert code == 1
    assert errors == (
        f"Ray's {says} ({name}) ended (signal 9) while the sweep ran. What is measured is kept: run the same command "
        "again to continue.\n"
    )
    assert records() == [[], []]
    assert ended(start(0.1), base) == (0, "")
    assert records() == WORKED


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize(("to_group", "stubborn"), [(False, STUBBORN[0]), (True, STUBBORN[1])])
def test_a_signal_ends_the_trials_and_the_driver(start, base, records, signum, code, to_group, stubborn):
    driver = start(600, stubborn=stubborn)
    workers_of(driver)
    time.sleep(0.5)
    (os.killpg if to_group else os.kill)(driver.pid, signum)
    assert ended(driver, base)[0] == code
    assert records() == [[], []]


@pytest.mark.parametrize("seed", range(6))
def test_a_signal_at_any_moment_ends_the_driver(start, base, records, seed):
    moments = random.Random(seed)
    driver = start(2)
    time.sleep(moments.uniform(0, 12))
    driver.send_signal(moments.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
    code, errors = ended(driver, base)
    assert code in (0, 129, 130, 143), errors
    assert not any(isinstance(record, Failed) for journaled in records() for record in journaled)
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    assert "@" not in errors, "the stack of Ray's C++ part"


@pytest.mark.parametrize("stubborn", STUBBORN)
def test_a_worker_that_no_signal_reaches_ends_at_its_limit(start, base, records, stubborn):
    assert ended(start(600, limit=2, stubborn=stubborn), base) == (0, "")
    for [failed] in records():
        assert failed.error.startswith("TrialError: it ran longer than timeout_minutes: ")


def test_a_plugin_that_crashes_is_tried_once_more_and_the_others_go_on(start, base, records):
    driver = start(1, crashes="one")
    output, errors = driver.communicate(timeout=300)
    assert (driver.returncode, errors) == (0, "")
    assert [line.split()[:2] for line in output.splitlines()].count(["one", "started"]) == 2
    [failed], worked = records()
    assert failed.error == "WorkerDied: its process ended before the job did, and did so again: killed, or crashed"
    assert worked == WORKED[1]


def test_a_second_signal_ends_all_at_once(start, base):
    driver = start(600)
    workers_of(driver)
    driver.send_signal(signal.SIGINT)
    time.sleep(0.3)
    driver.send_signal(signal.SIGINT)
    code, errors = ended(driver, base, 20)
    assert code == 130
    assert "Exception ignored" not in errors


@pytest.mark.parametrize("seed", range(6))
def test_a_driver_that_is_killed_at_any_moment_leaves_nothing_for_long(start, base, records, seed):
    driver = start(2)
    if seed % 2:
        workers_of(driver)
    time.sleep(random.Random(seed).uniform(0, 8))
    driver.kill()
    driver.communicate()
    until = time.monotonic() + 20
    while (running(base) or list(base.iterdir())) and time.monotonic() < until:
        time.sleep(0.2)
    assert running(base) == []
    assert list(base.iterdir()) == []
    assert ended(start(0.1), base) == (0, "")
    assert [journaled[-1:] for journaled in records()] == WORKED  # This driver does all of its jobs again.


def test_a_driver_that_was_stopped_goes_on(start, base, records):
    driver = start(3)
    workers_of(driver)
    os.killpg(driver.pid, signal.SIGSTOP)
    time.sleep(5)
    os.killpg(driver.pid, signal.SIGCONT)
    assert ended(driver, base) == (0, "")
    assert records() == WORKED


def test_all_workers_killed_at_once_are_tried_again_and_killed_twice_they_fail(start, base, records):
    driver = start(3)
    for pid in workers_of(driver):
        os.kill(pid, signal.SIGKILL)
    workers_of(driver)
    assert ended(driver, base) == (0, "")
    assert records() == WORKED
    driver = start(600)
    for _ in range(4):
        [pid] = workers_of(driver, 1)
        os.kill(pid, signal.SIGKILL)
    assert ended(driver, base) == (0, "")
    for *_, failed in records():
        assert failed.error == "WorkerDied: its process ended before the job did, and did so again: killed, or crashed"
