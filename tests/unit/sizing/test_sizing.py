"""What a trial needs, told without running it, against torch's own accounting of a run."""

import copy
import gc
import os
import re
import time
from dataclasses import replace

import psutil
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import GPTNeoConfig

from harness.contracts import Checkpoint, ErasedModel, Training
from harness.execution.trial.inputs import forget_set
from harness.execution.trial.memorized import build_memorized
from harness.execution.trial.tasks import ErasingTask
from harness.models.loading import load_model
from harness.planning.plan import plan
from harness.plugins import METHODS
from harness.records.artifacts import Artifacts
from harness.sizing import erasing_dry_run, memory_tracker
from harness.sizing.deepspeed import partitioned
from harness.sizing.erasing_dry_run import dry_run, dry_run_memorizing
from harness.sizing.estimate import MemoryEstimate, UnknownEstimate, estimate_memory, short_training
from harness.sizing.fit_check import check_fit, large
from harness.sizing.machine import PROCESS_BYTES, Machine, share_of, this_machine
from harness.sizing.memory_tracker import Bytes, MemoryTracker
from harness.sizing.size_cache import SizeCache
from harness.specs import Engine
from harness.sweep import main
from harness.toolkit.engines import engine_for
from harness.toolkit.finetune import micro_batches
from harness.toolkit.losses import nll_loss
from harness.toolkit.short_training import trained_briefly

METHOD_NAMES = [
    "emso",
    "task_arithmetic",
    "contrastive_decoding",
    "gradient_difference",
    "kl_divergence",
    "gradient_ascent",
    "deliberate_imagination",
    "kfac_edit",
    "repselect",
    "balanced_subnet",
    "pdu",
    "npo_sam",
    "gru",
]
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
  task_arithmetic: {gamma: 0.05}
  contrastive_decoding: {gamma: 0.3}
  gradient_difference: {epochs: 1}
  kl_divergence: {epochs: 1}
  gradient_ascent: {epochs: 1}
  deliberate_imagination: {gamma: 3, epochs: 1}
  kfac_edit: {erased_mass: 0.01}
  repselect: {epochs: 1}
  balanced_subnet: {dropped: 0.01, epochs: 1}
  pdu: {epochs: 1}
  npo_sam: {epochs: 1}
  gru: {epochs: 1}
