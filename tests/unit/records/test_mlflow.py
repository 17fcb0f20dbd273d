"""MLflow holds what the journal holds, whatever happened in between, no text of it, and never hurts a sweep."""

import json
import logging
import re
import socket
from contextlib import closing
from pathlib import Path

import mlflow
import pandas as pd
import pytest
from mlflow import MlflowClient

from harness import cli
from harness.analysis.curves import method_style
from harness.errors import DataError
from harness.library import find_point
from harness.records import artifacts, mlflow as tracking
from harness.records.journal import Failed, Journal, Started, Stopped
from harness.records.mlflow import EXPERIMENT, LiveCopy, copy_sweep, copy_trial, describe_failure, describe_store
from harness.reporting.files import point_tags
from harness.settings import replace

SECRET = "Zdenka Albrecht lives at 14 Linden Row"


@pytest.fixture(scope="module")
def spec(make_spec):
    return make_spec(settings={"k": 2, "odd(key)": {"a": None}})


@pytest.fixture(scope="module")
def records(make_point, make_measurement):
    """Return a maker of what a trial leaves, with a text wherever one may stand."""
    sample = {"kind": "forget", "prompt": SECRET, "generated": SECRET, "reference": SECRET}

    def make(spec, ma=0.5, **numbers):
        numbers = {"memorization": {"ma": ma, "el_3": 0.25}, "generation": {"perplexity": 10.0}} | numbers
        texts = {"samples": (sample,), "notes": {"worst": SECRET}}
        left = [Started(trial_id=spec.trial_id, spec=spec.model_dump(mode="json"), node="gpu-3", commit="c0ffee-dirty")]
        for strength in spec.points():
            left.append(make_point(spec, strength, notes={"example": SECRET, "loss_by_step": [3.0, 2.5][:strength]}))
            for asked in spec.evaluators:
                left.append(make_measurement(spec, strength, asked.name, numbers[asked.name], **texts))
        return [replace(record, at=f"2026-02-03T04:05:{5 * second:02d}Z") for second, record in enumerate(left)]

    return make


@pytest.fixture
def folder(tmp_path, mlflow_template, monkeypatch):
    """A sweep's folder, in results with an empty database."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root = tmp_path / "results"
    (root / "s").mkdir(parents=True)
    (root / "mlflow.db").write_bytes(mlflow_template.read_bytes())
    return root / "s"


@pytest.fixture
def results(spec, records, make_plan, make_results):
    """Return a maker of the sweep's results: of one trial, or of those that are given with their records."""

    def make(*specs, left=None, **changes):
        specs = specs or (spec,)
        left = {each.trial_id: records(each) for each in specs} if left is None else left
        return make_results(make_plan(*specs, **changes), left)

    return make


def runs(folder):
    """Every live run, by its trial's id or, of a point, its own; the sweep's as `sweep`."""
    client = MlflowClient(f"sqlite:///{folder.parent}/mlflow.db")
    found = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    named = [(run.data.tags.get("point_id", run.data.tags.get("trial_id", "sweep")), run) for run in found]
    assert len(dict(named)) == len(named), "two runs of one trial or point"
    return dict(named)


def write_journal(folder, plan, records):
    journal = Journal(folder / "journal")
    journal.write_plan(plan)
    for record in records:
        journal.append(record)


def ids(folder):
    return {name: run.info.run_id for name, run in runs(folder).items()}


def test_a_trials_run_has_its_trajectory_and_all_that_it_was_run_with(results):
    run = tracking.trial_run(results().trials[0])
    said = {"method": "emso", "node": "gpu-3", "stop_reason": "none", "strengths": "1, 2", "error": "none"}
    said |= {"mlflow.runName": "EMSO, miniature-m, seed 0", "mlflow.source.name": "sweep s", "forget_digest": "1" * 16}
    assert (said | {"mlflow.source.git.commit": "c0ffee"}).items() <= run.tags.items()
    ran = {"label": "EMSO", "settings.k": "2", "settings.odd_key_.a": "null", "training.global_batch": "64"}
    assert ran.items() <= run.params.items()
    assert {("erasure/ma", 1, 0.5), ("erasure/ma", 2, 0.5), ("resources/erase_seconds", 2, 1.0)} <= set(run.metrics)
    losses = [metric for metric in run.metrics if "loss" in metric[0]]
    assert losses == [("training/loss", 1, 3.0), ("training/loss", 2, 2.5)]


