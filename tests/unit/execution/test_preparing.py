"""What evaluators compute of the original alone: by a job of its own, once, and again where it was lost."""

import math
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from harness.contracts import Evaluation, Metric
from harness.errors import TrialError
from harness.execution import tasks
from harness.execution.jobs import Folders, Job, JobQueue, missing_jobs, shared_jobs, trial_jobs
from harness.execution.tasks import EvaluatingTask
from harness.execution.trial import run_evaluator, run_inline
from harness.models.loading import load_model
from harness.records.artifacts import Artifacts, is_prepared
from harness.records.journal import Failed, Measurement
from harness.records.results import Results, read_results
from harness.settings import EvaluatorSpec, replace
from harness.testing import FORGET, small_spec

LITTLE = {"el_sequences": 1, "el_prefixes": 1}
MEMORIZATION = EvaluatorSpec(name="memorization", version=2, settings=LITTLE, key="memorization-key")


@pytest.fixture
def twin():
    # A trial of the original itself needs nothing that is prepared.
    about = {"trial_id": "twin", "method": "retrained", "retrained": small_spec().model, "strength_name": ""}
    return replace(small_spec(), **about, forget=replace(FORGET, sequences=4), evaluators=(MEMORIZATION,))


@pytest.fixture
def loads(monkeypatch):
    """Return a list of the originals that are loaded: `alone`, or `beside` a model that is measured."""
    loaded = []

    def load_counted(*arguments):
        if (caller := sys._getframe(1).f_code.co_name) != "yield_models":  # It loads the measured model itself.
            loaded.append("alone" if caller == "prepare" else "beside")
        return load_model(*arguments)

    monkeypatch.setattr(tasks.loading, "load_model", load_counted)
    return loaded


@pytest.fixture
def sweep(tmp_path, make_plan):
    """Return a runner of trials from an empty journal: the kinds of jobs, and every trial's numbers."""

    def run(*specs):
        shutil.rmtree(tmp_path / "s", ignore_errors=True)
        folders = Folders(results=tmp_path / "s", artifacts=tmp_path / "artifacts")
        journal, begun = folders.journal, []
        run_inline(missing_jobs(read_results(make_plan(*specs), journal), folders, begun.append))
        records = [record for spec in specs for record in journal.read(spec.trial_id)]
        assert not [record.error for record in records if isinstance(record, Failed)]
        started = [event.job for event in begun if event.kind == "started"]
        kinds = ["prepare" if job.startswith("prepare") else "trial" for job in started]
        return kinds, [record.numbers for record in records if isinstance(record, Measurement)]

    return run


def test_the_original_is_loaded_once_for_all_trials_and_beside_none(sweep, loads, twin, tmp_path):
    other = replace(twin, trial_id="other", seed=1)
    kinds, numbers = sweep(twin, other)
    assert (kinds, loads) == (["prepare", "trial", "trial"], ["alone"])
    assert numbers[0]["exact_match_original"] > 0
    loads.clear()
    assert sweep(twin, other) == (["trial", "trial"], numbers), "what is prepared already needs no job"
    assert loads == []


def test_what_was_lost_is_computed_again_where_it_is_used(sweep, loads, twin, tmp_path):
    _, numbers = sweep(twin)
    for is_there in (True, False):
        for arrays in (tmp_path / "artifacts" / "arrays").glob("*/arrays.safetensors"):
            arrays.write_bytes(b"") if is_there else shutil.rmtree(arrays.parent)
        loads.clear()
        assert sweep(twin) == (["trial"], numbers)
        assert loads == ["beside"]


def test_a_trial_computes_itself_what_no_job_did_before_it_loads_its_model(twin, loads, tmp_path):
    folders = Folders(results=tmp_path / "s", artifacts=tmp_path / "artifacts")
    assert not is_prepared(twin.model, MEMORIZATION, Artifacts(folders.artifacts))
    run_inline(JobQueue([Job(name="twin", kind="trial", spec=twin)], (), folders, lambda event: None))
    assert loads == ["alone"]
    assert is_prepared(twin.model, MEMORIZATION, Artifacts(folders.artifacts))