evaluators: {memorization: {el_prefixes: 4}, generation: {mauve_seeds: 1}}
"""


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


@pytest.mark.parametrize(
    ("method", "precision"),
    [*((name, "fp32") for name in METHOD_NAMES), ("emso", "bf16"), ("gradient_difference", "bf16")],
)
def test_erasing_is_told_to_within_a_twentieth(specs, measured, tmp_path, method, precision):
    spec = specs(f"training.precision={precision}")[method]
    artifacts = Artifacts(tmp_path / "artifacts")
    if spec.reference == "memorized_model":
        trained = measured(lambda: build_memorized(spec, artifacts, lambda message: None))
        # It ends with a greedy pass for the gate, whose caches are the measuring's.
        assert dry_run_memorizing(spec).peak.total == pytest.approx(trained, rel=0.1)
    found = dry_run(spec)
    assert found.peak.total == pytest.approx(measured(lambda: erase(spec, artifacts)), rel=0.05)


@pytest.mark.soak
def test_a_method_that_samples_before_it_trains_is_told_to_within_a_twentieth(specs, measured, tmp_path):
    spec = specs("methods={altpo: {epochs: 1}}")["altpo"]
    run = measured(lambda: erase(spec, Artifacts(tmp_path / "artifacts")))
    assert dry_run(spec).peak.total == pytest.approx(run, rel=0.05)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("method", "precision"),
    [
        *(("gradient_difference", "fp32"), ("kl_divergence", "bf16")),
        *(pytest.param(name, "fp32", marks=pytest.mark.soak) for name in ("emso", "gru", "balanced_subnet")),
    ],
)
def test_checkpointed_erasing_is_told_to_within_a_twentieth_and_is_less(specs, measured, tmp_path, method, precision):
    changes = ["training.activation_checkpointing=true", f"training.precision={precision}", "training.micro_batch=12"]
    spec = specs(*changes)[method]
    told = dry_run(spec).peak.total
    assert told == pytest.approx(measured(lambda: erase(spec, Artifacts(tmp_path / "artifacts"))), rel=0.05)
    assert told < 0.85 * dry_run(specs(*changes[1:])[method]).peak.total


@pytest.mark.soak
def test_second_moments_are_told_where_one_micro_batch_is_all_of_a_global_one(specs, measured, tmp_path):
    spec = specs("training.micro_batch=12")["kfac_edit"]
    assert spec.retain.rows > 12, "a second one follows"
    run = measured(lambda: erase(spec, Artifacts(tmp_path / "artifacts")))
    assert dry_run(spec).peak.total == pytest.approx(run, rel=0.05)


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.soak)])
def test_a_bf16_base_is_told_to_within_a_twentieth(specs, measured, tmp_path, precision):
    changes = ["methods={gradient_difference: {epochs: 1}}", f"training.precision={precision}"]
    spec = specs(*changes, "training.lora={rank: 2, base: bf16}")["gradient_difference"]
    told = dry_run(spec).peak
    assert told.total == pytest.approx(measured(lambda: erase(spec, Artifacts(tmp_path / "artifacts"))), rel=0.05)
    on_fp32 = dry_run(specs(*changes, "training.lora={rank: 2}")["gradient_difference"]).peak
    assert told.weights == pytest.approx(1.5 * on_fp32.weights, rel=0.03), "both are in a CPU's memory"


@pytest.mark.parametrize(
    ("starts", "of_all"),
    [
        ([5, 25, 45, 65], [265, 300]),
        ([5, 25, 5, 25], [25, 100]),
        ([5, 5, 5, 5], [5, 100]),
        ([5, 25, 45, 60], [60, 100]),
    ],
    ids=["something of each is kept", "a teacher goes first", "nothing is kept", "unequal steps"],
)
def test_what_is_kept_of_each_micro_batch_adds_up_until_they_are_done(starts, of_all):
    """Four of fourteen are run; between the last one's start and the next pass lies what is made of all of them."""
    first, second, third, last = starts
    moments = [Bytes(weights=10, activations=number) for number in (first, 70, second, 70, third, 70, last, 100, 5, 90)]
    grown = erasing_dry_run._with_further_parts(moments, [0, 2, 4, 6, 8], 10)
    assert [moment.activations for moment in grown[6:8]] == of_all
    assert (grown[:6], grown[8:]) == (tuple(moments[:6]), tuple(moments[8:]))
    assert list(erasing_dry_run._with_further_parts(moments, [0, 2, 4, 6, 8], 0)) == moments


@pytest.mark.soak
@pytest.mark.parametrize("method", ["emso", "kl_divergence"])
def test_many_micro_batches_are_told_from_a_few(specs, monkeypatch, method):
    """EMSO keeps what enters each layer, which of 24 is more than a step of training ever holds."""
    told = dry_run(specs("training.global_batch=24", "training.micro_batch=1")[method]).peak.total
    of_four = dry_run(specs("training.global_batch=4", "training.micro_batch=1")[method]).peak.total
    monkeypatch.setattr(erasing_dry_run, "PARTS", 24)
    run = dry_run(specs("training.global_batch=24", "training.micro_batch=1")[method]).peak.total
    assert told == pytest.approx(run, rel=0.005)
    assert (told > 1.008 * of_four) == (method == "emso")


