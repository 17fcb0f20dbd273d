"""Every erased model that was kept is a logged model in MLflow: once, with its numbers, and without its weights."""

import shlex
import shutil
from contextlib import nullcontext
from dataclasses import replace

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric

from harness.library import find_point
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.records.tracking.database import EXPERIMENT
from harness.records.tracking.kept_models import kept_model
from harness.records.tracking.tracker import Tracker
from harness.specs import EvaluatorSpec, Source

WEIGHTS = b"0.125 and 0.25"
NUMBERS = {"memorization": {"ma": 0.5, "el_3": 0.25}, "generation": {"perplexity": 10.0}}


@pytest.fixture(scope="module")
def spec(make_spec):
    forget = Source(source="jsonl", path="/secret/forget.jsonl", digest="f" * 64)
    return make_spec(forget=forget, utility=Source(source="miniature", digest="e" * 64))


@pytest.fixture(scope="module")
def records(make_point, make_measurement):
    """Return a maker of what a trial leaves that was measured at two strengths."""

    def make(spec, **numbers):
        left = []
        for strength in (1, 2):
            left.append(make_point(spec, strength))
            for evaluator, measured in (NUMBERS | numbers).items():
                left.append(make_measurement(spec, strength, evaluator, measured))
        return left

    return make


@pytest.fixture
def root(tmp_path, mlflow_template, monkeypatch):
    """A results folder with an empty database."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root = tmp_path / "results"
    root.mkdir()
    (root / "mlflow.db").write_bytes(mlflow_template.read_bytes())
    return root


@pytest.fixture
def sync(root, make_plan, make_results):
    """Return what brings MLflow up to date with a trial's records, as another process would."""
    return lambda spec, records, **options: Tracker(root).sync(
        make_results(make_plan(spec, sweep=spec.sweep), {spec.trial_id: records}), **options
    )


def keep(root, *points):
    """Keep the erased model of a trial at a strength."""
    for spec, strength in points:
        Artifacts(root / "artifacts").build(
            "erased", spec.point_id(strength), lambda folder: (folder / "patch.safetensors").write_bytes(WEIGHTS)
        )


def client(root):
    return MlflowClient(f"sqlite:///{root}/mlflow.db")


def runs(root):
    """The live runs of points, by the point's id."""
    experiment = client(root).get_experiment_by_name(EXPERIMENT).experiment_id
    of_points = client(root).search_runs([experiment], "tags.kind = 'point'")
    return {run.data.tags["point_id"]: run for run in of_points}


def models(root):
    """The logged models that the page lists, by the point's id."""
    experiment = client(root).get_experiment_by_name(EXPERIMENT).experiment_id
    listed = client(root).search_logged_models([experiment])
    by_point = {model.tags["point_id"]: model for model in listed}
    assert len(by_point) == len(listed), "two models of one point"
    return by_point


def numbers(model):
    return {metric.key: (metric.value, metric.dataset_name, metric.dataset_digest) for metric in model.metrics}


def whole(root):
    """Return all that MLflow shows of models, and how often their runs hold each number."""
    shown = {}
    for point_id, model in models(root).items():
        run = runs(root)[point_id]
        assert (model.status.name, model.source_run_id) == ("READY", run.info.run_id)
        assert model.model_id in {output.model_id for output in run.outputs.model_outputs}
        assert {metric.key: metric.value for metric in model.metrics} == run.data.metrics
        assert len(model.metrics) == len(run.data.metrics)
        for name in run.data.metrics:
            assert len(client(root).get_metric_history(run.info.run_id, name)) == 1, name
        shown[point_id] = (model.model_id, model.name, model.tags, model.params, numbers(model))
    return shown


