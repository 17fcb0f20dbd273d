"""MLflow holds what the journal holds: once, whatever happened in between, and no text."""

import json
import math
import random
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
import torch
from mlflow import MlflowClient
from mlflow.entities import ViewType

from harness import cli
from harness.analysis.tradeoff.curves import STYLES
from harness.errors import DataError
from harness.library import load_results
from harness.plans import StudySpec, Target
from harness.records.journal import Journal
from harness.records.record import Candidate, Failed, Started, Stopped
from harness.records.results import Results, study_results, trial_results
from harness.records.tracking.database import EXPERIMENT, serve_dashboard
from harness.records.tracking.live import LiveTracking
from harness.records.tracking.saved_views import addresses
from harness.records.tracking.tracker import Tracker
from harness.reporting.files import written_files
from harness.reporting.point_tags import point_tags
from harness.reporting.sections.outcome import answer_markdown
from harness.specs import EvaluatorSpec, Source

SECRET = "Zdenka Albrecht lives at 14 Linden Row"
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def make_trial(make_spec):
    """Return a maker of a sweep's trials, each measured by one evaluator under `key`."""
    text = Source(source="jsonl", path="/secret/forget.jsonl", digest="d" * 64)
    fields = {"sweep": "tradeoff", "variant": "full_em", "method_version": 3, "seed": 7}
    fields |= {"settings": {"k": 2, "selection": "all", "nested": {"a": None}}}
    fields |= {"forget": text, "utility": text, "validation": text}
    return lambda key="key", **changes: make_spec({"memorization": key}, **fields | changes)


@pytest.fixture(scope="module")
def make_sweep(make_plan):
    """Return a maker of the sweep's plans."""
    fields = {"sweep": "tradeoff", "question": "What does each method pay?"}
    return lambda *trials, **changes: make_plan(*trials, **fields | changes)


@pytest.fixture(scope="module")
def measured(make_measurement):
    """Return a maker of measurements that hold a text wherever one may stand."""
    sample = {"kind": "forget", "prompt": SECRET, "generated": SECRET, "reference": SECRET}
    fields = {"samples": (sample,), "notes": {"worst": SECRET}, "seconds": 0.5}

    def make(spec, strength, numbers, evaluator="memorization", group="erasure", **changes):
        metrics = tuple({"name": name, "group": group, "better": "lower"} for name in numbers)
        return make_measurement(spec, strength, evaluator, numbers, metrics=metrics, **fields | changes)

    return make


@pytest.fixture(scope="module")
def point(make_point):
    fields = {"erase_seconds": 1.5, "peak_memory_bytes": 1024, "notes": {"example": SECRET}}
    return lambda spec, strength: make_point(spec, strength, **fields)


def started(spec):
    return Started(trial_id=spec.trial_id, spec=spec.to_json(), versions={"torch": "2.13.0"}, node="gpu-3")


@pytest.fixture(scope="module")
def spec(make_trial):
    return make_trial()


@pytest.fixture(scope="module")
def records(spec, point, measured):
    """All that the trial leaves."""
    numbers = {1: {"el_3": 0.1, "ma": 0.5}, 2: {"el_3": 0.2, "ma": 0.5}}
    return [started(spec), *(record for s in numbers for record in (point(spec, s), measured(spec, s, numbers[s])))]