def test_what_is_not_finite_is_named_and_left_out_and_unseen_texts_have_no_utility(spec, results, records):
    [trial] = results(left={"t1": records(spec, generation={"perplexity": float("inf"), "rep_2": float("nan")})}).trials
    run = tracking.point_run(trial, trial.points[0])
    assert run.tags["not_finite"] == "generation/perplexity, generation/rep_2"
    assert not [name for name, _, _ in run.metrics if name.startswith("generation")]
    [unseen] = results(replace(spec, method="holdout", variant="holdout", strengths=())).trials
    run = tracking.point_run(unseen, unseen.points[0])
    assert {name for name, _, _ in run.metrics if "resources" not in name} == {"erasure/ma", "erasure/el_3"}
    assert not [name for name in run.params if name.startswith(("settings.", "training.", "strength."))]


def test_no_text_of_a_sample_a_note_or_an_error_gets_in(folder, spec, records, results):
    stopped = Stopped(trial_id="t1", strength=1, reason="validation perplexity")
    untyped = Failed(trial_id="t2", error=f"{SECRET}: it was", log=(SECRET,))
    left = {"t1": [*records(spec)[:3], stopped, Failed(trial_id="t1", error=f"ValueError: {SECRET}", log=(SECRET,))]}
    copy_sweep(folder, results(spec, replace(spec, trial_id="t2"), left={**left, "t2": [untyped]}), {})
    assert [runs(folder)[name].data.tags["error"] for name in ("t1", "t2")] == ["ValueError", "see the journal"]
    for path in folder.parent.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path


def test_copying_again_changes_nothing_and_the_tables_tags_reach_points_and_their_trial(folder, spec, results):
    first, second = (spec.point_id(strength) for strength in (1, 2))
    copy_trial(folder, results().plan, results().trials[0])
    assert runs(folder)["sweep"].info.status == "RUNNING"
    once = ids(folder)
    colour = {"mlflow.runColor": "#0072B2"}
    for _ in range(2):
        copy_sweep(folder, results(), {first: {"ranked": "true", **colour}, second: {"ranked": "false", **colour}})
        assert ids(folder) == once
        assert {name: run.info.status for name, run in runs(folder).items()} == dict.fromkeys(once, "FINISHED")
        tags = {name: run.data.tags for name, run in runs(folder).items()}
        assert (tags[first]["ranked"], tags[second]["ranked"], tags["t1"].get("ranked")) == ("true", "false", None)
        assert tags["t1"]["mlflow.runColor"] == "#0072B2"


def test_what_no_longer_holds_goes(folder, spec, results):
    point = spec.point_id(2)
    copy_sweep(folder, results(), {point: {"excess.ma_int4": "0.1", "ranked": "true"}})
    MlflowClient(f"sqlite:///{folder.parent}/mlflow.db").set_tag(ids(folder)[point], "mine", "kept")
    assert runs(folder)[point].data.tags["excess.ma_int4"] == "0.1"
    copy_sweep(folder, results(), {point: {"ranked": "true"}})
    assert (runs(folder)[point].data.tags["mine"], "excess.ma_int4" in runs(folder)[point].data.tags) == ("kept", False)
    other = replace(spec, trial_id="t2")
    copy_sweep(folder, results(other), {})
    assert ids(folder).keys() == {"sweep", "t2", *(other.point_id(strength) for strength in (1, 2))}


