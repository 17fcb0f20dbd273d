"""Whole sweeps in one process, one of whose methods has every accident: the others have their own table."""

import csv
import os
import stat
import subprocess
import sys

import pytest

SWEEP = """
# What does an accident of one method do to the next?
name: accidents
models: [miniature-s]
data:
  forget: {source: miniature, sequences: 4, sequence_tokens: 32, prefix_tokens: 8}
  retain: {source: miniature, sequences: 4}
  utility: {source: miniature, prompts: 4, reference_tokens: 16}
  validation: {source: miniature, sequences: 4}
training: {learning_rate: 1.0e-3, global_batch: 4, early_stop: null}
methods:
  harmful_method: {harm: HARM, epochs: [1]}
  gradient_difference: {epochs: [1, 2]}
evaluators: {memorization: {el_sequences: 4}}
resources: {cpus: 2}
report: {samples: redacted}
"""
"""Each trial takes both of the CPUs of a small machine: Ray gives all to one worker, one after the other."""
UNLIKE = ("seconds", "trial_id", "point_id", "commit", "peak_memory")


def table(tmp_path, hostile, harm, executor):
    """Run the sweep; return the rows of its sound method."""
    folder = tmp_path / f"{harm}-{executor}"
    folder.mkdir()
    (folder / "accidents.yaml").write_text(SWEEP.lstrip().replace("HARM", harm))
    paths = os.pathsep.join([*map(str, hostile), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "harness.sweep", str(folder / "accidents.yaml"), "--results", str(folder / "r")]
    done = subprocess.run(
        [*command, "--executor", executor],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    journal = (folder / "r" / "accidents" / "journal").glob("*.jsonl")
    assert all(stat.S_IMODE(file.stat().st_mode) & stat.S_IRUSR for file in journal)
    with (folder / "r" / "accidents" / "table.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["method"] != "harmful_method"]
    assert {row["method"] for row in rows} == {"original", "gradient_difference", "retrained", "holdout"}
    return [{name: value for name, value in row.items() if not any(word in name for word in UNLIKE)} for row in rows]


@pytest.mark.soak
@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_the_other_methods_have_the_numbers_that_they_have_alone(tmp_path, hostile, executor):
    assert table(tmp_path, hostile, "accidents", executor) == table(tmp_path, hostile, "none", "inline")