@pytest.fixture
def root(tmp_path, mlflow_template, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").write_bytes(mlflow_template.read_bytes())
    return tmp_path


@pytest.fixture
def sync(make_results):
    """Return what brings MLflow up to date with records, as another process would."""
    return lambda root, plan, records, **options: Tracker(root).sync(make_results(plan, records), **options)


def client(root):
    return MlflowClient(f"sqlite:///{root}/mlflow.db")


def search(root, view=ViewType.ACTIVE_ONLY):
    experiment = client(root).get_experiment_by_name(EXPERIMENT)
    return client(root).search_runs([experiment.experiment_id], run_view_type=view)


def about(root, run):
    """All that MLflow shows of a run, but when it was."""
    histories = [client(root).get_metric_history(run.info.run_id, key) for key in run.data.metrics]
    return {
        "id": run.info.run_id,
        "status": run.info.status,
        "tags": run.data.tags,
        "params": run.data.params,
        "metrics": sorted((entry.key, entry.step, entry.value) for history in histories for entry in history),
        "inputs": sorted((made.tags[0].value, made.dataset.digest) for made in run.inputs.dataset_inputs),
    }


def runs(root, *kinds):
    """Every live run of these kinds, by its trial's id or, of a point, its own; the sweep's as `sweep`."""
    named = [(run.data.tags.get("point_id", run.data.tags.get("trial_id", "sweep")), run) for run in search(root)]
    assert len(dict(named)) == len(named), "two runs of one trial or point"
    wanted = kinds or ("sweep", "trial", "candidate")
    return {name: about(root, run) for name, run in named if run.data.tags["kind"] in wanted}


def everything(root):
    """All runs, deleted ones too, with the times of every number."""
    histories = {
        (run.info.run_id, key): [(entry.step, entry.timestamp) for entry in entries]
        for run in search(root, ViewType.ALL)
        for key in run.data.metrics
        for entries in [client(root).get_metric_history(run.info.run_id, key)]
    }
    ended = {run.info.run_id: run.info.end_time for run in search(root, ViewType.ALL)}
    return [about(root, run) for run in search(root, ViewType.ALL)], histories, ended


def test_a_trial_is_a_run_nested_in_its_sweeps(root, sync, make_sweep, spec, records):
    of_points = {spec.point_id(1): {"collapsed": "false"}, spec.point_id(2): {"collapsed": "true"}}
    sync(root, make_sweep(spec), {"t1": records}, point_tags=of_points)
    live = runs(root)
    assert live["sweep"]["tags"]["mlflow.runName"] == "tradeoff"
    assert live["sweep"]["tags"]["mlflow.note.content"] == "What does each method pay?"
    trial = live["t1"]
    assert trial["status"] == "FINISHED"
    assert trial["tags"]["mlflow.parentRunId"] == live["sweep"]["id"]
    said = {"method": "emso", "variant": "full_em", "model": "miniature-m", "collapsed": "false, true"}
    said |= {"status": "done", "stop_reason": "none", "definition": "exact", "not_finite": "none"}
    said |= {"version.torch": "2.13.0", "node": "gpu-3", "mlflow.runName": "full_em miniature-m seed 7"}
    said |= {"strengths": "1, 2", "mlflow.source.name": "sweep tradeoff", "mlflow.source.type": "LOCAL"}
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
    ]
    assert trial["inputs"] == [("forget", "d" * 36), ("utility", "d" * 36), ("validation", "d" * 36)]


def test_a_candidate_is_a_run_with_its_settings_as_params(root, make_sweep, spec):
    target = Target(metric="ma", at_most=0.9)
    study = StudySpec(
        study_id="study", trial=replace(spec, strengths=()), seeds=(7,), space={}, defaults={}, is_cumulative=True,
        is_trained=True, search="optuna", trials=2, targets=(target,), utility="perplexity", utility_bounds=(0.5, 5.0),
        selection=spec.forget, retrained=None,
    )  # fmt: skip
    probes = [
        {"strength": epoch, "ma": ma, "perplexity": 4.0 + epoch, "optimiser_steps": 8 * epoch}
        for epoch, ma in ((1, 0.95), (2, 0.85), (3, 0.6))
    ]
    tried = Candidate(
        trial_id="study", number=0, settings={"k": 4, "training.learning_rate": 1e-5}, probes=tuple(probes),
        targets={"ma <= 0.9": 0.9}, original={"ma": 1.0, "perplexity": 4.0}, end="whole", seconds=1.0,
    )  # fmt: skip
    failed = replace(tried, number=1, probes=(), end=f"ValueError: {SECRET}")
    results = Results(make_sweep(studies=(study,)), (), (study_results(study, [tried, failed]),))
    Tracker(root).sync(results)
    once = everything(root)
    Tracker(root).sync(results)
    again = everything(root)
    assert [run["id"] for run in again[0]] == [run["id"] for run in once[0]]
    assert again[1:] == once[1:]
    live = runs(root)
    first, second = live["study-0"], live["study-1"]
    assert first["tags"]["mlflow.parentRunId"] == live["sweep"]["id"]
    assert {"kind": "candidate", "end": "whole"}.items() <= first["tags"].items()
    searched = {"searched.k": "4", "searched.training.learning_rate": "1e-05", "settings.k": "4"}
    assert searched.items() <= first["params"].items()
    assert ("least/ma at most 0.9", 0, 6.0) in first[
        "metrics"
    ]  # epoch 2 is the first, and the cheapest, that reaches it
    assert ("probe/ma", 3, 0.6) in first["metrics"]
    assert "probe/strength" not in {name for name, _, _ in first["metrics"]}
    assert (first["tags"]["strengths"], second["tags"]["strengths"]) == ("1, 2, 3", "none")
    assert (second["metrics"], second["tags"]["end"]) == ([], "ValueError")
    assert SECRET not in str(once)


