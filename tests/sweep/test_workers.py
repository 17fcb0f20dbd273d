"""Several workers: DeepSpeed on two processes against the plain engine, alone and as a Ray Train job in a sweep."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
import torch

from harness.execution.tasks import ErasingTask
from harness.models.adapters import load_erased
from harness.plugins import METHODS
from harness.records.artifacts import Artifacts
from harness.records.journal import Failed, Journal, Measurement, Started
from harness.settings import DeepSpeed, Engine, replace
from harness.testing import small_spec

WORKER = """
import sys
from pathlib import Path
from harness.execution.erasing import erase_on_worker
from harness.settings import Trial
import json, deepspeed, torch
torch.set_num_threads(1)
given = json.loads(sys.argv[1])
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed("gloo", verbose=False)
for spec, data, folder in given:
    erase_on_worker(Trial.model_validate_json(spec), data, Path(folder), lambda message: None)
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


def spec_of(name, engine):
    """Return a trial whose global batches of seven, of 24 sequences, share out unevenly."""
    spec = replace(small_spec(METHODS.configure(name, settings_of(name)).reference), method=name, engine=engine)
    return replace(spec, settings=settings_of(name), training=replace(spec.training, micro_batch=2, global_batch=7))


def on_two_workers(names, engine, folder):
    """Erase with each method on two processes; return the folders that the first one wrote."""
    given = []
    for name in names:
        settings = settings_of(name)
        data = {"artifacts": str(folder), "wanted": [settings[METHODS.load(name).strength.field]]}
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


@pytest.mark.soak
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_every_trained_method_on_two_workers(stage, tmp_path):
    names = [name for name in METHODS.names() if METHODS.load(name).searched_training and name not in ONE_PLACE]
    engine = Engine(deepspeed=DeepSpeed(zero_stage=stage, workers=2))
    for name, place in on_two_workers(names, engine, tmp_path).items():
        settings, spec = settings_of(name), spec_of(name, Engine())
        wanted = (settings[METHODS.load(name).strength.field],)
        task = ErasingTask(spec, Artifacts(tmp_path), wanted, lambda message: None)
        plain = next(METHODS.configure(name, settings).erase(task))
        ours = load_erased(spec.model, place).state_dict()
        notes = json.loads((place / "erased.json").read_text())["notes"]
        for key, weight in plain.model.state_dict().items():
            assert torch.allclose(weight, ours[key], atol=1e-3), (name, key)
        assert notes["loss_mean"] == pytest.approx(plain.notes["loss_mean"], rel=1e-4)
        assert notes.get("skipped_steps") == 0
        chosen, scores = _blocks(plain.notes)
        assert _blocks(notes) == (chosen, pytest.approx(scores, rel=1e-4))


@contextlib.contextmanager
def running(tmp_path, *changes):
    """A sweep's process, whose workers are known by its environment; killed if it is still there afterwards."""
    (tmp_path / "workers.yaml").write_text(SWEEP.lstrip())
    command = [sys.executable, "-m", "harness.sweep", str(tmp_path / "workers.yaml"), "--results", str(tmp_path / "r")]
    command += [part for change in changes for part in ("--set", change)]
    marked = {**os.environ, "LETHE_TEST_RUN": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=marked, **pipes) as driver:
        yield driver
        driver.kill()


def records_of(tmp_path):
    """Return each variant's records."""
    journal = Journal(tmp_path / "r" / "workers" / "journal")
    return {spec.variant: journal.read(spec.trial_id) for spec in journal.read_plan().trials}


def kinds(records):
    return {type(record) for record in records}


