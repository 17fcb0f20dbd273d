"""Who computes where: on a GPU if the sweep gave one, behind loopback sockets, and with the driver's files."""

import math
import re
from pathlib import Path

import psutil
import pytest
import torch

from harness.contracts import Training
from harness.execution.ray import session
from harness.execution.ray.session import forwarded_environment, trial_resources, trials_at_once, worker_resources
from harness.execution.tasks import EvaluatingTask, JudgeCache
from harness.models.resolving import resolve_judge
from harness.planning import machine
from harness.planning.machine import input_differences, node_inputs
from harness.records.artifacts import Artifacts
from harness.settings import DeepSpeed, Engine, replace
from harness.testing import small_spec
from harness.toolkit import CausalJudge, computing_device
from harness.toolkit.device import device_for, judging_on
from harness.toolkit.finetune import engine_for

ROOT = Path(__file__).parents[3]


@pytest.fixture
def machine_with_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    yield
    device_for(0.0)


@pytest.mark.usefixtures("machine_with_a_gpu")
def test_attention_on_a_gpu_takes_no_kernel_that_may_train_to_other_bits():
    for gpus, enabled in ((0.5, False), (0.0, True)):  # The next trial of the process may be on a CPU.
        device_for(gpus)
        kernels = ("flash", "mem_efficient", "cudnn")
        assert [getattr(torch.backends.cuda, f"{kernel}_sdp_enabled")() for kernel in kernels] == [enabled] * 3


@pytest.mark.usefixtures("machine_with_a_gpu")
def test_a_judge_is_where_its_trial_computes_and_not_where_there_happens_to_be_a_gpu(make_model, tmp_path):
    asked = []

    def load(checkpoint):
        asked.append(computing_device().type)
        return object()

    specs = [replace(small_spec(), gpus=gpus) for gpus in (0.0, 0.5, 1.0)]
    tasks = [EvaluatingTask(spec, Artifacts(tmp_path), make_model()) for spec in specs]
    judges = [task.judge("perplexity", load) for task in tasks]
    assert asked == ["cpu", "cuda"], "and one that is on a GPU is no other trial's on a CPU"
    assert judges[1] is judges[2]
    assert judges[0] is not judges[1]
    assert computing_device().type == "cpu", "whoever has no trial has no GPU"


@pytest.mark.usefixtures("machine_with_a_gpu")
def test_a_device_is_that_of_the_block_and_of_no_other():
    with judging_on(device_for(1.0), torch.float32):
        assert computing_device().type == "cuda"
        with judging_on(device_for(0.0), torch.float32):
            assert computing_device().type == "cpu"
        assert computing_device().type == "cuda"
    assert device_for(0.0).type == "cpu"


def test_without_a_gpu_nobody_computes_on_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_for(1.0).type == "cpu"


def test_one_place_alone_asks_whether_there_is_a_gpu():
    sources = [file for room in ("harness", "methods", "evaluators") for file in (ROOT / room).rglob("*.py")]
    assert [file.name for file in sources if re.search(r"cuda\.is_available", file.read_text())] == ["device.py"]


def with_workers(workers, cpus=1, gpus=0.0):
    return replace(small_spec(), cpus=cpus, gpus=gpus, engine=Engine(deepspeed=DeepSpeed(workers=workers)))


AT_ONCE = [
    (with_workers(2), {"CPU": 8}, 4), (with_workers(2, gpus=1.0), {"CPU": 64, "GPU": 2}, 1),
    (with_workers(2, gpus=1.0), {"CPU": 64, "GPU": 4}, 2), (with_workers(2, gpus=1.0), {"CPU": 2, "GPU": 4}, 1),
    (with_workers(3, cpus=3, gpus=1.0), {"CPU": 8}, 1), (with_workers(1, gpus=1.0), {"CPU": 8, "GPU": 1}, math.inf),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "has", "at_once"), AT_ONCE)
def test_trials_with_workers_are_as_many_as_both_cpus_and_gpus_allow(spec, has, at_once):
    assert trials_at_once([spec, spec], has) == at_once
    assert trials_at_once([spec, with_workers(4)], has) == 1, "the room for each would not be known"


@pytest.mark.parametrize("spec", [with_workers(2, gpus=gpus) for gpus in (0.0, 1.0)])
def test_a_trial_and_its_workers_get_no_more_than_it_asks_for(spec):
    needs = {"CPU": spec.cpus * 2, "GPU": spec.gpus * 2}
    for kind in needs:
        of_workers = worker_resources(spec).get(kind, 0.0)
        assert trial_resources(spec).get(kind, 0.0) + 2 * of_workers <= needs[kind] + 1e-9
        assert of_workers <= 1 or of_workers == int(of_workers), "Ray hands out more than one GPU only as wholes"
    assert (worker_resources(spec).get("GPU", 0.0) > 0) is (spec.gpus > 0)


def listening():
    """Return the addresses and ports on which this process listens."""
    connections = psutil.Process().net_connections("inet")
    return {(each.laddr.ip, each.laddr.port) for each in connections if each.status == "LISTEN"}


def test_deepspeed_alone_listens_on_this_machine_alone(make_model):
    before = listening()
    engine = engine_for(Engine(deepspeed=DeepSpeed(zero_stage=1)), make_model(layers=2, hidden=8, heads=2), Training())
    opened = {address for address, _ in listening() - before}
    engine.close()
    assert opened
    assert opened <= {"127.0.0.1", "::1"}


def test_no_credential_reaches_a_cluster():
    secrets = dict.fromkeys(("HF_TOKEN", "HF_TOKEN_PATH", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY"), "secret")
    assert forwarded_environment({**secrets, "HF_HOME": "/shared/hub"}) == {"HF_HOME": "/shared/hub"}
    secret = r"TOKEN(?!IZERS)|KEY|SECRET|PASS|CRED|AUTH|PROXY|USER"
    assert not [name for name in session._FORWARDED if re.search(secret, name)]


def test_an_address_that_holds_a_credential_stays_here():
    for address in ("https://me:s3cret@hub.example", "https://s3cret@hub.example", "https://h?t=s3cret"):
        assert forwarded_environment({"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "1"}) == {"HF_HUB_OFFLINE": "1"}
    assert forwarded_environment({"HF_ENDPOINT": "https://hub.example"}) == {"HF_ENDPOINT": "https://hub.example"}


JUDGES = ("miniature-judge", "miniature-s")


def test_a_large_judge_makes_room_for_the_next_and_is_loaded_again():
    cache, judges, loads = JudgeCache(kept_bytes=0), [resolve_judge("perplexity", name) for name in JUDGES], []

    def load(checkpoint):
        loads.append(checkpoint.id)
        return CausalJudge(checkpoint)

    for judge in (*judges, *judges):
        cache.get(load, judge)
    assert loads == [judge.id for judge in (*judges, *judges)]


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
