"""Whole sweeps as a user runs them: killed, resumed, extended, with a method from outside, with one that fails."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from harness import load_results, run_sweep
from harness.cli import main
from harness.errors import DataError

ROOT = Path(__file__).parents[2]
SWEEP = """# Does a very small sweep run from end to end?
name: tiny
models: [miniature-s]
seeds: [0]
data:
  forget: {source: miniature, sequences: 16, sequence_tokens: 64, prefix_tokens: 32}
  retain: {source: miniature, sequences: 16, sequence_tokens: 64}
  utility: {source: miniature, prompts: 16, prompt_tokens: 32, reference_tokens: 32}
training: {learning_rate: 1.0e-3, global_batch: 8, early_stop: null}
memorized_model: {epochs: 2, gate: 0.5}
methods:
  emso: {epochs: [1, 2]}
  task_arithmetic: {gamma: [0.05]}
  gradient_ascent: {epochs: [1]}
evaluators:
  memorization: {el_sequences: 4, el_prefixes: 4}
"""


def run(file, results, *arguments):
    return main(["sweep", str(file), "--executor", "inline", "--results", str(results), *arguments])


def table(results):
    return pd.read_csv(results / "tiny" / "table.csv").sort_values(["variant", "strength", "seed"], ignore_index=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "tiny.yaml").write_text(SWEEP)
    assert run(folder / "tiny.yaml", folder) == 0
    return folder


def test_a_sweep_leaves_what_it_promises(undisturbed):
    assert {path.name for path in (undisturbed / "tiny").iterdir()} >= {
        "journal", "table.csv", "ranking.csv", "table.md", "table.tex", "tradeoff.png", "tradeoff.pdf", "report.html",
    }  # fmt: skip
    rows = table(undisturbed)
    assert rows.variant.value_counts().to_dict() == {
        "emso": 2, "task_arithmetic": 1, "gradient_ascent": 1, "original": 1, "retrained": 1, "holdout": 1,
    }  # fmt: skip
    by_variant = rows.groupby("variant").ma.min()
    assert by_variant["retrained"] < by_variant["original"]
    assert by_variant["holdout"] < by_variant["original"] - 0.2, "the miniature recites its own forget set alone"


def test_the_page_on_the_library_runs_as_it_is_written(undisturbed, tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "docs" / "library.md").read_text(), flags=re.DOTALL)
    assert [text for kind, text in blocks if kind == "yaml"] == [SWEEP]
    shutil.copytree(undisturbed, tmp_path / "results")
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in [text for kind, text in blocks if kind == "python"]:
        exec(code, names)
    assert len(names["points"]) == 7
    assert set(names["ranks"]["label"]) == {"EMSO", "TA", "GA"}
    printed = capsys.readouterr().out
    assert "ma: MA, lower is better (EMSO paper, section 4.1.3)" in printed
    assert re.search(r"^EMSO \[\(1.0, .*\), \(2.0, .*\)\]$", printed, flags=re.MULTILINE)
    assert names["results"].report.is_file()


def test_an_erased_model_that_was_not_kept_says_how_to_keep_it(sweep_file, undisturbed, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(undisturbed, results)
    loaded = load_results(results / "tiny")
    [point] = loaded.table.query("variant == 'task_arithmetic'")["point_id"]
    with pytest.raises(DataError, match=r"was not kept\. Remove .* with --set keep_erased=all") as caught:
        loaded.model(point)
    Path(re.search(r"Remove (\S+\.jsonl)", str(caught.value)).group(1)).unlink()
    again = run_sweep(sweep_file, overrides=["keep_erased=all"], executor="inline", results=results)
    assert again.model(point).config.model_type == "gpt_neo"
    assert again.table["ma"].tolist() == loaded.table["ma"].tolist()
    [original] = again.table.query("variant == 'original'")["point_id"]
    assert again.model(original).num_parameters() == again.model(point).num_parameters()
    with pytest.raises(DataError, match="no measured point is called 'nothing'"):
        again.model("nothing")
    with pytest.raises(DataError, match=r"measured no metric called 'mauve'\. It has el_3, ma"):
        again.curves("miniature-s", x="mauve", y="ma")


def test_a_sweep_that_runs_in_parts_reports_every_part_and_what_is_left(sweep_file, tmp_path, capsys):
    parts = ["--set", "seeds=[0,1]", "--set", "methods={gradient_ascent: {epochs: [1]}}"]
    parts += ["--set", "data.forget.sequences=4", "--set", "data.utility.prompts=4"]
    first, both = r"One training run: a hint\..*Not finished: 3 of 7 trials\.", r"2 training runs\.(?!.*Not finished)"
    for seed, said in (("0", first), ("1", both)):
        assert run(sweep_file, tmp_path, *parts, "--only", f"seed={seed}") == 0, "what was not asked for has not failed"
        assert re.search(said, capsys.readouterr().out, re.S)
    assert table(tmp_path).query("variant == 'gradient_ascent'")["seed"].tolist() == [0, 1]


@pytest.mark.soak
def test_three_sweeps_at_once_on_one_results_folder_share_one_memorised_model(sweep_file, tmp_path):
    running = []
    for seed, name in enumerate(("one", "two", "three")):
        command = [sys.executable, "-m", "harness.sweep", str(sweep_file), "--results", str(tmp_path / "r")]
        command += ["--executor", "inline", "--set", f"name={name}", "--set", f"seeds=[{seed}]"]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [each.communicate(timeout=900)[0] for each in running]
    assert [each.returncode for each in running] == [0, 0, 0], outputs
    models = [path for path in (tmp_path / "r" / "artifacts" / "memorized").iterdir() if path.name[0] != "."]
    assert len(models) == 1, "one memorised model serves every seed and sweep"
    for name in ("one", "two", "three"):
        assert len(pd.read_csv(tmp_path / "r" / name / "table.csv")) == 7
