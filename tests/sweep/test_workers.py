"""Several workers: DeepSpeed on two processes against the plain engine, alone and as a Ray Train job in a sweep."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from harness.execution.trial.tasks import ErasingTask
from harness.models.adapters import load_erased
from harness.plugins import METHODS
from harness.records.artifacts import Artifacts
from harness.settings import DeepSpeed, Engine, replace
from harness.testing import small_spec

WORKER = """
import sys
from pathlib import Path
from harness.execution.trial.erasing import erase_on_worker
import json, deepspeed, torch
from harness.settings import DeepSpeed
from harness.settings import replace
torch.set_num_threads(1)
given = json.loads(sys.argv[1])
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed("gloo", verbose=False)
for spec, data, folder in given:
    erase_on_worker(TrialSpec.model_validate_json(spec), data, Path(folder), lambda message: None)
"""
SWEEP = """
# Do two workers do what one does?
name: workers
models: [{id: miniature-s, engine: {deepspeed: {zero_stage: 2, workers: 2}}}]
data:
  forget: {source: miniature, sequences: 8}
  utility: {source: miniature, prompts: 4, reference_tokens: 16}
  validation: {source: miniature, sequences: 4}
training: {learning_rate: 1.0e-3, global_batch: 4}
memorized_model: {epochs: 1, gate: 0.1}
methods:
  gradient_ascent: {epochs: [1]}
  task_arithmetic: {gamma: [0.05]}
evaluators: {memorization: {el_prefixes: 1}}
collapse: {}
"""
ONE_PLACE = ("gru", "npo_sam")
"""Methods that make their own gradient, for which the training loop refuses DeepSpeed (test_training_parts)."""


def settings_of(name):
    field = METHODS.load(name).strength.field
    return {field: 1 if field == "epochs" else 3.0} | ({"epochs": 1} if name == "deliberate_imagination" else {})


def spec_of(name, engine):
    """Return a trial whose global batches of seven, of 24 sequences, share out unevenly."""
    spec = replace(small_spec(METHODS.configure(name, settings_of(name)).reference), method=name, engine=engine)
    return replace(spec, training=replace(spec.training, micro_batch=2, global_batch=7))


def on_two_workers(names, engine, folder):
    """Erase with each method on two processes; return the folders that the first one wrote."""
    given = []
    for name in names:
        settings = settings_of(name)
        data = {"artifacts": str(folder), "wanted": [settings[METHODS.load(name).strength.field]], "settings": settings}
        given.append((spec_of(name, engine).model_dump_json(), data, str(folder / name)))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-c", WORKER, json.dumps(given)]
    workers = [
        subprocess.Popen(command, env={**shared, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True)
        for rank in ("0", "1")
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=400)
        assert worker.returncode == 0, errors
    return {name: folder / name / "0000" for name in names}


def _blocks(notes):
    """Return what was selected, best first, and with which M."""
    chosen = notes.get("selected_blocks", [])
    return [block["block"] for block in chosen], [block["m"] for block in chosen]


def compare(names, engine, folder):
    for name, place in on_two_workers(names, engine, folder).items():
        settings, spec = settings_of(name), spec_of(name, Engine())
        wanted = (settings[METHODS.load(name).strength.field],)
        task = ErasingTask(spec, Artifacts(folder), wanted, lambda message: None)
        plain = next(METHODS.configure(name, settings).erase(task))
        ours, about = load_erased(spec.model, place).state_dict(), json.loads((place / "erased.json").read_text())
        for key, weight in plain.model.state_dict().items():
            assert torch.allclose(weight, ours[key], atol=1e-3), (name, key)
        assert about["notes"]["loss_mean"] == pytest.approx(plain.notes["loss_mean"], rel=1e-4)
        assert about["notes"].get("skipped_steps") == 0
        chosen, scores = _blocks(plain.notes)
        assert _blocks(about["notes"]) == (chosen, pytest.approx(scores, rel=1e-4))


@pytest.mark.soak
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_every_trained_method_on_two_workers(stage, tmp_path):
    names = [name for name in METHODS.names() if METHODS.load(name).searched_training and name not in ONE_PLACE]
    compare(names, Engine(deepspeed=DeepSpeed(zero_stage=stage, workers=2)), tmp_path)


def run(tmp_path, *changes):
    (tmp_path / "workers.yaml").write_text(SWEEP.lstrip())
    command = [sys.executable, "-m", "harness.sweep", str(tmp_path / "workers.yaml"), "--results", str(tmp_path / "r")]
    for change in changes:
        command += ["--set", change]
    return command


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to find the workers")
def test_nobody_outside_this_machine_can_reach_a_worker(tmp_path):
    marked = {**os.environ, "LETHE_TEST_RUN": str(tmp_path)}
    many = "methods={gradient_ascent: {epochs: [3]}}"
    with subprocess.Popen(run(tmp_path, many), env=marked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as driver:
        listening, of_workers = set(), set()
        while driver.poll() is None:
            listening |= _listening(_workers_of(tmp_path, kind=b""))
            of_workers |= {len(_listening([worker])) for worker in _workers_of(tmp_path)}
            time.sleep(0.3)
        output = driver.stdout.read().decode()
    assert driver.returncode == 0, output
    assert max(of_workers) > 0, "the workers were seen while they listened"
    assert {address for address, _ in listening} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, listening


def _workers_of(tmp_path, kind=b"RayTrainWorker"):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = str(tmp_path).encode() in (folder / "environ").read_bytes()
            if is_ours and kind in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _listening(processes):
    """Return the addresses and ports on which processes listen."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            sockets = psutil.Process(process).net_connections("inet")
            found |= {(each.laddr.ip, each.laddr.port) for each in sockets if each.status == psutil.CONN_LISTEN}
    return found


def test_workers_need_ray(tmp_path):
    from harness.errors import TrialError
    from harness.execution.ray.workers import run_on_workers

    with pytest.raises(TrialError, match="run it without --executor inline"):
        run_on_workers(
            "a:b", spec_of("emso", Engine(deepspeed=DeepSpeed(workers=2))), {}, tmp_path, lambda message: None
        )