@pytest.mark.parametrize(
    "method",
    [
        "emso",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("original", "kl_divergence", "contrastive_decoding")),
    ],
)
def test_a_whole_trial_is_told_to_within_a_seventh(specs, measured, run_whole, method):
    spec = specs()[method]
    need = estimate_memory(spec)
    assert isinstance(need, MemoryEstimate), need
    assert need.most.total == pytest.approx(measured(lambda: run_whole(spec)), rel=0.15)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("method", "evaluators"),
    [
        ("original", "{memorization: {el_prefixes: 4}}"),
        ("original", "{memorization: {el_prefixes: 4}, weights: {}}"),
        pytest.param("contrastive_decoding", "{memorization: {el_prefixes: 4}}", marks=pytest.mark.soak),
    ],
)
def test_measuring_holds_an_original_only_for_who_reads_it(specs, measured, run_whole, method, evaluators):
    """Judges are small here, so that an original more or less shows."""
    spec = specs(f"evaluators={evaluators}")[method]
    need = estimate_memory(spec)
    assert isinstance(need, MemoryEstimate), need
    assert need.most.total == pytest.approx(measured(lambda: run_whole(spec)), rel=0.15)


@pytest.mark.soak
def test_a_copy_that_an_evaluator_trains_is_told_to_within_a_tenth(specs, measured):
    spec = specs()["emso"]
    model, forget = load_model(spec.model), forget_set(spec)

    def train():
        for _ in trained_briefly(model, forget, steps=[2], learning_rate=1e-4, batch=4, seed=0):
            pass

    assert short_training(spec, 4, SizeCache()).total == pytest.approx(measured(train), rel=0.1)


@pytest.fixture
def settled_collectives(monkeypatch):
    """Let a collective return when its thread has let go of the tensors: what another thread frees is never counted."""
    from deepspeed.comm.torch import TorchBackend

    def holders(tensors):  # Of their memory: the thread has views of some.
        return [torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) for tensor in tensors]

    def settled(collective):
        def run(self, *args, **options):
            tensors = [given for given in (*args, *options.values()) if isinstance(given, torch.Tensor)]
            before, until = holders(tensors), time.monotonic() + 60
            if work := collective(self, *args, **options):
                work.wait()
            while any(now > then for now, then in zip(holders(tensors), before, strict=True)):
                assert time.monotonic() < until, "a thread keeps a tensor"
                time.sleep(1e-4)
            return work

        return run

    for name in ("all_reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor"):
        monkeypatch.setattr(TorchBackend, name, settled(getattr(TorchBackend, name)))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("stage", "precision"),
    [
        *((0, "fp32"), (1, "bf16"), (2, "fp32"), (3, "bf16")),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in ((0, "bf16"), (1, "fp32"), (2, "bf16"), (3, "fp32"))),
    ],
)
def test_deepspeeds_buffers_are_told_to_within_a_twentieth(
    measured, settled_collectives, make_model, make_sequences, stage, precision
):
    """A model whose weights outweigh its activations: what is held is what DeepSpeed makes of the weights."""
    model = make_model(0, hidden=256, vocabulary=2000, scale=0.02)
    engine = Engine(name="deepspeed", zero_stage=stage)
    training = Training(precision=precision, global_batch=2, micro_batch=1)
    batch = micro_batches(make_sequences([[1, 2, 3]] * 2), torch.arange(2), training, torch.device("cpu"))
    count = sum(weight.numel() for weight in model.parameters())

    def two_steps():
        training_engine = engine_for(engine, copy.deepcopy(model), training)
        gc.collect()
        for _ in range(2):
            for part in batch:
                training_engine.backward(nll_loss(training_engine.model, part, part))
                gc.collect()
            training_engine.step()
            gc.collect()
        training_engine.gather()
        training_engine.close()

    parts = partitioned(count, precision, engine, on_gpu=False)
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    most = max(parts.backward.total, parts.step.total) + 2 * buffers
    # A thread of a collective that lets go late adds to what is counted, and none takes away from it.
    runs = (measured(two_steps) for _ in range(3))
    assert any(most == pytest.approx(run, rel=0.05) for run in runs)