DAY = "2026-02-03T04:05:{:02d}Z"


def test_a_point_is_a_run_in_its_trials_with_all_that_it_was_made_with(root, sync, make_sweep, spec, records):
    of_points = {spec.point_id(2): {"collapsed": "true", "ranked": "false", "mlflow.runColor": "#0072B2"}}
    sync(root, make_sweep(spec), {"t1": records}, point_tags=of_points)
    points = runs(root, "point")
    assert points.keys() == {spec.point_id(1), spec.point_id(2)}
    second = points[spec.point_id(2)]
    assert second["status"] == "FINISHED"
    said = {"kind": "point", "trial_id": "t1", "model": "miniature-m", "variant": "full_em", "stop_reason": "none"}
    said |= {"mlflow.runName": "full_em@2 miniature-m seed 7", **of_points[spec.point_id(2)]}
    said |= {"mlflow.parentRunId": runs(root)["t1"]["id"]}
    assert said.items() <= second["tags"].items()
    made_with = {
        "method": "emso",
        "strength_name": "epochs",
        "strength": "2",
        "settings.epochs": "2",
        "settings.k": "2",
    }
    made_with |= {"training.learning_rate": "1e-05", "training.global_batch": "64", "seed": "7"}
    assert made_with.items() <= second["params"].items()
    assert second["metrics"] == [
        ("erasure/el_3", 0, 0.2),
        ("erasure/ma", 0, 0.5),
        ("resources/erase_seconds", 0, 1.5),
        ("resources/measure_seconds", 0, 0.5),
        ("resources/peak_memory_bytes", 0, 1024.0),
    ]


def test_runs_begin_and_end_when_the_journal_says(root, make_results, make_sweep, spec, point, measured):
    at = [DAY.format(second) for second in (0, 10, 14, 20, 25)]
    dated = [replace(started(spec), at=at[0])]
    for strength, erased, seen, total in ((1, at[1], at[2], 9.5), (2, at[3], at[4], 14.0)):
        dated.append(replace(point(spec, strength), at=erased, erase_seconds=total))
        dated.append(measured(spec, strength, {"ma": 0.5}, at=seen, seconds=4.0))
    tracker = Tracker(root)
    tracker.sync(make_results(make_sweep(spec), {"t1": dated}))
    tracker.finish([])
    began = datetime(2026, 2, 3, 4, 5, tzinfo=UTC).timestamp()
    times = {
        run.data.tags.get("point_id", run.data.tags["kind"]): tuple(
            ms / 1000 - began for ms in (run.info.start_time, run.info.end_time)
        )
        for run in search(root)
    }
    # The second point's erasing took 14.0 - 9.5 seconds and was over 20 seconds after the beginning.
    assert times == {
        "sweep": (0, 25),
        "trial": (0, 25),
        spec.point_id(1): (0.5, 14),
        spec.point_id(2): (15.5, 25),
    }
    assert {run["tags"].get("times") for run in runs(root, "trial", "point").values()} == {"journaled"}


def test_an_unchanged_run_is_neither_read_back_nor_written(root, sync, make_sweep, spec, records, monkeypatch):
    of_points = {spec.point_id(strength): {"ranked": "true"} for strength in (1, 2)}
    sync(root, make_sweep(spec), {"t1": records}, point_tags=of_points)
    calls = Counter()

    def counted(name):
        call = getattr(MlflowClient, name)
        monkeypatch.setattr(MlflowClient, name, lambda *a, **o: calls.update([name]) or call(*a, **o))

    for name in ("get_metric_history", "log_batch", "log_inputs", "create_run", "set_terminated", "set_experiment_tag"):
        counted(name)
    sync(root, make_sweep(spec), {"t1": records}, point_tags=of_points)
    assert calls == {}
    sync(root, make_sweep(spec), {"t1": records}, point_tags=of_points | {spec.point_id(1): {"ranked": "false"}})
    assert calls == {"log_batch": 2}, "the point's tag, and the trial's that sums up its points'"


@pytest.fixture
def many(make_trial, make_sweep, point, measured, make_results):
    """Sixty trials of one point each: more runs than one transaction takes."""
    specs = [make_trial(trial_id=f"t{number}", seed=number, strengths=(1,)) for number in range(60)]
    of_trial = {spec.trial_id: [started(spec), point(spec, 1), measured(spec, 1, {"ma": 0.5})] for spec in specs}
    return make_results(make_sweep(*specs), of_trial)


def commits_of(root):
    """How often the database was written: SQLite counts its own in the file's header."""
    return int.from_bytes((root / "mlflow.db").read_bytes()[24:28], "big")


