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
POINTS = 5
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
ON_IMPORT = """
import os, signal, sys

watches, interrupted, at = (os.environ[f"LETHE_TEST_{name}"] for name in ("WATCHES", "INTERRUPTED", "AT"))

def watch(event, given):
    if event == "import" and given[0] == "harness.planning":  # The first import once signals are watched.
        open(watches, "w").close()
    is_there = event == "import" and given[0] == at or event == "os.rename" and str(given[1]).endswith(at)
    if at and is_there and not os.path.exists(interrupted):
        open(interrupted, "w").close()
        signal.raise_signal(signal.SIGINT)

sys.addaudithook(watch)
"""


def start(folder, interrupt_at="", executor="inline", **streams):
    (folder / "tiny.yaml").write_text(SWEEP)
    (folder / "sitecustomize.py").write_text(ON_IMPORT)
    marks = {"WATCHES": str(folder / "watches"), "INTERRUPTED": str(folder / "interrupted"), "AT": interrupt_at}
    told = {f"LETHE_TEST_{name}": value for name, value in marks.items()}
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = ["-m", "harness.sweep", str(folder / "tiny.yaml"), "--executor", executor, "--results", str(folder)]
    # A shell's background jobs ignore Ctrl-C.
    heed = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", heed, sys.executable, *command],
        cwd=ROOT,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **told},
    )


def rows(folder):
    table = folder / "tiny" / "table.csv"
    return len(table.read_text().splitlines()) - 1 if table.exists() else 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
def test_a_cold_sweep_ends_when_it_is_told_to(tmp_path, seed):
    moments = random.Random(seed)
    signum = moments.choice(list(CODES))
    sweep = start(tmp_path)
    time.sleep(moments.choice([0.3, 3, 12, 30]) * moments.random())
    sweep.send_signal(signum)
    _, errors = sweep.communicate(timeout=300)
    print(f"signal {signum}: exit {sweep.returncode}, {rows(tmp_path)} rows")
    if not (tmp_path / "watches").exists():  # Python's own start is its own to end.
        assert sweep.returncode in (CODES[signum], -signum, 1), errors
    elif sweep.returncode == 0:
        assert rows(tmp_path) == POINTS
        assert (tmp_path / "tiny" / "report.html").exists()
    elif sweep.returncode == -signum:  # Python ends: all is done, and nobody watches any more.
        assert rows(tmp_path) == POINTS
    else:
        assert sweep.returncode == CODES[signum], errors
        assert "Traceback" not in errors
        assert "Exception ignored" not in errors


@pytest.mark.soak
def test_a_signal_while_the_report_is_written_lets_that_finish(tmp_path):
    sweep = start(tmp_path, "/table.csv")
    _, errors = sweep.communicate(timeout=600)
    assert (tmp_path / "interrupted").exists()
    assert sweep.returncode == 130, errors
    assert "Traceback" not in errors
    assert rows(tmp_path) == POINTS
    left = {file.name for file in (tmp_path / "tiny").iterdir() if file.is_file()}
    again = start(tmp_path)
    again.communicate(timeout=600)
    assert again.returncode == 0
    assert {file.name for file in (tmp_path / "tiny").iterdir() if file.is_file()} == left >= {"report.html"}


@pytest.mark.soak
def test_an_interrupted_sweep_reports_what_it_has_and_the_same_command_continues(tmp_path):
    sweep = start(tmp_path)
    assert sweep.stdout is not None
    next(line for line in sweep.stdout if line.startswith("original"))
    sweep.send_signal(signal.SIGTERM)
    _, errors = sweep.communicate(timeout=300)
    assert sweep.returncode == 143
    assert errors.endswith(f"The report of what is measured: {tmp_path / 'tiny' / 'report.html'}\n")
    assert 1 <= rows(tmp_path) < POINTS
    again = start(tmp_path)
    again.communicate(timeout=600)
    assert again.returncode == 0
    assert rows(tmp_path) == POINTS
