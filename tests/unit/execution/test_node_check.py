"""What every node of a cluster must have as the driver has it: told apart on one machine, with other folders."""

import re

import pytest

from harness.execution import environment
from harness.execution.environment import ends_digest, input_differences, inputs_of
from harness.settings import EvaluatorSpec, Source, replace


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


def test_a_node_that_does_not_share_the_results_folder_is_told(spec, tmp_path):
    plan = tmp_path / "r" / "journal" / "plan.json"
    plan.parent.mkdir(parents=True)
    plan.write_text("{}")
    driver = inputs_of([spec], [plan])
    assert input_differences(driver, driver.like()) == []
    plan.unlink()
    reason = f"cannot read {plan}, which the sweep reads: put it on a path that all nodes share"
    assert input_differences(driver, driver.like()) == [reason]


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
