"""Two sweeps' results held against each other: what is the same is said to be, and each difference has its place."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from harness.cli import main as lethe
from harness.contracts import Checkpoint, Training
from harness.records.items import MetricItems
from harness.records.journal import Journal
from harness.records.record import Started
from harness.specs import EvaluatorSpec, Source

NUMBERS = {"memorization": {"ma": 0.5}, "generation": {"perplexity": 20.0, "mauve": float("nan")}}


@pytest.fixture
def make(tmp_path, make_row, make_plan, make_measurement):
    """Return a maker of results folders: an original and EMSO at two strengths, with the changes asked for."""

    def made(name, change=lambda spec: spec, numbers=None, versions=None, definition="exact", cpu="", **of_plan):
        rows = [change(make_row("original")), change(make_row("emso", (1, 2)))]
        journal = Journal(tmp_path / name / "journal")
        journal.write_plan(make_plan(*rows, **of_plan))
        for spec in rows:
            hardware = {"processor": "CPU", "instructions": cpu} if cpu else {}
            started = Started(trial_id=spec.trial_id, spec=spec.to_json(), versions=versions or {}, hardware=hardware)
            journal.append(started)
            for strength in spec.points():
                for evaluator, values in NUMBERS.items():
                    changed = {**values, **((numbers or {}).get(strength, {}) if evaluator == "generation" else {})}
                    journal.append(make_measurement(spec, strength, evaluator, changed, definition=definition))
        return tmp_path / name

    return made


@pytest.fixture
def diff(capsys, tmp_path):
    """Return a runner: exit code, what is printed with single spaces, and the CSV's rows."""

    def run(a, b):
        code = lethe(["diff", str(a), str(b), "--csv", str(tmp_path / "out.csv")])
        printed = capsys.readouterr()
        rows = pd.read_csv(tmp_path / "out.csv", keep_default_na=False) if code < 2 else None
        return code, " ".join((printed.out + printed.err).split()), rows

    return run


def test_results_that_are_the_same_are_the_same(make, diff):
    code, printed, rows = diff(make("one", versions={"torch": "2"}), make("two", versions={"torch": "2"}))
    assert code == 0
    assert "Nothing differs: 9 numbers are the same to the last bit." in printed
    assert rows.kind.eq("number").all()
    assert rows.verdict.eq("identical").all(), "a NaN is the same as a NaN"


def test_numbers_are_told_apart_by_the_noise_of_their_metric(make, diff):
    changed = {
        None: {"perplexity": np.nextafter(20.0, 21)},
        1: {"perplexity": 30.0},
        2: {"perplexity": float("nan"), "mauve": 0.4},
    }
    code, printed, rows = diff(make("one"), make("two", numbers=changed))
    assert code == 1
    found = rows.query("kind == 'number' and what != 'ma'").set_index(["variant", "at", "what"]).verdict.to_dict()
    assert found == {
        ("original", "", "perplexity"): "within noise", ("original", "", "mauve"): "identical",
        ("emso", "1", "perplexity"): "differs", ("emso", "1", "mauve"): "identical",
        ("emso", "2", "perplexity"): "only in A", ("emso", "2", "mauve"): "only in B",
    }  # fmt: skip
    assert float(rows.query("at == '1' and what == 'perplexity'").difference.item()) == 10.0
    assert "0 settings and 0 versions differ" in printed
    assert "emso@1 on miniature-m, seed 0 perplexity 20 30 +10 differs" in printed
    assert printed.index("+10 differs") < printed.index("within noise"), "what matters comes first"


