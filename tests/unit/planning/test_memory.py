"""What a trial needs, told without running it, against torch's own accounting of a run."""

import copy
import re

import pytest
from torch import nn
from transformers import GPTNeoConfig

from harness.cli import main
from harness.contracts import Checkpoint, ErasedModel
from harness.execution.tasks import ErasingTask, build_memorized
from harness.planning import memory
from harness.planning.machine import PROCESS_BYTES, Machine, memory_share
from harness.planning.memory import MemoryTracker, bytes_on_engine, find_unfit, memory_need, memory_needs, rehearse
from harness.planning.plan import plan
from harness.plugins import METHODS
from harness.records.artifacts import Artifacts
from harness.settings import DeepSpeed, Engine, LoRA, replace

SWEEP = """
models: [miniature-m]
data:
  forget: {source: miniature, sequences: 24}
  retain: {source: miniature}
  utility: {source: miniature, prompts: 48}
  validation: {source: miniature, sequences: 8}
training: {learning_rate: 1.0e-5, global_batch: 12, micro_batch: 6, early_stop: null}
memorized_model: {epochs: 1, gate: 0.0}
keep_erased: none
methods:
  emso: {epochs: 1}
  contrastive_decoding: {gamma: 0.3}
  kl_divergence: {epochs: 1}
  gradient_ascent: {epochs: 1}
  kfac_edit: {erased_mass: 0.01}
  npo_sam: {epochs: 1}
evaluators: {memorization: {el_prefixes: 4}, generation: {mauve_seeds: 1}}
"""
MACHINE = Machine(cpus=2, memory=24 << 30, gpus=0, gpu_memory=0)
GPU = replace(MACHINE, gpus=1, gpu_memory=80 << 30)


@pytest.fixture
def specs(tmp_path):
    """The trials of a small sweep, by their variants; `changes` are settings of the sweep."""

    def make(*changes):
        file = tmp_path / "sizes.yaml"
        file.write_text(SWEEP)
        return {spec.variant: spec for spec in plan(file, changes).trials}

    return make


def erase(spec, artifacts):
    task = ErasingTask(spec, artifacts, spec.strengths, lambda message: None)
    for _ in METHODS.configure(spec.method, {**spec.settings, spec.strength_name: spec.strengths[-1]}).erase(task):
        pass


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("method", ["emso", "npo_sam", "kfac_edit", "kl_divergence", "gradient_ascent"])
def test_erasing_is_told_to_within_a_quarter(specs, measured, tmp_path, method, precision):
    spec = specs(f"training.precision={precision}")[method]
    spec = replace(spec, training=replace(spec.training, lora=LoRA(rank=4) if method == "gradient_ascent" else None))
    artifacts = Artifacts(tmp_path / "artifacts")
    if spec.reference == "memorized_model":
        trained = measured(lambda: build_memorized(spec, artifacts, lambda message: None))
        assert rehearse(spec, is_memorizing=True).peak == pytest.approx(trained, rel=0.25)
    assert rehearse(spec).peak == pytest.approx(measured(lambda: erase(spec, artifacts)), rel=0.25)


@pytest.mark.soak
@pytest.mark.parametrize("method", ["original", "kl_divergence", "contrastive_decoding"])
def test_a_whole_trial_is_told_roughly(specs, measured, run_whole, method):
    spec = specs()[method]
    assert 0.75 < memory_need(spec) / measured(lambda: run_whole(spec)) < 1.5


@pytest.fixture
def deep(tmp_path):
    """A model of eight layers, of which there is the configuration only."""
    GPTNeoConfig(
        vocab_size=1024, hidden_size=64, num_layers=8, num_heads=4, attention_types=[[["global", "local"], 4]],
        max_position_embeddings=256,
    ).save_pretrained(tmp_path / "deep")  # fmt: skip
    return Checkpoint("deep", str(tmp_path / "deep"), str(tmp_path / "deep"), "0" * 64)


@pytest.mark.parametrize("method", ["gradient_ascent", "kl_divergence"])
def test_a_deep_models_memory_is_told_from_shallow_ones(specs, deep, method):
    spec = replace(specs()[method], model=deep)
    told, whole = memory.rehearse_deep(spec), rehearse(spec)
    assert told.peak == pytest.approx(whole.peak, rel=0.02)
    assert (told.weights, told.trained, told.state) == (whole.weights, whole.trained, whole.state)


def test_deepspeeds_buffers_are_shared_by_its_workers(specs):
    """By hand, without activations: the plain model and its copy, and fp32 weights, two moments and two gradients."""
    spec = specs()["gradient_ascent"]
    told = memory.Rehearsal(peak=4 * 4000, weights=4000, state=8000, trained=1000)
    held = [
        bytes_on_engine(replace(spec, gpus=gpus, engine=Engine(deepspeed=engine)), told)
        for gpus, engine in ((0.0, DeepSpeed()), (1.0, DeepSpeed(workers=4)), (1.0, DeepSpeed(offload=True)))
    ]
    assert held == [8000 + 20_000, 8000 + 5000, 8000 + 8000]
    assert bytes_on_engine(spec, told) == 16_000


