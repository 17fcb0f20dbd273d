"""The journal: every record comes back as it was, and a broken line costs its own work and no more."""

import json
import logging
import multiprocessing
from dataclasses import asdict

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.contracts import Metric
from harness.errors import DataError, PluginError
from harness.records import journal as journal_module
from harness.records.journal import Failed, Journal, Point, Started, Stopped
from harness.records.results import trial_results
from harness.settings import Collapse, Plan, replace

NAN, INF = float("nan"), float("inf")
STOPPED = Stopped(trial_id="t1", strength=2, reason="validation perplexity above 1.03 × the original's")
FAILED = Failed(trial_id="t1", error="ValueError: NaN loss", log=("line 1", "line 2"))


@pytest.fixture(scope="module")
def spec(make_spec):
    return make_spec(strengths=(1, 2, 3))


@pytest.fixture(scope="module")
def started(spec):
    return Started(trial_id="t1", spec=spec.model_dump(mode="json"), versions={"torch": "2.13.0"})


@pytest.fixture(scope="module")
def point(spec, make_point):
    """Return a maker of points with all that a note may hold."""
    notes = {"blocks": ["L2.W_v.H11"], "loss": NAN}
    return lambda strength: make_point(spec, strength, erase_seconds=1.25, peak_memory_bytes=2**40, notes=notes)


@pytest.fixture(scope="module")
def measured(spec, make_measurement):
    """Return a maker of measurements with all that a metric, a sample and a note may hold."""
    odd = {
        "samples": ({"kind": "forget", "prompt": 'Zoë said "hi"\n\t\x00', "generated": "", "reference": "\u2028"},),
        "notes": {"loss": [1.5, NAN, INF, -INF], "none": None, "deep": {"a": [{"b": True}]}, "0.1": 1e-300},
        "seconds": 0.25,
    }

    def make(strength, evaluator="memorization", numbers=None, **changes):
        numbers = numbers or {"el_3": 0.1 + 0.2}
        about = {"better": "lower", "unit": "", "low": -INF, "high": INF, "group": "erasure", "source": "", "title": ""}
        metrics = tuple(asdict(Metric(name=name, **about)) for name in numbers)
        return make_measurement(spec, strength, evaluator, numbers, metrics=metrics, **odd, **changes)

    return make


@pytest.fixture(scope="module")
def written(started, point, measured):
    """Return a reader of a trial in short: "started m1 g1 p2 stopped" is a list of five records."""
    whole = {"started": started, "stopped": STOPPED, "failed": FAILED, "old": measured(1, key="an older setting")}
    makers = {"m": measured, "g": lambda strength: measured(strength, "generation"), "p": point}
    return lambda text: [whole.get(word) or makers[word[0]](json.loads(word[1:])) for word in text.split()]


def same(one, other):
    """Equal, where NaN equals NaN, and 1 is not 1.0."""
    return repr(one) == repr(other)


def test_a_record_comes_back_as_it_was_and_every_line_is_json_for_everybody(tmp_path, started, point, measured):
    measurement = measured(1, numbers={"el_3": NAN, "ma": INF, "ss": -INF, "em": 0.0})
    for record in (started, point(1), point(None), measurement, STOPPED, FAILED):
        Journal(tmp_path).append(record)
        assert same(Journal(tmp_path).read("t1")[-1], record)
    lines = (tmp_path / "t1.jsonl").read_text().splitlines()
    bodies = [json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON")) for line in lines]
    assert [body["kind"] for body in bodies] == ["started", "point", "point", "measurement", "stopped", "failed"]
    assert bodies[3]["numbers"] == {"el_3": None, "ma": {"float": "inf"}, "ss": {"float": "-inf"}, "em": 0.0}


@settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.text(max_size=5), st.floats(), min_size=1, max_size=4),
    st.dictionaries(st.text(max_size=5), st.text() | st.booleans() | st.none() | st.lists(st.integers()), max_size=3),
)
def test_any_numbers_and_notes_come_back_as_they_were(tmp_path, measured, numbers, notes):
    record = replace(measured(1, numbers=numbers), notes=notes)
    Journal(tmp_path).append(record)
    assert same(Journal(tmp_path).read("t1")[-1], record)