@pytest.mark.parametrize("method", [pytest.param("kl_divergence", marks=pytest.mark.soak), "task_arithmetic"])
def test_a_trial_on_deepspeed_is_told_to_within_a_seventh(specs, measured, run_whole, method):
    spec = specs("models=[{id: miniature-m, engine: deepspeed}]", "training.precision=bf16")[method]
    need = estimate_memory(spec)
    assert isinstance(need, MemoryEstimate), need
    assert need.most.total == pytest.approx(measured(lambda: run_whole(spec)), rel=0.15)


def test_partitions_shrink_with_the_workers_and_go_from_the_device_when_offloaded():
    def step(stage, workers=1, offload=False):
        engine = Engine(name="deepspeed", zero_stage=stage, workers=workers, offload=offload)
        return partitioned(1_000_000_000, "bf16", engine, on_gpu=True).step.total / 1e9

    # By hand: copy 2, fp32 behind 4, moments 8, gradient 4; partitioned: all but the first. The plain model is aside.
    assert step(2) == 18
    assert step(2, workers=2) == 10
    assert step(2, offload=True) == 2
    assert step(3, workers=2) == pytest.approx(1 + (4 + 8 + 4) / 2 + 1 + 0.1)
    on_cpu = partitioned(1_000_000_000, "bf16", Engine(name="deepspeed", zero_stage=2), on_gpu=False)
    assert on_cpu.held.total / 1e9 == 18, "a CPU has one memory: the plain model's 4 are in it"


def test_the_meter_counts_what_is_held_and_when_it_was_most():
    with MemoryTracker() as tracker:
        first = torch.zeros(1000)
        second = first + 1
        view = second[:10]
        assert tracker.held() == Bytes(activations=8000)
        del first
        assert tracker.held() == Bytes(activations=4000)
        del second
        assert tracker.held() == Bytes(activations=4000), "the view holds all of it"
        del view
        assert tracker.held() == Bytes()
        torch.zeros(10)
    assert tracker.peak() == Bytes(activations=8000)


def test_a_view_of_what_was_there_before_is_nothing_new():
    with MemoryTracker() as tracker:
        model = tracker.loading(lambda: torch.nn.Linear(100, 100, bias=False))
    with MemoryTracker() as unknowing:
        view = model.weight.t()
        assert unknowing.held() == Bytes(activations=40_000)
    with MemoryTracker() as tracker:
        tracker.add_model(model)
        view = model.weight.t()
        assert tracker.held() == Bytes(weights=40_000)
    assert view.shape == (100, 100)


def test_every_value_that_is_asked_for_is_true():
    tracker = MemoryTracker()
    with tracker, FakeTensorMode():
        zeros = torch.zeros(2, 3)
        assert zeros.nonzero().shape == (6, 2)
        assert bool((zeros > 0).any())
        assert zeros[0, 0].item() == 1.0
    with tracker:
        assert torch.zeros(2, 3).nonzero().shape == (0, 2)  # What is no dry run's has its own values.


def test_a_step_is_told_apart():
    """By hand: n weights of AdamW hold their gradient, two moments and, while stepping, two intermediate results."""
    with MemoryTracker() as tracker:
        model = tracker.loading(lambda: torch.nn.Linear(100, 100, bias=False))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        model(torch.zeros(1, 100)).sum().backward()
        optimizer.step()
    assert tracker.held() == Bytes(weights=40_000, gradients=40_000, optimizer=80_004)
    assert tracker.trained == 10_000
    peak = tracker.peak()
    assert (peak.weights, peak.gradients) == (40_000, 40_000)
    assert peak.optimizer == pytest.approx(160_000, rel=0.01)


class Waits(METHODS.load("gradient_ascent")):
    """Erases until a value changes, which never happens on fake tensors."""

    def erase(self, task):
        model = task.load_original()
        weight = next(model.parameters())
        while float(weight.sum()) < 2:
            weight = weight + 1
        yield ErasedModel(1, model)