def test_a_kept_model_has_its_points_name_settings_and_numbers_and_says_on_which_texts(root, sync, spec, records):
    keep(root, (spec, 2))
    sync(spec, records(spec), point_tags={spec.point_id(2): {"collapsed": "false", "mlflow.runColor": "#0072B2"}})
    [(point_id, model)] = models(root).items()
    assert point_id == spec.point_id(2), "the first strength's was not kept"
    run = runs(root)[point_id]
    assert (model.name, model.model_type, model.status.name) == ("s emso@2", "erased", "READY")
    assert model.source_run_id == run.info.run_id
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
    assert model.params == run.data.params
    assert {
        "method": "emso",
        "strength": "2",
        "settings.epochs": "2",
        "settings.k": "2",
    }.items() <= model.params.items()
    forget, utility = ("forget: jsonl", "f" * 36), ("utility: miniature", "e" * 36)
    assert numbers(model) == {
        "erasure/ma": (0.5, *forget),
        "erasure/el_3": (0.25, *forget),
        "generation/perplexity": (10.0, *utility),
        "generation/log10_perplexity": (1.0, *utility),
        "resources/erase_seconds": (1.0, None, None),
        "resources/measure_seconds": (4.0, None, None),
        "resources/peak_memory_bytes": (7.0, None, None),
    }
    inputs = {(made.dataset.name, made.dataset.digest) for made in run.inputs.dataset_inputs}
    assert {forget, utility} <= inputs, "the page looks a number's data set up among its run's"
    assert {"point": "s:emso@2", "sweep": "s", "collapsed": "false"}.items() <= model.tags.items()
    assert model.tags["mlflow.source.name"] == "sweep s"
    assert not {"mlflow.runColor", "mlflow.parentRunId", "kind", "numbers_digest"} & model.tags.keys()
    assert (root / model.tags["kept_in"] / "patch.safetensors").read_bytes() == WEIGHTS


def test_neither_weights_nor_paths_get_in(root, sync, spec, records):
    keep(root, (spec, 1), (spec, 2))
    sync(spec, records(spec))
    assert len(models(root)) == 2
    assert not (root / "mlartifacts").exists()
    content = (root / "mlflow.db").read_bytes()
    assert [word for word in (b"/secret", WEIGHTS, str(root).encode() + b"/artifacts") if word in content] == []


def test_the_command_in_a_models_tags_exports_that_point(root, sync, spec, records, make_plan):
    journal = Journal(root / "s" / "journal")
    journal.write_plan(make_plan(spec))
    for record in records(spec):
        journal.append(record)
    keep(root, (spec, 2))
    sync(spec, records(spec))
    program, verb, point, *options = shlex.split(models(root)[spec.point_id(2)].tags["export"])
    assert (program, options) == ("lethe", ["--out", "s-emso@2"])
    assert verb == "export"
    assert find_point(point, root) == (root / "s", spec.point_id(2))
    note = models(root)[spec.point_id(2)].tags["mlflow.note.content"]
    assert models(root)[spec.point_id(2)].tags["export"] in note


def test_a_results_folder_of_another_name_is_named_in_the_command(make_results, make_plan, spec, records):
    point = make_results(make_plan(spec), {"t1": records(spec)}).measured[0]
    assert "--results" not in kept_model(point, "results").tags["export"]
    assert "--results 'my results' --out" in kept_model(point, "my results").tags["export"]


def test_a_tuned_choices_numbers_are_of_the_half_that_is_reported(make_results, make_plan, spec, records):
    half = replace(spec.forget, half="report", digest="a" * 64)
    point = make_results(make_plan(replace(spec, measured=half)), {"t1": records(spec)}).measured[0]
    data_sets = kept_model(point, "results").data_sets
    assert data_sets["erasure"].name == "forget (report half): jsonl"
    assert data_sets["erasure"].digest == "a" * 36
    assert data_sets["generation"].name == "utility: miniature"


def test_tracking_again_makes_no_second_model(root, sync, spec, records, make_plan, make_results):
    keep(root, (spec, 1), (spec, 2))
    tracker, results = Tracker(root), make_results(make_plan(spec), {"t1": records(spec)})
    tracker.sync(results)
    once = whole(root)
    assert len(once) == 2
    database = (root / "mlflow.db").read_bytes()
    tracker.sync(results)
    sync(spec, records(spec))
    assert whole(root) == once
    assert (root / "mlflow.db").read_bytes() == database, "nothing is written"


def test_models_of_many_points_are_written_at_once(root, spec, records, make_plan, make_results):
    specs = [replace(spec, trial_id=f"t{seed}", seed=seed) for seed in range(20)]
    keep(root, *((each, strength) for each in specs for strength in (1, 2)))
    tracker = Tracker(root)
    tracker.prepare()

    def commits():
        return int.from_bytes((root / "mlflow.db").read_bytes()[24:28], "big")

    before = commits()
    tracker.sync(make_results(make_plan(*specs), {each.trial_id: records(each) for each in specs}))
    assert len(models(root)) == 40
    assert 2 <= commits() - before <= 6, "the sweep's run, twice up to fifty, and the experiment's tags"


