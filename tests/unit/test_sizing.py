"""What a trial needs, told without running it, against torch's own accounting of a run."""

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from harness.contracts import ErasedModel, Training
from harness.execution import judges, memorized, tasks, trial
from harness.execution.jobs import Folders, Job
from harness.execution.memorized import build_memorized
from harness.execution.tasks import ErasingTask, data_of, forget_of
from harness.models.loading import load_model
from harness.planning.plan import plan
from harness.planning.sizing import meter as sizing_meter
from harness.planning.sizing.deepspeed import partitioned
from harness.planning.sizing.erasing import rehearse, rehearse_memorizing
from harness.planning.sizing.fit import sized, unfit
from harness.planning.sizing.machine import Machine
from harness.planning.sizing.meter import Bytes, Meter
from harness.planning.sizing.need import Need, Unknown, need_of
from harness.plugins import METHODS
from harness.records.artifacts import Artifacts
from harness.specs import Engine
from harness.toolkit.engines import engine_for
from harness.toolkit.finetune import cut
from harness.toolkit.losses import recite

METHOD_NAMES = [
    "emso",
    "task_arithmetic",
    "contrastive_decoding",
    "gradient_difference",
    "kl_divergence",
    "gradient_ascent",
    "deliberate_imagination",
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


@pytest.fixture
def measured(monkeypatch):
    """Return a measurer: the most bytes that torch says tensors held while a function ran."""

    kept = []

    def counted(checkpoint):
        # Some weights are allocated in transformers' own threads, which are not counted: a copy is. What is
        # allocated elsewhere must not be freed here either, or that is counted.
        with ThreadPoolExecutor(1) as elsewhere:
            kept.append(elsewhere.submit(load_model, checkpoint).result())
        return copy.deepcopy(kept[-1])

    for room in (tasks, trial, memorized):
        monkeypatch.setattr(room, "load_model", counted)

    def run(work):
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            work()
        events = [each for each in profiler.profiler.kineto_results.events() if each.name() == "[memory]"]
        now = most = 0
        for event in sorted(events, key=lambda each: each.start_ns()):
            now += event.nbytes()
            most = max(most, now)
        return most

    return run


def erase(spec, artifacts):
    task = ErasingTask(spec, artifacts, spec.strengths, lambda message: None)
    settings = {**spec.settings, spec.strength_name: spec.strengths[-1]}
    for _ in METHODS.configure(spec.method, settings).erase(task):
        pass


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_erasing_is_told_to_within_a_twentieth(specs, measured, tmp_path, method, precision):
    spec = specs(f"training.precision={precision}")[method]
    artifacts = Artifacts(tmp_path / "artifacts")
    if spec.reference == "memorized_model":
        original, forget = load_model(spec.model), data_of(spec, forget_of, spec.forget)
        trained = measured(lambda: build_memorized(spec, artifacts, original, forget, lambda message: None))
        weights = sum(4 * weight.numel() for weight in original.parameters())
        # It ends with a greedy pass for the gate, whose caches are the measuring's.
        assert rehearse_memorizing(spec).peak.total == pytest.approx(trained + weights, rel=0.1)
    found = rehearse(spec)
    assert found.peak.total == pytest.approx(measured(lambda: erase(spec, artifacts)), rel=0.05)


def run_whole(spec, folder):
    judges.JUDGES.__init__()
    folders = Folders(results=folder / "results", artifacts=folder / "artifacts")
    if spec.reference == "memorized_model":
        trial.memorize(Job(name="memorize", kind="memorize", spec=spec), folders, lambda event: None)
    trial.run_trial(Job(name="trial", kind="trial", spec=spec), folders, lambda event: None)


@pytest.mark.parametrize("method", ["original", *METHOD_NAMES])
def test_a_whole_trial_is_told_to_within_a_fifth(specs, measured, tmp_path, method):
    spec = specs()[method]
    need = need_of(spec)
    assert isinstance(need, Need), need
    assert need.most.total == pytest.approx(measured(lambda: run_whole(spec, tmp_path)), rel=0.2)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_deepspeeds_buffers_are_told_to_within_a_twentieth(measured, make_model, make_sequences, stage, precision):
    """A model whose weights outweigh its activations: what is held is what DeepSpeed makes of the weights."""
    model = make_model(0, hidden=256, vocabulary=2000, scale=0.02)
    engine = Engine(name="deepspeed", zero_stage=stage)
    training = Training(precision=precision, global_batch=2, micro_batch=1)
    batch = cut(make_sequences([[1, 2, 3]] * 2), torch.arange(2), training, torch.device("cpu"))
    count = sum(weight.numel() for weight in model.parameters())

    def two_steps():
        training_engine = engine_for(engine, copy.deepcopy(model), training)
        for _ in range(2):
            for part in batch:
                training_engine.backward(recite(training_engine.model, part, part))
            training_engine.step()
        training_engine.gather()
        training_engine.close()

    parts = partitioned(count, precision, engine, on_gpu=False)
    buffers = sum(each.numel() * each.element_size() for each in model.buffers())
    most = max(parts.backward.total, parts.step.total) + 2 * buffers
    assert most == pytest.approx(measured(two_steps), rel=0.05)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("method", ["kl_divergence", "emso", "task_arithmetic"])
def test_a_trial_on_deepspeed_is_told_to_within_a_fifth(specs, measured, tmp_path, method):
    spec = specs("models=[{id: miniature-m, engine: deepspeed}]", "training.precision=bf16")[method]
    need = need_of(spec)
    assert isinstance(need, Need), need
    assert need.most.total == pytest.approx(measured(lambda: run_whole(spec, tmp_path)), rel=0.2)


def test_partitions_shrink_with_the_workers_and_go_from_the_device_when_offloaded():
    def step(stage, workers=1, offload=False):
        engine = Engine(name="deepspeed", zero_stage=stage, workers=workers, offload=offload)
        return partitioned(1_000_000_000, "bf16", engine, on_gpu=True).step.total / 1e9

    # By hand: plain 4, copy 2, fp32 behind 4, moments 8, gradient 4; partitioned: all but the first two.
    assert step(2) == 22
    assert step(2, workers=2) == 14
    assert step(2, offload=True) == 6
    assert step(3, workers=2) == pytest.approx(4 + 1 + (4 + 8 + 4) / 2 + 1 + 0.1)


def test_the_meter_counts_what_is_held_and_when_it_was_most():
    with Meter() as meter:
        first = torch.zeros(1000)
        second = first + 1
        view = second[:10]
        assert meter.held() == Bytes(activations=8000)
        del first
        assert meter.held() == Bytes(activations=4000)
        del second
        assert meter.held() == Bytes(activations=4000), "the view holds all of it"
        del view
        assert meter.held() == Bytes()
        torch.zeros(10)
    assert meter.peak() == Bytes(activations=8000)


def test_a_step_is_told_apart():
    """By hand: n weights of AdamW hold their gradient, two moments and, while stepping, two intermediate results."""
    with Meter() as meter:
        model = meter.loading(lambda: torch.nn.Linear(100, 100, bias=False))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        model(torch.zeros(1, 100)).sum().backward()
        optimizer.step()
    assert meter.held() == Bytes(weights=40_000, gradients=40_000, optimizer=80_004)
    assert meter.trained == 10_000
    peak = meter.peak()
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
    monkeypatch.setattr(sizing_meter, "MOST_OPERATIONS", 3000)
    monkeypatch.setattr(METHODS, "load", lambda name: method)
    monkeypatch.setattr(METHODS, "configure", lambda name, settings: method())
    spec = replace(specs()["gradient_ascent"], method=method.__name__)
    assert isinstance(need_of(spec), Unknown)
    assert need_of(spec).reason.startswith(reason)
    fit = sized([spec], MACHINE)
    assert unfit([spec], fit, replace(MACHINE, memory=2 << 30)) == []


MACHINE = Machine(cpus=2, memory=24 << 30, gpus=0, gpu_memory=0, has_bf16=False)


def refusal(spec, machine):
    faults = unfit([spec], sized([spec], machine), machine)
    return faults[0].reason if faults else None


def test_a_trial_that_fits_is_not_refused(specs):
    assert all(refusal(spec, MACHINE) is None for spec in specs().values())


@pytest.mark.parametrize(
    ("memory", "changes", "setting"),
    [
        # Half of the machine is 78 MB beside the process: a micro-batch of 24 needs more, and one of 6 does not.
        (78_000_000, ["training.micro_batch=24", "training.global_batch=24"], "training.micro_batch: 12 makes it fit"),
        (30_000_000, [], "resources.cpus: 2 makes it fit"),
        (1_000_000, [], "no setting makes it fit this machine"),
    ],
)
def test_a_trial_that_cannot_fit_is_refused_with_the_setting_that_makes_it_fit(specs, memory, changes, setting): ...
