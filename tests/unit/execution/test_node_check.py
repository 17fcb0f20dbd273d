"""What every node of a cluster must have as the driver has it: told apart on one machine, with other folders."""

import pytest

from harness.planning import machine
from harness.planning.machine import input_differences, node_inputs
from harness.settings import replace


@pytest.fixture
def spec(make_spec):
    """Return a trial of EMSO, measured by one evaluator."""
    return make_spec(evaluators={"memorization": "k"})


def test_a_node_that_does_not_share_the_results_folder_is_told(spec, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    driver = node_inputs([spec, replace(spec, method="original")], plan)
    assert input_differences(driver, node_inputs([spec], plan)) == ""
    plan.unlink()
    told = input_differences(driver, node_inputs([spec], plan))
    assert told.startswith(f"differs from the driver in {plan} (none, not ")
    assert told.endswith("put the results folder on a path that all nodes share")


def test_other_versions_and_other_code_are_told(spec, monkeypatch):
    driver = node_inputs([spec])
    assert {"python", "torch", "transformers", "lethe"} <= driver.keys()
    own = machine.versions()
    monkeypatch.setattr(machine, "versions", lambda: own | {"torch": "2.1.0"})
    monkeypatch.setattr(machine, "plugin_digest", lambda plugin: "0" * 16)
    told = input_differences(driver, node_inputs([spec]))
    assert f"torch (2.1.0, not {own['torch']})" in told
    assert "the method emso (0000000000000000, not " in told
    assert "Lethe's code" not in told


def test_a_plugin_that_is_installed_nowhere_but_here_is_told(spec):
    lion = replace(spec, method="lion")
    driver = node_inputs([lion]) | {"the method lion": "1" * 16}
    assert "the method lion (none, not 1111111111111111)" in input_differences(driver, node_inputs([lion]))
