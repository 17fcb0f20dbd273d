"""A tuned sweep as a user runs it: interrupted and gone on with, with more trials, with candidates that fail."""

import re
import shutil
import signal
from dataclasses import replace

import pandas as pd
import pytest

from harness import load_results
from harness.execution.trial import candidates
from harness.planning.plan import plan
from harness.plugins import METHODS
from harness.records.journal import Journal
from harness.records.record import Candidate
from harness.specs import UNSEEN_ROWS
from harness.sweep import main

SWEEP = """# Which of the two erases at the least cost, each at its best settings?
name: tuned
models: [miniature-s]
seeds: [0]
data:
  forget: {source: miniature, sequences: 8}
  utility: {source: miniature, prompts: 4, prompt_tokens: 32, reference_tokens: 16}
  validation: {source: miniature, sequences: 8}
training: {learning_rate: 1.0e-3, global_batch: 4}
memorized_model: {epochs: 2, gate: 0.1}
tune:
  budget: {trials: 4}
  erasure: {ma: [0.8, retrained, 0]}
  space: {emso: {epochs: {low: 1, high: 2}, training: {learning_rate: {low: 1.0e-4, high: 1.0e-2}}}}
methods:
  emso: {loss: em, selection: contrastive}
  task_arithmetic:
evaluators:
  memorization: {el_sequences: 2, el_prefixes: 2}
"""


EMSO = "methods={emso: {loss: em, selection: contrastive}}"


@pytest.fixture
def sweep_file(tmp_path):
    file = tmp_path / "tuned.yaml"
    file.write_text(SWEEP)
    return file


def run(file, results, *changes):
    arguments = [part for change in changes for part in ("--set", change)]
    return main([str(file), "--executor", "inline", "--results", str(results), *arguments])


def tried(results):
    """What the journal holds of candidates, in the order of its files, without how long anything took."""
    journal = Journal(results / "tuned" / "journal")
    records = [record for file in sorted(journal.folder.glob("*.jsonl")) for record in journal.read(file.stem)]
    return [replace(record, seconds=0.0, memorized={}) for record in records if isinstance(record, Candidate)]


def numbers(results):
    frame = pd.read_csv(results / "tuned" / "table.csv")
    return frame[["variant", "strength", "seed", "ma", "el_3", "ranked", "trial_id", "point_id"]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "tuned.yaml").write_text(SWEEP)
    assert run(folder / "tuned.yaml", folder) == 0
    return folder


def test_every_candidate_is_journaled_with_its_probes(undisturbed):
    found = tried(undisturbed)
    assert len(found) == 8
    emso = [candidate for candidate in found if "k" in candidate.settings]
    assert sorted(candidate.number for candidate in emso) == [0, 1, 2, 3]
    for candidate in found:
        assert candidate.error is None
        assert set(candidate.targets) == {"ma <= 0.8", "ma <= retrained", "ma <= 0"}
        assert 0 < candidate.targets["ma <= retrained"] < 0.8 < candidate.original["ma"]
        steps = [probe["optimiser_steps"] for probe in candidate.probes]
        assert steps == ([2, 4][: len(steps)] if candidate in emso else [0])
    gammas = [candidate.settings["gamma"] for candidate in found if "gamma" in candidate.settings]
    assert gammas[:3] == [0.05, 1.0, 0.005]
    assert 0.005 < gammas[3] < 1.0


def test_what_was_chosen_is_measured_on_the_other_half_and_ranked_by_its_first_target(undisturbed):
    results = load_results(undisturbed / "tuned").results
    table = numbers(undisturbed)
    for study in results.studies:
        first, second, never = study.targets
        assert str(never).startswith("not reached: best MA 0.") or never.chosen.is_collapsed
        variant = study.spec.trial.variant
        rows = table[table["variant"] == variant]
        ranked = rows[rows["ranked"]]
        trials = [trial.spec for trial in results.trials if trial.spec.variant == variant]
        chosen = {name: at for spec in trials for name, at in spec.chosen.items()}
        assert chosen["ma <= 0.8"] == first.chosen.probe["strength"]
        assert {*chosen.values(), second.chosen.probe["strength"]} <= set(rows["strength"])
        of_choice = rows["trial_id"].isin([spec.trial_id for spec in trials if "ma <= 0.8" in spec.chosen])
        nearest = rows if variant == "task_arithmetic" else rows[of_choice]
        assert abs(ranked["ma"].item() - 0.8) <= (nearest["ma"] - 0.8).abs().min()
        assert {name: at for spec in trials for name, at in spec.targets.items()}["ma <= 0.8"] == ranked[
            "strength"
        ].item()
    for trial in results.trials:
        measured = trial.spec.measured
        assert (measured is None) == (trial.spec.method in UNSEEN_ROWS)
        assert measured is None or (measured.half, measured.rows) == ("report", 4)


def test_no_candidate_has_a_seed_that_is_reported(undisturbed):
    results = load_results(undisturbed / "tuned").results
    assert {study.spec.trial.seed for study in results.studies} == {1_000_000}
    assert {trial.spec.seed for trial in results.trials} == {0}


def test_a_chosen_trial_is_the_trial_of_an_untuned_sweep_with_its_settings(undisturbed, sweep_file):
    tuned = [trial.spec for trial in load_results(undisturbed / "tuned").results.trials]
    emso = next(spec for spec in tuned if spec.method == "emso")
    arithmetic = next(spec for spec in tuned if spec.method == "task_arithmetic")
    rate = f"training: {{learning_rate: {emso.training.learning_rate!r}}}"
    rows = (
        f"emso: {{k: {emso.settings['k']}, epochs: 2, {rate}}}, task_arithmetic: {{gamma: {arithmetic.strengths[0]!r}}}"
    )
    untuned = plan(sweep_file, ["tune=null", f"methods={{{rows}}}", "training.early_stop=null"])
    assert {emso.trial_id, arithmetic.trial_id} <= {spec.trial_id for spec in untuned.trials}