def test_the_tracker_counts_what_is_held_and_no_view_of_what_was_there_before():
    model = nn.Linear(100, 100, bias=False)
    with MemoryTracker() as tracker:
        model = tracker.copying(model)
        assert (tracker.held, tracker.peak) == (40_000, 40_000)
        view = model.weight.detach().view(-1)[:10]
        copied = view.clone()
        assert tracker.held == 40_040
        del copied
        assert (tracker.held, tracker.peak) == (40_000, 40_040)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer")
def test_a_copy_of_a_model_without_contents_has_no_second_mode_which_would_free_its_storages_twice():
    with memory._ContentlessMode():
        model = nn.BatchNorm1d(3)
    assert copy.deepcopy(model).running_mean.fake_mode is model.running_mean.fake_mode


class Looks:
    """Looks at values as NumPy has them, which values that hold nothing cannot be."""

    strength = METHODS.load("gradient_ascent").strength

    def erase(self, task):
        model = task.load_original()
        next(model.parameters()).detach().numpy()
        yield ErasedModel(1, model)


def test_a_plugin_that_needs_values_is_not_known_and_not_refused(specs, monkeypatch):
    known = specs()["gradient_ascent"]
    monkeypatch.setattr(type(METHODS), "load", lambda self, name: Looks)
    monkeypatch.setattr(type(METHODS), "configure", lambda self, name, settings: Looks())
    spec = replace(known, method="Looks")
    assert memory_need(spec) is None
    assert faults(spec, replace(MACHINE, memory=2 << 30)) == []


def faults(spec, machine):
    return find_unfit([spec], machine, memory_needs([spec]))


def test_too_little_memory_is_a_fault_on_cpus_and_none_on_a_gpu(specs):
    spec = specs()["kl_divergence"]
    needs = memory_need(spec)
    tight = replace(MACHINE, memory=2 * (needs - 1 + PROCESS_BYTES))
    assert memory_share(tight, spec) == needs - 1
    [fault] = faults(spec, tight)
    assert fault.path == "kl_divergence on miniature-m"
    assert re.match(r"needs [\d.]+ MB, and has [\d.]+ MB\. Lower training\.micro_batch, set ", fault.reason)
    assert faults(spec, replace(tight, memory=2 * (needs + PROCESS_BYTES))) == []
    assert memory_share(replace(GPU, gpu_memory=8 << 30), replace(spec, gpus=0.5)) == (4 << 30) - (600 << 20)
    assert faults(replace(spec, gpus=1.0), replace(GPU, gpu_memory=700 << 20)) == []


def test_what_a_machine_has_not_is_said(specs):
    def reason(spec, machine):
        [fault] = find_unfit([spec], machine, {})
        return fault.reason

    spec = specs()["gradient_ascent"]
    on_gpu = replace(spec, gpus=1.0)
    assert find_unfit([on_gpu], GPU, {}) == []
    assert reason(on_gpu, MACHINE).startswith("needs 1 GPU (resources.gpus), and this machine has none")
    two = replace(on_gpu, engine=Engine(deepspeed=DeepSpeed(zero_stage=2, workers=2)))
    assert reason(two, GPU).startswith("needs 2 GPUs (resources.gpus), and this machine has 1")
    both = replace(spec, cpus=2, engine=two.engine)
    assert reason(both, MACHINE) == "needs 4 CPUs (resources.cpus), and this machine has 2."
    assert reason(replace(spec, cpus=8), MACHINE) == "needs 8 CPUs (resources.cpus), and this machine has 2."


def test_the_plan_shows_needs_and_refuses_before_anything_starts(specs, tmp_path, monkeypatch, capsys):
    specs()
    command = [str(tmp_path / "sizes.yaml"), "--results", str(tmp_path / "results"), "--only", "method=gradient_ascent"]
    assert main(["sweep", *command, "--plan"]) == 0
    assert "Every trial fits: its model takes less than a twentieth of its memory." in capsys.readouterr().out
    small = Machine(cpus=1, memory=PROCESS_BYTES + 10_000_000, gpus=0, gpu_memory=0)
    for room in ("planning.memory", "reporting.plan"):
        monkeypatch.setattr(f"harness.{room}.this_machine", lambda: small)
    for arguments in ([*command, "--plan"], command):
        assert main(["sweep", *arguments]) == 2
        printed = capsys.readouterr()
        assert re.search(r"gradient_ascent on miniature-m +needs [\d.]+ MB, and has", printed.err)
        assert "--plan" not in arguments or re.search(r"gradient_ascent +miniature-m +[\d.]+ MB +10\.0 MB", printed.out)
    assert not (tmp_path / "results" / "sizes" / "table.csv").exists()
