"""A sweep on a cluster of several nodes, all on this machine: a node is lost, the head dies, the sweep is ended."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import pytest

from harness.records.journal import Journal
from harness.records.record import Failed, Measurement, Started

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to see what became of the workers"),
]
CLUSTER = """
import sys
import ray
from ray.cluster_utils import Cluster

ray._private.utils.write_ray_address = lambda *args: None  # Into a folder that all clusters of this machine share.
common = {"temp_dir": sys.argv[1], "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **common})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
print(cluster.address, flush=True)
for line in sys.stdin:
    if line == "a node\\n":
        cluster.remove_node(nodes.pop(), allow_graceful=False)
    elif line == "the control service\\n":
        cluster.head_node.kill_gcs_server(check_alive=False)
    elif line == "the head\\n":
        cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
    print("done", flush=True)
"""
SWEEP = """
# Does it matter where it runs?
name: cluster
models: [miniature-s]
data:
  forget: {source: miniature, sequences: 8}
  utility: {source: miniature, prompts: 4, prompt_tokens: 32, reference_tokens: 16}
  validation: {source: miniature, sequences: 4}
training: {learning_rate: 1.0e-3, global_batch: 4, early_stop: null}
methods:
  gradient_ascent: {epochs: EPOCHS}
  emso: {epochs: EPOCHS}
evaluators: {memorization: {el_sequences: 2}}
collapse: {}
"""
HEEDING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
"""A shell's background jobs ignore Ctrl-C."""
NUMBERS = ["variant", "strength", "seed", "ma", "el_3", "trial_id", "point_id"]


@pytest.fixture
def cluster(tmp_path):
    """A running cluster, which can be told to lose something."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp", ignore_cleanup_errors=True) as base:
        running = subprocess.Popen(
            [sys.executable, "-c", CLUSTER, base],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(tmp_path / "cluster.err").open("w"),
            text=True,
            env=plain,
        )
        address = running.stdout.readline().strip()
        assert address, (tmp_path / "cluster.err").read_text()

        def lose(what):
            print(what, file=running.stdin, flush=True)
            assert running.stdout.readline() == "done\n"

        lose.environment = {**plain, "RAY_ADDRESS": address}
        yield lose
        running.stdin.close()
        running.wait(60)


@pytest.fixture
def start(tmp_path, cluster):
    """Return a starter of sweeps on the cluster, or inline."""
    started = []

    def run(epochs, *options):
        (tmp_path / "cluster.yaml").write_text(SWEEP.lstrip().replace("EPOCHS", json.dumps(epochs)))
        command = [sys.executable, "-c", HEEDING, sys.executable, "-m", "harness.sweep", str(tmp_path / "cluster.yaml")]
        where = ["--results", str(tmp_path / ("inline" if options else "r"))]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        sweep = subprocess.Popen([*command, *where, *options], env=cluster.environment, **pipes)
        started.append(sweep)
        return sweep

    yield run
    for sweep in started:
        sweep.kill()
        sweep.communicate()


def until_measured(tmp_path, sweep):
    """Wait until both methods are running and have a number."""
    journal = Journal(tmp_path / "r" / "cluster" / "journal")
    for _ in range(6000):
        assert sweep.poll() is None, sweep.communicate()
        if journal.folder.exists():
            records = {name: journal.read(name) for name in journal.trial_ids()}
            running = [name for name in records if any(isinstance(each, Measurement) for each in records[name])]
            if len(running) == 2:
                return
        time.sleep(0.1)
    raise AssertionError("two trials should be running")


def workers():
    """Return the workers that run a trial."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if name.startswith(b"ray::ImplicitFunc"):
            found.append(int(process.name))
    return found


def test_the_trial_of_a_lost_node_is_tried_once_more_elsewhere(tmp_path, cluster, start):
    epochs = list(range(1, 13))
    sweep = start(epochs)
    until_measured(tmp_path, sweep)
    cluster("a node")
    _, errors = sweep.communicate(timeout=900)
    assert sweep.returncode == 0, errors
    journal = Journal(tmp_path / "r" / "cluster" / "journal")
    begun = {name: sum(isinstance(each, Started) for each in journal.read(name)) for name in journal.trial_ids()}
    assert sorted(begun.values())[-2:] == [1, 2], "one trial was lost with its node"
    inline = start(epochs, "--executor", "inline")
    _, errors = inline.communicate(timeout=900)
    assert inline.returncode == 0, errors
    tables = [pd.read_csv(tmp_path / where / "cluster" / "table.csv")[NUMBERS] for where in ("r", "inline")]
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.parametrize("what", ["the control service", "the head"])
def test_a_cluster_whose_head_dies_is_told(tmp_path, cluster, start, what):
    sweep = start(list(range(1, 4000)))
    until_measured(tmp_path, sweep)
    began = time.monotonic()
    cluster(what)
    _, errors = sweep.communicate(timeout=400)
    print(f"{what}: exit {sweep.returncode} after {time.monotonic() - began:.0f} s")
    assert sweep.returncode == 1, errors
    assert "the cluster's head (" in errors
    assert "could not be reached while the sweep ran. What is measured is kept" in errors
    assert not any(isinstance(each, Failed) for each in records(tmp_path))


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_trials_of_a_cluster(tmp_path, cluster, start, signum, code):
    sweep = start(list(range(1, 4000)))
    until_measured(tmp_path, sweep)
    before = workers()
    assert len(before) == 2
    sweep.send_signal(signum)
    _, errors = sweep.communicate(timeout=300)
    assert sweep.returncode == code, errors
    assert "The report of what is measured" in errors
    for _ in range(300):
        if not set(before) & set(workers()):
            break
        time.sleep(0.1)
    assert not set(before) & set(workers())
    assert not any(isinstance(each, Failed) for each in records(tmp_path))


def records(tmp_path):
    journal = Journal(tmp_path / "r" / "cluster" / "journal")
    return [record for name in journal.trial_ids() for record in journal.read(name)]