def test_again_nothing_is_left_to_do(undisturbed, sweep_file, tmp_path, monkeypatch):
    shutil.copytree(undisturbed / "tuned", tmp_path / "tuned")
    before = tried(tmp_path)
    monkeypatch.setattr("harness.execution.trial.run.run_job", lambda *arguments: pytest.fail("a job"))
    assert run(sweep_file, tmp_path) == 0
    assert tried(tmp_path) == before
    pd.testing.assert_frame_equal(numbers(tmp_path), numbers(undisturbed))


@pytest.mark.soak
def test_killed_in_the_middle_it_ends_as_if_it_had_not_been(undisturbed, sweep_file, tmp_path, monkeypatch):
    kept, count = candidates.probe, iter(range(100))

    def killed(*arguments):
        if next(count) == 6:  # The original's, which is shared, is the first.
            signal.raise_signal(signal.SIGTERM)  # SIGINT is ignored where a script runs the tests in the background.
        return kept(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(candidates, "probe", killed)
        assert run(sweep_file, tmp_path) == 143
    assert 0 < len(tried(tmp_path)) < 8
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
    assert [candidate.number for candidate in more if candidate not in started] == [4, 4]
    assert run(sweep_file, tmp_path, "tune.budget={trials: 4}") == 0
    assert tried(tmp_path) == more, "nothing is taken from the journal"
    pd.testing.assert_frame_equal(numbers(tmp_path), numbers(undisturbed))
    assert main([str(sweep_file), "--plan", "--results", str(tmp_path), "--set", "tune.budget={trials: 6}"]) == 0
    told = capsys.readouterr().out
    assert "5 done, at most 1 to do" in told
    assert "3 trials: 3 done" in " ".join(told.split()), "what will be chosen is not known yet"


@pytest.mark.soak
def test_a_candidate_that_fails_counts_and_the_study_goes_on(sweep_file, tmp_path, monkeypatch, capsys):
    emso = METHODS.load("emso")
    erase, calls = emso.erase, iter(range(100))

    def failing(self, task):
        if next(calls) == 1:
            raise RuntimeError("no such luck")
        yield from erase(self, task)

    monkeypatch.setattr(emso, "erase", failing)
    assert run(sweep_file, tmp_path, EMSO, "tune.budget={trials: 3}") == 0
    found = tried(tmp_path)
    assert [candidate.error is None for candidate in found] == [True, False, True]
    assert re.fullmatch(
        r"RuntimeError: raised at \S*test_tuned\.py, line \d+, in failing; its message .*", found[1].error
    )
    assert found[1].probes == ()
    assert found[1].original, "what it is compared with is known"
    assert f"failed: {found[1].error}" in capsys.readouterr().out
    assert len(numbers(tmp_path)) > 3


def test_a_method_that_reaches_nothing_is_a_result(sweep_file, tmp_path):
    slow = "tune.space={emso: {epochs: {low: 1, high: 1.0}, training: {learning_rate: [1.0e-9]}, k: [1]}}"
    changes = [EMSO, "tune.erasure={ma: 0.3}", slow.replace("{low: 1, high: 1.0}", "[1]")]
    assert run(sweep_file, tmp_path, *changes) == 0
    [study] = load_results(tmp_path / "tuned").results.studies
    assert len(study.candidates) == 1, "there is nothing else to try"
    assert str(study.targets[0]).startswith("not reached: best MA 0.9")
    assert set(numbers(tmp_path)["variant"]) == {"original", "retrained", "holdout"}


@pytest.mark.soak
def test_each_seed_has_a_search_of_its_own_within_its_budget_of_operations(sweep_file, tmp_path, capsys):
    changes = (EMSO, "seeds=[0, 1]", "tune.budget={flops: 2.0e10}", "tune.erasure={ma: 0.8}")
    assert run(sweep_file, tmp_path, *changes) == 0
    analysis = load_results(tmp_path / "tuned")
    first, second = analysis.results.studies
    assert (first.spec.seeds, second.spec.seeds) == ((0,), (1,))
    assert first.spec.study_id != second.spec.study_id
    for study in (first, second):
        costs = [candidate.flops for candidate in study.candidates]
        assert min(costs) > 1e9
        assert sum(costs[:-2]) < 2e10 <= sum(costs[:-1]), "the last was proposed before the one before it was over"
    proposed = [[candidate.settings for candidate in study.candidates[1:]] for study in (first, second)]
    assert proposed[0] != proposed[1]
    assert first.candidates[0].settings == second.candidates[0].settings, "the defaults are the defaults"
    assert first.candidates[0].probes != second.candidates[0].probes, "trained in another order"
    table = numbers(tmp_path)
    ranked = table[table["ranked"]]
    assert sorted(ranked["seed"]) == [0, 1]
    for study in (first, second):
        [seed] = study.spec.seeds
        chosen = {
            trial.spec.setting_digest
            for trial in analysis.results.trials
            if trial.spec.seed == seed and not trial.spec.is_reference
        }
        settings = [result.chosen.candidate.settings for result in study.targets if result.chosen]
        assert chosen == {study.spec.trial_with(one, ()).setting_digest for one in settings}
