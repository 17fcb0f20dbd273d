"""A tuned sweep as a user runs it: interrupted and gone on with, with more trials, with candidates that fail."""

import re
import shutil
import signal
from contextlib import redirect_stdout

import pandas as pd
import pytest

from harness import load_results
from harness.analysis.analysis import Analysis
from harness.cli import main
from harness.commands.results import tell_unfinished
from harness.execution import erasing
from harness.records.journal import Candidate, Journal
from harness.records.results import study_results
from harness.reporting.summary import cards
from harness.settings import UNSEEN_ROWS, replace

SWEEP = """# Which of the two erases at the least cost, each at its best settings?
name: tuned
models: [miniature-s]
seeds: [0]
data:
  forget: {source: miniature, sequences: 8, sequence_tokens: 64, prefix_tokens: 32}
  utility: {source: miniature, prompts: 4, prompt_tokens: 32, reference_tokens: 16}
  validation: {source: miniature, sequences: 8}
training: {learning_rate: 1.0e-3, global_batch: 1}
memorized_model: {epochs: 2, gate: 0.1}
until: {ma: [0.8, retrained]}
tune:
  budget: {trials: 4}
  space: {emso: {epochs: {low: 1, high: 2}, training: {learning_rate: {low: 1.0e-4, high: 1.0e-2}}}}
methods:
  emso: {loss: em, selection: contrastive}
  task_arithmetic:
evaluators:
  memorization: {el_sequences: 2, el_prefixes: 2}
"""


def run(file, results, *changes):
    arguments = [part for change in changes for part in ("--set", change)]
    return main(["sweep", str(file), "--executor", "inline", "--results", str(results), *arguments])


def tried(results):
    """What the journal holds of candidates, in the order of its files, without how long anything took."""
    journal = Journal(results / "tuned" / "journal")
    records = [record for file in sorted(journal.folder.glob("*.jsonl")) for record in journal.read(file.stem)]
    return [replace(record, seconds=0.0) for record in records if isinstance(record, Candidate)]


def numbers(results):
    frame = pd.read_csv(results / "tuned" / "table.csv")
    return frame[["variant", "strength", "seed", "ma", "el_3", "ranked", "until", "trial_id", "point_id"]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "tuned.yaml").write_text(SWEEP)
    with (folder / "said").open("w") as said, redirect_stdout(said):
        assert run(folder / "tuned.yaml", folder) == 0
    return folder


def test_every_candidate_is_journaled_with_its_probes(undisturbed):
    found = tried(undisturbed)
    assert sorted(candidate.number for candidate in found) == [0, 1, 2, 3], "TA has its dial only"
    for candidate in found:
        assert (candidate.error, set(candidate.targets)) == (None, {"ma=0.8", "ma=retrained"})
        assert 0 < candidate.targets["ma=retrained"] < 0.8 < candidate.original["ma"]
        steps = [probe["optimiser_steps"] for probe in candidate.probes]
        assert steps == [8, 16][: len(steps)]
    counts = re.findall(r"(\d+) of (\d+) jobs", (undisturbed / "said").read_text())
    assert [done for done, jobs in counts if done == jobs] == [counts[-1][0]], "what will be chosen counts too"


def test_each_row_is_walked_to_each_level_on_the_texts_that_are_reported(undisturbed):
    results = load_results(undisturbed / "tuned").results
    table = numbers(undisturbed)
    walked = [trial for trial in results.trials if trial.spec.until]
    rows_and_levels = [(row, level) for row in ("task_arithmetic", "emso") for level in ("ma=0.8", "ma=retrained")]
    assert [(trial.spec.variant, trial.spec.until.key) for trial in walked] == rows_and_levels
    for trial in walked:
        rows = table[table["trial_id"] == trial.spec.trial_id]
        assert (trial.status, len(rows)) == ("done", trial.walked.reached)
        for row in rows.itertuples():
            assert (row.until, row.strength) == (trial.spec.until.key, trial.walked.strength)
            assert abs(row.ma - trial.walked.level) <= 0.02
            assert row.ranked == (trial.spec.until.at == 0.8)
    assert any(trial.walked.reached for trial in walked)
    [study] = results.studies
    chosen = {str(result.target): (result.chosen or result.nearest).candidate.settings for result in study.targets}
    for trial in walked:
        if trial.spec.method == "emso":
            assert trial.spec.settings["k"] == chosen[str(trial.spec.until)]["k"]
    for trial in results.trials:
        measured = trial.spec.measured
        assert (measured is None) == (trial.spec.method in UNSEEN_ROWS)
        assert measured is None or (measured.half, measured.rows) == ("report", 4)


