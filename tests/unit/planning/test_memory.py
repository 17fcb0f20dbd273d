"""What a trial needs, told without running it, against torch's own accounting of a run."""

import re
from io import StringIO

import pytest
from rich.console import Console
from torch import nn
from transformers import GPTNeoConfig

from harness.contracts import Checkpoint, ErasedModel
from harness.execution.trial.memorized import build_memorized
from harness.execution.trial.tasks import ErasingTask
from harness.planning import memory
from harness.planning.machine import PROCESS_BYTES, Machine, memory_share
from harness.planning.memory import MemoryTracker, add_engine_bytes, find_unfit, memory_need, memory_needs, rehearse
from harness.planning.plan import plan
from harness.plugins import METHODS
from harness.records.artifacts import Artifacts
from harness.reporting.plan import needs_table
from harness.settings import DeepSpeed, Engine, LoRA, replace
from harness.sweep import main

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
  gradient_difference: {epochs: 1}
  kl_divergence: {epochs: 1}
  gradient_ascent: {epochs: 1}
  kfac_edit: {erased_mass: 0.01}
  npo_sam: {epochs: 1}
evaluators: {memorization: {el_prefixes: 4}, generation: {mauve_seeds: 1}}
"""
MACHINE = Machine(cpus=2, memory=24 << 30, gpus=0, gpu_memory=0, has_bf16=False)
GPU = replace(MACHINE, gpus=1, gpu_memory=80 << 30, has_bf16=True)


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
    settings = {**spec.settings, spec.strength_name: spec.strengths[-1]}
    for _ in METHODS.configure(spec.method, settings).erase(task):
        pass


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("method", "lora"),
    [
        ("emso", None), ("gradient_difference", None), ("npo_sam", None), ("kfac_edit", None),
        ("kl_divergence", None), ("gradient_ascent", LoRA(rank=4)),
    ],
)  # fmt: skip
def test_erasing_is_told_to_within_a_quarter(specs, measured, tmp_path, method, precision, lora):
    spec = specs(f"training.precision={precision}")[method]
    spec = replace(spec, training=replace(spec.training, lora=lora))
    artifacts = Artifacts(tmp_path / "artifacts")
    if spec.reference == "memorized_model":
        trained = measured(lambda: build_memorized(spec, artifacts, lambda message: None))
        assert rehearse(spec, is_memorizing=True).peak == pytest.approx(trained, rel=0.25)
    assert rehearse(spec).peak == pytest.approx(measured(lambda: erase(spec, artifacts)), rel=0.25)


@pytest.mark.soak
@pytest.mark.parametrize("method", ["original", "kl_divergence", "contrastive_decoding"])
def test_a_whole_trial_is_told_to_within_a_quarter(specs, measured, run_whole, method):
    spec = specs()[method]
    need = memory_need(spec, MACHINE)
    assert need.needs == pytest.approx(measured(lambda: run_whole(spec)), rel=0.25)


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


def test_deepspeeds_buffers_come_by_stage_and_worker(specs):
    """By hand, without activations: the plain model and its copy, two moments and two gradients under stage 0."""
    spec = specs()["gradient_ascent"]
    told = memory.Rehearsal(peak=4 * 4000, weights=4000, state=8000, trained=1000, models=1)
    held = [
        add_engine_bytes(replace(spec, engine=Engine(deepspeed=DeepSpeed(zero_stage=stage, workers=workers))), told)
        for stage, workers in ((0, 1), (1, 1), (2, 4), (3, 8))
    ]
    assert held[0] == 4000 + 4000 + 8000 + 2 * 4000
    assert held[1] == 4000 + 4000 + 12_000 + 2 * 4000 + 4000
    assert held[1:] == sorted(held[1:], reverse=True)


def test_the_tracker_counts_what_is_held_and_no_view_of_what_was_there_before():
    model = nn.Linear(100, 100, bias=False)
    with MemoryTracker() as tracker:
        model = tracker.loading(lambda: model)
        assert (tracker.held, tracker.peak) == (40_000, 40_000)
        view = model.weight.detach().view(-1)[:10]
        copied = view.clone()
        assert tracker.held == 40_040
        del copied
        assert (tracker.held, tracker.peak) == (40_000, 40_040)


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
    needs = memory_needs([spec], MACHINE)
    assert (needs[spec.trial_id].needs, needs[spec.trial_id].why_unknown[:12]) == (None, "RuntimeError")
    assert find_unfit([spec], replace(MACHINE, memory=2 << 30), needs) == ([], [])
    console = Console(width=160, record=True, file=StringIO())
    console.print(needs_table([spec], needs))
    assert "its need is not known, since its code could not be counted without values" in console.export_text()


def faults(spec, machine):
    return find_unfit([spec], machine, memory_needs([spec], machine))


def test_too_little_memory_is_a_fault_on_cpus_and_a_doubt_on_a_gpu(specs):
    spec = specs()["kl_divergence"]
    needs = memory_need(spec, MACHINE).needs
    tight = replace(MACHINE, memory=2 * (needs - 1 + PROCESS_BYTES))
    assert memory_share(tight, spec) == needs - 1
    [fault], doubts = faults(spec, tight)
    assert (fault.path, doubts) == ("kl_divergence on miniature-m", [])
    assert re.match(r"needs \d+ MB, and has \d+ MB\. Lower training\.micro_batch, set ", fault.reason)
    assert faults(spec, replace(tight, memory=2 * (needs + PROCESS_BYTES))) == ([], [])
    on_gpu = replace(spec, gpus=1.0)
    assert memory_share(replace(GPU, gpu_memory=8 << 30), replace(spec, gpus=0.5)) == (4 << 30) - (600 << 20)
    none, [doubt] = faults(on_gpu, replace(GPU, gpu_memory=700 << 20))
    assert (none, doubt.path) == ([], "kl_divergence on miniature-m")
    assert faults(on_gpu, GPU) == ([], [])


def test_what_a_machine_has_not_is_said(specs):
    def reason(spec, machine):
        [fault], _ = find_unfit([spec], machine, {})
        return fault.reason

    spec = specs("training.precision=bf16")["gradient_ascent"]
    on_gpu = replace(spec, gpus=1.0)
    assert find_unfit([on_gpu], GPU, {}) == ([], [])
    assert reason(on_gpu, replace(GPU, has_bf16=False)) == (
        "computes in bf16, which this machine's GPU does not: set training.precision to fp32."
    )
    assert find_unfit([replace(on_gpu, training=replace(spec.training, precision="fp32"))], GPU, {}) == ([], [])
    assert reason(on_gpu, MACHINE).startswith("needs 1 GPU (resources.gpus), and this machine has none")
    two = replace(on_gpu, engine=Engine(deepspeed=DeepSpeed(zero_stage=2, workers=2)))
    assert reason(two, GPU).startswith("needs 2 GPUs (resources.gpus), and this machine has 1")
    assert reason(replace(spec, cpus=8), MACHINE) == "needs 8 CPUs (resources.cpus), and this machine has 2."
    lowered = [replace(evaluator, precision="bf16") for evaluator in spec.evaluators]
    measured_low = replace(on_gpu, training=replace(spec.training, precision="fp32"), evaluators=tuple(lowered))
    assert reason(measured_low, replace(GPU, has_bf16=False)).endswith("set measuring.precision to fp32.")


def test_the_plan_shows_needs_and_refuses_before_anything_starts(specs, tmp_path, monkeypatch, capsys):
    specs()
    command = [str(tmp_path / "sizes.yaml"), "--results", str(tmp_path / "results"), "--only", "method=gradient_ascent"]
    assert main([*command, "--plan"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("gradient_ascent "))
    assert re.search(r"miniature-m +\d+ MB +[\d.]+ GB$", row), row
    small = Machine(cpus=1, memory=PROCESS_BYTES + 10_000_000, gpus=0, gpu_memory=0, has_bf16=False)
    for room in ("planning.memory", "reporting.plan"):
        monkeypatch.setattr(f"harness.{room}.this_machine", lambda: small)
    for arguments in ([*command, "--plan"], command):
        assert main(arguments) == 2
        assert re.search(r"gradient_ascent on miniature-m +needs \d+ MB, and has", capsys.readouterr().err)
    assert not (tmp_path / "results" / "sizes" / "table.csv").exists()