class Looks(Waits):
    """Looks at values as NumPy has them."""

    def erase(self, task):
        model = task.load_original()
        next(model.parameters()).detach().numpy()
        yield ErasedModel(1, model)


@pytest.mark.parametrize(("method", "reason"), [(Waits, "NoEndError"), (Looks, "RuntimeError")])
def test_a_plugin_that_needs_values_is_not_known_and_not_refused(specs, monkeypatch, method, reason):
    known = specs()["gradient_ascent"]
    monkeypatch.setattr(memory_tracker, "MOST_OPERATIONS", 3000)
    monkeypatch.setattr(type(METHODS), "load", lambda self, name: method)
    monkeypatch.setattr(type(METHODS), "configure", lambda self, name, settings: method())
    spec = replace(known, method=method.__name__)
    assert isinstance(estimate_memory(spec), UnknownEstimate)
    assert estimate_memory(spec).reason.startswith(reason)
    assert check_fit([spec], replace(MACHINE, memory=2 << 30)).faults == []


MACHINE = Machine(cpus=2, memory=24 << 30, gpus=0, gpu_memory=0, has_bf16=False)


def refusal(spec, machine):
    faults = check_fit([spec], machine).faults
    return faults[0].reason if faults else None


def doubt(spec, machine):
    faults = check_fit([spec], machine).warnings
    return faults[0].reason if faults else None


@pytest.mark.soak
def test_a_trial_that_fits_is_not_refused(specs):
    assert all(refusal(spec, MACHINE) is None for spec in specs().values())


@pytest.mark.soak
@pytest.mark.parametrize(
    ("share", "micro_batch", "cpus", "setting"),
    [
        (300_000_000, 24, 2, "training.micro_batch: 12 makes it fit."),
        (230_000_000, 24, 2, "training.micro_batch: 6 makes it fit."),
        (150_000_000, 6, 2, "resources.cpus: 2 makes it fit."),
        (
            150_000_000,
            6,
            1,
            "no setting makes it fit this machine. Use a smaller model, or a machine with 204 MB for each trial.",
        ),
    ],
)
def test_a_trial_that_cannot_fit_is_refused_with_the_setting_that_makes_it_fit(
    specs, share, micro_batch, cpus, setting
):
    changes = ["training.global_batch=24", f"training.micro_batch={micro_batch}"]
    spec = specs(*changes)["kl_divergence"]
    machine = replace(MACHINE, cpus=cpus, memory=cpus * (share + PROCESS_BYTES))
    assert share_of(machine, spec) == share
    reason = refusal(spec, machine)
    assert reason.endswith(setting)
    assert re.match(r"needs \d+ MB while (erasing|measuring) \(weights \d+ MB, .*\), and has \d+ MB: ", reason)
    if "micro_batch" in setting:
        size = int(re.search(r"micro_batch: (\d+)", reason)[1])
        assert refusal(replace(spec, training=replace(spec.training, micro_batch=size)), machine) is None
        assert refusal(replace(spec, training=replace(spec.training, micro_batch=2 * size)), machine) is not None
    if "cpus" in setting:
        assert refusal(replace(spec, cpus=2), machine) is None


@pytest.fixture
def wide(tmp_path):
    """A model of 1.6 billion weights, of which there is the configuration only."""
    GPTNeoConfig(
        vocab_size=1024,
        hidden_size=8192,
        num_layers=2,
        num_heads=16,
        attention_types=[[["global", "local"], 1]],
        max_position_embeddings=256,
    ).save_pretrained(tmp_path / "wide")
    return Checkpoint("wide", str(tmp_path / "wide"), str(tmp_path / "wide"), "0" * 64)