def test_other_numbers_and_runs_that_were_cut_off_are_replaced_and_points_follow(folder, spec, records, results):
    copy_sweep(folder, results(), {})
    once, client = ids(folder), MlflowClient(f"sqlite:///{folder.parent}/mlflow.db")
    client.update_run(once["t1"], "RUNNING")
    copy_sweep(folder, results(), {})
    again = ids(folder)
    assert [name for name in once if once[name] != again[name]] == ["t1"]
    points = [run.data.tags for run in runs(folder).values() if run.data.tags["kind"] == "point"]
    assert {tags["mlflow.parentRunId"] for tags in points} == {again["t1"]}
    # On MLflow's page: it comes back, with the runs that were replaced.
    client.delete_experiment(client.get_experiment_by_name(EXPERIMENT).experiment_id)
    copy_sweep(folder, results(left={"t1": records(spec, ma=0.75)}), {})
    assert {run.data.metrics["erasure/ma"] for name, run in runs(folder).items() if name != "sweep"} == {0.75}


def test_a_sweeps_run_ends_as_its_trials_did_with_its_files_but_a_report_of_plain_texts(folder, spec, records, results):
    for name in ("report.html", "table.csv"):
        (folder / name).write_text(name)
    files = [folder / name for name in ("report.html", "table.csv", "missing.png")]
    two = (spec, replace(spec, trial_id="t2"))
    failed = [Started(trial_id="t2", spec=two[1].model_dump(mode="json")), Failed(trial_id="t2", error="E: e", log=())]
    for left, end in ((failed, "FAILED"), ([], "KILLED")):
        plan = results(*two, left={"t1": records(spec), "t2": left}, samples="plain")
        copy_sweep(folder, plan, {}, files, "What?\n\n- GD pays less.")
        sweep = runs(folder)["sweep"]
        assert (sweep.info.status, sweep.data.tags["mlflow.note.content"]) == (end, "What?\n\n- GD pays less.")
    assert {path.name for path in (folder.parent / "mlartifacts").rglob("*") if path.is_file()} == {"table.csv"}


def test_a_kept_sound_model_is_a_tag_with_the_command_that_exports_it(tmp_path, results, spec, records):
    root, [trial] = tmp_path / "my results", results().trials
    write_journal(root / "s", results().plan, records(spec))
    kept = artifacts.Artifacts(root / "artifacts")
    kept.build("erased", spec.point_id(2), lambda folder: (folder / "patch.safetensors").write_bytes(b"0.125"))
    sound = {"collapsed": "false", "over_erased": "unknown"}
    assert tracking.erased_tags(trial.points[0], root, sound) == {}
    for broken in ({}, sound | {"collapsed": "true"}, sound | {"over_erased": "true"}):
        assert tracking.erased_tags(trial.points[1], root, broken) == {}
    tags = tracking.erased_tags(trial.points[1], root, sound)
    assert (root / tags["kept_in"] / "patch.safetensors").exists()
    assert tags["export"] == f"lethe export s:{spec.point_id(2)} --results 'my results' --out s-emso@2"
    assert find_point(f"s:{spec.point_id(2)}", root) == (root / "s", spec.point_id(2))


def test_mlflows_page_reads_views_in_the_form_that_is_written_for_it(results):
    """It is not documented: an upgrade that changes it fails here."""
    page = Path(mlflow.__file__).parent / "server" / "js" / "build"
    scripts = "".join(file.read_text(encoding="utf-8") for file in sorted(page.rglob("*.js")))
    tags = tracking.experiment_tags(results(), 0)
    states = [json.loads(json.loads(tags[f"mlflow.sharedViewState.s{lines}"])["state"]) for lines in ("", ": lines")]
    names = [*states[0], *(name for state in states for chart in state["compareRunCharts"] for name in chart)]
    names += ["mlflow.sharedViewState."]
    names += ["viewStateShareKey", "compareRunsMode", "workflowType", *tags["mlflow.experimentKind"].split()]
    assert [name for name in names if name not in scripts] == [], f"adapt mlflow.py to MLflow {mlflow.__version__}"


