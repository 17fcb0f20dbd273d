"""MLflow holds every point of a sweep once, opens on the trade-off, and can hurt no sweep."""

import json
import math
import shutil
import time

import pandas as pd
import pytest
from mlflow import MlflowClient

from tests.promises.records_fixtures import COSTS, commands

SWEEP = """# What does MLflow show of a sweep?
name: shown
models: [miniature-s]
data:
  forget: {source: miniature, sequences: 4, sequence_tokens: 32, prefix_tokens: 8}
  retain: {source: miniature, sequences: 4}
  utility: {source: miniature, prompts: 4, prompt_tokens: 16, reference_tokens: 16}
training: {learning_rate: 1.0e-3, global_batch: 4, early_stop: null}
methods:
  emso: {epochs: [1, 2]}
evaluators:
  memorization: {el_sequences: 2}
  generation: {mauve_seeds: 1}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("sweep") / "shown.yaml"
    file.write_text(SWEEP)
    return file


@pytest.fixture(scope="module")
def swept(file, tmp_path_factory):
    """The results of the sweep, and when it began and ended, in milliseconds."""
    results, begun = tmp_path_factory.mktemp("swept"), time.time()
    commands().sweep(file, results)
    return results, begun * 1000, time.time() * 1000


@pytest.fixture(scope="module")
def table(swept):
    return pd.read_csv(swept[0] / "shown" / "table.csv")


@pytest.fixture(scope="module")
def client(swept):
    return MlflowClient(f"sqlite:///{swept[0] / 'mlflow.db'}")


@pytest.fixture(scope="module")
def runs(client):
    """All runs, by their kind."""
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    found = {"sweep": [], "trial": [], "point": []}
    for run in client.search_runs(experiments):
        found[run.data.tags["kind"]].append(run)
    return found


def parent(run):
    return run.data.tags["mlflow.parentRunId"]


def test_every_point_has_one_run_in_its_trials_in_its_sweeps(runs, table):
    [sweep] = runs["sweep"]
    trials = {run.info.run_id: run for run in runs["trial"]}
    assert sorted(run.data.tags["point_id"] for run in runs["point"]) == sorted(table["point_id"])
    assert sorted(run.data.tags["trial_id"] for run in runs["trial"]) == sorted(set(table["trial_id"]))
    assert {parent(run) for run in runs["trial"]} == {sweep.info.run_id}
    trial_of = table.set_index("point_id")["trial_id"]
    for run in runs["point"]:
        assert trials[parent(run)].data.tags["trial_id"] == trial_of[run.data.tags["point_id"]]


def test_params_say_the_method_its_strength_and_every_setting(runs):
    points = {run.data.params.get("strength"): run.data.params for run in runs["point"] if "emso" in str(run.data.tags)}
    for strength in ("1", "2"):
        said = {"variant": "emso", "method": "emso", "seed": "0", "strength": strength, "settings.k": "2"}
        said |= {"settings.selection": "contrastive", "training.learning_rate": "0.001", "training.global_batch": "4"}
        assert said.items() <= points[strength].items()


def test_a_points_metrics_are_its_numbers_in_the_table_once_and_without_steps(runs, table, client):
    rows = table.set_index("point_id")
    for run in runs["point"]:
        row = rows.loc[run.data.tags["point_id"]]
        numbers = {f"erasure/{name}": row[name] for name in ("el_3", "ma", "ss", "exact_match")}
        if row["variant"] != "holdout":
            numbers |= {f"generation/{name}": row[name] for name in ("perplexity", "rep_2", "div_3", "coherence")}
        for name, number in numbers.items():
            [entry] = client.get_metric_history(run.info.run_id, name)
            assert (entry.value, entry.step) == (pytest.approx(number, rel=1e-12), 0), name
        assert all(math.isfinite(value) for value in run.data.metrics.values()), "what is NaN is left out"


def test_times_are_those_of_the_work(runs, swept):
    _, begun, ended = swept
    for run in [*runs["trial"], *runs["point"], *runs["sweep"]]:
        assert run.info.status == "FINISHED"
        # The journal keeps whole seconds.
        assert begun - 1000 <= run.info.start_time < run.info.end_time <= ended + 1000, run.data.tags["kind"]
    by_trial = {run.info.run_id: run.info for run in runs["trial"]}
    for run in runs["point"]:
        assert by_trial[parent(run)].start_time <= run.info.start_time + 1000
        assert run.info.end_time <= by_trial[parent(run)].end_time + 1000


def test_a_sweeps_address_opens_on_the_trade_off_of_its_points(client, runs):
    experiment = client.get_experiment(runs["sweep"][0].info.experiment_id)
    view = json.loads(experiment.tags["mlflow.sharedViewState.shown"])
    state = json.loads(view["state"])
    assert state["searchFilter"] == "tags.kind = 'point' AND tags.sweep = 'shown'"
    assert len(client.search_runs([experiment.experiment_id], state["searchFilter"])) == len(runs["point"])
    first, *_ = [chart for chart in state["compareRunCharts"] if chart["type"] == "SCATTER"]
    assert first["yaxis"]["key"] == "erasure/ma"
    assert first["xaxis"]["key"] == "generation/log10_perplexity"
    for axis in ("xaxis", "yaxis"):
        drawn = [run for run in runs["point"] if first[axis]["key"] in run.data.metrics]
        assert len(drawn) >= 4, f"{first[axis]['key']} is a metric of the runs"


def a_folder(database):
    database.mkdir()


def garbage(database):
    database.write_bytes(b"This is no database. " * 1000)


@pytest.mark.parametrize("broken", [a_folder, garbage], ids=lambda broken: broken.__name__)
def test_a_broken_mlflow_hurts_no_sweep(swept, table, file, tmp_path, broken):
    results = shutil.copytree(swept[0], tmp_path / "results", ignore=shutil.ignore_patterns("mlflow*", ".mlflow*"))
    [trial] = set(table.loc[table["variant"] == "emso", "trial_id"])
    (results / "shown" / "journal" / f"{trial}.jsonl").unlink()
    (results / "shown" / "table.csv").unlink()
    broken(results / "mlflow.db")
    printed = commands().sweep(file, results)  # Exit code 0, or it fails.
    assert printed.count("The sweep needs no MLflow") == 1, printed
    again = pd.read_csv(results / "shown" / "table.csv")
    pd.testing.assert_frame_equal(again.drop(columns=COSTS), table.drop(columns=COSTS))


def test_a_sound_mlflow_is_not_warned_of(swept):
    assert "MLflow" not in (swept[0] / "log").read_text()
