"""The journal: every record comes back as it was, and a broken line costs its own work and no more."""

import json
import logging
import multiprocessing
import threading

import numpy as np
import pytest

from harness.contracts import Checkpoint, Training
from harness.errors import DataError, PluginError
from harness.records.journal import Journal, measurements, reachable, remaining, status
from harness.specs import (
    EvaluatorSpec,
    Failed,
    Measurement,
    Memorization,
    Plan,
    Point,
    Source,
    Started,
    Stopped,
    TrialSpec,
)

NAN, INF = float("nan"), float("inf")
MODEL = Checkpoint("m", "/m", "/m", "0" * 16)
TEXT = Source(source="miniature", digest="1" * 16)


def make_spec(strengths=(1, 2, 3), evaluators=("memorization", "generation"), trial_id="t1"):
    return TrialSpec(
        trial_id=trial_id,
        sweep="s",
        variant="emso",
        method="emso",
        label="EMSO",
        reference="none",
        settings={"k": 2},
        method_version=1,
        strength_name="epochs",
        strengths=strengths,
        seed=0,
        model=MODEL,
        training=Training(),
        memorization=Memorization(epochs=1, learning_rate=0.1, global_batch=1, gate=0.9),
        engine="plain",
        forget=TEXT,
        retain=None,
        utility=TEXT,
        validation=TEXT,
        evaluators=tuple(EvaluatorSpec(name=each, version=1, settings={}, key=f"{each}-key") for each in evaluators),
        judges={},
    )


SPEC = make_spec()


def measured(strength, evaluator="memorization", key=None, **numbers):
    return Measurement(
        trial_id="t1",
        point_id=SPEC.point_id(strength),
        strength=strength,
        evaluator=evaluator,
        key=key or f"{evaluator}-key",
        definition="exact",
        numbers=numbers or {"el_3": 0.1 + 0.2},
        metrics=({"name": "el_3", "high": INF, "low": -INF, "group": "erasure"},),
        samples=({"kind": "forget", "prompt": 'Zoë said "hi"\n\t\x00', "generated": "", "reference": "\u2028"},),
        notes={"loss": [1.5, NAN, INF, -INF], "none": None, "deep": {"a": [{"b": True}]}, "0.1": 1e-300},
        seconds=0.25,
    )


def point(strength):
    return Point(
        trial_id="t1",
        point_id=SPEC.point_id(strength),
        strength=strength,
        erase_seconds=1.25,
        peak_memory_bytes=2**40,
        notes={"blocks": ["L2.W_v.H11"], "loss": NAN},
    )


STARTED = Started(trial_id="t1", spec=SPEC.to_json(), versions={"torch": "2.13.0"})
STOPPED = Stopped(trial_id="t1", strength=2, reason="validation perplexity above 1.03 × the original's")
FAILED = Failed(trial_id="t1", error="ValueError: NaN loss", log=("line 1", "line 2"))
EVERY_KIND = [STARTED, point(1), point(None), measured(1, el_3=NAN, ma=INF, ss=-INF, em=0.0), STOPPED, FAILED]


def same(one, other):
    """Equal, where NaN equals NaN, and 1 is not 1.0."""
    return repr(one) == repr(other)


