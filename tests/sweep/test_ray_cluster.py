"""A sweep on a cluster of several nodes, all on this machine: what a node lacks is told; nodes are lost, the head dies.

The nodes have addresses of their own on the loopback interface, 127.0.0.2 and on.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import pytest

from harness.records.journal import Journal
from harness.records.record import Failed, Measurement, Point, Started

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
nodes = [cluster.add_node(num_cpus=1, node_ip_address=f"127.0.0.{number}") for number in (2, 3)]
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
WORKERS = """
# Do two workers on two machines do what they do on one?
name: cluster
models: [{id: miniature-s, engine: {deepspeed: {zero_stage: 2, workers: 2}}}]
data:
  forget: {source: miniature, sequences: 8}
  utility: {source: miniature, prompts: 4, reference_tokens: 16}
  validation: {source: miniature, sequences: 4}
training: {learning_rate: 1.0e-3, global_batch: 4}
memorized_model: {epochs: 1, gate: 0.1}
methods:
  gradient_ascent: {epochs: [1]}
  task_arithmetic: {gamma: [0.05]}
evaluators: {memorization: {el_prefixes: 1}}
collapse: {}
"""
COSTS = ["erase_seconds", "measure_seconds", "peak_memory_bytes"]


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

        lose.temporary = base
        lose.environment = {**plain, "RAY_ADDRESS": address}
        yield lose
        running.stdin.close()
        running.wait(60)


@pytest.fixture
def start(tmp_path, cluster):
    """Return a starter of sweeps on the cluster, or inline."""
    started = []

    def run(epochs, *options, text=SWEEP):
        (tmp_path / "cluster.yaml").write_text(text.lstrip().replace("EPOCHS", json.dumps(epochs)))
        command = [sys.executable, "-c", HEEDING, sys.executable, "-m", "harness.sweep", str(tmp_path / "cluster.yaml")]
        where = ["--results", str(tmp_path / ("inline" if options else "r"))]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = {
            name: value for name, value in cluster.environment.items() if name != "RAY_ADDRESS" or not options
        }
        # Not where this code is: Ray has all nodes look for modules where the driver stands.
        sweep = subprocess.Popen([*command, *where, *options], env=environment, cwd=tmp_path, **pipes)
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
            records = {file.stem: journal.read(file.stem) for file in journal.folder.glob("*.jsonl")}
            running = [name for name in records if any(_is_of_a_method(each) for each in records[name])]
            if len(running) == 2:
                return
        time.sleep(0.1)
    raise AssertionError("two trials should be running")


def _is_of_a_method(record):
    return isinstance(record, Measurement) and record.strength is not None


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
    output, errors = sweep.communicate(timeout=900)
    assert sweep.returncode == 0, errors
    assert output.count("its process died: it is tried once more") == 1
    journal = Journal(tmp_path / "r" / "cluster" / "journal")
    files = sorted(journal.folder.glob("*.jsonl"))
    attempts = [[each for each in journal.read(file.stem) if isinstance(each, Started)] for file in files]
    assert sorted(map(len, attempts)) == [1, 1, 1, 1, 2], "one trial was lost with its node"
    [twice] = [[begun.node.split()[-1] for begun in of_trial] for of_trial in attempts if len(of_trial) == 2]
    assert twice == ["(127.0.0.3)", "(127.0.0.2)"]
    measured = [each.key + each.point_id for each in records(tmp_path) if isinstance(each, Measurement)]
    assert len(set(measured)) == len(measured), "nothing is measured twice"
    shown = (tmp_path / "r" / "cluster" / "report.html").read_text()
    assert re.search(r"<td>\S+ \(127\.0\.0\.3\): [^<]+, then \S+ \(127\.0\.0\.2\): ", shown)
    assert "Ran on" in shown
    inline = start(epochs, "--executor", "inline")
    _, errors = inline.communicate(timeout=900)
    assert inline.returncode == 0, errors
    compare_tables(tmp_path)


def compare_tables(tmp_path):
    """All but times and memory is the same in every digit."""
    tables = [pd.read_csv(tmp_path / where / "cluster" / "table.csv").drop(columns=COSTS) for where in ("r", "inline")]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def test_two_workers_on_two_nodes_give_what_two_on_one_machine_give(tmp_path, cluster, start):
    sweep = start([1], text=WORKERS)
    _, errors = sweep.communicate(timeout=900)
    assert sweep.returncode == 0, errors
    [workers] = {each.worker_nodes for each in records(tmp_path) if isinstance(each, Point) and each.worker_nodes}
    assert sorted(node.split()[-1] for node in workers) == ["(127.0.0.2)", "(127.0.0.3)"]
    alone = start([1], "--executor", "ray", text=WORKERS)
    _, errors = alone.communicate(timeout=900)
    assert alone.returncode == 0, errors
    compare_tables(tmp_path)


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
    return [record for file in sorted(journal.folder.glob("*.jsonl")) for record in journal.read(file.stem)]
