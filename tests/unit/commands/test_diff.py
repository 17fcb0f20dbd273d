"""Two results next to each other: the same is called the same, and each difference has its place."""

import numpy as np
import pandas as pd
import pytest

from harness.cli import main as lethe
from harness.contracts import Checkpoint, Training
from harness.records.journal import Journal, Started
from harness.settings import Level, Source, replace

NUMBERS = {"memorization": {"ma": 0.5}, "generation": {"perplexity": 20.0, "mauve": float("nan")}}


@pytest.fixture
def make(tmp_path, make_row, make_plan, make_measurement):
    """Return a maker of results folders: an original and EMSO at two strengths, with the changes asked for."""

    def made(name, change=lambda spec: spec, numbers=None, versions=None, definition="exact", cpu="", **of_plan):
        rows = [change(make_row("original")), change(make_row("emso", (1, 2)))]
        journal = Journal(tmp_path / name / "journal")
        journal.write_plan(make_plan(*rows, **of_plan))
        for spec in rows:
            around = {"versions": versions or {}}
            around["hardware"] = {"processor": "CPU", "instructions": cpu} if cpu else {}
            journal.append(Started(trial_id=spec.trial_id, spec=spec.model_dump(mode="json"), **around))
            for strength in spec.points():
                for evaluator, values in NUMBERS.items():
                    changed = {**values, **((numbers or {}).get(strength, {}) if evaluator == "generation" else {})}
                    journal.append(make_measurement(spec, strength, evaluator, changed, definition=definition))
        return tmp_path / name

    return made


@pytest.fixture
def diff(capsys, tmp_path):
    """Return a runner: exit code, the text with single spaces, and the CSV's rows."""

    def run(a, b):
        code = lethe(["diff", str(a), str(b), "--csv", str(tmp_path / "out.csv"), "--results", str(tmp_path)])
        printed = capsys.readouterr()
        rows = pd.read_csv(tmp_path / "out.csv", keep_default_na=False) if code < 2 else None
        return code, " ".join((printed.out + printed.err).split()), rows

    return run


def of_kind(rows, kind):
    return rows[rows.kind == kind][["point", "what", "a", "b"]].to_numpy().tolist()


def test_results_that_are_the_same_are_the_same(make, diff):
    def at(home):
        checkpoint = Checkpoint(f"{home}/m", f"{home}/m", f"{home}/m", "0" * 16)
        letters = Source(source="jsonl", path=f"{home}/letters.jsonl", digest="9" * 16)
        return lambda spec: replace(spec, model=checkpoint, forget=letters)

    code, printed, rows = diff(make("one", at("/a"), cpu="AVX2"), make("two", at("/b"), cpu="AVX2"))
    assert (code, {*rows.kind}, {*rows.verdict}) == (0, {"number"}, {"identical"}), "a NaN is the same as a NaN"
    assert "Nothing differs: 9 numbers are the same to the last bit." in printed


def test_numbers_are_told_apart_by_the_noise_of_their_metric(make, diff):
    changed = {None: {"perplexity": np.nextafter(20.0, 21)}, 1: {"perplexity": 30.0}}
    changed[2] = {"perplexity": float("nan"), "mauve": 0.4}
    _, printed, rows = diff(make("one", cpu="AVX2"), make("two", numbers=changed, cpu="AVX512"))
    points = [f"{row} on miniature-m, seed 0" for row in ("original", "emso@1", "emso@2")]
    by_metric = rows[(rows.kind == "number")].pivot(index="point", columns="what", values="verdict").loc[points]
    assert by_metric["perplexity"].tolist() == ["within noise", "differs", "only in A"]
    assert by_metric["mauve"].tolist() == ["identical", "identical", "only in B"]
    assert float(rows[(rows.kind == "number") & (rows.verdict == "differs")].difference.item()) == 10.0
    assert of_kind(rows, "version") == [["", "processor", "CPU (AVX2)", "CPU (AVX512)"]]
    assert f"perplexity {points[1]} 20 30 differs" in printed
    assert printed.index("30 differs") < printed.index("within noise"), "important ones come first"


def test_settings_and_versions_are_told_once_with_their_points(make, diff):
    def change(spec):
        memorization, generation = spec.evaluators
        evaluators = (memorization, replace(generation, version=2, key="another"))
        return replace(spec, evaluators=evaluators, training=Training(learning_rate=0.5))

    one = make("one", versions={"torch": "2.12.0", "numpy": "2"})
    code, _, rows = diff(one, make("two", change, versions={"torch": "2.13.0", "numpy": "2"}, ranked_at={"emso": 1}))
    assert code == 1
    assert of_kind(rows, "setting") == [
        ["", "ranked_at.emso", "—", "1"],
        ["3 points", "training.learning_rate", "1e-05", "0.5"],
        ["3 points", "evaluators.generation.version", "1", "2"],
    ]
    assert of_kind(rows, "version") == [["", "torch", "2.12.0", "2.13.0"]]


def test_other_points_and_other_definitions(make, diff):
    def longer(spec):
        return replace(spec, strengths=(2, *range(3, 100))) if spec.strengths else spec

    _, printed, rows = diff(make("one"), make("two", longer))
    points = rows[rows.kind == "point"]
    assert points.point.tolist()[:2] == [f"emso@{strength} on miniature-m, seed 0" for strength in (1, 3)]
    assert points.verdict.value_counts().to_dict() == {"only in A": 1, "only in B": 97}
    assert "and 38 more: --csv FILE writes all of them." in printed
    code, _, rows = diff(make("one"), make("three", definition="table"))
    assert (code, {*rows.verdict}) == (1, {"not comparable: definition exact against table"})


def test_points_that_were_walked_are_matched_by_their_level(make, diff):
    def walked(spec):
        return replace(spec, strengths=(), until=Level(metric="ma", at=0.9)) if spec.strengths else spec

    _, _, rows = diff(make("one", walked), make("two", walked, numbers={None: {"perplexity": 30.0}}))
    assert "emso at MA 0.9 on miniature-m, seed 0" in {*rows[rows.kind == "number"].point}


def test_two_points_are_compared_by_name(make, diff):
    make("one", numbers={2: {"perplexity": 30.0}})
    code, printed, rows = diff("one:emso@1", "one:emso@2")
    assert (code, printed.startswith("A: one:emso@1 B: one:emso@2")) == (1, True)
    verdicts = rows[rows.kind == "number"].set_index("what").verdict
    assert verdicts.to_dict() == {"ma": "identical", "perplexity": "differs", "mauve": "identical"}
    assert [row[1:] for row in of_kind(rows, "setting")] == [["strength", "1", "2"]]
    assert diff("one:emso@2", "one:emso@2")[0] == 0


def test_results_that_cannot_be_read_are_named(make, diff, tmp_path):
    one, two = make("one"), make("two")
    plan = two / "journal" / "plan.json"
    plan.write_text(plan.read_text().replace("emso", "emsa"))
    for a, b, words in (
        (one, tmp_path / "none", f"{tmp_path}/none is no results folder (no journal/plan.json)."),
        (two, one, "is damaged"),
        ("one:emso@3", "one:emso@2", "no measured point is called 'one:emso@3'. Did you mean 'emso@2'?"),
        (one, "two", "there is no folder 'two'. Name two folders, or two points."),
    ):
        code, printed, _ = diff(a, b)
        assert (code, words in printed) == (2, True), printed
