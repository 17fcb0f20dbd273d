"""Three sweeps at once on one results folder."""

import csv
import subprocess
import sys
from collections import Counter

import pytest

pytestmark = pytest.mark.soak
SWEEP = """
# Does anything get lost?
name: NAME
models: [miniature-s]
seeds: [0]
data:
  forget: {source: miniature, sequences: 8}
  utility: {source: miniature, prompts: 4, reference_tokens: 16}
  validation: {source: miniature, sequences: 4}
training: {learning_rate: 1.0e-3, global_batch: 4}
memorized_model: {epochs: 1, gate: 0.1}
methods:
  task_arithmetic: {gamma: [0.05, 0.1]}
evaluators: {memorization: {el_prefixes: 1}}
collapse: {}
ranking: {at: {task_arithmetic: 0.05}}
"""


def test_three_sweeps_at_once_on_one_results_folder_share_one_memorised_model(tmp_path):
    names = ["one", "two", "three"]
    commands = []
    for place, name in enumerate(names):
        seeded = SWEEP.lstrip().replace("NAME", name).replace("seeds: [0]", f"seeds: [{place}]")
        (tmp_path / f"{name}.yaml").write_text(seeded)
        file, results = str(tmp_path / f"{name}.yaml"), str(tmp_path / "r")
        commands.append([sys.executable, "-m", "harness.sweep", file, "--results", results, "--executor", "inline"])
    running = [subprocess.Popen(each, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for each in commands]
    outputs = [each.communicate(timeout=900)[0] for each in running]
    assert [each.returncode for each in running] == [0, 0, 0], outputs
    models = [path for path in (tmp_path / "r" / "artifacts" / "memorized").iterdir() if path.name[0] != "."]
    assert len(models) == 1, "one memorised model serves every seed and sweep"
    for name in names:
        with (tmp_path / "r" / name / "table.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert Counter(row["variant"] for row in rows)["task_arithmetic"] == 2
        assert {"original", "retrained", "holdout", "task_arithmetic"} == {row["variant"] for row in rows}
    assert sum("memorize" in output and "finished" in output for output in outputs) >= 1