def test_what_json_cannot_hold_is_named_and_nothing_is_written(tmp_path):
    bad = Point(trial_id="t1", point_id="p", strength=1, erase_seconds=0, peak_memory_bytes=0, notes={"a": [{1, 2}]})
    with pytest.raises(PluginError, match=r"point\.notes\.a\[0\] is a builtins\.set"):
        Journal(tmp_path).append(bad)
    assert not (tmp_path / "t1.jsonl").exists()


def test_a_torn_last_line_is_dropped_wherever_it_was_torn(tmp_path, started):
    journal, path = Journal(tmp_path), tmp_path / "t1.jsonl"
    journal.append(STOPPED)
    whole = path.read_bytes()
    journal.append(FAILED)
    data = path.read_bytes()
    for end in range(len(whole), len(data) + 1):
        path.write_bytes(data[:end])
        kept = [STOPPED, FAILED] if end >= len(data) - 1 else [STOPPED]  # Without its end a line is whole.
        assert journal.read("t1") == kept
        journal.append(started)
        assert same(journal.read("t1"), [*kept, started])


def test_any_changed_byte_of_a_middle_line_drops_it_and_warns_once(tmp_path, caplog, point):
    journal, path = Journal(tmp_path), tmp_path / "t1.jsonl"
    for record in (STOPPED, FAILED, point(1)):
        journal.append(record)
    data = path.read_bytes()
    start = data.index(b"\n") + 1
    for index in range(start, data.index(b"\n", start)):
        path.write_bytes(data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :])
        assert [type(record) for record in Journal(tmp_path).read("t1")] == [Stopped, Point], index
    caplog.clear()
    reader = Journal(tmp_path)
    assert same(reader.read("t1"), reader.read("t1"))
    [warning] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert f"{path}, line 2 is broken" in warning.getMessage()


@pytest.mark.parametrize(("change", "clause"), [({"colour": "red"}, "'colour'"), ({"kind": "banquet"}, "'banquet'")])
def test_a_sealed_line_that_is_no_record_is_named(tmp_path, change, clause):
    journal, path = Journal(tmp_path), tmp_path / "t.jsonl"
    journal.append(Failed(trial_id="t", error="E", log=()))
    body = json.loads(path.read_text()) | change
    del body["checksum"]
    text = json.dumps(body, separators=(",", ":")).encode()
    path.write_bytes(path.read_bytes() + text[:-1] + journal_module._tail(text) + b"\n")
    with pytest.raises(DataError, match=f"^{path}, line 2 is whole, but no record of this version of Lethe .*{clause}"):
        journal.read("t")


def test_of_duplicates_the_last_wins_and_other_keys_are_left_out(spec, measured):
    records = [measured(strength, numbers={"el_3": el}) for strength, el in ((1, 0.1), (2, 0.2), (1, 0.3))]
    points = trial_results(spec, [*records, measured(1, numbers={"el_3": 0.4}, key="new")]).measured
    numbers = {point.strength: [measurement.numbers["el_3"] for measurement in point.measurements] for point in points}
    assert numbers == {1: [0.3], 2: [0.2]}


def _try_to_hold(folder, said):
    try:
        with Journal(folder).held():
            said.put("held")
    except DataError as error:
        said.put(str(error))


def test_one_run_of_a_sweep_at_a_time(tmp_path):
    context = multiprocessing.get_context("fork")
    said = context.Queue()

    def answer():
        other = context.Process(target=_try_to_hold, args=(tmp_path / "s" / "journal", said))
        other.start()
        other.join()
        return said.get(timeout=10)

    with Journal(tmp_path / "s" / "journal").held():
        assert f"another run of this sweep is writing to {tmp_path / 's'}." in answer()
    assert answer() == "held"


