"""Several workers: DeepSpeed on two processes against the plain engine, alone and as a Ray Train job in a sweep."""

import contextlib
import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from harness.contracts import LoRA
from harness.execution.trial.tasks import ErasingTask
from harness.models.adapters import is_all_of, load_erased, read_adapter
from harness.models.loading import load_model
from harness.plugins import METHODS
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.records.record import Failed, Measurement
from harness.settings import DeepSpeed, Engine, replace
from harness.testing import small_spec

WORKER = """
import sys
from pathlib import Path
from harness.execution.trial.erasing import erase_on_worker
from harness.settings import TrialSpec
import json, deepspeed, torch
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
ENDLESS = "training={learning_rate: 1.0e-3, global_batch: 4, early_stop: null}"
"""So that a trial is still running when it is killed."""


def settings_of(name):
    field = METHODS.load(name).strength.field
    return {field: 1 if field == "epochs" else 3.0} | ({"epochs": 1} if name == "deliberate_imagination" else {})


def spec_of(name, engine, lora=None):
    """Return a trial whose global batches of seven, of 24 sequences, share out unevenly."""
    spec = replace(small_spec(METHODS.configure(name, settings_of(name)).reference), method=name, engine=engine)
    return replace(spec, training=replace(spec.training, micro_batch=2, global_batch=7, lora=lora))


def on_two_workers(names, engine, folder, lora=None):
    """Erase with each method on two processes; return the folders that the first one wrote."""
    given = []
    for name in names:
        settings = settings_of(name)
        data = {"artifacts": str(folder), "wanted": [settings[METHODS.load(name).strength.field]], "settings": settings}
        given.append((spec_of(name, engine, lora).model_dump_json(), data, str(folder / name)))
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


def compare(names, engine, folder, lora=None):
    for name, place in on_two_workers(names, engine, folder, lora).items():
        settings, spec = settings_of(name), spec_of(name, Engine(), lora)
        wanted = (settings[METHODS.load(name).strength.field],)
        task = ErasingTask(spec, Artifacts(folder), wanted, lambda message: None)
        plain = next(METHODS.configure(name, settings).erase(task))
        handed_in, about = load_erased(spec.model, place), json.loads((place / "erased.json").read_text())
        ours = handed_in.state_dict()
        for key, weight in plain.model.state_dict().items():
            assert torch.allclose(weight, ours[key], atol=1e-3), (name, key)
        assert about["notes"]["loss_mean"] == pytest.approx(plain.notes["loss_mean"], rel=1e-4)
        assert about["notes"].get("skipped_steps") == 0
        chosen, scores = _blocks(plain.notes)
        assert _blocks(about["notes"]) == (chosen, pytest.approx(scores, rel=1e-4))
        if lora:
            assert is_all_of(read_adapter(place, spec.model.digest), handed_in, load_model(spec.model))


@pytest.mark.soak
def test_two_workers_give_the_plain_engines_losses_and_weights(tmp_path):
    compare(["gradient_difference", "emso"], Engine(deepspeed=DeepSpeed(zero_stage=2, workers=2)), tmp_path)


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
@pytest.mark.parametrize("stage", [2, 3])
def test_adapters_on_two_workers(stage, tmp_path):
    engine = Engine(deepspeed=DeepSpeed(zero_stage=stage, workers=2))
    compare(["gradient_difference", "deliberate_imagination"], engine, tmp_path, LoRA(rank=2))


@pytest.mark.soak
def test_a_sweep_on_two_workers(tmp_path):
    """The memorised model and gradient ascent are trained by Ray Train jobs inside their trials."""
    done = subprocess.run(run(tmp_path), capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "r" / "workers" / "table.csv").open() as file:
        rows = {row["variant"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"original", "retrained", "holdout", "gradient_ascent", "task_arithmetic"}
    assert {row["engine"] for row in rows.values()} == {"deepspeed ZeRO-2, 2 workers"}
    assert float(rows["gradient_ascent"]["ma"]) < float(rows["original"]["ma"])


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


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to find the workers")
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_trial_whose_worker_dies_is_tried_once_more_and_no_other_suffers(tmp_path, deaths):
    many = ("methods={gradient_ascent: {epochs: [40]}, emso: {epochs: [1]}}", "report={samples: plain}", ENDLESS)
    marked = {**os.environ, "LETHE_TEST_RUN": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(run(tmp_path, *many), env=marked, **pipes) as driver:
        killed = []
        while len(killed) < 2 * deaths and driver.poll() is None:
            alive = [worker for worker in _workers_of(tmp_path) if worker not in killed]
            if len(alive) == 2 and _running(tmp_path, "gradient_ascent"):
                time.sleep(8)
                os.kill(alive[0], signal.SIGKILL)
                killed += alive
            time.sleep(0.1)
        output, errors = driver.communicate(timeout=400)
    assert len(killed) == 2 * deaths, errors
    assert driver.returncode == deaths - 1, output + errors
    journal = Journal(tmp_path / "r" / "workers" / "journal")
    records = {spec.variant: journal.read(spec.trial_id) for spec in journal.read_plan().trials}
    failures = [record for record in records["gradient_ascent"] if isinstance(record, Failed)]
    assert [failed.error for failed in failures] == [
        "WorkerDiedError: a worker of deepspeed ZeRO-2, 2 workers failed: "
        "its process ended before its work did: it crashed, or it was killed, perhaps because memory ran short"
    ] * (deaths - 1)
    assert any(isinstance(record, Measurement) for record in records["gradient_ascent"]) == (deaths == 1)
    assert any(isinstance(record, Measurement) for record in records["emso"]), output + errors
    assert not any(isinstance(record, Failed) for record in records["emso"])
    assert not list((tmp_path / "r" / "artifacts" / "workers").glob(".building-*"))
    assert _workers_of(tmp_path, kind=b"") == [], "no process is left, so no port either"


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to find the workers")
def test_a_trial_with_workers_that_is_killed_itself_is_tried_once_more(tmp_path):
    many = ("methods={gradient_ascent: {epochs: [40]}}",)
    marked = {**os.environ, "LETHE_TEST_RUN": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(run(tmp_path, *many), env=marked, **pipes) as driver:
        killed = None
        while killed is None and driver.poll() is None:
            if _workers_of(tmp_path) and _running(tmp_path, "gradient_ascent"):
                time.sleep(8)
                [killed] = _workers_of(tmp_path, kind=b"ImplicitFunc")
                os.kill(killed, signal.SIGKILL)
            time.sleep(0.1)
        _, errors = driver.communicate(timeout=400)
    assert killed
    assert driver.returncode == 0, errors
    assert _workers_of(tmp_path, kind=b"") == []


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to find the workers")
def test_the_workers_of_a_trial_that_ran_too_long_end_with_it(tmp_path):
    limited = "methods={gradient_ascent: {epochs: [4000], timeout_minutes: 0.5}, emso: {epochs: [1]}}"
    marked = {**os.environ, "LETHE_TEST_RUN": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(run(tmp_path, limited, ENDLESS), env=marked, **pipes) as driver:
        seen, end = set(), time.monotonic() + 300
        while driver.poll() is None and time.monotonic() < end:
            seen |= set(_workers_of(tmp_path))
            time.sleep(0.3)
        driver.terminate()
        errors = driver.stderr.read()
    assert driver.returncode == 1, errors
    assert len(seen) == 4, "two for each method, and only the second's once the first's are gone"
    journal = Journal(tmp_path / "r" / "workers" / "journal")
    records = {spec.variant: journal.read(spec.trial_id) for spec in journal.read_plan().trials}
    [failed] = [record for record in records["gradient_ascent"] if isinstance(record, Failed)]
    assert failed.error.startswith("TrialError: it ran longer than methods.gradient_ascent.timeout_minutes: 0.5 allows")
    assert any(isinstance(record, Measurement) for record in records["emso"])
    assert not any(isinstance(record, Failed) for record in records["emso"])
    assert _workers_of(tmp_path, kind=b"") == []


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


def _running(tmp_path, variant):
    journal = Journal(tmp_path / "r" / "workers" / "journal")
    if not (journal.folder / "plan.json").exists():
        return False
    [spec] = [spec for spec in journal.read_plan().trials if spec.variant == variant]
    return bool(journal.read(spec.trial_id))


def test_workers_need_ray(tmp_path):
    from harness.errors import TrialError
    from harness.execution.ray.workers import run_on_workers

    with pytest.raises(TrialError, match="run it without --executor inline"):
        run_on_workers(
            "a:b", spec_of("emso", Engine(deepspeed=DeepSpeed(workers=2))), {}, tmp_path, lambda message: None
        )
