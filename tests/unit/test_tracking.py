"""MLflow holds what the journal holds: once, whatever happened in between, and no text."""

import sqlite3
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace

import pytest

from harness.contracts import Checkpoint, Training
from harness.errors import DataError
from harness.records.tracking import EXPERIMENT, Tracker, dashboard
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

SECRET = "Zdenka Albrecht lives at 14 Linden Row"
NAN, INF = float("nan"), float("inf")


def make_spec(trial_id="t1", strengths=(1, 2), evaluators=("memorization",), key="key", **changes):
    text = Source(source="jsonl", path="/secret/forget.jsonl", digest="d" * 64)
    spec = TrialSpec(
        trial_id=trial_id,
        sweep="tradeoff",
        variant="full_em",
        method="emso",
        label="EMSO",
        reference="none",
        settings={"k": 2, "selection": "all", "nested": {"a": None}},
        method_version=3,
        strength_name="epochs",
        strengths=strengths,
        seed=7,
        model=Checkpoint("miniature-m", "/m", "/m", "0" * 16),
        training=Training(),
        memorization=Memorization(epochs=1, learning_rate=0.1, global_batch=1, gate=0.9),
        engine="plain",
        forget=text,
        retain=None,
        utility=text,
        validation=text,
        evaluators=tuple(EvaluatorSpec(name=each, version=1, settings={}, key=key) for each in evaluators),
        judges={},
    )
    return replace(spec, **changes)


def make_plan(*trials, **changes):
    fields = {
        "sweep": "tradeoff",
        "question": "What does each method pay?",
        "file": "name: tradeoff",
        "overrides": (),
        "trials": trials,
        "ranked_at": {},
        "collapse_mauve": 0.25,
        "samples": "redacted",
    }
    return Plan(**{**fields, **changes})


def measured(spec, strength, key="key", evaluator="memorization", group="erasure", **numbers):
    return Measurement(
        trial_id=spec.trial_id,
        point_id=spec.point_id(strength),
        strength=strength,
        evaluator=evaluator,
        key=key,
        definition="exact",
        numbers=numbers,
        metrics=tuple({"name": name, "group": group, "better": "lower"} for name in numbers),
        samples=({"kind": "forget", "prompt": SECRET, "generated": SECRET, "reference": SECRET},),
        notes={"worst": SECRET},
        seconds=0.5,
    )


def point(spec, strength):
    return Point(
        trial_id=spec.trial_id,
        point_id=spec.point_id(strength),
        strength=strength,
        erase_seconds=1.5,
        peak_memory_bytes=1024,
        notes={"example": SECRET},
    )


def started(spec):
    return Started(trial_id=spec.trial_id, spec=spec.to_json(), versions={"torch": "2.13.0"})


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A database as MLflow makes it, which takes seconds; every test gets a copy."""
    root = tmp_path_factory.mktemp("template")
    Tracker(root).prepare()
    with sqlite3.connect(root / "mlflow.db") as database:
        database.execute("DELETE FROM experiments WHERE name = ?", (EXPERIMENT,))
    return root / "mlflow.db"


@pytest.fixture
def root(tmp_path, template, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").write_bytes(template.read_bytes())
    return tmp_path


def query(root, text, *values):
    with sqlite3.connect(root / "mlflow.db") as database:
        return database.execute(text, values).fetchall()


def runs(root):
    """Every live run's name, status, tags, params and metric values by step."""
    found = {}
    for run_id, status in query(root, "SELECT run_uuid, status FROM runs WHERE lifecycle_stage = 'active'"):
        tags = dict(query(root, "SELECT key, value FROM tags WHERE run_uuid = ?", run_id))
        metrics = query(root, "SELECT key, step, value FROM metrics WHERE run_uuid = ? ORDER BY key, step", run_id)
        params = dict(query(root, "SELECT key, value FROM params WHERE run_uuid = ?", run_id))
        name = tags.get("trial_id", "sweep")
        assert name not in found, "two runs of one trial"
        found[name] = {"id": run_id, "status": status, "tags": tags, "metrics": metrics, "params": params}
    return found


