"""MLflow against real faults: drivers killed, full disks, several at once, servers that hang."""

import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
from mlflow import MlflowClient

from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.records.record import Started
from harness.records.tracking.database import EXPERIMENT

pytestmark = pytest.mark.soak

DRIVER = """
import os, sys
from pathlib import Path
from harness.library import load_results
from harness.records.tracking import live
from harness.records.tracking.live import LiveTracking
from harness.reporting.point_tags import point_tags

live.END_SECONDS = float(os.environ.get("END_SECONDS", live.END_SECONDS))
outcome = load_results(sys.argv[1])
with LiveTracking(Path(sys.argv[1])) as tracking:
    print("begun", flush=True)
    tracking.start()
    for trial in outcome.results.trials:
        tracking.log_trial(outcome.results.plan, trial)
    if sys.argv[2:]:
        raise KeyboardInterrupt
    tracking.finish(outcome.results, point_tags(outcome.ranked.table), [])
print("done", flush=True)
"""
"""What a driver does once its trials are measured."""


@pytest.fixture
def journaled(make_spec, make_plan, make_point, make_measurement):
    """Return a maker of sweeps' folders, each with the journal of six measured trials, whose last models were kept."""

    def make(folder):
        journal = Journal(folder / "journal")
        specs = [make_spec({"memorization": "key"}, sweep=folder.name, trial_id=f"t{n}", seed=n) for n in range(6)]
        journal.write_plan(make_plan(*specs, sweep=folder.name))
        for spec in specs:
            journal.append(Started(trial_id=spec.trial_id, spec=spec.to_json()))
            for strength in (1, 2):
                journal.append(make_point(spec, strength))
                journal.append(make_measurement(spec, strength))
            Artifacts(folder.parent / "artifacts").build("erased", spec.point_id(2), lambda kept: None)
        return folder

    return make


