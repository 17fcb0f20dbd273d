"""The index of all sweeps: what each has come to, linked, and nothing that is not there."""

import re

import pytest

from harness.commands import index
from harness.contracts import Choice
from harness.plans import StudySpec, Target
from harness.records.journal import Journal
from harness.records.record import Failed
from harness.specs import Source


@pytest.fixture
def add_sweep(tmp_path, make_row, make_plan, make_point, make_measurement):
    """Return what puts a sweep into the results folder: two trials, of which one is measured."""

    def add(name, question, *, report=True, failed=False, studies=()):
        done, open_one = make_row("gradient_ascent", (1,)), make_row("emso", (1,))
        journal = Journal(tmp_path / name / "journal")
        journal.write_plan(make_plan(done, open_one, question=question, studies=studies))
        for record in (
            make_point(done, 1),
            *(make_measurement(done, 1, name) for name in ("memorization", "generation")),
        ):
            journal.append(record)
        if failed:
            journal.append(Failed(trial_id=open_one.trial_id, error="boom", log=()))
        for file in ("report.html", "tradeoff.png") if report else ():
            (tmp_path / name / file).write_text("")

    return add


def page(tmp_path, code=0):
    assert index.main(["--results", str(tmp_path)]) == code
    return (tmp_path / "index.html").read_text()


def test_every_sweep_is_there_with_what_it_has_come_to(tmp_path, add_sweep):
    add_sweep("one", "Which is <b>best</b>?")
    add_sweep("two", "Which is worst?", report=False, failed=True)
    shown = page(tmp_path)
    assert re.findall(r'href="([^"]*)"', shown) == [*["one/report.html"] * 2, "one/table.csv", "one/table.md"]
    assert re.findall(r'src="([^"]*)"', shown) == ["one/tradeoff.png"]
    assert "Which is &lt;b&gt;best&lt;/b&gt;?" in shown
    assert "1 of 2 trials done</p>" in shown
    assert "1 of 2 trials done, 1 failed; no report yet</p>" in shown


def test_a_sweep_that_cannot_be_read_hides_no_other_and_is_told(tmp_path, add_sweep, capsys):
    add_sweep("one", "Which is best?")
    add_sweep("two", "Which is worst?")
    (tmp_path / "two" / "journal" / "plan.json").write_text("{}")
    shown = page(tmp_path, code=1)
    assert "Which is best?" in shown
    assert "two/journal/plan.json is damaged" in shown
    assert "two/journal/plan.json is damaged" in capsys.readouterr().err


def test_a_search_that_is_unfinished_is_told(tmp_path, add_sweep, make_row):
    study = StudySpec(
        study_id="a-study",
        trial=make_row("task_arithmetic"),
        seeds=(0,),
        space={"k": Choice(values=(1, 2))},
        defaults={"k": 1},
        is_cumulative=False,
        is_trained=False,
        search="random",
        trials=2,
        targets=(Target(metric="ma", at_most=0.9),),
        utility="perplexity",
        utility_bounds=(0.5, 5.0),
        selection=Source(source="miniature"),
        retrained=None,
    )
    add_sweep("tuned", "Who pays least?", studies=(study,))
    assert "1 of 2 trials done, 1 of 1 searches unfinished</p>" in page(tmp_path)


def test_a_folder_without_sweeps_is_told(tmp_path, capsys):
    assert index.main(["--results", str(tmp_path)]) == 2
    assert "holds no sweep's results. Run one first" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