def everything(root):
    tables = [name for [name] in query(root, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: query(root, f'SELECT * FROM "{name}"') for name in tables}


SPEC = make_spec()
RECORDS = [started(SPEC)] + [each for s in (1, 2) for each in (point(SPEC, s), measured(SPEC, s, el_3=s / 10, ma=0.5))]


def test_a_trial_is_a_run_nested_in_its_sweeps(root):
    Tracker(root).sync(make_plan(SPEC), {"t1": RECORDS}, collapsed={"t1": "degenerate"})
    found = runs(root)
    assert found["sweep"]["tags"]["mlflow.runName"] == "tradeoff"
    assert found["sweep"]["tags"]["mlflow.note.content"] == "What does each method pay?"
    trial = found["t1"]
    assert trial["status"] == "FINISHED"
    assert trial["tags"]["mlflow.parentRunId"] == found["sweep"]["id"]
    said = {"method": "emso", "variant": "full_em", "model": "miniature-m", "collapsed": "degenerate"}
    said |= {"status": "done", "stop_reason": "none", "definition": "exact", "not_finite": "none"}
    said |= {"version.torch": "2.13.0", "mlflow.runName": "full_em miniature-m seed 7"}
    assert said.items() <= trial["tags"].items()
    ran = {"label": "EMSO", "seed": "7", "strength_name": "epochs", "settings.k": "2", "settings.selection": "all"}
    ran |= {"settings.nested.a": "null", "training.global_batch": "64", "method_version": "3"}
    assert ran.items() <= trial["params"].items()
    assert trial["metrics"] == [
        ("erase_seconds", 1, 1.5),
        ("erase_seconds", 2, 1.5),
        ("erasure/el_3", 1, 0.1),
        ("erasure/el_3", 2, 0.2),
        ("erasure/ma", 1, 0.5),
        ("erasure/ma", 2, 0.5),
        ("measure_seconds/memorization", 1, 0.5),
        ("measure_seconds/memorization", 2, 0.5),
        ("peak_memory_bytes", 1, 1024.0),
        ("peak_memory_bytes", 2, 1024.0),
        ("strength", 1, 1.0),
        ("strength", 2, 2.0),
    ]
    contexts = query(root, "SELECT value FROM input_tags ORDER BY value")
    assert contexts == [("forget",), ("utility",), ("validation",)]
    assert {digest for [digest] in query(root, "SELECT digest FROM datasets")} == {"d" * 36}


def test_syncing_twice_changes_nothing_in_the_same_process_or_another(root):
    plan, tracker = make_plan(SPEC), Tracker(root)
    tracker.sync(plan, {"t1": RECORDS})
    once = everything(root)
    tracker.sync(plan, {"t1": RECORDS})
    Tracker(root).sync(plan, {"t1": RECORDS})
    assert everything(root) == once


def test_a_live_run_a_killed_one_and_a_lost_database_end_the_same(root, template, tmp_path_factory):
    plan = make_plan(SPEC)
    live = Tracker(root)
    for end in range(1, 3):
        live.log_point(plan, "t1", RECORDS[:end])
    assert runs(root)["t1"]["status"] == "RUNNING"
    for end in range(3, len(RECORDS) + 1):
        Tracker(root).log_point(plan, "t1", RECORDS[:end])
    other = tmp_path_factory.mktemp("other")
    (other / "mlflow.db").write_bytes(template.read_bytes())
    Tracker(other).sync(plan, {"t1": RECORDS})
    first, second = runs(root)["t1"], runs(other)["t1"]
    for name in ("status", "metrics", "params"):
        assert first[name] == second[name]


def test_a_sync_that_was_cut_off_between_its_writes_is_completed(root):
    plan = make_plan(SPEC)
    Tracker(root).sync(plan, {"t1": RECORDS})
    whole = runs(root)["t1"]
    with sqlite3.connect(root / "mlflow.db") as database:
        for table in ("metrics", "latest_metrics"):
            database.execute(f"DELETE FROM {table} WHERE key = 'erasure/ma'")
        database.execute("DELETE FROM params WHERE key = 'settings.k'")
        database.execute("DELETE FROM tags WHERE key = 'status'")
        database.execute("DELETE FROM inputs")
        database.execute("UPDATE runs SET status = 'RUNNING'")
    Tracker(root).sync(plan, {"t1": RECORDS})
    assert runs(root)["t1"] == whole
    assert len(query(root, "SELECT * FROM inputs")) == 3


def test_what_is_not_a_finite_number_is_named_and_not_logged(root):
    spec = make_spec(strengths=(1,))
    records = [started(spec), measured(spec, 1, group="generation", mauve=NAN, perplexity=INF, rep_2=-INF, div_3=0.0)]
    Tracker(root).sync(make_plan(spec), {"t1": records})
    trial = runs(root)["t1"]
    assert [metric for metric in trial["metrics"] if metric[0].startswith("generation")] == [
        ("generation/div_3", 1, 0.0)
    ]
    lost = "generation/mauve at step 1, generation/perplexity at step 1, generation/rep_2 at step 1"
    assert trial["tags"]["not_finite"] == lost


def test_no_text_of_a_sample_a_note_or_an_error_gets_in(root):
    stopped = Stopped(trial_id="t1", strength=1, reason="validation perplexity")
    failed = Failed(trial_id="t1", error=f"ValueError: {SECRET}", log=(SECRET,))
    untyped = Failed(trial_id="t2", error=f"{SECRET}: it was", log=(SECRET,))
    records = {"t1": [*RECORDS[:2], stopped, failed], "t2": [untyped]}
    tracker = Tracker(root)
    tracker.sync(make_plan(SPEC, make_spec("t2")), records)
    table = root / "table.csv"
    table.write_text("el_3\n0.1\n")
    tracker.finish([table])
    assert (runs(root)["t1"]["tags"]["error"], runs(root)["t1"]["status"]) == ("ValueError", "FAILED")
    assert runs(root)["t2"]["tags"]["error"] == "see the journal"
    written = [path for path in root.rglob("*") if path.is_file()]
    assert len(written) >= 3
    for path in written:
        content = path.read_bytes()
        assert SECRET.encode() not in content, path
        assert b"/secret/forget.jsonl" not in content, path
    assert b"ValueError" in (root / "mlflow.db").read_bytes()


def test_failed_then_done_and_why_it_stopped(root):
    plan = make_plan(SPEC)
    failed = Failed(trial_id="t1", error="OutOfMemoryError: 2 GB", log=())
    Tracker(root).sync(plan, {"t1": [started(SPEC), failed]})
    trial = runs(root)["t1"]
    assert (trial["status"], trial["tags"]["status"], trial["tags"]["error"]) == (
        "FAILED",
        "failed",
        "OutOfMemoryError",
    )
    stopped = Stopped(trial_id="t1", strength=1, reason="perplexity above 1.03")
    Tracker(root).sync(plan, {"t1": [started(SPEC), failed, *RECORDS[:3], stopped]})
    trial = runs(root)["t1"]
    assert (trial["status"], trial["tags"]["error"]) == ("FINISHED", "none")
    assert trial["tags"]["stop_reason"] == "perplexity above 1.03"


def test_a_new_evaluator_adds_to_the_run_and_a_changed_one_replaces_it(root):
    Tracker(root).sync(make_plan(SPEC), {"t1": RECORDS})
    first = runs(root)["t1"]
    more = replace(SPEC, evaluators=(*SPEC.evaluators, EvaluatorSpec(name="mine", version=1, settings={}, key="mine")))
    records = [*RECORDS, measured(SPEC, 1, key="mine", evaluator="mine", group="generation", fluency=0.7)]
    Tracker(root).sync(make_plan(more), {"t1": records})
    second = runs(root)["t1"]
    assert second["id"] == first["id"]
    assert set(second["metrics"]) - set(first["metrics"]) == {
        ("generation/fluency", 1, 0.7),
        ("measure_seconds/mine", 1, 0.5),
    }
    changed = make_spec(key="el_sequences: 128")
    records = [*records, replace(measured(SPEC, 1, key="el_sequences: 128", el_3=0.9), definition="table")]
    Tracker(root).sync(make_plan(changed), {"t1": records})
    third = runs(root)["t1"]
    assert third["id"] != first["id"]
    assert (first["tags"]["definition"], third["tags"]["definition"]) == ("exact", "table")
    assert [metric for metric in third["metrics"] if "/el_3" in metric[0]] == [("erasure/el_3", 1, 0.9)]


@pytest.mark.parametrize(
    ("strengths", "steps"),
    [((3,), {3: 3}), ((0.05,), {0.05: 0}), ((0.5, 1.5), {0.5: 0, 1.5: 1}), ((), {None: 0})],
)
def test_the_step_is_the_epoch_or_else_the_strengths_place(root, strengths, steps):
    spec = make_spec(strengths=strengths)
    records = [started(spec), *(each for s in steps for each in (point(spec, s), measured(spec, s, ma=0.5)))]
    Tracker(root).sync(make_plan(spec), {"t1": records})
    found = runs(root)["t1"]["metrics"]
    assert [step for name, step, _ in found if name == "erasure/ma"] == sorted(steps.values())
    strength = {value: step for name, step, value in found if name == "strength"}
    assert strength == {value: step for value, step in steps.items() if value is not None}


def test_a_strength_that_comes_later_takes_no_others_step(root):
    for strengths in ((0.5, 1.5), (0.5, 1.0, 1.5)):
        spec = make_spec(strengths=strengths)
        records = [started(spec), *(each for s in strengths for each in (point(spec, s), measured(spec, s, ma=s)))]
        Tracker(root).sync(make_plan(spec), {"t1": records})
    found = runs(root)["t1"]["metrics"]
    assert [metric[1:] for metric in found if metric[0] == "erasure/ma"] == [(0, 0.5), (1, 1.5), (2, 1.0)]


def test_a_name_that_mlflow_refuses_is_mended(root):
    spec = make_spec(strengths=(1,), settings={"β": 1, "odd(key)": 2})
    Tracker(root).sync(make_plan(spec), {"t1": [started(spec), measured(spec, 1, **{"f1 (macro)": 0.5})]})
    trial = runs(root)["t1"]
    assert ("erasure/f1 _macro_", 1, 0.5) in trial["metrics"]
    assert trial["params"]["settings.odd_key_"] == "2"


def test_trials_without_records_get_no_run_and_two_sweeps_share_nothing(root):
    tracker = Tracker(root)
    tracker.sync(make_plan(SPEC, make_spec("t2")), {"t1": RECORDS, "t2": []})
    assert runs(root).keys() == {"sweep", "t1"}
    tracker.sync(make_plan(make_spec("t3"), sweep="other"), {"t3": [started(make_spec("t3"))]})
    parents = query(root, "SELECT value FROM tags WHERE key = 'mlflow.parentRunId'")
    assert len(set(parents)) == 2


@pytest.mark.parametrize(("samples", "attached"), [("redacted", True), ("plain", False)])
def test_the_report_is_attached_unless_it_shows_plain_texts(root, samples, attached):
    tracker = Tracker(root)
    tracker.sync(make_plan(SPEC, samples=samples), {"t1": RECORDS})
    for name in ("report.html", "table.csv"):
        (root / name).write_text(name)
    tracker.finish([root / "report.html", root / "table.csv", root / "missing.png"])
    found = {path.name for path in (root / "mlartifacts").rglob("*") if path.is_file()}
    assert found == {"table.csv", *(["report.html"] if attached else [])}


@pytest.mark.parametrize(
    ("records", "end"),
    [
        ({"t1": RECORDS, "t2": [Failed(trial_id="t2", error="E: e", log=())]}, "FAILED"),
        ({"t1": RECORDS}, "KILLED"),
        ({"t1": RECORDS, "t2": [Stopped(trial_id="t2", strength=0, reason="r")]}, "FINISHED"),
    ],
)
def test_a_sweeps_run_ends_as_its_trials_did(root, records, end):
    plan = make_plan(SPEC, make_spec("t2"))
    tracker = Tracker(root)
    tracker.sync(plan, records)
    assert runs(root)["sweep"]["status"] == "RUNNING"
    tracker.finish([])
    assert runs(root)["sweep"]["status"] == end


def test_trouble_with_mlflow_is_told_while_a_sweep_runs_and_raised_at_its_end(root, caplog):
    (root / "mlflow.db").write_bytes(b"not a database" * 100)
    tracker = Tracker(root)
    tracker.log_point(make_plan(SPEC), "t1", RECORDS)
    assert "MLflow did not take trial t1" in caplog.text
    with pytest.raises(Exception, match="not a database"):
        tracker.sync(make_plan(SPEC), {"t1": RECORDS})


def test_finishing_what_was_never_synced_is_a_mistake(root):
    with pytest.raises(RuntimeError, match="call sync first"):
        Tracker(root).finish([])


def test_an_experiment_that_was_deleted_in_the_dashboard_comes_back(root):
    Tracker(root).prepare()
    with sqlite3.connect(root / "mlflow.db") as database:
        database.execute("UPDATE experiments SET lifecycle_stage = 'deleted' WHERE name = ?", (EXPERIMENT,))
    Tracker(root).sync(make_plan(SPEC), {"t1": RECORDS})
    assert runs(root)["t1"]["status"] == "FINISHED"


@pytest.mark.parametrize(
    ("variable", "remote"), [("http://127.0.0.1:5999", True), ("", False), ("sqlite:///relative.db", False)]
)
def test_only_a_server_replaces_the_results_own_database(tmp_path, monkeypatch, variable, remote):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", variable)
    assert Tracker(tmp_path).uri == (variable if remote else f"sqlite:///{tmp_path}/mlflow.db")


def test_there_is_no_dashboard_of_nothing(tmp_path):
    with pytest.raises(DataError, match="Run a sweep first"):
        dashboard(tmp_path, 5000)


def test_importing_the_tracker_does_not_import_mlflow():
    code = "import sys, harness.records.tracking; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.soak
def test_the_dashboard_serves_the_runs_on_this_machine_alone(root):
    Tracker(root).sync(make_plan(SPEC), {"t1": RECORDS})
    code = "import sys, pathlib, harness.records.tracking as t; t.dashboard(pathlib.Path(sys.argv[1]), 5917)"
    server = subprocess.Popen([sys.executable, "-c", code, str(root)], cwd=root)
    try:
        for _ in range(120):
            try:
                with urllib.request.urlopen("http://127.0.0.1:5917/health", timeout=5) as answer:
                    assert answer.read() == b"OK"
                break
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail("no answer")
    finally:
        server.terminate()
        server.wait()
    assert not (root / "mlruns").exists()