def test_many_runs_are_written_at_once(root, many):
    tracker = Tracker(root)
    tracker.prepare()
    before = commits_of(root)
    tracker.sync(many)
    assert len(search(root)) == 1 + 2 * 60
    assert 3 <= commits_of(root) - before <= 8, "the sweep's run, three times up to fifty, and the experiment's tags"
    before, once = commits_of(root), everything(root)
    Tracker(root).sync(many)
    assert commits_of(root) == before, "nothing is new"
    again = everything(root)
    assert [run["id"] for run in again[0]] == [run["id"] for run in once[0]]
    assert again[1:] == once[1:]


def test_a_transaction_that_fails_leaves_what_was_written_before_it(root, many, monkeypatch):
    write, left = MlflowClient.set_terminated, [75]

    def broken(self, *arguments):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return write(self, *arguments)

    monkeypatch.setattr(MlflowClient, "set_terminated", broken)
    with pytest.raises(KeyboardInterrupt):
        Tracker(root).sync(many)
    monkeypatch.undo()
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert len(search(root)) == 1 + 50, "the second fifty were none"
    Tracker(root).sync(many)
    assert Counter(run.info.status for run in search(root)) == {"FINISHED": 120, "RUNNING": 1}


def test_points_follow_their_trial_into_a_new_run(root, sync, make_sweep, spec, records):
    sync(root, make_sweep(spec), {"t1": records})
    before = runs(root, "point")
    client(root).delete_run(runs(root)["t1"]["id"])
    sync(root, make_sweep(spec), {"t1": records})
    after = runs(root, "point")
    assert {name: run["id"] for name, run in after.items()} == {name: run["id"] for name, run in before.items()}
    assert {run["tags"]["mlflow.parentRunId"] for run in after.values()} == {runs(root)["t1"]["id"]}


def test_a_point_that_lacks_a_measurement_is_not_finished(root, sync, make_trial, make_sweep, spec, records):
    two = (*spec.evaluators, EvaluatorSpec(name="mine", version=1, settings={}, key="mine"))
    failed = Failed(trial_id="t1", error="E: e", log=())
    sync(root, make_sweep(replace(spec, evaluators=two)), {"t1": [*records, failed]})
    assert {run["status"] for run in runs(root, "point").values()} == {"FAILED"}
    sync(root, make_sweep(spec), {"t1": records})
    assert {run["status"] for run in runs(root, "point").values()} == {"FINISHED"}


def test_a_reference_row_has_no_settings_and_unseen_texts_have_no_utility(root, sync, make_trial, make_sweep, measured):
    spec = make_trial(strengths=(), method="holdout", variant="holdout", settings={})
    both = (*spec.evaluators, EvaluatorSpec(name="generation", version=1, settings={}, key="g"))
    spec = replace(spec, evaluators=both)
    utility = measured(spec, None, {"mauve": 0.9}, "generation", "generation")
    sync(root, make_sweep(spec), {"t1": [started(spec), measured(spec, None, {"ma": 0.5}), utility]})
    [run] = runs(root, "point").values()
    assert not [name for name in run["params"] if name.startswith(("settings.", "training.", "strength."))]
    assert "strength" not in run["params"]
    assert [metric for metric in run["metrics"] if "resources" not in metric[0]] == [("erasure/ma", 0, 0.5)]


