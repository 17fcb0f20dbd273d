"""Damage under a trial: what it had kept is named, removed and made again, and its numbers are those from before."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from harness.errors import ModelError
from harness.execution.job import Folders, Job
from harness.execution.trial import memorized
from harness.execution.trial import run as trial
from harness.execution.waves import shared_jobs
from harness.models.patch import apply_patch, save_patch
from harness.models.resolving import resolve_model
from harness.records.artifacts import ABOUT, memorized_key
from harness.records.journal import Journal
from harness.records.record import Failed, Measurement, Point
from harness.specs import EvaluatorSpec
from harness.testing.small import small_spec


@pytest.fixture(scope="module")
def make_trial(world, encoder):
    """Return a maker of quick trials of a method, on a tiny model with a tiny judge."""
    settings = {"el_sequences": 1, "el_prefixes": 1}
    evaluators = (EvaluatorSpec(name="memorization", version=1, settings=settings, key="memorization-key"),)

    def make(method, reference, strength_name, strength, **changes):
        spec = small_spec(reference)
        fields = {"method": method, "strength_name": strength_name, "strengths": (strength,), "evaluators": evaluators}
        fields |= {
            "model": resolve_model(str(world / "MODEL")),
            "forget": replace(spec.forget, sequences=2, sequence_tokens=48, prefix_tokens=24),
        }
        fields |= {"judges": {"similarity": resolve_model(str(encoder))}, "trial_id": method}
        return replace(spec, **fields | changes)

    return make


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a runner of a trial from an empty journal: its numbers, its warnings, and what was made for them."""
    made = []

    def counted(name, room, work):
        def wrapper(*arguments, **settings):
            made.append(name)
            return work(*arguments, **settings)

        monkeypatch.setattr(room, work.__name__, wrapper)

    counted("memorized model", memorized, memorized._trained)
    counted("erased model", trial, trial.erase)

    def run_once(spec):
        made.clear()
        shutil.rmtree(tmp_path / "results", ignore_errors=True)
        folders = Folders(results=tmp_path / "results", artifacts=tmp_path / "artifacts")
        events = []
        trial.run_job(Job(name="trial", kind="trial", spec=spec), folders, events.append)
        records = Journal(tmp_path / "results" / "journal").read(spec.trial_id)
        assert not [record for record in records if isinstance(record, Failed)]
        [numbers] = [record.numbers for record in records if isinstance(record, Measurement)]
        warnings = [
            text
            for record in records
            if isinstance(record, Point | Measurement)
            for text in record.notes.get("warnings", ())
            if "damaged" in text
        ]
        assert set(warnings) <= {event.message for event in events}, "what is found is said at once, too"
        return dict(numbers), warnings, list(made)

    return run_once


def flip(file):
    contents = bytearray(file.read_bytes())
    contents[-3] ^= 1 << 6
    file.write_bytes(contents)


def cut(file):
    file.write_bytes(file.read_bytes()[:-1])


def forget_digests(file):
    about = json.loads((file.parent / ABOUT).read_text())
    del about["files"]
    (file.parent / ABOUT).write_text(json.dumps(about))


HARMS = {"flipped": flip, "cut": cut, "gone": lambda file: file.unlink(), "old": forget_digests}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_memorised_model_is_built_again_by_the_trial_that_finds_it(make_trial, run, tmp_path, harm):
    spec = make_trial("task_arithmetic", "memorized_model", "gamma", 0.5)
    before, warnings, made = run(spec)
    assert (warnings, made) == ([], ["erased model", "memorized model"])
    assert run(spec) == (before, [], ["erased model"]), "what is intact is not built again"
    folder = tmp_path / "artifacts" / "memorized" / memorized_key(spec)
    HARMS[harm](folder / "model.safetensors")
    numbers, warnings, made = run(spec)
    assert (numbers, made) == (before, ["erased model", "memorized model"])
    assert len(warnings) == 1
    assert str(folder) in warnings[0]
    assert run(spec) == (before, [], ["erased model"])