def test_a_rows_budget_is_that_of_its_own_model(undisturbed):
    results = load_results(undisturbed / "tuned").results
    [study] = results.studies
    trial = replace(study.spec.trial, model=replace(study.spec.trial.model, id="other"))
    both = replace(results, studies=(study, study._replace(spec=replace(study.spec, trial=trial))))
    assert Analysis(both).answer.frame["budget"].tolist() == Analysis(results).answer.frame["budget"].tolist()


def test_a_search_whose_candidates_all_failed_says_so_everywhere(undisturbed, capsys):
    results = load_results(undisturbed / "tuned").results
    spec, error = results.studies[0].spec, "TrialError: the loss is nan. Lower it."
    failed = [replace(candidate, end=error, probes=()) for candidate in results.studies[0].candidates]
    trials = tuple(trial for trial in results.trials if trial.spec.method != "emso")
    over = replace(results, trials=trials, studies=(study_results(spec, failed),))
    assert tell_unfinished(over)
    told = "4 of 4 candidates failed, the last one: the loss is nan. Lower it."
    assert f"failed: emso on miniature-s, seed 0: {told} Give it another" in " ".join(capsys.readouterr().out.split())
    [row] = Analysis(over).answer.at("miniature-s", spec.targets[0]).query("variant == 'emso'").to_dict("records")
    assert (row["gets_there"], row["reached"], row["runs"], row["reason"]) == ("no", 0, 1, told.rstrip("."))
    assert f"EMSO ({row['reason']})" in cards(Analysis(over))[0][1][-1][1]
    assert any(told in sentence for sentence in Analysis(over).caveats)
    part = Analysis(replace(over, studies=(study_results(spec, failed[:2]),)))
    assert "Not run: EMSO. Not finished: 1 of 1 searches." in cards(part)[0][1][-1][1]


def test_again_nothing_is_left_to_do(undisturbed, sweep_file, tmp_path, monkeypatch):
    shutil.copytree(undisturbed / "tuned", tmp_path / "tuned")
    monkeypatch.setattr("harness.execution.trial.run_job", lambda *arguments: pytest.fail("a job"))
    assert run(sweep_file, tmp_path) == 0
    assert tried(tmp_path) == tried(undisturbed)
    pd.testing.assert_frame_equal(numbers(tmp_path), numbers(undisturbed))


@pytest.mark.soak
def test_killed_in_the_middle_it_ends_as_if_it_had_not_been(undisturbed, sweep_file, tmp_path, monkeypatch):
    kept, count = erasing.probe, iter(range(100))

    def killed(*arguments):
        if tried(tmp_path) and next(count) == 1:  # The second candidate's second: its first is lost with it.
            signal.raise_signal(signal.SIGTERM)  # SIGINT is ignored where a script runs the tests in the background.
        return kept(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(erasing, "probe", killed)
        assert run(sweep_file, tmp_path) == 130
    assert [candidate.number for candidate in tried(tmp_path)] == [0]
    assert run(sweep_file, tmp_path) == 0
    assert tried(tmp_path) == tried(undisturbed)
    pd.testing.assert_frame_equal(numbers(tmp_path), numbers(undisturbed))


@pytest.mark.soak
def test_more_trials_run_the_further_ones_alone_and_fewer_leave_them_out(undisturbed, sweep_file, tmp_path, capsys):
    for folder in ("tuned", "artifacts"):
        shutil.copytree(undisturbed / folder, tmp_path / folder)
    started = tried(tmp_path)
    assert run(sweep_file, tmp_path, "tune.budget={trials: 5}") == 0
    more = tried(tmp_path)
    assert [candidate for candidate in more if candidate.number < 4] == started
    assert [candidate.number for candidate in more if candidate not in started] == [4]
    assert run(sweep_file, tmp_path, "tune.budget={trials: 4}") == 0
    assert tried(tmp_path) == more, "nothing is taken from the journal"
    pd.testing.assert_frame_equal(numbers(tmp_path), numbers(undisturbed))
    arguments = ["--plan", "--results", str(tmp_path), "--set", "tune.budget={trials: 6}"]
    assert main(["sweep", str(sweep_file), *arguments]) == 0
    told = capsys.readouterr().out
    assert re.search(r"5 done, at most 1 to\b.*\s+do\b", told), "in one cell, which goes on in the next line"
    assert "5 trials: 5 done" in " ".join(told.split()), "what will be chosen is not known yet"