@pytest.mark.soak
def test_a_sweep_on_two_workers_that_nobody_outside_this_machine_can_reach(tmp_path):
    """The memorised model and gradient ascent are trained by Ray Train jobs inside their trials."""
    listening, of_workers = set(), set()
    with running(tmp_path) as driver:
        while driver.poll() is None:
            listening |= _listening(_workers_of(tmp_path, kind=b""))
            of_workers |= {len(_listening([worker])) for worker in _workers_of(tmp_path)}
            time.sleep(0.3)
        assert driver.returncode == 0, driver.stdout.read()
    assert max(of_workers) > 0, "the workers were seen while they listened"
    assert {address for address, _ in listening} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, listening
    rows = pd.read_csv(tmp_path / "r" / "workers" / "table.csv").set_index("variant")
    assert set(rows.index) == {"original", "retrained", "holdout", "gradient_ascent", "task_arithmetic"}
    assert set(rows["engine"]) == {"deepspeed ZeRO-2, 2 workers"}
    assert rows.loc["gradient_ascent", "ma"] < rows.loc["original", "ma"]


@pytest.mark.soak
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_trial_whose_worker_dies_is_tried_once_more_and_no_other_suffers(tmp_path, deaths):
    many = ("methods={gradient_ascent: {epochs: [40]}, emso: {epochs: [1]}}", "report={samples: plain}", ENDLESS)
    with running(tmp_path, *many) as driver:
        killed = []
        while len(killed) < 2 * deaths and driver.poll() is None:
            alive = [worker for worker in _workers_of(tmp_path) if worker not in killed]
            if len(alive) == 2 and _has_begun(tmp_path, "gradient_ascent", len(killed) // 2 + 1):
                time.sleep(8)
                os.kill(alive[0], signal.SIGKILL)
                killed += alive
            time.sleep(0.1)
        output, _ = driver.communicate(timeout=400)
    assert len(killed) == 2 * deaths, output
    assert driver.returncode == deaths - 1, output
    records = records_of(tmp_path)
    failures = [record for record in records["gradient_ascent"] if isinstance(record, Failed)]
    assert [failed.error for failed in failures] == [
        "WorkerDiedError: a worker of deepspeed ZeRO-2, 2 workers failed: "
        "its process ended before its work did: it crashed, or it was killed, perhaps because memory ran short"
    ] * (deaths - 1)
    assert (Measurement in kinds(records["gradient_ascent"])) == (deaths == 1)
    assert Measurement in kinds(records["emso"]), output
    assert Failed not in kinds(records["emso"])
    assert not list((tmp_path / "r" / "artifacts" / "workers").glob(".*.tmp"))
    assert _workers_of(tmp_path, kind=b"") == [], "no process is left, so no port either"


@pytest.mark.soak
def test_the_workers_of_a_trial_that_ran_too_long_end_with_it(tmp_path):
    limited = "methods={gradient_ascent: {epochs: [40000]}, emso: {epochs: [1]}}"
    with running(tmp_path, limited, "timeout_minutes=1.5", ENDLESS) as driver:
        seen, end = set(), time.monotonic() + 480
        while driver.poll() is None and time.monotonic() < end:
            seen |= set(_workers_of(tmp_path))
            time.sleep(0.3)
        driver.terminate()
        assert driver.wait() == 1, driver.stdout.read()
    assert len(seen) == 4, "two for each method, and only the second's once the first's are gone"
    records = records_of(tmp_path)
    [failed] = [record for record in records["gradient_ascent"] if isinstance(record, Failed)]
    assert failed.error.startswith("TrialError: it ran longer than timeout_minutes: 1.5 allows")
    assert Measurement in kinds(records["emso"])
    assert Failed not in kinds(records["emso"])
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


def _has_begun(tmp_path, variant, times):
    is_planned = (tmp_path / "r" / "workers" / "journal" / "plan.json").exists()
    return is_planned and sum(isinstance(record, Started) for record in records_of(tmp_path)[variant]) == times


def test_workers_need_ray(tmp_path):
    from harness.errors import TrialError
    from harness.execution.ray.workers import run_on_workers

    spec = spec_of("emso", Engine(deepspeed=DeepSpeed(workers=2)))
    with pytest.raises(TrialError, match="run it without --executor inline"):
        run_on_workers("a:b", spec, {}, tmp_path, lambda message: None)
