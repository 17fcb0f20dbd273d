"""Whole sweeps with a harmful method: the others have the numbers that they have alone, and a search goes on."""

import csv
import os
import stat
import subprocess
import sys

import pytest

from harness.records.journal import Journal
from harness.records.record import PAST, WHOLE, Candidate

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
"""Each trial takes both of the CPUs of a small machine, so that one follows the other."""
UNLIKE = ("seconds", "trial_id", "point_id", "commit", "peak_memory")


def swept(folder, hostile, text, executor):
    """Run a sweep beside the hostile plugins, and return its results folder."""
    folder.mkdir(exist_ok=True)
    (folder / "sweep.yaml").write_text(text.lstrip())
    paths = os.pathsep.join([*map(str, hostile), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "harness.sweep", str(folder / "sweep.yaml"), "--results", str(folder / "r")]
    done = subprocess.run(
        [*command, "--executor", executor],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(path.parents[1] for path in (folder / "r").glob("*/journal/plan.json"))


def table(tmp_path, hostile, harm, executor):
    """Run the sweep; return the rows of its sound method."""
    results = swept(tmp_path / f"{harm}-{executor}", hostile, SWEEP.replace("HARM", harm), executor)
    journal = (results / "journal").glob("*.jsonl")
    assert all(stat.S_IMODE(file.stat().st_mode) & stat.S_IRUSR for file in journal)
    with (results / "table.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["method"] != "harmful_method"]
    assert {row["method"] for row in rows} == {"original", "gradient_difference", "retrained", "holdout"}
    return [{name: value for name, value in row.items() if not any(word in name for word in UNLIKE)} for row in rows]


@pytest.mark.soak
def test_the_other_methods_have_the_numbers_that_they_have_alone(tmp_path, hostile):
    """Ray gives each trial a process of its own, since the plugin is of another package."""
    assert table(tmp_path, hostile, "accidents", "ray") == table(tmp_path, hostile, "none", "inline")


HANGING = """
# What becomes of a search that hangs?
name: hanging
models: [miniature-s]
data:
  forget: {source: miniature, sequences: 8}
  retain: {source: miniature}
  utility: {source: miniature, prompts: 4, prompt_tokens: 32, reference_tokens: 16}
  validation: {source: miniature, sequences: 8}
training: {learning_rate: 1.0e-3, global_batch: 4}
tune:
  budget: {trials: 2}
  erasure: {ma: [0.8]}
  space: {harmful_method: {epochs: {low: 1, high: 2}, harm: [none, hangs]}}
methods:
  harmful_method: {timeout_minutes: 0.5, training: {learning_rate: 1.0e-3}}
evaluators: {memorization: {el_sequences: 2}}
collapse: {}
"""


@pytest.mark.soak
def test_a_candidate_that_never_ends_is_tried_and_the_sweep_goes_on(tmp_path, hostile):
    results = swept(tmp_path, hostile, HANGING, "ray")
    journal = Journal(results / "journal")
    records = [record for file in sorted(journal.folder.glob("*.jsonl")) for record in journal.read(file.stem)]
    ends = {record.settings["harm"]: record.end for record in records if isinstance(record, Candidate)}
    assert ends["none"] in (WHOLE, PAST)
    assert ends["hangs"].startswith(
        "TrialError: it ran longer than methods.harmful_method.timeout_minutes: 0.5 allows."
    )
    assert (results / "report.html").exists()