@pytest.mark.parametrize(("drift", "verdict"), [(0.3, "within noise"), (-0.3, "within noise"), (3.0, "differs")])
def test_numbers_with_items_are_told_apart_by_the_paired_test_over_them(
    tmp_path, diff, make_row, make_plan, make_measurement, drift, verdict
):
    """MA 0.5 against 0.5 + drift standard errors of the difference, each of which is 0.1."""
    ids = tuple(f"i{number}" for number in range(64))
    noise = np.random.default_rng(0).standard_normal(64)
    noise = 0.8 * (noise - noise.mean()) / noise.std(ddof=1)
    spec = make_row("emso", (1,))
    for name, change in (("one", np.zeros(64)), ("two", noise + 0.1 * drift)):
        values = 0.5 + change
        journal = Journal(tmp_path / name / "journal")
        journal.write_plan(make_plan(spec))
        journal.append(Started(trial_id=spec.trial_id, spec=spec.to_json()))
        measurement = make_measurement(spec, 1, "memorization", {"ma": float(values.mean())})
        journal.append_measurement(measurement, {"ma": MetricItems(ids, ids, values, np.ones(64))})
    _, printed, rows = diff(tmp_path / "one", tmp_path / "two")
    assert rows.query("what == 'ma'").verdict.tolist() == [verdict]
    assert ("paired over the same items, holds zero" in printed) == (verdict == "within noise")


def test_two_kinds_of_cpu_are_named_and_one_kind_is_no_difference(make, diff):
    one, other = make("one", cpu="AVX512"), make("two", cpu="AVX2", numbers={1: {"perplexity": 30.0}})
    _, printed, _ = diff(one, other)
    assert f"A: {one} (on CPU (AVX512)) B: {other} (on CPU (AVX2)) The CPUs are of different kinds" in printed
    code, printed, _ = diff(one, make("three", cpu="AVX512"))
    assert (code, "different kinds" in printed) == (0, False)
    code, printed, _ = diff(one, make("old"))
    assert (code, "different kinds" in printed) == (0, False), "of an older journal nobody knows"


def test_settings_and_versions_are_told_once_with_their_points(make, diff):
    def change(spec):
        evaluators = tuple(
            EvaluatorSpec(name=each.name, version=2, settings=each.settings, key=f"{each.key}-2")
            if each.name == "generation"
            else each
            for each in spec.evaluators
        )
        training = Training(learning_rate=0.5)
        return replace(spec, evaluators=evaluators, training=training, method_version=spec.method_version + 1)

    one = make("one", versions={"torch": "2.12.0", "numpy": "2"})
    two = make("two", change, versions={"torch": "2.13.0", "numpy": "2"}, ranked_at={"emso": 1})
    code, printed, rows = diff(one, two)
    assert code == 1
    assert set(rows.query("kind == 'setting'").what) == {"training.learning_rate", "ranked_at.emso"}
    versions = rows.query("kind == 'version'")
    assert set(versions.what) == {"torch", "method emso", "method original", "evaluator generation"}
    assert versions.query("what == 'method emso'")["at"].tolist() == ["1", "2"]
    assert "training.learning_rate 1e-05 0.5 3 points" in printed
    assert "torch 2.12.0 2.13.0" in printed
    assert "numpy" not in printed


def test_an_identity_that_nothing_else_explains_is_shown(make, diff):
    def with_key(key, **fields):
        def change(spec):
            evaluators = tuple(replace(each, key=f"{each.name}-{key}") for each in spec.evaluators)
            return replace(spec, evaluators=evaluators, **fields)

        return change

    _, _, rows = diff(make("one"), make("two", with_key("other")))
    assert set(rows.query("kind == 'setting'").what) == {
        "evaluators.memorization.identity", "evaluators.generation.identity",
    }  # fmt: skip
    other = Source(source="jsonl", path="/b/letters.jsonl", digest="9" * 16)
    _, _, rows = diff(make("one"), make("three", with_key("other", forget=other)))
    assert set(rows.query("kind == 'setting'").what) == {"forget.digest", "forget.path", "forget.source"}


def test_another_place_of_the_same_contents_is_no_difference(make, diff):
    def at(home):
        checkpoint = Checkpoint(f"{home}/m", f"{home}/m", f"{home}/m", "0" * 16)
        letters = Source(source="jsonl", path=f"{home}/letters.jsonl", digest="9" * 16)
        return lambda spec: replace(spec, model=checkpoint, forget=letters)

    code, printed, _ = diff(make("one", at("/home/a")), make("two", at("/home/b")))
    assert (code, "Nothing differs" in printed) == (0, True)


