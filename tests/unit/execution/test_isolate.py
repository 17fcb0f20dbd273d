"""Plugins that harm what they share: they fail by name, and their neighbours' numbers are right."""

import re
import runpy
import shutil
from pathlib import Path

import pytest
import torch

from harness.base.files import digest_of
from harness.errors import TrialError
from harness.execution import tasks
from harness.execution.erasing import erase
from harness.execution.isolate import ProcessState, compared, fingerprints, guarded
from harness.execution.jobs import Folders, Job, JobQueue
from harness.execution.tasks import EvaluatingTask, PeakMemory
from harness.execution.trial import run_inline
from harness.models.loading import load_model
from harness.records.artifacts import Artifacts
from harness.records.journal import Failed, Journal, Measurement
from harness.settings import EvaluatorSpec, Source, replace
from harness.testing import small_spec

pytestmark = pytest.mark.usefixtures("hostile", "put_back")

harms = runpy.run_path(str(Path(__file__).parents[2] / "hostile_package" / "hostile" / "harmful_evaluator.py"))
REFUSED, PUT_BACK, HARMLESS, HARMS = (harms[name] for name in ("REFUSED", "PUT_BACK", "HARMLESS", "HARMS"))
CLEAN = []
FORGET = Source(source="miniature", sequences=4, sequence_tokens=32, prefix_tokens=8)
UTILITY = Source(source="miniature", sequences=3, sequence_tokens=24, prefix_tokens=8)
TEXTS = {"forget": FORGET, "retain": FORGET, "utility": UTILITY}


def spec_of(name, harm="none", method="original", strengths=()):
    """A trial that one harmful evaluator measures, or that the harmful method erases."""
    is_measured = method == "original"
    spec = small_spec("none" if is_measured else "retain_data")
    evaluator, settings = ({"harm": harm}, {}) if is_measured else ({"harm": "none"}, {"harm": harm})
    measuring = EvaluatorSpec(name="harmful_evaluator", version=1, settings=evaluator, key=digest_of(evaluator))
    dial = {"strength_name": "epochs" if strengths else "", "strengths": strengths, "settings": settings}
    about = {"trial_id": digest_of(name), "variant": name, "method": method, "keep_erased": "none"}
    return replace(spec, **dial, **about, **TEXTS, evaluators=(measuring,))


@pytest.fixture
def run(tmp_path):
    """Return a runner of trials in this process, one after the other: each one's records."""
    folders = Folders(results=tmp_path / "results", artifacts=tmp_path / "artifacts")

    tasks.clear_shared()

    def run(*specs):
        jobs = [Job(name=spec.variant, kind="trial", spec=spec) for spec in specs]
        run_inline(JobQueue(jobs, (), folders, lambda event: None))
        return [Journal(folders.results / "journal").read(spec.trial_id) for spec in specs]

    run.folders = folders
    yield run
    tasks.clear_shared()


@pytest.fixture
def clean(run):
    """The numbers of a trial that nobody harms, in a process that shares nothing yet."""
    if not CLEAN:
        CLEAN.extend(numbers(run(spec_of("clean"))[0]))
        shutil.rmtree(run.folders.artifacts)
        tasks.clear_shared()
    return CLEAN


@pytest.fixture
def lent(tmp_path):
    """A model, and the task of one evaluator that it is lent to."""
    model = load_model(small_spec().model)
    return model, EvaluatingTask(spec_of("lent"), Artifacts(tmp_path), model, "the evaluator 'x'")


def numbers(records):
    return [dict(record.numbers) for record in records if isinstance(record, Measurement)]


def errors(records):
    return [record.error for record in records if isinstance(record, Failed)]


@pytest.mark.parametrize("harm", REFUSED)
def test_what_an_evaluator_was_lent_and_changed_is_named(lent, harm):
    model, task = lent
    does, what = REFUSED[harm]
    said = f"^the evaluator 'x' changed .*{re.escape(what)}"
    with pytest.raises(TrialError, match=said), guarded("the evaluator 'x'", task.changes):
        does(model, task)


@pytest.mark.parametrize("harm", [*HARMLESS, *PUT_BACK])
def test_what_an_evaluator_may_do_is_not_refused_and_what_a_process_shares_is_put_back(lent, harm):
    model, task = lent
    before = ProcessState()
    with guarded("the evaluator 'x'", task.changes):
        HARMS[harm](model, task)
        assert bool(before.changed()) == (harm in PUT_BACK)
    assert before.changed() == []