def test_a_sweeps_view_shows_its_points_and_draws_its_axes(root, make_results, make_spec, make_plan, make_measurement):
    spec = make_spec()
    numbers = {"memorization": {"el_3": 0.2, "ma": 0.4}, "generation": {"mauve": 0.9, "perplexity": 5.0, "rep_2": 0.1}}
    records = [make_measurement(spec, 1, evaluator, numbers[evaluator]) for evaluator in numbers]
    Tracker(root).sync(make_results(make_plan(spec), {"t1": records}))
    experiment = client(root).get_experiment_by_name(EXPERIMENT)
    kept = json.loads(experiment.tags["mlflow.sharedViewState.s"])
    assert kept["name"] == "s: points"
    view = json.loads(kept["state"])
    found = client(root).search_runs(
        [experiment.experiment_id], view["searchFilter"], order_by=["tags.`mlflow.runName`"]
    )
    assert [run.data.tags["point_id"] for run in found] == [spec.point_id(1)]
    charts = {chart["uuid"]: chart for chart in view["compareRunCharts"]}
    axes = [(charts[f"scatter-{n}"]["xaxis"]["key"], charts[f"scatter-{n}"]["yaxis"]["key"]) for n in (0, 1)]
    assert axes == [("generation/log10_perplexity", "erasure/ma"), ("generation/mauve", "erasure/el_3")]
    drawn = ["erasure/ma", "erasure/el_3", "generation/log10_perplexity", "generation/mauve"]
    assert charts["parallel-0"]["selectedMetrics"] == drawn
    assert found[0].data.metrics["generation/log10_perplexity"] == pytest.approx(math.log10(5.0))
    named = {*found[0].data.params, *found[0].data.metrics, "collapse_class", "ranked"}
    assert {re.search("`(.*)`", column).group(1) for column in view["selectedColumns"]} <= named
    sections = {section["uuid"] for section in view["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in charts.values()} == sections
    [page] = addresses("1", experiment.tags, has_models=False).values()
    assert "viewStateShareKey=s" in page
    training = "workflowType=machine_learning"
    pages = {"All runs": f"#/experiments/1/runs?{training}", "Kept models": f"#/experiments/1/models?{training}"}
    assert addresses("1", {}, has_models=True) == pages


def test_a_points_tags_are_the_tables_and_its_colour_the_figures():
    rows = [("o", "original", "original", False, "healthy", False), ("a", "emso", "mine", True, "gibberish", True)]
    rows += [("b", "emso", "mine", None, "unknown", False), ("h", "holdout", "holdout", None, "", False)]
    names = ["point_id", "method", "variant", "collapsed", "collapse_class", "ranked"]
    tags = point_tags(pd.DataFrame(rows, columns=names).astype({"collapsed": object}).assign(frontier=True, model="m"))
    assert tags["a"] == {
        "collapsed": "true", "collapse_class": "gibberish", "ranked": "true", "frontier": "true",
        "mlflow.runColor": STYLES[0][0],
    }  # fmt: skip
    assert tags["b"]["mlflow.runColor"] == tags["a"]["mlflow.runColor"] != tags["o"]["mlflow.runColor"]
    assert (tags["b"]["collapsed"], tags["o"]["collapsed"], tags["h"]["collapse_class"]) == ("unknown", "false", "none")
    assert "mlflow.runColor" not in tags["h"]


def test_syncing_twice_changes_nothing_in_the_same_process_or_another(root, make_results, make_sweep, spec, records):
    results, tracker = make_results(make_sweep(spec), {"t1": records}), Tracker(root)
    tracker.sync(results)
    once = everything(root)
    assert len(once[0]) == 4
    tracker.sync(results)
    Tracker(root).sync(results)
    again = everything(root)
    assert [run["id"] for run in again[0]] == [run["id"] for run in once[0]]
    assert again[1:] == once[1:]


def test_a_live_run_a_killed_one_and_a_lost_database_end_the_same(
    root, sync, mlflow_template, tmp_path_factory, make_sweep, spec, records
):
    plan = make_sweep(spec)
    live = Tracker(root)
    for end in range(1, 3):
        live.log_trial(plan, trial_results(spec, records[:end]))
    assert runs(root)["t1"]["status"] == "RUNNING"
    for end in range(3, len(records) + 1):
        Tracker(root).log_trial(plan, trial_results(spec, records[:end]))
    other = tmp_path_factory.mktemp("other")
    (other / "mlflow.db").write_bytes(mlflow_template.read_bytes())
    sync(other, plan, {"t1": records})
    first, second = runs(root)["t1"], runs(other)["t1"]
    for name in ("status", "metrics", "params"):
        assert first[name] == second[name]


def test_what_is_not_a_finite_number_is_named_and_not_logged(root, sync, make_trial, make_sweep, measured):
    spec = make_trial(strengths=(1,))
    numbers = {"mauve": NAN, "perplexity": INF, "rep_2": -INF, "div_3": 0.0}
    kept_records = [started(spec), measured(spec, 1, numbers, group="generation")]
    sync(root, make_sweep(spec), {"t1": kept_records})
    trial = runs(root)["t1"]
    assert [metric for metric in trial["metrics"] if metric[0].startswith("generation")] == [
        ("generation/div_3", 1, 0.0)
    ]
    lost = "generation/mauve at epochs 1, generation/perplexity at epochs 1, generation/rep_2 at epochs 1"
    assert trial["tags"]["not_finite"] == lost


def test_no_text_of_a_sample_a_note_or_an_error_gets_in(root, make_results, make_trial, make_sweep, spec, records):
    stopped = Stopped(trial_id="t1", strength=1, reason="validation perplexity")
    failed = Failed(trial_id="t1", error=f"ValueError: {SECRET}", log=(SECRET,))
    untyped = Failed(trial_id="t2", error=f"{SECRET}: it was", log=(SECRET,))
    kept_records = {"t1": [*records[:2], stopped, failed], "t2": [untyped]}
    tracker = Tracker(root)
    tracker.sync(make_results(make_sweep(spec, make_trial(trial_id="t2")), kept_records))
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


def test_failed_then_done_and_why_it_stopped(root, sync, make_sweep, spec, records):
    plan = make_sweep(spec)
    failed = Failed(trial_id="t1", error="OutOfMemoryError: 2 GB", log=())
    sync(root, plan, {"t1": [started(spec), failed]})
    trial = runs(root)["t1"]
    assert (trial["status"], trial["tags"]["status"], trial["tags"]["error"]) == (
        "FAILED",
        "failed",
        "OutOfMemoryError",
    )
    stopped = Stopped(trial_id="t1", strength=1, reason="perplexity above 1.03")
    sync(root, plan, {"t1": [started(spec), failed, *records[:3], stopped]})
    trial = runs(root)["t1"]
    assert (trial["status"], trial["tags"]["error"]) == ("FINISHED", "none")
    assert trial["tags"]["stop_reason"] == "perplexity above 1.03"


def test_a_new_evaluator_adds_to_the_run_and_a_changed_one_replaces_it(
    root, sync, make_trial, make_sweep, spec, records, measured
):
    sync(root, make_sweep(spec), {"t1": records})
    first = runs(root)["t1"]
    more = replace(spec, evaluators=(*spec.evaluators, EvaluatorSpec(name="mine", version=1, settings={}, key="mine")))
    kept_records = [*records, measured(more, 1, {"fluency": 0.7}, "mine", "generation")]
    sync(root, make_sweep(more), {"t1": kept_records})
    second = runs(root)["t1"]
    assert second["id"] == first["id"]
    assert set(second["metrics"]) - set(first["metrics"]) == {
        ("generation/fluency", 1, 0.7),
        ("measure_seconds/mine", 1, 0.5),
    }
    changed = make_trial(key="el_sequences: 128")
    kept_records += [measured(changed, 1, {"el_3": 0.9}, definition="table")]
    sync(root, make_sweep(changed), {"t1": kept_records})
    third = runs(root)["t1"]
    assert third["id"] != first["id"]
    assert (first["tags"]["definition"], third["tags"]["definition"]) == ("exact", "table")
    assert [metric for metric in third["metrics"] if "/el_3" in metric[0]] == [("erasure/el_3", 1, 0.9)]


@pytest.mark.parametrize(
    ("strengths", "steps"),
    [((3,), {3: 3}), ((0.05,), {0.05: 0}), ((0.5, 1.5), {0.5: 0, 1.5: 1}), ((), {None: 0})],
)
def test_the_step_is_the_epoch_or_else_the_strengths_place(
    root, sync, strengths, steps, make_trial, make_sweep, point, measured
):
    spec = make_trial(strengths=strengths)
    kept_records = [
        started(spec),
        *(record for s in steps for record in (point(spec, s), measured(spec, s, {"ma": 0.5}))),
    ]
    sync(root, make_sweep(spec), {"t1": kept_records})
    trial = runs(root)["t1"]
    assert [step for name, step, _ in trial["metrics"] if name == "erasure/ma"] == sorted(steps.values())
    assert trial["tags"]["strengths"] == (", ".join(map(str, strengths)) or "none")
    assert "strength" not in {name for name, _, _ in trial["metrics"]}, "it is a parameter, of a point's run"


def test_a_strength_that_comes_later_gets_its_place_in_a_new_run(root, sync, make_trial, make_sweep, point, measured):
    for strengths in ((0.5, 1.5), (0.5, 1.0, 1.5)):
        spec = make_trial(strengths=strengths)
        kept_records = [
            started(spec),
            *(record for s in strengths for record in (point(spec, s), measured(spec, s, {"ma": s}))),
        ]
        sync(root, make_sweep(spec), {"t1": kept_records})
    trial = runs(root)["t1"]
    assert [metric[1:] for metric in trial["metrics"] if metric[0] == "erasure/ma"] == [(0, 0.5), (1, 1.0), (2, 1.5)]
    assert trial["tags"]["strengths"] == "0.5, 1, 1.5"


def test_a_name_that_mlflow_refuses_is_mended(root, sync, make_trial, make_sweep, measured):
    spec = make_trial(strengths=(1,), settings={"β": 1, "odd(key)": 2})
    sync(root, make_sweep(spec), {"t1": [started(spec), measured(spec, 1, {"f1 (macro)": 0.5})]})
    trial = runs(root)["t1"]
    assert ("erasure/f1 _macro_", 1, 0.5) in trial["metrics"]
    assert trial["params"]["settings.odd_key_"] == "2"


def test_trials_without_records_get_no_run_and_two_sweeps_share_nothing(
    root, make_results, make_trial, make_sweep, spec, records
):
    tracker, third = Tracker(root), make_trial(trial_id="t3")
    tracker.sync(make_results(make_sweep(spec, make_trial(trial_id="t2")), {"t1": records, "t2": []}))
    assert runs(root).keys() == {"sweep", "t1"}
    tracker.sync(make_results(make_sweep(third, sweep="other"), {"t3": [started(third)]}))
    tags = [run.data.tags for run in search(root)]
    parents = {each["mlflow.parentRunId"] for each in tags if each["kind"] == "trial"}
    assert len(parents) == 2


@pytest.mark.parametrize(("samples", "attached"), [("redacted", True), ("plain", False)])
def test_the_report_is_attached_unless_it_shows_plain_texts(
    root, make_results, samples, attached, make_sweep, spec, records
):
    tracker = Tracker(root)
    tracker.sync(make_results(make_sweep(spec, samples=samples), {"t1": records}))
    for name in ("report.html", "table.csv"):
        (root / name).write_text(name)
    tracker.finish([root / "report.html", root / "table.csv", root / "missing.png"], "What?\n\n- GD pays less.")
    assert runs(root)["sweep"]["tags"]["mlflow.note.content"] == "What?\n\n- GD pays less."
    attached_files = {path.name for path in (root / "mlartifacts").rglob("*") if path.is_file()}
    assert attached_files == {"table.csv", *(["report.html"] if attached else [])}


@pytest.mark.parametrize(
    ("others", "end"),
    [
        ({"t2": [Failed(trial_id="t2", error="E: e", log=())]}, "FAILED"),
        ({}, "KILLED"),
        (None, "FINISHED"),
    ],
)
def test_a_sweeps_run_ends_as_its_trials_did(
    root, make_results, others, end, make_trial, make_sweep, spec, records, measured
):
    other = make_trial(trial_id="t2")
    if others is None:
        others = {"t2": [measured(other, strength, {"ma": 0.5}) for strength in other.strengths]}
    tracker = Tracker(root)
    tracker.sync(make_results(make_sweep(spec, other), {"t1": records} | others))
    assert runs(root)["sweep"]["status"] == "RUNNING"
    tracker.finish([])
    assert runs(root)["sweep"]["status"] == end


@pytest.fixture
def journaled(root, make_spec, make_plan, make_point, make_measurement):
    """A sweep's folder with its plan, the records of one trial of two, and what a report leaves."""
    spec, folder = make_spec({"memorization": "key"}), root / "s"
    journal = Journal(folder / "journal")
    journal.write_plan(make_plan(spec, replace(spec, trial_id="t2", seed=1)))
    for record in (started(spec), *(make(spec, s) for s in (1, 2) for make in (make_point, make_measurement))):
        journal.append(record)
    for name in ("table.csv", "report.html", "figures/map.png", "forget.csv"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    return folder


def attached(root):
    return {path.name: path.stat().st_mtime_ns for path in (root / "mlartifacts").rglob("*") if path.is_file()}


def test_collate_fills_in_what_is_lacking_and_nothing_twice(root, journaled, capsys):
    assert cli.main(["collate", str(journaled)]) == 0
    assert capsys.readouterr().out.endswith(f"MLflow at {root}/mlflow.db holds what the journal of s holds.\n")
    live, files = everything(root), attached(root)
    statuses = [(run["tags"]["kind"], run["status"]) for run in live[0]]
    assert sorted(statuses) == [
        *[("point", "FINISHED")] * 2,
        ("sweep", "KILLED"),
        ("trial", "FINISHED"),
    ]
    assert len([run for run in live[0] if run["metrics"]]) == 3
    assert files.keys() >= {"table.csv", "report.html", "map.png"}
    next((root / "mlartifacts").rglob("map.png")).unlink()
    assert cli.main(["collate", str(journaled)]) == 0
    assert attached(root).keys() == files.keys()
    assert everything(root)[1:] == live[1:]


def test_what_a_sweep_has_tracked_itself_is_not_tracked_again(root, journaled):
    outcome = load_results(journaled)
    with LiveTracking(journaled) as tracking:
        tracking.start()
        for trial in outcome.results.trials[:1]:
            tracking.log_trial(outcome.results.plan, trial)
        of_points, answer = point_tags(outcome.ranked.table), answer_markdown(outcome.analysis)
        tracking.finish(outcome.results, of_points, written_files(journaled), answer)
    once = everything(root)
    assert len(once[0]) == 4
    assert cli.main(["collate", str(journaled)]) == 0
    again = everything(root)
    assert [run["id"] for run in again[0]] == [run["id"] for run in once[0]]
    assert again[1:] == once[1:]


def test_a_sweep_that_goes_on_is_shown_as_running(root, journaled):
    assert cli.main(["collate", str(journaled)]) == 0
    results = load_results(journaled).results
    Tracker(root).log_trial(results.plan, results.trials[0])
    assert runs(root)["sweep"]["status"] == "RUNNING"


def test_sweeps_of_one_folder_are_tracked_at_once(root, make_results, make_sweep, make_trial, records):
    others = [make_results(make_sweep(make_trial(sweep=name), sweep=name), {"t1": records}) for name in ("a", "b", "c")]
    with ExitStack() as stack:
        tracks = [stack.enter_context(LiveTracking(root / each.plan.sweep)) for each in others]
        for tracking in tracks:
            tracking.start()
        for each, tracking in zip(others, tracks, strict=True):
            tracking.log_trial(each.plan, each.trials[0])
        for each, tracking in zip(others, tracks, strict=True):
            tracking.finish(each, {}, [])
    found = [run.data.tags["sweep"] for run in search(root) if run.info.status == "FINISHED"]
    assert sorted(found) == ["a"] * 4 + ["b"] * 4 + ["c"] * 4


def test_tracking_draws_no_random_number_that_a_trial_could_miss(root, sync, make_sweep, spec, records):
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    sync(root, make_sweep(spec), {"t1": records})
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


def test_a_full_disk_ends_tracking_and_nothing_else(tmp_path, mlflow_template, journaled, caplog, capsys, monkeypatch):
    small = tmp_path / "small"
    small.mkdir()
    size = mlflow_template.stat().st_size + 4_000_000
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        (small / "mlflow.db").write_bytes(mlflow_template.read_bytes())
        shutil.copytree(journaled / "journal", small / "s" / "journal")
        with suppress(OSError), (small / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"0" * 4096)
        outcome = load_results(small / "s")
        with LiveTracking(small / "s") as tracking:
            tracking.start()
            tracking.log_trial(outcome.results.plan, outcome.results.trials[0])
            tracking.finish(outcome.results, {}, [])
        [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert "No space left on device" in warning or "SQLITE_FULL" in warning or "SQLITE_IOERR" in warning
        assert cli.main(["collate", str(small / "s")]) == 1
        (small / "filler").unlink()
        assert cli.main(["collate", str(small / "s")]) == 0
        assert runs(small).keys() == {"sweep", "t1"}
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_finishing_what_was_never_synced_is_a_mistake(root):
    with pytest.raises(RuntimeError, match="call sync first"):
        Tracker(root).finish([])


def test_an_experiment_that_was_deleted_in_the_dashboard_comes_back(root, sync, make_sweep, spec, records):
    Tracker(root).prepare()
    client(root).delete_experiment(client(root).get_experiment_by_name(EXPERIMENT).experiment_id)
    sync(root, make_sweep(spec), {"t1": records})
    assert runs(root)["t1"]["status"] == "FINISHED"


@pytest.mark.parametrize(
    ("variable", "remote"), [("http://127.0.0.1:5999", True), ("", False), ("sqlite:///relative.db", False)]
)
def test_only_a_server_replaces_the_results_own_database(tmp_path, monkeypatch, variable, remote):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", variable)
    assert Tracker(tmp_path).uri == (variable if remote else f"sqlite:///{tmp_path}/mlflow.db")


def test_there_is_no_dashboard_of_nothing(tmp_path):
    with pytest.raises(DataError, match="Run a sweep first"):
        serve_dashboard(tmp_path, 5000)


def test_importing_the_tracker_does_not_import_mlflow():
    code = "import sys, harness.records.tracking.tracker; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.soak
def test_the_dashboard_serves_the_runs_on_this_machine_alone(root, sync, make_sweep, spec, records):
    sync(root, make_sweep(spec), {"t1": records})
    code = "import sys, pathlib; from harness.records.tracking.database import serve_dashboard as serve"
    code += "; serve(pathlib.Path(sys.argv[1]), 5917)"
    command = [sys.executable, "-c", code, str(root)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert "http://127.0.0.1:5917/#/experiments/1/runs?" in server.stdout.readline()
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
    assert not (root / "mlruns").exists()
