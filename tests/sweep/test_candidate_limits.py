"""A search one of whose candidates never ends: it counts as tried, and the others are chosen from."""

import os
import subprocess
import sys

import pytest

from harness.records.journal import Journal
from harness.records.record import PAST, WHOLE, Candidate

pytestmark = pytest.mark.soak
SWEEP = """
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
  trials: 2
  erasure: {ma: [0.8]}
  space: {harmful_method: {epochs: {low: 1, high: 2}, harm: [none, hangs]}}
methods:
  harmful_method: {timeout_minutes: 0.5, training: {learning_rate: 1.0e-3}}
evaluators: {memorization: {el_sequences: 2}}
collapse: {}
"""


@pytest.mark.parametrize("executor", ["ray", "inline"])
def test_a_candidate_that_never_ends_is_tried_and_the_sweep_goes_on(tmp_path, hostile, executor):
    (tmp_path / "hanging.yaml").write_text(SWEEP.lstrip())
    paths = os.pathsep.join([*map(str, hostile), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "harness.sweep", str(tmp_path / "hanging.yaml"), "--results", str(tmp_path / "r")]
    done = subprocess.run(
        [*command, "--executor", executor],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    journal = Journal(tmp_path / "r" / "hanging" / "journal")
    records = [record for name in journal.trial_ids() for record in journal.read(name)]
    ends = {each.settings["harm"]: each.end for each in records if isinstance(each, Candidate)}
    assert ends["none"] in (WHOLE, PAST)
    assert ends["hangs"].startswith(
        "TrialError: it ran longer than methods.harmful_method.timeout_minutes: 0.5 allows."
    )
    assert (tmp_path / "r" / "hanging" / "report.html").exists()
