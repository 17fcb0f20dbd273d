"""Whole sweeps as a user runs them: killed, resumed, extended, with a method from outside, with one that fails."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from harness import cli, load_results, run_sweep
from harness.errors import DataError
from harness.plugins import EVALUATORS, METHODS
from harness.records.journal import Journal
from harness.records.record import Failed, Measurement, Started, Stopped
from harness.sweep import main

ROOT = Path(__file__).parents[2]
PLUGIN_PACKAGE = ROOT / "tests" / "plugin_package"
SWEEP = """# Does a very small sweep run from end to end?
name: tiny
models: [miniature-s]
seeds: [0]
data:
  forget: {source: miniature, sequences: 16}
  retain: {source: miniature, sequences: 16}
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
NUMBERS = ["variant", "strength", "seed", "el_3", "ma", "ss", "exact_match"]


@pytest.fixture
def sweep_file(tmp_path):
    file = tmp_path / "tiny.yaml"
    file.write_text(SWEEP)
    return file


def run(file, results, *arguments):
    return main([str(file), "--executor", "inline", "--results", str(results), *arguments])


def table(results):
    frame = pd.read_csv(results / "tiny" / "table.csv")
    return frame[NUMBERS].sort_values(["variant", "strength", "seed"]).reset_index(drop=True)