@pytest.mark.parametrize(
    "cut", ["create_logged_model", "log_outputs", "log_inputs", "log_batch", "finalize_logged_model", "set_terminated"]
)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_model_that_was_cut_off_is_completed(
    cut, is_done, root, sync, spec, records, monkeypatch, make_plan, make_results
):
    keep(root, (spec, 1))
    write = getattr(MlflowClient, cut)

    def broken(self, *arguments, **options):
        if cut == "log_batch" and not any(metric.model_id for metric in arguments[1]):
            return write(self, *arguments, **options)  # The trial's.
        if is_done:
            write(self, *arguments, **options)
        elif cut == "log_batch":  # MLflow writes the run's numbers before the model's.
            run_id, metrics, params, *_ = arguments
            write(self, run_id, [Metric(each.key, each.value, each.timestamp, each.step) for each in metrics], params)
        raise KeyboardInterrupt

    monkeypatch.setattr(MlflowClient, cut, broken)
    tracker = Tracker(root)
    tracker.prepare()
    tracker._together = nullcontext  # Each call for itself, as on a server.
    with pytest.raises(KeyboardInterrupt):
        tracker.sync(make_results(make_plan(spec), {"t1": records(spec)}))
    monkeypatch.undo()
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    sync(spec, records(spec))
    assert whole(root).keys() == {spec.point_id(1)}


def test_a_new_evaluators_numbers_reach_the_model_and_changed_ones_make_another(root, sync, spec, records):
    keep(root, (spec, 1), (spec, 2))
    fewer = replace(spec, evaluators=spec.evaluators[:1])
    sync(fewer, [record for record in records(spec) if getattr(record, "evaluator", "") != "generation"])
    first = whole(root)
    assert "generation/perplexity" not in first[spec.point_id(1)][-1]
    sync(spec, records(spec))
    second = whole(root)
    assert second[spec.point_id(1)][0] == first[spec.point_id(1)][0], "the same model"
    assert second[spec.point_id(1)][-1]["generation/perplexity"] == (10.0, "utility: miniature", "e" * 36)
    other = EvaluatorSpec(name="generation", version=2, settings={}, key="other")
    changed = replace(spec, evaluators=(spec.evaluators[0], other))
    sync(changed, records(changed, generation={"perplexity": 100.0}))
    third = whole(root)
    assert third.keys() == first.keys()
    assert third[spec.point_id(1)][0] != first[spec.point_id(1)][0]
    assert third[spec.point_id(1)][-1]["generation/perplexity"][0] == 100.0


def test_a_model_that_is_kept_no_longer_leaves_the_list_and_comes_back_whole(root, sync, spec, records):
    keep(root, (spec, 1), (spec, 2))
    sync(spec, records(spec))
    shutil.rmtree(root / "artifacts" / "erased" / spec.point_id(1))
    sync(spec, records(spec))
    assert whole(root).keys() == {spec.point_id(2)}
    assert runs(root).keys() == {spec.point_id(1), spec.point_id(2)}, "its run stays"
    keep(root, (spec, 1))
    sync(spec, records(spec))
    assert whole(root).keys() == {spec.point_id(1), spec.point_id(2)}


@pytest.mark.parametrize("deleted", ["run", "model"])
def test_what_was_deleted_by_hand_is_made_again(deleted, root, sync, spec, records):
    keep(root, (spec, 1))
    sync(spec, records(spec))
    [model] = models(root).values()
    if deleted == "run":
        client(root).delete_run(model.source_run_id)
    else:
        client(root).delete_logged_model(model.model_id)
    sync(spec, records(spec))
    [(model_id, *_)] = whole(root).values()
    assert model_id != model.model_id


def test_sweeps_that_share_a_kept_model_list_it_each(root, sync, spec, records):
    keep(root, (spec, 1))
    for sweep in ("s", "t", "s"):
        sync(replace(spec, sweep=sweep), records(spec))
    experiment = client(root).get_experiment_by_name(EXPERIMENT).experiment_id
    listed = client(root).search_logged_models([experiment])
    assert sorted(model.name for model in listed) == ["s emso@1", "t emso@1"]
