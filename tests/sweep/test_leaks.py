"""Whole sweeps whose plugins quote the forget set when they fail: the results folder has none of it, unless asked."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

LEAKS = Path(__file__).parents[1] / "hostile_package" / "hostile" / "leaks.py"
TEXT = runpy.run_path(str(LEAKS))["TEXT"]
NAMES = [name.encode() for name in TEXT.split() if len(name) > 5]
SWEEP = """
# What is left of a text that nobody may see?
name: leaks
models: [miniature-s]
data:
  forget: {source: jsonl, path: FORGET, sequence_tokens: 40, prefix_tokens: 8}
  utility: {source: miniature, prompts: 4, reference_tokens: 16}
  validation: {source: miniature, sequences: 4}
training: {learning_rate: 1.0e-3, global_batch: 4}
methods:
  gradient_ascent: {epochs: [1]}
  leaking_method: {leak: LEAK}
evaluators: {leaking_evaluator: {leak: cause}}
collapse: {}
report: {samples: SAMPLES}
"""
pytestmark = pytest.mark.soak


def run(tmp_path, hostile, leak, samples, *options):
    rows = [json.dumps({"text": f"{TEXT} number {row}. " * 8}) for row in range(8)]
    (tmp_path / "forget.jsonl").write_text("\n".join(rows))
    text = SWEEP.lstrip().replace("FORGET", str(tmp_path / "forget.jsonl"))
    (tmp_path / "leaks.yaml").write_text(text.replace("LEAK", leak).replace("SAMPLES", samples))
    paths = os.pathsep.join([*map(str, hostile), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "harness.sweep", str(tmp_path / "leaks.yaml"), "--results", str(tmp_path / "r")]
    done = subprocess.run(
        [*command, *options], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=False, timeout=500
    )
    assert done.returncode == 1, done.stderr.decode()
    left = {file: file.read_bytes() for file in (tmp_path / "r").rglob("*") if file.is_file()}
    assert any(file.name == "report.html" for file in left)
    return left, done


@pytest.mark.parametrize(
    ("leak", "options"),
    [
        ("segfault", ()),
        ("what is printed", ()),
        ("group", ("--executor", "inline")),
        ("the type's name", ()),
        ("exit", ("--executor", "inline")),
        ("an exception of its own", ()),
    ],
)
def test_no_byte_of_the_results_folder_holds_the_text(tmp_path, hostile, leak, options):
    left, done = run(tmp_path, hostile, leak, "redacted", *options)
    assert not [(file, name) for file, content in left.items() for name in NAMES if name in content]
    if not options:
        assert not [name for name in NAMES if name in done.stdout + done.stderr], (
            "on Ray the terminal shows none either"
        )


def test_a_sweep_that_asks_for_plain_text_has_it(tmp_path, hostile):
    left, _ = run(tmp_path, hostile, "segfault", "plain")
    holding = {file.name for file, content in left.items() if TEXT.encode() in content}
    assert "report.html" in holding
    assert any(name.endswith(".jsonl") for name in holding)
    assert b"mlflow" not in b"".join(name.encode() for name in holding), "MLflow gets none in any case"