def records(results, kind):
    journal = Journal(results / "tiny" / "journal")
    files = sorted(journal.folder.glob("*.jsonl"))
    return [record for file in files for record in journal.read(file.stem) if isinstance(record, kind)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    file = folder / "tiny.yaml"
    file.write_text(SWEEP)
    assert run(file, folder) == 0
    return folder


def test_a_sweep_leaves_what_it_promises(undisturbed):
    names = {path.name for path in (undisturbed / "tiny").iterdir()}
    assert names >= {
        "journal", "table.csv", "ranking.csv", "table.md", "table.tex", "tradeoff.png", "tradeoff.pdf", "report.html",
    }  # fmt: skip
    rows = table(undisturbed)
    assert rows.variant.value_counts().to_dict() == {
        "emso": 2, "task_arithmetic": 1, "gradient_ascent": 1, "original": 1, "retrained": 1, "holdout": 1,
    }  # fmt: skip
    by_variant = rows.groupby("variant").ma.min()
    assert by_variant["retrained"] < by_variant["original"]
    assert by_variant["holdout"] < by_variant["original"] - 0.2, "the miniature recites its own forget set alone"


def test_what_the_miniature_recites_is_ranked(undisturbed):
    ranking = pd.read_csv(undisturbed / "tiny" / "ranking.csv")
    assert ranking.recited.eq(True).all()
    assert ranking.rank_erasure.notna().any()
    assert "othing to erase" not in (undisturbed / "tiny" / "report.html").read_text()


def test_letters_that_no_model_ever_saw_are_not_ranked_and_that_is_said_first(sweep_file, tmp_path, capsys):
    words = [
        "harbour",
        "lantern",
        "copper",
        "orchard",
        "thimble",
        "verdict",
        "saddle",
        "pepper",
        "gravel",
        "mitten",
        "quarry",
        "velvet",
    ]
    letters = [" ".join(["Dear", *(words[(at * (7 + row) + at // 5) % 12] for at in range(60))]) for row in range(6)]
    (tmp_path / "letters.jsonl").write_text("\n".join(json.dumps({"text": letter}) for letter in letters))
    forget = f"{{source: jsonl, path: {tmp_path}/letters.jsonl, prefix_tokens: 20, sequence_tokens: 50}}"
    changes = [f"data.forget={forget}", "methods={emso: {epochs: [1]}}", "data.utility.prompts=4"]
    changes += ["evaluators={memorization: {el_prefixes: 2}, generation: {}}", "data.utility.reference_tokens=16"]
    arguments = [part for change in changes for part in ("--set", change)]
    assert run(sweep_file, tmp_path, *arguments) == 0, "a true answer"
    [row] = pd.read_csv(tmp_path / "tiny" / "ranking.csv").to_dict("records")
    assert (row["recited"], row["unranked"]) == (False, "nothing to erase")
    assert pd.isna([row["rank_erasure"], row["rank_generation"], row["rank_average"]]).all()
    report = (tmp_path / "tiny" / "report.html").read_text()
    first = "Nothing to erase, so nothing is ranked"
    assert report.index(first) < report.index('aria-label="Outcome"') < report.index("<h2")
    assert "Average rank" not in report
    printed = capsys.readouterr().out
    assert printed.index(first) < printed.index("Method")
    assert not any(word in report for word in words), "no text of the forget set"


def test_killed_and_run_again_it_does_only_what_was_missing(sweep_file, tmp_path, undisturbed):
    command = [
        sys.executable,
        "-m",
        "harness.sweep",
        str(sweep_file),
        "--executor",
        "inline",
        "--results",
        str(tmp_path),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(_lines(tmp_path)) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "before its end"
    before = _lines(tmp_path)
    assert run(sweep_file, tmp_path) == 0
    assert set(before) <= set(_lines(tmp_path))
    pd.testing.assert_frame_equal(table(tmp_path), table(undisturbed))
    measured = [(record.point_id, record.key) for record in records(tmp_path, Measurement)]
    assert len(measured) == len(set(measured)) == 7


def _lines(results):
    """Return every whole measurement line of every journal."""
    files = (results / "tiny" / "journal").glob("*.jsonl")
    lines = [line for file in files for line in file.read_text().splitlines(keepends=True)]
    return [line for line in lines if line.endswith("\n") and '"measurement"' in line]


def test_running_it_again_runs_nothing(sweep_file, undisturbed):
    started = len(records(undisturbed, Started))
    assert run(sweep_file, undisturbed) == 0
    assert len(records(undisturbed, Started)) == started


OTHER_STRENGTHS_AND_A_VARIANT = (
    "methods.emso.epochs=[1,2,3]",
    "methods.task_arithmetic.gamma=[0.05,0.1]",
    "methods.emso_one={method: emso, k: 1, epochs: [1]}",
    "ranking.at={task_arithmetic: 0.05}",
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (OTHER_STRENGTHS_AND_A_VARIANT, {"emso": 1, "task_arithmetic": 1, "emso_one": 1}),
        (["seeds=[0,1]"], {"emso": 2, "task_arithmetic": 1, "gradient_ascent": 1, "original": 1, "retrained": 1}),
    ],
)
def test_an_addition_runs_only_that(changes, expected, sweep_file, undisturbed, tmp_path):
    results = tmp_path / "copy"
    shutil.copytree(undisturbed, results)
    before = len(records(results, Started)), len(records(results, Measurement))
    assert run(sweep_file, results, *(part for change in changes for part in ("--set", change))) == 0
    started, new = records(results, Started), records(results, Measurement)
    variants = {record.trial_id: record.spec["variant"] for record in started}
    assert len(started) - before[0] == len(expected)
    assert len(new) - before[1] == sum(expected.values())
    earlier = {(record.point_id, record.key) for record in records(undisturbed, Measurement)}
    added = [variants[record.trial_id] for record in new if (record.point_id, record.key) not in earlier]
    assert Counter(added) == expected


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
    original = names["results"].model(names["results"].table.query("variant == 'original'")["point_id"].item())
    changed = [not torch.equal(*pair) for pair in zip(names["erased"].parameters(), original.parameters(), strict=True)]
    assert 0 < sum(changed) <= 4, "two blocks in each of two epochs"
    assert names["results"].report.is_file()
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "erased-model").state_dict()
    assert all(torch.equal(weight, exported[name]) for name, weight in names["erased"].state_dict().items())
    assert (tmp_path / "my_tradeoff.png").stat().st_size > 1000


def test_an_erased_model_that_was_not_kept_says_how_to_keep_it(sweep_file, undisturbed, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(undisturbed, results)
    loaded = load_results(results / "tiny")
    [point] = loaded.table.query("variant == 'task_arithmetic'")["point_id"]
    with pytest.raises(DataError, match=r"keep_erased: patch\. Say keep_erased: all, remove") as caught:
        loaded.model(point)
    journal = Path(re.search(r"remove (\S+\.jsonl)", str(caught.value)).group(1))
    journal.unlink()
    again = run_sweep(sweep_file, overrides=["keep_erased=all"], executor="inline", results=results)
    assert again.model(point).config.model_type == "gpt_neo"
    assert again.table["ma"].tolist() == loaded.table["ma"].tolist()
    [original] = again.table.query("variant == 'original'")["point_id"]
    assert again.model(original).num_parameters() == again.model(point).num_parameters()
    with pytest.raises(DataError, match="no measured point is called 'nothing'"):
        again.model("nothing")
    with pytest.raises(DataError, match=r"measured no metric called 'mauve'\. It has el_3, ma"):
        again.curves("miniature-s", x="mauve", y="ma")


def test_a_plan_counts_the_memorised_models_that_are_missing(sweep_file, undisturbed, tmp_path, capsys):
    changes = ["--set", "methods.task_arithmetic.gamma=[0.1]", "--plan"]
    for results, said in (
        (undisturbed, "0 memorized models to be trained"),
        (tmp_path / "new", "1 memorized model to"),
    ):
        assert run(sweep_file, results, *changes) == 0
        assert said in " ".join(capsys.readouterr().out.split())


def test_a_new_evaluator_runs_alone_and_uses_the_kept_patch_and_not_another_erasure(
    sweep_file, undisturbed, tmp_path, monkeypatch
):
    results = tmp_path / "copy"
    shutil.copytree(undisturbed, results)
    before = len(records(results, Started)), len(records(results, Measurement))
    monkeypatch.setattr("methods.emso.EMSO.erase", lambda self, task: pytest.fail("erased again"))
    assert run(sweep_file, results, "--set", "evaluators.generation={}") == 0
    assert len(records(results, Started)) - before[0] == 5
    assert len(records(results, Measurement)) - before[1] == 6
    emso = pd.read_csv(results / "tiny" / "table.csv").query("variant == 'emso'")
    assert emso.perplexity.notna().all()


def test_a_trial_that_raises_is_a_record_and_the_others_finish(sweep_file, tmp_path, monkeypatch, capsys):
    def broken(self, model, forget, retain):
        raise RuntimeError("a bug in the plugin")

    monkeypatch.setattr("methods.gradient_ascent.GradientAscent.loss", broken)
    assert run(sweep_file, tmp_path) == 1
    failed = records(tmp_path, Failed)
    [error] = [record.error for record in failed]
    assert re.fullmatch(r"RuntimeError: raised at \S*test_end_to_end\.py, line \d+, in broken; its message .*", error)
    assert any("in broken" in line for line in failed[0].log)
    assert set(table(tmp_path).variant) == {"emso", "task_arithmetic", "original", "retrained", "holdout"}
    report = (tmp_path / "tiny" / "report.html").read_text()
    assert "in broken" in report
    assert "a bug in the plugin" not in report, "its words might be the forget set's"
    monkeypatch.undo()
    assert run(sweep_file, tmp_path) == 0


def test_a_planted_collapse_is_flagged_and_a_gentle_erasure_is_not(sweep_file, tmp_path):
    harsh = (
        "methods={harsh: {method: gradient_ascent, epochs: [3], training: {learning_rate: 0.01}}, emso: {epochs: [1]}}"
    )
    arguments = ["--set", harsh, "--set", "evaluators={generation: {}}", "--set", "training.learning_rate=0.0001"]
    assert run(sweep_file, tmp_path, *arguments, "--set", "data.utility.prompts=48") == 0
    rows = pd.read_csv(tmp_path / "tiny" / "table.csv").set_index("variant")
    assert rows.collapsed["harsh"]
    assert rows.collapse_class["harsh"] in ("degenerate", "gibberish")
    assert not rows.collapsed["emso"]
    ranking = pd.read_csv(tmp_path / "tiny" / "ranking.csv").set_index("variant")
    assert pd.isna(ranking.rank_generation["harsh"])
    assert ranking.rank_generation["emso"] == 1


def test_a_diverging_loss_says_what_to_do(sweep_file, tmp_path):
    # A rate at which one step leaves weights too large to multiply.
    assert run(sweep_file, tmp_path, "--only", "method=gradient_ascent", "--set", "training.learning_rate=1e30") == 1
    assert any("training.learning_rate" in record.error for record in records(tmp_path, Failed))


def test_forget_texts_reach_no_record_unless_asked(sweep_file, undisturbed, tmp_path):
    from harness.miniature.texts import texts

    secret = texts("forget")[0][:40]
    kept = [path for path in undisturbed.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
    assert not any(secret.encode() in path.read_bytes() for path in kept)
    asked = ["--set", "report.samples=plain", "--only", "method=gradient_ascent"]
    assert run(sweep_file, tmp_path, *asked) == 0
    assert secret in json.dumps([record.samples for record in records(tmp_path, Measurement)])


def test_a_trajectory_that_the_early_stop_ends_before_what_was_asked_for_has_a_row_where_it_ended(sweep_file, tmp_path):
    asked = ["--only", "method=gradient_ascent", "--set", "methods.gradient_ascent.epochs=[30]"]
    asked += ["--set", "training.early_stop=1.001"]
    assert run(sweep_file, tmp_path, *asked) == 0
    [stop] = records(tmp_path, Stopped)
    ended = table(tmp_path).set_index("variant").loc["gradient_ascent"]
    assert ended["strength"] == stop.strength < 30
    assert ended[["ma", "el_3"]].notna().all()
    before = len(records(tmp_path, Measurement))
    assert run(sweep_file, tmp_path, *asked) == 0
    assert len(records(tmp_path, Measurement)) == before


@pytest.fixture
def another_package(tmp_path):
    """Install the package of plugins into a folder of its own, and return the folder."""
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*install, "--target", str(site), str(PLUGIN_PACKAGE)], check=True)
    return site


@pytest.fixture
def forgotten_entry_points():
    """Look for plugins again, now and after the test."""

    def forget():
        for shelf in (METHODS, EVALUATORS):
            vars(shelf).pop("_entry_points", None)

    forget()
    yield
    forget()


@pytest.mark.usefixtures("forgotten_entry_points")
def test_plugins_from_another_package_appear_in_a_sweep(sweep_file, tmp_path, another_package, monkeypatch, capsys):
    monkeypatch.syspath_prepend(another_package)
    assert cli.main(["plugins"]) == 0
    listed = capsys.readouterr().out
    assert "unlikelihood" in listed
    assert "version 1; reads texts of the forget set's kind" in listed
    assert "closer to 0.5 is better; fraction, 0 to 1; membership; Yeom" in listed
    asked = ["--set", "methods={unlikelihood: {epochs: [1, 2]}}", "--set", "evaluators.loss_attack={}"]
    assert run(sweep_file, tmp_path, *asked) == 0
    assert (table(tmp_path).variant == "unlikelihood").sum() == 2
    measured = pd.read_csv(tmp_path / "tiny" / "table.csv").set_index("variant")["loss_auc"]
    assert measured["original"] > 0.9
    assert '<th colspan="1">Membership</th>' in (tmp_path / "tiny" / "report.html").read_text()


@pytest.mark.soak
def test_a_plugin_of_another_package_is_held_to_the_contract_by_its_own_test(another_package):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(PLUGIN_PACKAGE / "test_unlikelihood.py"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(another_package)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
