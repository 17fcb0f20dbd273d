"""Rows that another run under the same name would take out of the report: they are named, and kept unless told."""

import pytest

from harness.cli import main as lethe
from harness.planning.plan import plan
from harness.planning.setting_changes import replaced_rows
from harness.records.journal import Journal, Walked
from tests.unit.execution.test_search import candidate

FILE = """# Which rate?
name: rates
models: [miniature-s]
data:
  forget: {source: miniature, sequences: 4}
  retain: {source: miniature, sequences: 4}
  utility: {source: miniature, prompts: 4}
training: {learning_rate: 1.0e-5, global_batch: 4}
memorized_model: {learning_rate: 1.0e-3, global_batch: 4, epochs: 10}
methods:
  gradient_ascent: {epochs: [1, 2]}
  task_arithmetic: {gamma: [0.05, 0.1]}
evaluators: {memorization: }
"""


@pytest.fixture
def measured(tmp_path, make_measurement):
    """Return the sweep file, and the journal of a run that measured some of its rows."""
    file = tmp_path / "rates.yaml"
    file.write_text(FILE)
    planned = plan(file)
    journal = Journal(tmp_path / "results" / "rates" / "journal")
    journal.write_plan(planned)
    for spec in planned.trials:
        if spec.strengths != (0.1,) and spec.method != "retrained":
            journal.append(make_measurement(spec, spec.points()[0]))
    return file, journal


RATE = "training.learning_rate: 1e-05 there, 3e-05 here"
TRAINED = ["gradient_ascent", "task_arithmetic"]
STEPS = "training.global_batch: 4 there, 2 here"
MEMORIZED = f"{RATE}; memorization.epochs: 10 there, 3 here"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], {}),
        (["training.learning_rate=3e-5"], {RATE: TRAINED}),
        (["training.learning_rate=3e-5", "training.global_batch=2"], {f"{RATE}; {STEPS}": TRAINED}),
        (["methods.gradient_ascent.training={learning_rate: 3e-5}"], {RATE: ["gradient_ascent"]}),
        (["methods.gradient_ascent.epochs=[1,4]", "methods.task_arithmetic.gamma=[0.2]"], {}),
        (["methods={task_arithmetic: {gamma: [0.05]}}"], {}),
        (["seeds=[1]"], {}),
        (["evaluators={memorization: {el_prefixes: 2}}"], {}),
        (["training.learning_rate=3e-5", "memorized_model.epochs=3"], {RATE: TRAINED[:1], MEMORIZED: TRAINED[1:]}),
    ],
)
def test_rows_whose_settings_changed_are_named(measured, changes, expected):
    file, journal = measured
    assert replaced_rows(plan(file, changes), journal) == expected


def test_walked_rows_are_compared_at_their_level(measured, make_measurement):
    file, journal = measured
    journal.write_plan(planned := plan(file, ["until={ma: [0.75]}"]))
    for spec in [spec for spec in planned.trials if spec.until]:
        found = {"strength": 1, "reached": True, "nearest": {}, "probes": ()}
        journal.append(Walked(trial_id=spec.trial_id, level=0.75, **found))
        journal.append(make_measurement(spec, 1))
    assert replaced_rows(plan(file, ["until={ma: [0.75, 0.5]}"]), journal) == {}
    rows = replaced_rows(plan(file, ["until={ma: [0.75]}", "training.learning_rate=3e-5"]), journal)
    assert [rows.keys(), *rows.values()] == [{RATE}, TRAINED]
    further = replaced_rows(plan(file, ["until={ma: [0.75]}", "methods.gradient_ascent.epochs=[1,4]"]), journal)
    assert further == {"walk_to: 2 there, 4 here": ["gradient_ascent"]}


def test_the_sweep_asks_for_another_name_and_changes_nothing(measured, tmp_path, capsys, monkeypatch):
    file, journal = measured
    before = {path: path.read_bytes() for path in journal.folder.iterdir()}
    arguments = ["sweep", str(file), "--results", str(tmp_path / "results"), "--set", "training.learning_rate=3e-5"]
    assert lethe([*arguments, "--executor", "inline"]) == 2
    errors = " ".join(capsys.readouterr().err.split())
    assert f"gradient_ascent, task_arithmetic ({RATE}). To keep both" in errors
    assert "--set name=rates_2. To show the new ones instead, say --replace" in errors
    assert {path: path.read_bytes() for path in journal.folder.iterdir() if path in before} == before
    for part in ([], ["--only", "method=original"]):
        assert lethe([*arguments, "--plan", *part]) == 0
        assert RATE in " ".join(capsys.readouterr().out.split()), "the report would drop them whatever runs"

    class ReachedError(Exception):
        pass

    def reached(*arguments):
        raise ReachedError

    monkeypatch.setattr("harness.running.refuse_unfit", reached)
    for of_run in (["--replace"], ["--set", "name=rates_2"]):
        with pytest.raises(ReachedError):
            lethe([*arguments, "--executor", "inline", *of_run])


def test_searches_are_compared_by_all_that_decides_their_candidates(measured):
    file, journal = measured
    rate = "training: {learning_rate: {low: 1.0e-5, high: 1.0e-4}}"
    tuned = ["data.forget.sequences=8", "until={ma: [0.75]}", "methods={gradient_ascent: {epochs: 2}}"]
    tuned += [f"tune={{budget: {{trials: 2}}, space: {{gradient_ascent: {{{rate}}}}}}}"]
    journal.write_plan(planned := plan(file, tuned))
    [study] = planned.studies
    journal.append(candidate(study, 0, study.defaults, []))
    for harmless in ("tune.budget.trials=3", "seeds=[0,1]", "evaluators={memorization: {el_prefixes: 2}}"):
        assert replaced_rows(plan(file, [*tuned, harmless]), journal) == {}
    further = replaced_rows(plan(file, [*tuned, "until={ma: [0.75, 0.5]}"]), journal)
    assert further == {"targets.1.metric: — there, ma here; targets.1.at: — there, 0.5 here": ["gradient_ascent"]}
    journal.write_plan(plan(file, [*tuned, "seeds=[0,1]", "tune.per=model"]))
    assert [*replaced_rows(plan(file, [*tuned, "seeds=[0,1]"]), journal)] == ["per: model there, seed here"]
    [(text, rows)] = replaced_rows(plan(file, [*tuned, "data.forget.start=1"]), journal).items()
    assert "forget.digest" in text
    assert rows == ["gradient_ascent"]


def test_a_level_of_other_unseen_texts_is_another_row(measured, make_measurement):
    file, journal = measured
    unseen = ["until={ma: [unseen]}", "data.holdout={source: miniature, sequences: 4}"]
    journal.write_plan(planned := plan(file, unseen))
    for spec in [spec for spec in planned.trials if spec.until]:
        journal.append(make_measurement(spec, 1))
    assert replaced_rows(plan(file, unseen), journal) == {}
    [text] = replaced_rows(plan(file, [*unseen, "data.holdout.start=4"]), journal)
    assert "unseen.digest" in text