def test_other_points_and_other_definitions(make, diff):
    def longer(spec):
        return replace(spec, strengths=(2, 3)) if spec.strengths else spec

    code, printed, rows = diff(make("one"), make("two", longer))
    assert code == 1
    assert rows.query("kind == 'point'")[["at", "verdict"]].to_numpy().tolist() == [
        ["1", "only in A"],
        ["3", "only in B"],
    ]
    assert "Points in A alone Point" in printed
    code, printed, rows = diff(make("one"), make("three", definition="table"))
    assert code == 1
    assert rows.verdict.eq("not comparable").all()
    assert "definition exact against table" in printed


def test_points_that_tuning_chose_are_matched_by_their_target(make, diff):
    def chosen(strength):
        return lambda spec: (
            replace(spec, strengths=(strength,), targets={"ma <= 0.9": strength}) if spec.strengths else spec
        )

    code, _, rows = diff(make("one", chosen(2)), make("two", chosen(5)))
    assert code == 1
    assert rows.query("kind == 'setting'")[["at", "what", "a", "b"]].to_numpy().tolist() == [
        ["ma <= 0.9", "strength", "2", "5"]
    ]
    assert rows.query("kind == 'point'").empty


def test_a_long_list_is_cut_with_a_sentence_and_whole_in_the_file(make, diff, make_row, make_plan):
    def many(spec):
        return replace(spec, strengths=tuple(range(1, 100))) if spec.strengths else spec

    _, printed, rows = diff(make("one"), make("two", many))
    assert "and 57 more: --csv FILE writes all of them." in printed
    assert rows.verdict.eq("only in B").sum() == 97


def test_what_is_no_results_folder_is_bad_input(make, diff, tmp_path):
    code, printed, _ = diff(make("one"), tmp_path / "none")
    assert code == 2
    assert f"{tmp_path}/none is no results folder (no journal/plan.json)." in printed
    plan = make("two") / "journal" / "plan.json"
    plan.write_text(plan.read_text().replace("emso", "emsa"))
    code, printed, _ = diff(tmp_path / "two", tmp_path / "one")
    assert (code, "is damaged" in printed) == (2, True)


def test_two_points_are_held_against_each_other_by_name(make, tmp_path, capsys):
    def of_lists(spec):
        return replace(spec, settings={"blocks": ["L0", "L1"], "k": 8 if spec.variant == "emso" else 2})

    folder = make("one", change=of_lists, numbers={2: {"perplexity": 30.0}})
    arguments = ["--results", str(tmp_path), "--csv", str(tmp_path / "out.csv")]
    assert lethe(["diff", "one:emso@1", "one:emso@2", *arguments]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("A: one:emso@1 B: one:emso@2")
    rows = pd.read_csv(tmp_path / "out.csv", keep_default_na=False)
    of_numbers = rows.query("kind == 'number'").set_index("what").verdict.to_dict()
    assert of_numbers == {"ma": "identical", "perplexity": "differs", "mauve": "identical"}
    assert rows.query("kind == 'setting'")[["what", "a", "b"]].to_numpy().tolist() == [["strength", "1", "2"]]
    assert lethe(["diff", "one:original", "one:emso@2", *arguments]) == 1
    rows = pd.read_csv(tmp_path / "out.csv", keep_default_na=False)
    assert ["settings.k", "2", "8"] in rows[["what", "a", "b"]].to_numpy().tolist()
    assert lethe(["diff", "one:emso@2", "one:emso@2", *arguments]) == 0
    capsys.readouterr()
    for names, words in (
        (("one:emso@3", "one:emso@2"), "'one:emso@3' was not measured: emso was at 1, 2."),
        ((str(folder), "two"), "there is no folder 'two'. Name two folders, or two points."),
    ):
        assert lethe(["diff", *names, *arguments]) == 2
        assert words in capsys.readouterr().err


def test_a_list_is_shown_as_a_sweep_file_has_it(make, diff):
    def of(blocks):
        return lambda spec: replace(spec, settings={"blocks": blocks, "is_on": True, "none": None})

    long = [f"L{place}.W_v" for place in range(12)]
    _, printed, rows = diff(make("one", change=of(["L0"])), make("two", change=of(long)))
    [(what, a, b)] = rows.query("kind == 'setting'")[["what", "a", "b"]].drop_duplicates().to_numpy().tolist()
    assert (what, a, b) == ("settings.blocks", '["L0"]', '["' + '", "'.join(long) + '"]')
    assert long[-1] in printed, "what differs is not cut off"
