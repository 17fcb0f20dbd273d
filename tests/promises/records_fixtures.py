"""Lethe's commands in processes that a test can watch and kill, forked from one that has imported what takes long."""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
COSTS = ["erase_seconds", "measure_seconds", "peak_memory_bytes"]
"""Columns of table.csv that no two runs share."""
IMPORTED = (
    *("transformers", "sentence_transformers", "deepspeed", "scipy.stats", "matplotlib.backends.backend_pdf"),
    *("fontTools.ttLib", "pygments.lexers", "mlflow.store.tracking.sqlalchemy_store"),
)
"""Which of a command's imports take longest."""


class Commands:
    """Runs one command after the other, each as `python -m MODULE ARGUMENTS` would, in a process group of its own."""

    def __init__(self):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment.pop("MLFLOW_TRACKING_URI", None)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._parent = subprocess.Popen([sys.executable, __file__], text=True, cwd=ROOT, env=environment, **pipes)
        atexit.register(self.close)

    def close(self):
        self._parent.kill()
        self._parent.communicate()

    def start(self, module, *arguments, log):
        """Start a command whose output goes to the file `log`, and return the id of its process."""
        self._parent.stdin.write(json.dumps([module, list(map(str, arguments)), str(log)]) + "\n")
        self._parent.stdin.flush()
        return int(self._parent.stdout.readline())

    def end(self):
        """Wait for the command's end, and return its exit code: minus the signal if one killed it."""
        return int(self._parent.stdout.readline())

    def run(self, module, *arguments, log):
        """Run a command that must succeed, and return all that it printed."""
        self.start(module, *arguments, log=log)
        code = self.end()
        assert code == 0, f"exit code {code}: {log.read_text()}"
        return log.read_text()

    def sweep(self, file, results, *arguments):
        """Run a sweep inline, and return all that it printed."""
        results.mkdir(parents=True, exist_ok=True)
        inline = ("--executor", "inline", "--results", results)
        return self.run("harness.sweep", file, *inline, *arguments, log=results / "log")


@functools.cache
def commands():
    """Return the commands' parent of this test process."""
    return Commands()


def serve():
    """Fork a process for each command that stands on standard input; print its id, and when it ends its exit code."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What an import prints is no answer.
    for name in IMPORTED:
        importlib.import_module(name)
    # Lethe's own modules are imported with what they are asked for.
    importlib.import_module("harness").run_sweep  # noqa: B018
    importlib.import_module("harness").load_results  # noqa: B018
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        module, arguments, log = json.loads(line)
        if (pid := os.fork()) == 0:
            os.setsid()
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.argv[1:] = arguments
            sys.modules.pop(module, None)
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            sys.exit()
        print(pid, file=answers)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers)


def kill_when(pid, is_there, results, begun, seconds=240):
    """Kill a process and its group as soon as it is there; fail if it ends before that, or leaves others behind.

    Args:
        pid: The process.
        is_there: Called with the results, `pid` and `begun`.
        results: The folder of its results.
        begun: When it was started, in seconds since 1970.
        seconds: How long to wait at most.
    """
    end = time.monotonic() + seconds
    process = psutil.Process(pid)
    while not is_there(results, pid, begun):
        assert time.monotonic() < end, "it never came there"
        assert process.status() != psutil.STATUS_ZOMBIE, "it ended before it came there"
        time.sleep(0.002)
    started = process.children(recursive=True)
    os.killpg(pid, signal.SIGKILL)
    while left := [child for child in started if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]:
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.05)


def environment(*folders, **variables):
    """Return a process's environment in which modules are found in the folders, and ours."""
    path = [*map(str, folders), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **variables}


def install(site, name, entry_points):
    """Install a distribution as pip would: its metadata is in a folder in which Python looks for modules."""
    about = site / f"{name}-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    lines = []
    for group, places in entry_points.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in places.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))


def journal(folder):
    """Return the journal's files of a sweep, by name: what was recorded, in bytes."""
    return {file.name: file.read_bytes() for file in sorted(folder.glob("journal/*.jsonl"))}


def kinds(lines):
    """Return how many records of each kind a journal's file holds; a line that is cut off does not count."""
    whole = [line for line in lines.split(b"\n")[:-1] if line.endswith(b"}")]
    return Counter(json.loads(line)["kind"] for line in whole)


if __name__ == "__main__":
    serve()