@pytest.mark.soak
def test_a_gpu_that_is_told_to_be_too_small_is_doubted_with_what_would_help_and_not_refused(specs, wide):
    spec = replace(specs("training.precision=bf16")["kl_divergence"], model=wide, gpus=1.0)
    machine = replace(MACHINE, cpus=16, gpus=4, gpu_memory=80 << 30, has_bf16=True, memory=512 << 30)
    need = estimate_memory(spec).most
    assert need.total > 20 * 1.6e9, "two models, gradients and two moments: 20 bytes a weight"
    assert doubt(spec, machine) is None
    small = replace(machine, gpu_memory=35_000_000_000)
    assert refusal(spec, small) is None
    assert doubt(spec, small).endswith("engine: {deepspeed: {zero_stage: 2, workers: 4}} makes it fit.")
    partitioned_spec = replace(spec, engine=Engine(name="deepspeed", zero_stage=2, workers=4))
    assert doubt(partitioned_spec, small) is None
    quarter = replace(spec, gpus=0.25)
    assert doubt(quarter, replace(machine, gpu_memory=100_000_000_000)).endswith("resources.gpus: 0.5 makes it fit.")
    on_cpu = replace(spec, gpus=0.0, cpus=16)
    assert refusal(on_cpu, replace(machine, memory=20 << 30)) is not None
    assert doubt(on_cpu, replace(machine, memory=20 << 30)) is None


@pytest.mark.soak
def test_adapters_on_a_gpu_are_sized(specs):
    spec = specs("methods={gradient_ascent: {epochs: 1}}", "training.lora={rank: 4}")["gradient_ascent"]
    on_cpu, on_gpu = (estimate_memory(replace(spec, gpus=gpus)) for gpus in (0.0, 1.0))
    assert isinstance(on_gpu, MemoryEstimate), on_gpu
    assert on_gpu.trained == on_cpu.trained > 0
    assert on_gpu.measuring.optimizer == 0 < on_cpu.measuring.optimizer, "a GPU's moments wait in the machine's memory"


@pytest.mark.soak
def test_what_waits_in_the_machines_memory_beside_a_gpu_is_counted(specs, wide):
    plain = replace(specs("training.precision=bf16")["gradient_ascent"], model=wide, gpus=1.0, strengths=(1, 2))
    offloaded = replace(plain, engine=Engine(name="deepspeed", zero_stage=2, offload=True))
    machine = replace(MACHINE, cpus=16, gpus=1, gpu_memory=80 << 30, has_bf16=True, memory=17 << 30)
    weights = estimate_memory(plain).trained
    assert estimate_memory(plain).host == pytest.approx(12 * weights, rel=0.05), "read there, and two moments wait"
    assert estimate_memory(offloaded).host == pytest.approx(20 * weights, rel=0.05)
    assert estimate_memory(replace(offloaded, gpus=0.0)).host == 0, "of a CPU it is the device"
    judged = replace(plain, judges={"perplexity": wide})
    assert estimate_memory(judged).host == pytest.approx(16 * weights, rel=0.05), "a judge that is too large to stay"
    said = doubt(offloaded, machine)
    assert re.search(r"needs 3\d\.\d GB of the machine's memory .*, and has 17\.2 GB: run it without offload", said)
    assert doubt(offloaded, replace(machine, memory=64 << 30)) is None
    halved = replace(plain, gpus=0.5)
    assert doubt(halved, replace(machine, memory=36 << 30, gpu_memory=200 << 30)) is not None, "two side by side"
    assert doubt(halved, replace(machine, memory=48 << 30, gpu_memory=200 << 30)) is None


def test_cudas_context_is_no_trials(specs):
    spec = replace(specs()["gradient_ascent"], gpus=0.5)
    machine = replace(MACHINE, gpus=1, gpu_memory=8 << 30)
    assert share_of(machine, spec) == (4 << 30) - (600 << 20)