@pytest.mark.parametrize("harm", ["scaled", "forget, then an array", "an array, then forget", "raises"])
def test_an_evaluator_that_harms_fails_and_the_next_trials_numbers_are_right(run, clean, harm):
    first, second = run(spec_of("hostile", harm), spec_of("next"))
    [error] = errors(first)
    changed, raised = "TrialError: the evaluator 'harmful_evaluator' changed ", "RuntimeError: raised at hostile/harm"
    assert error.startswith((changed, raised))
    assert numbers(first) == [], "what it measured is in no journal"
    assert numbers(second) == clean
    if "array" in harm:
        tasks.clear_shared()  # A later process finds only the artifacts.
        assert numbers(run(spec_of("later"))[0]) == clean


@pytest.mark.parametrize("harm", [name for name in HARMLESS if name != "none"])
def test_the_next_evaluator_of_the_same_model_gets_what_it_would_get_alone(run, clean, harm):
    probe, harmless = spec_of("probe").evaluators[0], spec_of("both", harm)
    [records] = run(replace(harmless, evaluators=(*harmless.evaluators, probe)))
    assert errors(records) == []
    assert numbers(records)[1:] == clean


METHOD_HARMS = {"forget": "task.forget.tokens_NT", "another forget set": "task.forget.prefix_tokens"}
METHOD_HARMS |= {"retain": "task.retain.tokens_NT", "seed": "task.seed"}


@pytest.mark.parametrize("harm", METHOD_HARMS)
def test_what_a_method_was_lent_and_changed_is_named_before_its_model_is_given_out(tmp_path, harm):
    spec = spec_of("hostile", harm, "harmful_method", (1, 2))
    with pytest.raises(TrialError, match=f"^the method 'harmful_method' changed {re.escape(METHOD_HARMS[harm])}"):
        next(erase(spec, Artifacts(tmp_path), (1, 2), lambda message: None))


ENDINGS = {"exits": "SystemExit", "cancels": "CancelledError", "says that a worker died": "WorkerDiedError"}


def test_a_method_that_would_end_the_process_fails_and_the_next_trials_numbers_are_right(run, clean):
    *ended, after = run(*[spec_of(harm, harm, "harmful_method", (1,)) for harm in ENDINGS], spec_of("next"))
    for records, error in zip(ended, ENDINGS.values(), strict=True):
        assert errors(records)[0].startswith(f"{error}: raised at hostile/harmful_method.py")
    assert numbers(after) == clean


def test_a_generator_keeps_its_own_state_and_lends_it_to_nobody(run):
    harms = ("yields without gradients", "none")
    polite, sound = run(*(spec_of(harm, harm, "harmful_method", (1, 2)) for harm in harms))
    assert errors(polite) == []
    assert [counted["gradients"] for counted in numbers(polite)] == [1.0, 1.0], "evaluators run with gradients on"
    assert numbers(polite) == numbers(sound)


def test_a_model_is_as_it_was_after_generating_and_not_after_another_loads():
    model = load_model(small_spec().model)
    before = fingerprints("it", model)
    model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=2, do_sample=False)
    assert compared(before, fingerprints("it", model)) == []
    assert compared(before, fingerprints("it", load_model(small_spec().model))) == []
    with torch.no_grad():
        model.transformer.h[0].mlp.c_fc.weight[0, 0] += 1e-6
    assert compared(before, fingerprints("it", model)) == ["it's weights transformer.h.0.mlp.c_fc.weight"]


def test_a_trial_has_the_same_peak_in_a_fresh_worker_and_in_a_used_one(monkeypatch):
    """On a device whose tensors are counted by hand, for two points, with judges that are loaded already or not."""
    held = {"now": 0, "most": 0}
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: held["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: held["most"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: held.update(most=held["now"]))

    def hold(*counts):
        for count in counts:
            held["now"] += count
            held["most"] = max(held.values())

    for judges in (70, 0):
        memory = PeakMemory(torch.device("cuda"))
        hold(100)  # The model.
        for activations, peak in ((30, 130), (50, 150)):
            hold(activations, -activations)
            assert memory.bytes == peak
            with memory.not_counting():
                hold(500, -500, judges)
                judges = 0
        hold(-100)
