"""Whole sweeps as a user starts them, cold and inline, interrupted at any moment: none ignores it."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SWEEP = """# Does it end when it is told to?
name: tiny
models: [miniature-s]
data:
  forget: {source: miniature, sequences: 8}
  utility: {source: miniature, prompts: 4, prompt_tokens: 32, reference_tokens: 32}
training: {learning_rate: 1.0e-3, global_batch: 8, early_stop: null}
methods:
  emso: {epochs: [1, 2]}
evaluators:
  memorization: {el_sequences: 2}
"""
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def start(folder):
    (folder / "tiny.yaml").write_text(SWEEP)
    command = ["-m", "harness.sweep", str(folder / "tiny.yaml"), "--executor", "inline", "--results", str(folder)]
    # A shell's background jobs ignore Ctrl-C.
    heed = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", heed, sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
def test_a_cold_sweep_ends_when_it_is_told_to(tmp_path, seed):
    moments = random.Random(seed)
    signum = moments.choice(list(CODES))
    sweep = start(tmp_path)
    time.sleep(moments.choice([0.3, 3, 12, 30]) * moments.random())
    sweep.send_signal(signum)
    _, errors = sweep.communicate(timeout=60)
    # Before the first line of ours it ends Python itself, and after the last one there is nothing to end.
    assert sweep.returncode in (CODES[signum], -signum, 0) or "harness" not in errors, errors


@pytest.mark.soak
def test_an_interrupted_sweep_reports_what_it_has_and_the_same_command_continues(tmp_path):
    sweep = start(tmp_path)
    assert sweep.stdout is not None
    assert "memorization" in sweep.stdout.readline()
    sweep.send_signal(signal.SIGTERM)
    _, errors = sweep.communicate(timeout=120)
    assert sweep.returncode == 143
    assert errors.endswith(f"The report of what is measured: {tmp_path / 'tiny' / 'report.html'}\n")
    assert len((tmp_path / "tiny" / "table.csv").read_text().splitlines()) >= 2
    again = start(tmp_path)
    again.communicate(timeout=240)
    assert again.returncode == 0
    assert len((tmp_path / "tiny" / "table.csv").read_text().splitlines()) == 6  # A header and five points