def test_a_points_tags_are_the_tables_and_its_colour_the_figures():
    rows = [("o", "original", "original", False, "healthy", False), ("a", "emso", "mine", True, "gibberish", True)]
    rows += [("b", "emso", "mine", None, "unknown", False), ("h", "holdout", "holdout", None, "", False)]
    names = ["point_id", "method", "variant", "collapsed", "collapse_class", "ranked"]
    about = {"frontier": True, "model": "m", "over_erased": [None, False, True, None]}
    tags = point_tags(pd.DataFrame(rows, columns=names).astype({"collapsed": object}).assign(**about))
    colour = {"mlflow.runColor": method_style("emso")[0], "collapse_class": "gibberish", "over_erased": "false"}
    assert tags["a"] == dict.fromkeys(("collapsed", "ranked", "frontier"), "true") | colour
    assert tags["b"]["mlflow.runColor"] == tags["a"]["mlflow.runColor"] != tags["o"]["mlflow.runColor"]
    assert (tags["b"]["collapsed"], tags["o"]["collapsed"], tags["h"]["collapse_class"]) == ("unknown", "false", "none")
    assert [tags[point]["over_erased"] for point in "bh"] == ["true", "unknown"]
    assert "mlflow.runColor" not in tags["h"]


@pytest.fixture
def refusing(monkeypatch):
    """The address, with a password, of a server that is down."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:{SECRET.split()[0]}@{address}")
    return f"http://{address}"


def test_a_server_that_is_down_is_one_warning_without_its_password(folder, results, caplog, capfd, refusing):
    copy = LiveCopy(folder)
    for trial in results().trials * 3:
        copy.attempt(copy_trial, results().plan, trial)
    copy.attempt(copy_sweep, results(), {}, [], "")
    [warning] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.startswith(f"MLflow at {refusing} failed: MlflowException from ConnectionRefusedError (Connection ")
    assert SECRET.split()[0] not in warning
    assert capfd.readouterr() == ("", "")


def test_a_failure_is_told_without_the_words_of_others(folder):
    with pytest.raises(ValueError, match=SECRET) as raised:
        raise ValueError(SECRET) from OSError(28, "No space left on device", SECRET)
    said = describe_failure(raised.value, folder.parent)
    at = rf"raised in {Path(__file__).name}, line \d+\."
    assert re.fullmatch(rf"MLflow at \S+ failed: ValueError from OSError \(No space left on device\), {at}", said)
    assert describe_failure(DataError("our own words."), folder.parent) == "our own words."


@pytest.mark.parametrize("uri", ["", "sqlite:///relative.db"])
def test_only_a_server_replaces_the_results_own_database(folder, monkeypatch, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert describe_store(folder.parent) == f"{folder.parent}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:word@runs.example/some/path?token=word")
    assert describe_store(folder.parent) == "https://runs.example"


def test_collate_fills_in_what_is_lacking_and_ends_with_1_where_it_cannot(folder, results, spec, records, capsys):
    spec = replace(spec, evaluators=spec.evaluators[:1])
    write_journal(folder, results(spec).plan, records(spec))
    assert cli.main(["collate", str(folder)]) == 0
    assert capsys.readouterr().out.endswith(f"MLflow at {folder.parent}/mlflow.db holds what the journal of s holds.\n")
    assert runs(folder).keys() == {"sweep", "t1", spec.point_id(1), spec.point_id(2)}
    assert {"table.csv", "report.html"} <= {path.name for path in (folder.parent / "mlartifacts").rglob("*.*")}
    (folder.parent / "mlflow.db").write_bytes(b"not a database" * 100)
    assert cli.main(["collate", str(folder)]) == 1
    assert "Fix that and run this again: it continues where it stopped.\n" in capsys.readouterr().err
