"""Load: a thousand trials, three sweeps on one results folder, trials with workers on made-up GPUs."""

import csv
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from functools import partial

import pytest

from harness.execution import waves
from harness.execution.job import Folders
from harness.records.journal import Journal
from harness.records.record import Stopped
from harness.specs import Engine

pytestmark = pytest.mark.soak
WORK = """
import json, os, time
from pathlib import Path
import ray
from harness.execution.job import Event
from harness.execution.ray.placement import worker_resources
from harness.records.journal import Journal
from harness.records.record import Stopped

def work(job, folders, watch):
    watch(Event(job=job.name, kind="started"))
    Journal(folders.results / "journal").append(Stopped(trial_id=job.spec.trial_id, strength=1, reason="worked"))
    watch(Event(job=job.name, kind="finished", done=1, total=1))

def with_workers(job, folders, watch):
    spec = job.spec
    group = ray.util.placement_group([worker_resources(spec)] * spec.engine.workers)
    ray.get(group.ready(), timeout=60)
    marks = Path(os.environ["MARKS"])
    (marks / job.name).touch()
    for _ in range(100):  # Until as many run as can.
        most = len(list(marks.iterdir()))
        if most >= int(os.environ["TOGETHER"]):
            break
        time.sleep(0.1)
    time.sleep(1)
    most = max(most, len(list(marks.iterdir())))
    (marks / job.name).unlink()
    ray.util.remove_placement_group(group)
    watch(Event(job=job.name, kind="finished", message=json.dumps([most, ray.get_gpu_ids()])))
"""
SWEEP = """
# Does anything get lost?
name: NAME
models: [miniature-s]
seeds: [0]
data:
  forget: {source: miniature, sequences: 8}
  utility: {source: miniature, prompts: 4, reference_tokens: 16}
  validation: {source: miniature, sequences: 4}
training: {learning_rate: 1.0e-3, global_batch: 4}
memorized_model: {epochs: 1, gate: 0.1}
methods:
  task_arithmetic: {gamma: [0.05, 0.1]}
evaluators: {memorization: {el_prefixes: 1}}
collapse: {}
ranking: {at: {task_arithmetic: 0.05}}
"""


@pytest.fixture
def our_work(tmp_path, monkeypatch):
    (tmp_path / "our_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return Folders(results=tmp_path / "results" / "s", artifacts=tmp_path / "results" / "artifacts")


def test_of_a_thousand_trials_none_is_lost_inline_or_on_ray(our_work, make_job, monkeypatch):
    from our_work import work

    from harness.execution.ray.tune import ray_executor

    monkeypatch.setattr(waves, "run_job", work)
    for executor, name in ((nullcontext(waves.run_inline), "inline"), (ray_executor(work="our_work:work"), "ray")):
        jobs, events = [make_job(f"{name}-{number}") for number in range(1000)], []
        with executor as execute:
            execute(jobs, our_work, events.append)
        kinds = Counter((event.job, event.kind) for event in events)
        assert kinds == {(job.name, kind): 1 for job in jobs for kind in ("started", "finished")}
        journal = Journal(our_work.results / "journal")
        for job in jobs:
            worked = Stopped(trial_id=job.spec.trial_id, strength=1, reason="worked")
            assert journal.read(job.spec.trial_id) == [worked]


@pytest.mark.parametrize(("gpus", "together"), [(1.0, 1), (0.5, 2), (0.0, 2)])
def test_trials_with_workers_are_placed_by_gpus_too(our_work, make_job, monkeypatch, tmp_path, gpus, together):
    """Two made-up GPUs and four CPUs: of trials that ask for two GPUs one runs at a time."""
    from harness.execution.ray import tune as ray_tune

    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))
    monkeypatch.setenv("TOGETHER", str(together))
    monkeypatch.setattr(ray_tune.ray, "init", partial(ray_tune.ray.init, num_gpus=2, num_cpus=4))
    engine, events = Engine(name="deepspeed", workers=2), []
    jobs = [make_job(f"j{number}", engine=engine, gpus=gpus) for number in range(3)]
    with ray_tune.ray_executor(work="our_work:with_workers") as execute:
        execute(jobs, our_work, events.append)
    details = [json.loads(event.message) for event in events if event.kind == "finished"]
    assert len(details) == 3, [event.message for event in events]
    assert max(most for most, _ in details) == together
    assert all(bool(ids) is (gpus > 0) for _, ids in details), "each measures on a GPU exactly if it was given one"


def test_three_sweeps_at_once_on_one_results_folder_share_one_memorised_model(tmp_path):
    names = ["one", "two", "three"]
    commands = []
    for place, name in enumerate(names):
        seeded = SWEEP.lstrip().replace("NAME", name).replace("seeds: [0]", f"seeds: [{place}]")
        (tmp_path / f"{name}.yaml").write_text(seeded)
        file, results = str(tmp_path / f"{name}.yaml"), str(tmp_path / "r")
        commands.append([sys.executable, "-m", "harness.sweep", file, "--results", results, "--executor", "inline"])
    running = [subprocess.Popen(each, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for each in commands]
    outputs = [each.communicate(timeout=900)[0] for each in running]
    assert [each.returncode for each in running] == [0, 0, 0], outputs
    models = [path for path in (tmp_path / "r" / "artifacts" / "memorized").iterdir() if path.name[0] != "."]
    assert len(models) == 1, "one memorised model serves every seed and sweep"
    for name in names:
        with (tmp_path / "r" / name / "table.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert Counter(row["variant"] for row in rows)["task_arithmetic"] == 2
        assert {"original", "retrained", "holdout", "task_arithmetic"} == {row["variant"] for row in rows}
    assert sum("memorize" in output and "finished" in output for output in outputs) >= 1