@pytest.fixture(autouse=True)
def own_database(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("END_SECONDS", "300")  # The machine may be slow; what waits says so itself.


def drive(folder, *arguments):
    command = [sys.executable, "-c", DRIVER, str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def collate(folder):
    command = [sys.executable, "-m", "harness.cli", "collate", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def content(root, uri=""):
    """What the database says of each run and its model, by sweep and trial; fails if two runs are of one trial."""
    client = MlflowClient(uri or f"sqlite:///{root}/mlflow.db")
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    found, models = client.search_runs([experiment]), client.search_logged_models([experiment])
    kept = {model.source_run_id: (model.name, model.status, sorted(map(about, model.metrics))) for model in models}
    assert len(kept) == len(models), "two models of one point"
    keys = ("point_id", "trial_id", "kind")
    named = {(run.data.tags["sweep"], *map(run.data.tags.get, keys)): run for run in found}
    assert len(named) == len(found), "two runs of one trial or point"
    return {
        name: (run.info.status, run.data.params, run.data.metrics, kept.get(run.info.run_id))
        for name, run in named.items()
    }


def about(metric):
    return metric.key, metric.value, metric.dataset_name or "", metric.dataset_digest or ""


def is_sound(root):
    with closing(sqlite3.connect(root / "mlflow.db")) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.fixture
def whole(tmp_path, journaled):
    """What MLflow holds of an undisturbed sweep, and how long its tracking took."""
    folder, began = journaled(tmp_path / "whole" / "s"), time.monotonic()
    driver = drive(folder)
    assert driver.stdout.readline() == "begun\n"
    began = time.monotonic()
    assert driver.communicate() == ("done\n", "")
    seconds = time.monotonic() - began
    held = content(folder.parent)
    assert len(held) == 1 + 6 + 12
    assert len([model for *_, model in held.values() if model]) == 6
    return held, seconds


def test_a_driver_killed_at_any_moment_of_creation_or_writing_costs_nothing(tmp_path, journaled, whole):
    held, seconds = whole
    for moment in range(14):
        folder = journaled(tmp_path / f"killed_{moment}" / "s")
        driver = drive(folder)
        assert driver.stdout.readline() == "begun\n"
        time.sleep(seconds * (moment + 0.5) / 14)
        driver.kill()
        driver.communicate()
        ran = collate(folder)
        assert (ran.returncode, ran.stderr) == (0, ""), moment
        assert content(folder.parent) == held, moment
        assert is_sound(folder.parent)
        assert [path.name for path in folder.parent.glob(".mlflow-*.db*")] == []


def test_one_folder_killed_again_and_again_is_whole_in_the_end(tmp_path, journaled, whole):
    held, seconds = whole
    folder = journaled(tmp_path / "again" / "s")
    for moment in range(8):
        driver = drive(folder)
        assert driver.stdout.readline() == "begun\n"
        time.sleep(seconds * (moment + 0.5) / 8)
        driver.kill()
        driver.communicate()
    driver = drive(folder)
    assert driver.communicate() == ("begun\ndone\n", "")
    assert content(folder.parent) == held
    assert is_sound(folder.parent)


def test_three_drivers_on_new_results_are_all_tracked(tmp_path, journaled, whole):
    folders = [journaled(tmp_path / "three" / name) for name in ("s", "one", "two")]
    drivers = [drive(folder) for folder in folders]
    ended = [(*driver.communicate(), driver.returncode) for driver in drivers]
    assert ended == [("begun\ndone\n", "", 0)] * 3
    found = content(tmp_path / "three")
    assert len(found) == 3 * 19
    assert {name: run for name, run in found.items() if name[0] == "s"} == whole[0]


@pytest.mark.parametrize("moment", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_an_interrupted_driver_ends_at_once_as_an_interrupted_one(tmp_path, journaled, whole, moment):
    """Its thread is in the middle of something, an import or a write, and must not end it otherwise."""
    held, seconds = whole
    script = DRIVER.replace("raise KeyboardInterrupt", f"__import__('time').sleep({seconds * moment}); sys.exit(130)")
    folder = journaled(tmp_path / "interrupted" / "s")
    ran = subprocess.run([sys.executable, "-c", script, str(folder), "interrupted"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "begun\n", "")
    assert collate(folder).returncode == 0
    assert content(folder.parent) == held


def test_a_disk_that_is_full_while_the_database_is_created(tmp_path, journaled, whole):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        folder = journaled(small / "s")
        driver = drive(folder)
        said, told = driver.communicate()
        assert (said, driver.returncode) == ("begun\ndone\n", 0)
        assert len(told.splitlines()) == 1
        assert "SQLITE_FULL" in told or "No space left on device" in told or "SQLITE_IOERR" in told
        assert sorted(path.name for path in small.iterdir()) == [".mlflow-lock", "s"]
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        ran = collate(folder)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert content(small) == whole[0]
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_a_server_that_hangs_is_given_up_with_one_warning(tmp_path, journaled, monkeypatch, answer):
    folder = journaled(tmp_path / "hung" / "s")
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        driver = drive(folder)
        server.settimeout(60)
        connection, _ = server.accept()
        with closing(connection):
            connection.sendall(answer)
            said, told = driver.communicate(timeout=60)
    assert (said, driver.returncode) == ("begun\ndone\n", 0)
    [warning] = told.splitlines()
    assert warning.startswith(f"MLflow at {address} failed: MlflowException from ")
    assert not (folder.parent / "mlflow.db").exists()


def test_a_server_that_answers_a_byte_now_and_then_is_not_waited_for(tmp_path, journaled, monkeypatch):
    """Every byte begins its timeout anew."""
    monkeypatch.delenv("END_SECONDS")
    folder = journaled(tmp_path / "slow" / "s")
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.getsockname()[1]}")
        driver = drive(folder)
        server.settimeout(60)
        connection, _ = server.accept()
        with closing(connection):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            for _ in range(60):
                if driver.poll() is not None:
                    break
                connection.sendall(b"x")
                time.sleep(1)
            said, told = driver.communicate(timeout=1)
    assert (said, driver.returncode) == ("begun\ndone\n", 0)
    [warning] = told.splitlines()
    assert "was not done 30 seconds after the sweep's end." in warning


def test_a_real_server_is_filled_in_while_it_runs_and_after_it_was_down(tmp_path, journaled, monkeypatch, whole):
    folder, server_folder = journaled(tmp_path / "served" / "s"), tmp_path / "server"
    shutil.copytree(tmp_path / "whole", server_folder, ignore=shutil.ignore_patterns("s"))
    (server_folder / "mlflow.db").unlink()
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    down = drive(folder)
    said, told = down.communicate()
    assert (said, down.returncode, len(told.splitlines())) == ("begun\ndone\n", 0, 1)
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{server_folder}/mlflow.db"]
    command += ["--artifacts-destination", str(server_folder / "artifacts"), "--port", str(port), "--workers", "1"]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            for _ in range(120):
                with closing(socket.socket()) as tried:
                    if tried.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.5)
            ran = collate(folder)
            assert (ran.returncode, ran.stderr) == (0, "")
            once = content(None, address)
            assert once == whole[0]
            assert collate(folder).returncode == 0
            assert content(None, address) == once
        finally:
            server.terminate()