def test_jobs_wait_for_what_is_prepared_of_their_own_original_and_texts(make_row, make_plan, make_results, tmp_path):
    rows = [make_row("original"), make_row("ta", (0.1,), reference="memorized_model")]
    rows += [make_row("holdout", evaluators={"memorization": "on other texts"})]
    rows += [make_row("emso", (1,), evaluators={"weights": "weights-key"})]
    results, folders = make_results(make_plan(*rows), {}), Folders(tmp_path / "s", tmp_path / "artifacts")
    prepare, memorize = shared_jobs(results, folders)
    trials = trial_jobs(results, folders)
    assert [job.kind for job in (prepare, memorize)] == ["prepare", "memorize"]
    needs = {"original": (), "ta": (prepare.name, memorize.name), "holdout": (), "emso": ()}
    assert {job.spec.variant: job.needs for job in trials} == needs


def test_a_trial_that_lacks_nothing_that_needs_it_waits_for_no_preparation(make_row, make_plan, make_results, tmp_path):
    row = make_row("original")
    [*_, trial] = make_results(make_plan(row), {}).trials
    left = tuple(evaluator for evaluator in row.evaluators if evaluator.name == "generation")
    partly = Results(make_plan(row), (replace(trial, remaining=((None, left),)),))
    folders = Folders(tmp_path / "s", tmp_path / "artifacts")
    [job] = trial_jobs(partly, folders)
    assert (shared_jobs(partly, folders), job.needs) == ([], ())


UNDECLARED = [
    (None, "'it' returned NoneType: `evaluate` must return an Evaluation."),
    (Evaluation({}), "'it' did not report what it declares, bad, and nothing else (NaN: not measured)."),
    (Evaluation({"bad": 0.1, "worse": 1.0}), "'it' did not report what it declares, bad, and nothing"),
    (Evaluation({"bad": "much"}), "'it' reported no bad that can be true: it must be a number from 0 to 1, or NaN."),
    (Evaluation({"bad": math.inf}), "'it' reported no bad that can be true: it must be a number from 0 to 1, or"),
]


@pytest.mark.parametrize(("returned", "reason"), UNDECLARED)
def test_numbers_that_an_evaluator_did_not_declare_are_refused(returned, reason, monkeypatch):
    declared = Metric(name="bad", better="lower", unit="", low=0.0, high=1.0, group="damage", source="", title="")
    evaluator = SimpleNamespace(metrics=(declared,), evaluate=lambda model, task: returned)
    both = SimpleNamespace(plugin="'it'", changes=list, model=None, cast_to=lambda precision: both)
    monkeypatch.setattr(tasks, "make_evaluating_task", lambda *_: (evaluator, both))
    with pytest.raises(TrialError) as refused:
        run_evaluator(small_spec(), replace(MEMORIZATION, name="it"), both, None, print)
    assert str(refused.value).startswith(reason)


def test_arrays_are_a_plugins_own_and_a_versions_own(make_model, tmp_path):
    artifacts, model, found = Artifacts(tmp_path), make_model(), []
    for number, (plugin, version) in enumerate([("one", 1), ("one", 2), ("two", 1), ("one", 1)]):
        task = EvaluatingTask(small_spec(), artifacts, model, plugin, version)
        found.append(float(task.cached(("key",), lambda number=number: {"x": np.array([number])})["x"][0]))
    assert found == [0, 1, 2, 0]


def test_an_original_that_nobody_counted_is_refused(make_model, tmp_path):
    task = EvaluatingTask(small_spec(), Artifacts(tmp_path), make_model(), "the evaluator 'it'")
    with pytest.raises(TrialError, match="'it' loads the original model without declaring it"):
        task.load_original()
    reads = EvaluatingTask(small_spec(), Artifacts(tmp_path), make_model(), reads=("original",))
    assert reads.load_original().config.model_type == "gpt_neo"