def test_what_a_machine_has_not_is_said(specs):
    spec = specs("training.precision=bf16")["gradient_ascent"]
    gpu = replace(MACHINE, gpus=1, gpu_memory=80 << 30, has_bf16=True)
    assert refusal(replace(spec, gpus=1.0), gpu) is None
    assert refusal(replace(spec, gpus=1.0), replace(gpu, has_bf16=False)) == (
        "computes in bf16, which this machine's GPU does not: set training.precision to fp32."
    )
    in_fp32 = replace(spec, gpus=1.0, training=replace(spec.training, precision="fp32"))
    assert refusal(in_fp32, replace(gpu, has_bf16=False)) is None
    assert refusal(replace(spec, gpus=1.0), MACHINE).startswith("needs 1 GPU (resources.gpus), and this machine has no")
    two = replace(spec, gpus=1.0, engine=Engine(name="deepspeed", zero_stage=2, workers=2))
    assert refusal(two, gpu).startswith("needs 2 GPUs (resources.gpus), and this machine has 1")
    assert refusal(replace(spec, cpus=8), MACHINE) == "needs 8 CPUs (resources.cpus), and this machine has 2."


def test_a_sweep_for_gpus_is_not_sized_before_it_is_refused_where_there_are_none(specs):
    spec = specs()["gradient_ascent"]
    tight = replace(MACHINE, memory=2 * PROCESS_BYTES + 60_000_000)
    assert large([spec], tight) == [spec]
    assert large([spec], MACHINE) == []
    assert large([replace(spec, gpus=1.0)], tight) == []
    assert large([spec], None) == []


def test_this_machine_has_what_the_system_says(monkeypatch):
    machine = this_machine()
    assert machine.cpus == os.cpu_count()
    assert 0 < machine.memory <= psutil.virtual_memory().total
    assert machine.gpus == torch.cuda.device_count()
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere:6379")
    assert this_machine() is None


@pytest.mark.soak
def test_a_warning_is_shown_by_the_plan_and_before_a_run(specs, tmp_path, monkeypatch, capsys):
    specs()
    file = tmp_path / "sizes.yaml"
    file.write_text(file.read_text() + "resources: {gpus: 1}\n")
    results = ["--results", str(tmp_path / "results"), "--executor", "inline"]
    command = [str(file), *results, "--only", "method=gradient_ascent", "--set", "models=[miniature-s]"]
    small = replace(MACHINE, gpus=1, gpu_memory=30_000_000, has_bf16=True)
    monkeypatch.setattr("harness.sizing.machine.this_machine", lambda: small)
    assert main([*command, "--plan"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "No such figure has been measured on a GPU yet, so nothing is refused" in shown
    assert "original on miniature-s and 3 more needs " in shown, "gradient ascent, its state parked, needs no more"
    large_enough = replace(small, gpu_memory=80 << 30)
    monkeypatch.setattr("harness.sizing.machine.this_machine", lambda: large_enough)
    assert main([*command, "--plan"]) == 0
    assert "Warning" not in capsys.readouterr().out


def test_the_plan_shows_needs_and_refuses_before_anything_starts(specs, tmp_path, monkeypatch, capsys):
    specs()
    command = [str(tmp_path / "sizes.yaml"), "--results", str(tmp_path / "results"), "--only", "method=gradient_ascent"]
    assert main([*command, "--plan"]) == 0
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("gradient_ascent "))
    assert re.search(r"miniature-m +4 MB +8 MB .* 93 MB +200 MB +measuring +[\d.]+ GB$", row), row

    small = Machine(cpus=1, memory=PROCESS_BYTES + 10_000_000, gpus=0, gpu_memory=0, has_bf16=False)
    monkeypatch.setattr("harness.sizing.machine.this_machine", lambda: small)
    for arguments in ([*command, "--plan"], command):
        assert main(arguments) == 2
        printed = capsys.readouterr().err
        assert "gradient_ascent on miniature-m      needs 200 MB while measuring" in printed
        assert "original on miniature-m and 2 more  needs 192 MB while measuring" in printed
    assert not (tmp_path / "results" / "sizes" / "table.csv").exists()