@pytest.mark.parametrize("record", EVERY_KIND, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was(tmp_path, record):
    Journal(tmp_path).append(record)
    [found] = Journal(tmp_path).read("t1")
    assert same(found, record)


def test_every_line_is_json_for_everybody(tmp_path):
    for record in EVERY_KIND:
        Journal(tmp_path).append(record)
    lines = (tmp_path / "t1.jsonl").read_text().splitlines()
    bodies = [json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON")) for line in lines]
    assert [body["kind"] for body in bodies] == ["started", "point", "point", "measurement", "stopped", "failed"]
    assert bodies[3]["numbers"] == {"el_3": None, "ma": {"float": "inf"}, "ss": {"float": "-inf"}, "em": 0.0}


def test_numpy_numbers_are_taken_as_floats(tmp_path):
    Journal(tmp_path).append(measured(1, el_3=np.float32(0.5), ma=np.float64(0.1)))
    [found] = Journal(tmp_path).read("t1")
    assert found.numbers == {"el_3": 0.5, "ma": 0.1}


def test_what_json_cannot_hold_is_named_and_nothing_is_written(tmp_path):
    bad = Point(trial_id="t1", point_id="p", strength=1, erase_seconds=0, peak_memory_bytes=0, notes={"a": [{1, 2}]})
    with pytest.raises(PluginError, match=r"point\.notes\.a\[0\] is a builtins\.set"):
        Journal(tmp_path).append(bad)
    assert not (tmp_path / "t1.jsonl").exists()


def test_a_torn_last_line_is_dropped_wherever_it_was_torn(tmp_path):
    journal, path = Journal(tmp_path), tmp_path / "t1.jsonl"
    journal.append(STOPPED)
    whole = path.read_bytes()
    journal.append(FAILED)
    data = path.read_bytes()
    for end in range(len(whole), len(data) + 1):
        path.write_bytes(data[:end])
        complete = end >= len(data) - 1  # Only the line's end is missing: nothing is lost.
        assert journal.read("t1") == ([STOPPED, FAILED] if complete else [STOPPED])
        journal.append(STARTED)
        assert [type(each) for each in journal.read("t1")] == (
            [Stopped, Failed, Started] if complete else [Stopped, Started]
        )


def test_a_torn_last_line_is_dropped_in_silence(tmp_path, caplog):
    journal, path = Journal(tmp_path), tmp_path / "t1.jsonl"
    journal.append(STOPPED)
    path.write_bytes(path.read_bytes()[:-9])
    assert journal.read("t1") == []
    assert caplog.records == []


def test_any_changed_byte_of_a_middle_line_drops_it_and_warns_once(tmp_path, caplog):
    journal, path = Journal(tmp_path), tmp_path / "t1.jsonl"
    for record in (STOPPED, FAILED, point(1)):
        journal.append(record)
    data = path.read_bytes()
    start = data.index(b"\n") + 1
    end = data.index(b"\n", start)
    for place in range(start, end):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert [type(each) for each in Journal(tmp_path).read("t1")] == [Stopped, Point], place
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        reader = Journal(tmp_path)
        reader.read("t1")
        reader.read("t1")
    [warning] = caplog.records
    assert f"{path}, line 2 is broken" in warning.getMessage()


def test_a_record_of_another_version_is_measured_again(tmp_path, monkeypatch):
    journal = Journal(tmp_path)
    monkeypatch.setattr("harness.records.journal.fields", lambda record: [])
    journal.append(STOPPED)
    monkeypatch.undo()
    journal.append(FAILED)
    assert journal.read("t1") == [FAILED]


def test_a_trial_without_records_and_the_ids_of_those_with(tmp_path):
    journal = Journal(tmp_path / "not" / "yet")
    assert journal.read("t1") == []
    assert journal.trial_ids() == ()
    journal.append(STOPPED)
    journal.append(Stopped(trial_id="a", strength=1, reason="r"))
    journal.write_plan(make_plan())
    assert journal.trial_ids() == ("a", "t1")


def test_of_duplicates_the_last_wins_and_other_keys_stay():
    records = [measured(1, el_3=0.1), measured(2, el_3=0.2), measured(1, el_3=0.3), measured(1, key="new", el_3=0.4)]
    found = measurements(records)
    assert {(each.strength, each.key): each.numbers["el_3"] for each in found.values()} == {
        (1, "memorization-key"): 0.3,
        (2, "memorization-key"): 0.2,
        (1, "new"): 0.4,
    }


def _append_many(folder, trial_id, count):
    for number in range(count):
        Journal(folder).append(Stopped(trial_id=trial_id, strength=number, reason="x" * 5000))


def test_trials_are_written_side_by_side_from_threads_and_processes(tmp_path):
    spawn = multiprocessing.get_context("fork")
    workers = [spawn.Process(target=_append_many, args=(tmp_path, f"p{index}", 20)) for index in range(2)]
    workers += [threading.Thread(target=_append_many, args=(tmp_path, f"t{index}", 20)) for index in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    journal = Journal(tmp_path)
    assert journal.trial_ids() == ("p0", "p1", "t0", "t1")
    for trial_id in journal.trial_ids():
        assert [each.strength for each in journal.read(trial_id)] == list(range(20))


def make_plan(**changes):
    fields = {
        "sweep": "s",
        "question": "# What?",
        "file": "name: s\n",
        "overrides": ("seeds=[0]",),
        "trials": (SPEC, make_spec(strengths=(0.5,), trial_id="t2")),
        "ranked_at": {"emso": 0.05},
        "collapse_mauve": 0.25,
        "samples": "redacted",
    }
    return Plan(**{**fields, **changes})


def test_a_plan_comes_back_and_is_replaced_whole(tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.write_plan(make_plan())
    journal.write_plan(make_plan(sweep="other", collapse_mauve=INF))
    assert journal.read_plan() == make_plan(sweep="other", collapse_mauve=INF)
    assert [path.name for path in journal.folder.iterdir()] == ["plan.json"]


def test_a_plan_that_is_missing_or_broken_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match="Run the sweep first"):
        Journal(tmp_path).read_plan()
    for text in ("{", "[]", '{"sweep": "s", "trials": []}'):
        (tmp_path / "plan.json").write_text(text)
        with pytest.raises(DataError, match="not a plan of this version"):
            Journal(tmp_path).read_plan()


ALL = [measured(each, name) for each in (1, 2, 3) for name in ("memorization", "generation")]


@pytest.mark.parametrize(
    ("records", "missing", "state"),
    [
        ([], {1: "mg", 2: "mg", 3: "mg"}, "missing"),
        ([STARTED], {1: "mg", 2: "mg", 3: "mg"}, "missing"),
        ([STARTED, *ALL], {}, "done"),
        ([STARTED, *ALL, FAILED], {}, "done"),
        ([STARTED, *ALL[:3]], {2: "g", 3: "mg"}, "missing"),
        ([STARTED, *ALL[:3], FAILED], {2: "g", 3: "mg"}, "failed"),
        ([FAILED], {1: "mg", 2: "mg", 3: "mg"}, "failed"),
        ([STARTED, FAILED, STARTED, ALL[0]], {1: "g", 2: "mg", 3: "mg"}, "missing"),
        ([STARTED, FAILED, STARTED, FAILED], {1: "mg", 2: "mg", 3: "mg"}, "failed"),
        ([STARTED, measured(1, key="an older setting")], {1: "mg", 2: "mg", 3: "mg"}, "missing"),
        ([STARTED, *ALL[:4], STOPPED], {}, "done"),
        ([STARTED, *ALL[:3], STOPPED], {2: "g"}, "missing"),
        ([STARTED, measured(1.0), measured(1.0, "generation")], {2: "mg", 3: "mg"}, "missing"),
    ],
)
def test_what_remains_and_how_a_trial_stands(records, missing, state):
    found = {
        strength: "".join(each.name[0] for each in evaluators) for strength, evaluators in remaining(SPEC, records)
    }
    assert (found, status(SPEC, records)) == (missing, state)


@pytest.mark.parametrize(
    ("strengths", "records", "reached"),
    [
        ((1, 3, 5), [], (1, 3, 5)),
        ((1, 3, 5), [STOPPED], (1,)),
        ((1, 3, 5), [point(2), STOPPED], (1, 2)),
        ((1, 2, 5), [point(2), STOPPED], (1, 2)),
        ((1,), [point(2), STOPPED], (1,)),
        ((1, 2), [point(2), STOPPED], (1, 2)),
        ((), [point(None)], (None,)),
    ],
)
def test_where_a_trajectory_stopped_is_its_last_point(strengths, records, reached):
    assert reachable(make_spec(strengths), records) == reached


def test_a_new_evaluator_measures_the_point_where_a_trajectory_stopped():
    spec = make_spec((1, 3, 5), evaluators=("memorization",))
    records = [STARTED, point(2), measured(1), STOPPED]
    assert [strength for strength, _ in remaining(spec, records)] == [2]
    assert remaining(spec, [*records, measured(2)]) == ()


def test_a_reference_row_has_one_point():
    spec = make_spec(strengths=())
    [(strength, evaluators)] = remaining(spec, [])
    assert strength is None
    assert len(evaluators) == 2