def test_damage_that_is_there_when_the_sweep_starts_is_a_job_of_its_own(
    make_trial, make_plan, make_results, run, tmp_path, capsys
):
    spec = make_trial("task_arithmetic", "memorized_model", "gamma", 0.5)
    run(spec)
    folders = Folders(results=tmp_path / "results", artifacts=tmp_path / "artifacts")
    nothing = make_results(make_plan(spec), {})
    assert shared_jobs(nothing, folders) == []
    folder = folders.artifacts / "memorized" / memorized_key(spec)
    flip(folder / "model.safetensors")
    assert [job.kind for job in shared_jobs(nothing, folders)] == ["memorize"]
    assert f"{folder} was damaged (model.safetensors is not what was written)" in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.parametrize("harm", ["flipped", "cut"])
def test_damaged_arrays_are_computed_again(make_trial, run, tmp_path, harm):
    spec = make_trial("gradient_ascent", "none", "epochs", 1)
    before, _, _ = run(spec)
    files = sorted(tmp_path.glob("artifacts/arrays/*/arrays.safetensors"))
    stamps = [file.stat().st_ino for file in files]
    assert len(files) == 2
    assert run(spec)[:2] == (before, [])
    assert [file.stat().st_ino for file in files] == stamps
    for file in files:
        HARMS[harm](file)
    numbers, warnings, _ = run(spec)
    assert numbers == before
    assert sorted(warning.split(" was damaged")[0] for warning in warnings) == [str(file.parent) for file in files]
    assert run(spec)[:2] == (before, [])


@pytest.mark.parametrize("harm", ["flipped", "old"])
@pytest.mark.parametrize(
    ("method", "keep", "file"),
    [("emso", "patch", "patch.safetensors"), ("gradient_ascent", "all", "model.safetensors")],
)
def test_a_damaged_erased_model_is_erased_again(make_trial, run, tmp_path, method, keep, file, harm):
    spec = make_trial(method, "none", "epochs", 1, keep_erased=keep)
    before, _, made = run(spec)
    assert made == ["erased model"]
    assert run(spec) == (before, [], []), "what was kept is measured as it is"
    [folder] = (tmp_path / "artifacts" / "erased").glob(f"{spec.point_id(1)}-*")
    HARMS[harm](folder / file)
    numbers, warnings, made = run(spec)
    assert (numbers, made) == (before, ["erased model"])
    assert len(warnings) == 1
    assert str(folder) in warnings[0]
    assert run(spec) == (before, [], []), "and it is kept again"


def test_a_patch_of_its_own_must_fit_the_original(make_model, tmp_path):
    model = make_model(0)
    file = tmp_path / "patch.safetensors"
    save_patch(make_model(1), ["L0.W_q.H1"], "abc", file)
    expected = dict(make_model(1).named_parameters())["transformer.h.0.attn.attention.q_proj.weight"][8:16]
    patched = dict(apply_patch(make_model(0), "abc", file).named_parameters())
    assert torch.equal(patched["transformer.h.0.attn.attention.q_proj.weight"][8:16], expected)
    with pytest.raises(
        ModelError, match=r"patches the block L0.W_q.H1 of another shape: \(8, 32\) there and \(16, 64\)"
    ):
        apply_patch(make_model(0, hidden=64), "abc", file)
    with pytest.raises(ModelError, match=r"a patch cannot hold L9.W_q.H1: this model has no such block"):
        save_patch(model, ["L9.W_q.H1", "L0.W_q.H1"], "abc", tmp_path / "other")
    for harm in (cut, lambda file: file.write_bytes(b"")):
        harm(file)
        with pytest.raises(
            ModelError, match=r"patch.safetensors is damaged, or no patch that Lethe wrote \(Safetensor"
        ):
            apply_patch(model, "abc", file)


def test_the_number_of_a_changed_original_is_refused(make_trial, run, tmp_path, world):
    shutil.copytree(world / "MODEL", tmp_path / "own")
    spec = make_trial("gradient_ascent", "none", "epochs", 1, model=resolve_model(str(tmp_path / "own")))
    run(spec)
    flip(tmp_path / "own" / "model.safetensors")
    events = []
    folders = Folders(results=tmp_path / "fresh", artifacts=tmp_path / "artifacts")
    trial.run_job(Job(name="trial", kind="trial", spec=spec), folders, events.append)
    [failed] = [
        record for record in Journal(tmp_path / "fresh" / "journal").read(spec.trial_id) if isinstance(record, Failed)
    ]
    for told in (spec.model.digest[:12], resolve_model(str(tmp_path / "own")).digest[:12], "start the sweep again"):
        assert told in failed.error
    assert not list((folders.artifacts / "erased").glob(f"{spec.point_id(1)}*"))