@pytest.fixture(scope="module")
def plan(spec, make_spec, make_plan):
    trials = (spec, make_spec(strengths=(0.5,), trial_id="t2"))
    return make_plan(*trials, overrides=("seeds=[0]",), ranked_at={"emso": 0.05})


def test_a_plan_comes_back_and_is_replaced_whole(tmp_path, plan):
    journal, other = Journal(tmp_path / "journal"), replace(plan, sweep="other", collapse=Collapse(mauve=0.5))
    journal.write_plan(plan)
    journal.write_plan(other)
    assert journal.read_plan() == other
    assert [path.name for path in journal.folder.iterdir()] == ["plan.json"]


def test_a_plan_that_is_missing_or_broken_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match="Run the sweep first"):
        Journal(tmp_path).read_plan()
    for text in ("{", "[]", '{"sweep": "s", "trials": []}'):
        (tmp_path / "plan.json").write_text(text)
        with pytest.raises(DataError, match="not a plan of this version"):
            Journal(tmp_path).read_plan()


def test_fields_that_nothing_knows_are_refused_at_every_depth(plan):
    """A misspelt field would otherwise leave the default in its place."""
    whole = plan.model_dump(mode="json")
    assert Plan.model_validate(whole, strict=False) == plan
    [trial, *_] = whole["trials"]
    for part in (whole, whole["collapse"], trial, trial["forget"], trial["engine"], trial["model"], trial["training"]):
        part["mauvo"] = 0.25
        with pytest.raises(ValueError, match="mauvo\n"):
            Plan.model_validate(whole, strict=False)
        del part["mauvo"]


ALL = "started m1 g1 m2 g2 m3 g3"


STANDS = [
    ("", {1: "mg", 2: "mg", 3: "mg"}, "missing"),
    (ALL, {}, "done"),
    (f"{ALL} failed", {}, "done"),
    ("started m1 g1 m2", {2: "g", 3: "mg"}, "missing"),
    ("failed", {1: "mg", 2: "mg", 3: "mg"}, "failed"),
    ("started failed started m1", {1: "g", 2: "mg", 3: "mg"}, "missing"),
    ("started old", {1: "mg", 2: "mg", 3: "mg"}, "missing"),
    ("started m1 g1 m2 g2 stopped", {}, "done"),
    ("started m1 g1 m2 stopped", {2: "g"}, "missing"),
    ("started m1.0 g1.0", {2: "mg", 3: "mg"}, "missing"),
]


@pytest.mark.parametrize(("records", "missing", "state"), STANDS)
def test_what_remains_and_how_a_trial_stands(spec, written, records, missing, state):
    trial = trial_results(spec, written(records))
    lacking = {strength: "".join(each.name[0] for each in evaluators) for strength, evaluators in trial.remaining}
    assert (lacking, trial.status, bool(trial.failure)) == (missing, state, state == "failed")


STOPPED_AT = [
    ((1, 3, 5), "", (1, 3, 5)),
    ((1, 3, 5), "stopped", (1, 2)),
    ((3, 5), "stopped", (2,)),
    ((1, 3, 5), "p2 stopped", (1, 2)),
    ((1, 2, 5), "p2 stopped", (1, 2)),
    ((), "pnull", (None,)),
]


@pytest.mark.parametrize(("strengths", "records", "reached"), STOPPED_AT)
def test_where_a_trajectory_stopped_is_its_last_point(make_spec, written, strengths, records, reached):
    trial = trial_results(make_spec(strengths=strengths), written(records))
    assert tuple(point.strength for point in trial.points) == reached
    assert [point.strength for point in trial.points if point.stop_reason] == [2] * (2 in reached and "stop" in records)


def test_a_new_evaluator_measures_the_point_where_a_trajectory_stopped(make_spec, written):
    spec = make_spec(strengths=(1, 3, 5), evaluators={"memorization": "memorization-key"})
    assert [strength for strength, _ in trial_results(spec, written("started p2 m1 stopped")).remaining] == [2]
    assert trial_results(spec, written("started p2 m1 stopped m2")).remaining == ()
