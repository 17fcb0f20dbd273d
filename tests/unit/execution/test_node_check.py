"""What every node of a cluster must have as the driver has it: told apart on one machine, with other folders."""

import re
from dataclasses import replace

import pytest
from harness.execution.ray.node_check import marked, node_faults, refusal, unanswered

from harness.execution import environment
from harness.execution.environment import ends_digest, input_differences, inputs_of
from harness.execution.job import Folders
from harness.execution.ray import node_check
from harness.specs import EvaluatorSpec, Source

NODE = "ab12"


@pytest.fixture
def spec(make_spec, tmp_path):
    """Return a trial whose model and texts are files of this test."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(bytes(200_000))
    (tmp_path / "forget.jsonl").write_text('{"text": "a"}\n')
    trial = make_spec(forget=Source(source="jsonl", path=str(tmp_path / "forget.jsonl")))
    memorization = EvaluatorSpec(name="memorization", version=1, settings={}, key="k")
    model = replace(trial.model, location=str(tmp_path / "model"), tokenizer=str(tmp_path / "model"))
    return replace(trial, method="emso", model=model, judges={}, evaluators=(memorization,))


@pytest.fixture
def folders(tmp_path):
    return Folders(results=tmp_path / "r" / "s", artifacts=tmp_path / "r" / "artifacts")


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_node_with_the_same_folders_has_no_fault_and_no_file_stays(folders, spec, tmp_path):
    with marked(folders, [spec]) as checked:
        assert node_faults(checked, NODE) == []
        assert len(files(tmp_path / "r")) == 4, "the driver's markers and the node's answers"
        assert unanswered(checked, NODE) == []
        assert len(files(tmp_path / "r")) == 2
        assert refusal(checked, NODE, "node 10.0.0.7") == ""
    assert not folders.artifacts.exists()
    assert not folders.results.exists()


@pytest.mark.parametrize("which", ["results", "artifacts"])
def test_a_node_that_sees_another_folder_is_told_with_its_path(which, folders, spec, tmp_path):
    with marked(folders, [spec]) as checked:
        elsewhere = replace(checked, **{which: tmp_path / "elsewhere"})
        [clause] = node_faults(elsewhere, NODE)
        assert clause == (
            f"does not see the sweep's {which} folder at {tmp_path / 'elsewhere'}: put it on a path that all nodes "
            "share (--results names one)"
        )
        assert refusal(elsewhere, NODE, "gpu-3 (10.0.0.7)") == f"NodeError: gpu-3 (10.0.0.7) {clause}."
        assert not (tmp_path / "elsewhere").exists(), "nothing is written where nobody else looks"


def test_an_answer_that_does_not_arrive_is_told(folders, spec):
    with marked(folders, [spec]) as checked:
        for clause, folder in zip(unanswered(checked, NODE), (folders.results, folders.artifacts), strict=True):
            assert clause.startswith(f"writes to {folder}, and the driver sees nothing of it")


def test_a_folder_that_a_node_cannot_write_is_told(folders, spec, monkeypatch):
    def full(path, *rest):
        raise node_check.StorageError(f"{path.parent} cannot be written: its file system is read-only.")

    with marked(folders, [spec]) as checked:
        monkeypatch.setattr(node_check, "write_whole", full)
        first, second = node_faults(checked, NODE)
        assert first == (
            f"cannot write into the sweep's results folder: {folders.results} cannot be written: "
            "its file system is read-only"
        )
        assert "artifacts" in second


def test_what_a_killed_driver_left_goes_and_that_of_other_sweeps_stays(folders, spec):
    for folder in (folders.results, folders.artifacts):
        folder.mkdir(parents=True)
        for name in (".cluster-0123456789abcdef.s", ".cluster-0123456789abcdef-ab12.s", ".cluster-01.other.s"):
            (folder / name).touch()
    with marked(folders, [spec]):
        pass
    assert files(folders.results) == files(folders.artifacts) == [".cluster-01.other.s"]


def test_a_model_and_texts_that_are_not_there_or_others_are_told(spec, tmp_path):
    driver = inputs_of([spec])
    assert set(driver.paths) == {str(tmp_path / "model"), str(tmp_path / "forget.jsonl")}
    assert input_differences(driver, driver.like()) == []
    with (tmp_path / "model" / "model.safetensors").open("r+b") as weights:
        weights.seek(199_999)
        weights.write(b"x")
    (tmp_path / "forget.jsonl").unlink()
    assert input_differences(driver, driver.like()) == [
        f"cannot read {tmp_path / 'forget.jsonl'}, which the sweep reads: put it on a path that all nodes share",
        f"sees other files at {tmp_path / 'model'}, which the sweep reads: put it on a path that all nodes share",
    ]


def test_other_versions_and_other_code_are_told(spec, monkeypatch):
    driver = inputs_of([spec])
    assert {"python", "torch", "transformers", "lethe"} <= driver.versions.keys()
    assert driver.code.keys() == {"harness", "method emso", "evaluator memorization"}
    assert all(re.fullmatch("[0-9a-f]{16}", digest) for digest in driver.code.values())
    own = environment.versions()
    monkeypatch.setattr(environment, "versions", lambda: own | {"torch": "2.1.0"})
    monkeypatch.setattr(environment, "_source_digest", lambda name: "0" * 16 if name == "harness" else "")
    assert input_differences(driver, driver.like()) == [
        f"has torch 2.1.0, and {own['torch']} runs the sweep: install the same versions on every node",
        "has other source files of harness: install the same on every node",
        "has no evaluator memorization that can be imported: install it there too",
        "has no method emso that can be imported: install it there too",
    ]


def test_a_plugin_that_is_installed_nowhere_but_here_is_told(spec):
    driver = inputs_of([spec])
    node = replace(driver, code={**driver.code, "method lion": "1" * 16}).like()
    assert node.code["method lion"] == ""


def test_a_files_both_ends_and_its_size_count(tmp_path):
    file = tmp_path / "a"
    seen = set()
    for contents in (b"", b"a", b"b", b"a" + bytes(200_000), b"a" + bytes(199_999), bytes(200_000) + b"a"):
        file.write_bytes(contents)
        seen.add(ends_digest(file))
    assert len(seen) == 6
    assert ends_digest(tmp_path / "none") == ""


def test_on_one_machine_there_is_nothing_to_look_at(folders):
    assert refusal(folders, NODE, "here") == ""
