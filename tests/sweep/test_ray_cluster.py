"""A sweep on a cluster of several nodes, all on this machine, one of which is lost.

The nodes have addresses of their own on the loopback interface, 127.0.0.2 and on.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

import pandas as pd
import pytest

from harness.cli import main
from harness.records.journal import Journal, Measurement, Started

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
    cluster.remove_node(nodes.pop(), allow_graceful=False)
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
COSTS = ["erase_seconds", "measure_seconds", "peak_memory_bytes"]


PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


@pytest.fixture
def cluster(tmp_path):
    """A running cluster, whose last node each line that is written to it removes."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp", ignore_cleanup_errors=True) as base:
        errors, command = (tmp_path / "cluster.err").open("w"), [sys.executable, "-c", CLUSTER, base]
        running = subprocess.Popen(command, **PIPES, stderr=errors, env=PLAIN)
        running.address = running.stdout.readline().strip()
        assert running.address, (tmp_path / "cluster.err").read_text()
        yield running
        running.stdin.close()
        running.wait(60)


@pytest.fixture
def sweep(tmp_path, cluster):
    """The sweep, started on the cluster."""
    (tmp_path / "cluster.yaml").write_text(SWEEP.lstrip().replace("EPOCHS", json.dumps([*range(1, 13)])))
    command = [sys.executable, "-m", "harness.sweep", str(tmp_path / "cluster.yaml"), "--results", str(tmp_path / "r")]
    # Not where this code is: Ray has all nodes look for modules where the driver stands.
    around = {"cwd": tmp_path, "env": {**PLAIN, "RAY_ADDRESS": cluster.address}}
    with subprocess.Popen(command, **PIPES, stderr=subprocess.PIPE, **around) as running:
        yield running
        running.kill()


def records_by_trial(tmp_path):
    journal = Journal(tmp_path / "r" / "cluster" / "journal")
    return [journal.read(file.stem) for file in sorted(journal.folder.glob("*.jsonl"))]


def until_measured(tmp_path, sweep):
    """Wait until both methods are running and have a number."""
    for _ in range(6000):
        assert sweep.poll() is None, sweep.communicate()
        if sum(any(_is_of_a_method(each) for each in records) for records in records_by_trial(tmp_path)) == 2:
            return
        time.sleep(0.1)
    raise AssertionError("two trials should be running")


def _is_of_a_method(record):
    return isinstance(record, Measurement) and record.strength is not None


@pytest.mark.soak
def test_the_trial_of_a_lost_node_is_tried_once_more_elsewhere(tmp_path, cluster, sweep):
    until_measured(tmp_path, sweep)
    print("a node", file=cluster.stdin, flush=True)
    assert cluster.stdout.readline() == "done\n"
    output, errors = sweep.communicate(timeout=900)
    assert sweep.returncode == 0, errors
    assert output.count("its process died: it is tried once more") == 1
    records = records_by_trial(tmp_path)
    attempts = [[each for each in of_trial if isinstance(each, Started)] for of_trial in records]
    assert sorted(map(len, attempts)) == [1, 1, 1, 1, 2], "one trial was lost with its node"
    [twice] = [[begun.node.split()[-1] for begun in of_trial] for of_trial in attempts if len(of_trial) == 2]
    assert twice == ["(127.0.0.3)", "(127.0.0.2)"]
    measured = [each.key + each.point_id for of_trial in records for each in of_trial if isinstance(each, Measurement)]
    assert len(set(measured)) == len(measured), "nothing is measured twice"
    shown = (tmp_path / "r" / "cluster" / "report.html").read_text()
    assert re.search(r"<td[^>]*>\S+ \(127\.0\.0\.3\), then \S+ \(127\.0\.0\.2\)<", shown)
    assert "Ran on" in shown
    arguments = ["--executor", "inline", "--results", str(tmp_path / "inline")]
    assert main(["sweep", str(tmp_path / "cluster.yaml"), *arguments]) == 0
    tables = [pd.read_csv(tmp_path / where / "cluster" / "table.csv").drop(columns=COSTS) for where in ("r", "inline")]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
