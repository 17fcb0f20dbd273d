"""Signals: each ends a sweep as Ctrl-C does, with a report of what is measured."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SWEEP = """# Does it end when it is told to?
name: tiny
models: [miniature-s]
data:
  forget: {source: miniature, sequences: 4, sequence_tokens: 32, prefix_tokens: 8}
  utility: {source: miniature, prompts: 4, prompt_tokens: 16, reference_tokens: 16}
training: {learning_rate: 1.0e-3, global_batch: 4, early_stop: null}
methods:
  gradient_ascent: {epochs: [4000]}
evaluators: {memorization: {el_sequences: 2}}
"""
HEED = """
import os, signal, sys
for signum in (signal.SIGINT, signal.SIGHUP):  # A shell's background jobs ignore the first, and nohup the second.
    signal.signal(signum, signal.SIG_DFL)
os.execv(sys.executable, sys.argv[1:])
"""


@pytest.mark.parametrize("signum", [signal.SIGHUP, *(pytest.param(one, marks=pytest.mark.soak) for one in (2, 15))])
@pytest.mark.parametrize("executor", ["inline", pytest.param("ray", marks=pytest.mark.soak)])
def test_an_interrupted_sweep_reports_what_it_has_and_tells_how_to_go_on(tmp_path, signum, executor, mlflow_template):
    shutil.copyfile(mlflow_template, tmp_path / "mlflow.db")
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    command = [sys.executable, "-m", "harness.sweep", str(tmp_path / "tiny.yaml"), "--results", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    heeding = [sys.executable, "-c", HEED, *command, "--executor", executor]
    with subprocess.Popen(heeding, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}, **pipes) as sweep:
        next(line for line in sweep.stdout if line.startswith("original"))
        sweep.send_signal(signum)
        _, errors = sweep.communicate(timeout=300)
    assert sweep.returncode == 130, errors
    assert "Interrupted. What is measured is kept: run the same command again to continue." in errors
    assert errors.endswith(f"The report of all finished measurements: {tmp_path / 'tiny' / 'report.html'}\n")
    assert (tmp_path / "tiny" / "table.csv").read_text().count("\n") >= 2
