"""The driver's temporary folder: gone in the end, with what runs in it, and whatever killed its driver."""

import fcntl
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from harness.execution.ray.temporary_folder import temporary_folder

HOLDING = """
import subprocess, sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from harness.execution.ray.temporary_folder import temporary_folder
print("starts", flush=True)
for _ in range(1000):
    with temporary_folder() as folder:
        (folder / "file").touch()
"""


@pytest.fixture
def base(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


def left(base):
    return sorted(path.name for path in base.iterdir())


def test_it_is_gone_afterwards_with_the_processes_that_write_into_it(base):
    with temporary_folder() as folder, (folder / "log").open("w") as log, (folder / "log").open() as read:
        stay = [subprocess.Popen(["sleep", "600"]), subprocess.Popen(["tail", "-f"], stdin=read)]
        # One of Ray's agents writes a log, and what it prints goes into a pipe.
        go = [
            subprocess.Popen(["sleep", "600"], stderr=log),
            subprocess.Popen(["sleep", "600"], pass_fds=[log.fileno()]),
        ]
        assert [each.poll() for each in (*stay, *go)] == [None] * 4
    assert left(base) == []
    assert [each.wait(10) for each in go] == [-signal.SIGKILL] * 2
    assert [each.poll() for each in stay] == [None] * 2
    for each in stay:
        each.kill()
        each.wait()


def test_what_killed_drivers_left_is_removed_at_once_and_what_is_in_use_or_not_ours_stays(base):
    for file in ("abandoned/in-use", "abandoned/r/file", "alive/in-use", "others/work", "empty/x", "young/x"):
        (base / f"lethe-{file}").parent.mkdir(parents=True, exist_ok=True)
        if not file.endswith("x"):
            (base / f"lethe-{file}").touch()
    for name in ("empty", "others"):
        os.utime(base / f"lethe-{name}", (0, 0))
    with (base / "lethe-alive" / "in-use").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with temporary_folder():
            pass
    assert left(base) == ["lethe-alive", "lethe-others", "lethe-young"]


def test_a_driver_killed_at_any_moment_leaves_nothing_for_good(base):
    moments = random.Random(0)
    for _ in range(5):
        driver = subprocess.Popen([sys.executable, "-c", HOLDING, base], stdout=subprocess.PIPE, text=True)
        assert driver.stdout is not None
        assert driver.stdout.readline() == "starts\n"
        time.sleep(moments.uniform(0, 0.05))
        driver.kill()
        driver.communicate()
    for path in base.iterdir():
        if not (path / "in-use").exists():  # For these a minute must have passed.
            os.utime(path, (0, 0))
    with temporary_folder():
        assert len(left(base)) == 1
    assert left(base) == []


STAYING = """
import subprocess, sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from harness.execution.ray.temporary_folder import temporary_folder
with temporary_folder() as folder, (folder / "log").open("w") as log:
    agent = subprocess.Popen(["sleep", "600"], stdout=log, start_new_session=True)
    print(folder.parent.name, agent.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def staying(base):
    """Return a starter of drivers, each with its folder's name and the number of a process that writes into it."""
    drivers = []

    def start():
        driver = subprocess.Popen([sys.executable, "-c", STAYING, base], stdout=subprocess.PIPE, text=True)
        drivers.append(driver)
        name, agent = driver.stdout.readline().split()
        return driver, base / name, Path("/proc") / agent

    yield start
    for driver in drivers:
        driver.kill()
        driver.communicate()
    wait_until(lambda: not left(base))


def wait_until(holds, seconds=20):
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.1)
    assert holds()


def test_when_a_driver_is_killed_its_folder_goes_with_what_runs_in_it_and_others_stay(staying):
    (killed, folder, agent), (_, other, others_agent), (stopped, held, held_agent) = (staying() for _ in range(3))
    stopped.send_signal(signal.SIGSTOP)
    killed.kill()
    wait_until(lambda: not folder.exists() and not agent.exists())
    time.sleep(2)  # The others' are looked at each second too.
    assert all(path.exists() for path in (other, others_agent, held, held_agent))


def test_a_driver_that_ends_well_leaves_no_process_of_its_own(base):
    with temporary_folder() as folder:
        give_up = time.monotonic() + 10
        waiting = []
        while not waiting and time.monotonic() < give_up:  # A process that starts has no command line at first.
            waiting = [path for path in Path("/proc").glob("[0-9]*") if str(folder.parent) in command_of(path)]
        assert len(waiting) == 1
    assert not waiting[0].exists()


def command_of(process):
    with suppress(OSError):
        return (process / "cmdline").read_text()
    return ""
