"""Sizing by shape: what is told once, what a deep model needs of a shallow one, and what a GPU casts otherwise."""

from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from transformers import GPTNeoConfig, Qwen2MoeConfig

from harness.contracts import Checkpoint, ErasedModel, LoRA, Training
from harness.plugins import METHODS, default_reference
from harness.sizing.cuda_autocast import IN_FP32, TO_FP32, CudaAutocast
from harness.sizing.erasing_dry_run import DryRunResult, dry_run, dry_run_memorizing, run_shallow
from harness.sizing.estimate import MemoryEstimate, estimate_memory
from harness.sizing.fit_check import check_fit, gigabytes
from harness.sizing.machine import PROCESS_BYTES, Machine
from harness.sizing.memory_tracker import Bytes, MemoryTracker
from harness.sizing.size_cache import SizeCache
from harness.specs import Engine, EvaluatorSpec, Source
from harness.testing.small import small_spec


@pytest.fixture
def make_shape(tmp_path):
    """Return a maker of GPT-Neos of which there is the configuration only."""

    def make(name="shape", layers=2, hidden=32, vocabulary=100):
        GPTNeoConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            num_layers=layers,
            num_heads=2,
            attention_types=[[["global", "local"], layers // 2]],
            max_position_embeddings=64,
        ).save_pretrained(tmp_path / name)
        return Checkpoint(name, str(tmp_path / name), str(tmp_path / name), name)

    return make


@pytest.fixture
def make_trial(make_shape):
    """Return a maker of trials without judges, on texts of which there is the size only."""

    def make(method="gradient_ascent", strengths=(1,), shape=None, **changes):
        text = Source(source="miniature", rows=24, longest=24, prefix_tokens=8)
        plugin, reference = METHODS.load(method), default_reference(METHODS.load(method))
        fields = {
            "model": shape or make_shape(),
            "method": method,
            "reference": reference,
            "settings": {},
            "strength_name": plugin.strength.field,
            "strengths": strengths,
            "training": Training(global_batch=8, micro_batch=4),
            "forget": text,
            "retain": text if reference == "retain_data" else None,
            "utility": text,
            "validation": text,
            "judges": {},
        }
        return replace(small_spec(), **fields | changes)

    return make


@pytest.fixture
def dry_runs(monkeypatch):
    """Return a list that grows by one whenever something is tracked."""
    started, enter = [], MemoryTracker.__enter__

    def counted(tracker):
        started.append(tracker)
        return enter(tracker)

    monkeypatch.setattr(MemoryTracker, "__enter__", counted)
    return started


def weights_of(trial):
    model = dry_run(replace(trial, method="original", strengths=())).model
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))


def test_the_optimiser_is_gone_where_a_method_yields_after_its_loop(make_trial):
    trial = make_trial("deliberate_imagination", (3.0,))
    held = dry_run(trial).held
    assert (held.optimizer, held.gradients) == (0, 0)
    assert held.weights == 2 * weights_of(trial), "the teacher is held"
    ascent = make_trial("gradient_ascent", (1, 2))
    assert dry_run(trial).peak.optimizer == dry_run(ascent).peak.optimizer > 0, "while it trains it has one"
    memorizing, ascending = dry_run_memorizing(trial).peak, dry_run(ascent).peak
    assert memorizing.optimizer == ascending.optimizer


def test_the_optimiser_waits_while_a_trajectory_is_measured_on_its_way(make_trial):
    held = dry_run(make_trial("gradient_ascent", (1, 2, 3))).held
    assert held.optimizer == pytest.approx(2 * held.weights, rel=0.2), "and buffers, which no step changes"
    assert dry_run(make_trial("gradient_ascent", (0,))).peak.optimizer == 0, "nothing is trained"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("method", "strengths", "models"), [("original", (), 1), ("contrastive_decoding", (0.3,), 2), ("emso", (1, 2), 1)]
)
def test_an_original_is_beside_what_is_measured_only_where_an_evaluator_reads_it(make_trial, method, strengths, models):
    shape = {"method": method, "strengths": strengths, "reference": "none"} if method == "original" else {}
    trial = replace(make_trial(), **shape) if shape else make_trial(method, strengths)

    def models_with(*names):
        evaluators = tuple(EvaluatorSpec(name=name, version=1, settings={}, key=name) for name in names)
        need = estimate_memory(replace(trial, evaluators=evaluators), SizeCache())
        assert isinstance(need, MemoryEstimate), need
        return need.measuring.weights / weights_of(trial)

    assert models_with() == models
    assert models_with("memorization", "generation") == models, "it prepares what it needs of the original"
    assert models_with("memorization", "weights") == models_with("weights", "depth") == models + 1


@pytest.mark.soak
@pytest.mark.parametrize("method", ["original", "contrastive_decoding", "gradient_ascent"])
def test_an_evaluator_that_trains_a_copy_is_counted_with_it(make_trial, make_shape, method):
    shape = {"method": method, "strengths": (), "reference": "none"} if method == "original" else {}
    wide = make_shape(hidden=512)  # So that its copy is larger than any cache.
    plain = replace(make_trial(shape=wide), **shape) if shape else make_trial(method, shape=wide)

    def need(**settings):
        attack = EvaluatorSpec(name="relearning", version=1, settings=settings, key="key")
        of_trial = estimate_memory(replace(plain, evaluators=(attack,)), SizeCache())
        assert isinstance(of_trial, MemoryEstimate), of_trial
        return of_trial.measuring

    without = estimate_memory(plain, SizeCache()).measuring
    assert need().weights == without.weights + weights_of(plain), "the copy"
    assert 2 <= (need().optimizer - without.optimizer) / weights_of(plain) < 2.6, "its moments, and what a step takes"
    assert need(batch=16).total > need(batch=4).total > without.total


def test_seeds_strengths_and_rates_need_no_dry_run_of_their_own(make_trial, dry_runs):
    known, trial = SizeCache(), make_trial("task_arithmetic", (0.05,))
    need = estimate_memory(trial, known)
    runs = len(dry_runs)
    assert runs > 0
    alike = [
        replace(trial, seed=7),
        replace(trial, strengths=(0.9,)),
        replace(trial, training=replace(trial.training, learning_rate=0.1, weight_decay=0.1, early_stop=None)),
        replace(trial, variant="other", trial_id="other", forget=replace(trial.forget, digest="other")),
    ]
    assert [estimate_memory(other, known) for other in alike] == [need] * len(alike)
    assert len(dry_runs) == runs


@pytest.mark.soak
def test_what_decides_memory_is_told_apart(make_trial, dry_runs):
    known, trial = SizeCache(), make_trial("gradient_difference")
    changes = [
        {},
        {"training": replace(trial.training, micro_batch=8)},
        {"training": replace(trial.training, activation_checkpointing=True)},
        {"training": replace(trial.training, fused_gelu=True)},
        {"training": replace(trial.training, precision="bf16")},
        {"forget": replace(trial.forget, longest=48)},
        {"engine": Engine(name="deepspeed", zero_stage=2)},
        {"gpus": 1.0},
        {"strengths": (1, 2)},
        {"settings": {"retain_weight": 2.0}},
    ]
    for change in changes:
        runs = len(dry_runs)
        assert isinstance(estimate_memory(replace(trial, **change), known), MemoryEstimate)
        assert len(dry_runs) > runs, change


@pytest.mark.soak
@pytest.mark.parametrize(
    ("method", "strengths", "micro_batch", "vocabulary", "checkpointing"),
    [
        ("gradient_ascent", (1, 2), 8, 100, False),
        ("gradient_ascent", (1, 2), 8, 100, True),
        ("gradient_ascent", (1, 2), 1, 5000, False),
        ("gradient_ascent", (1, 2), 4, 5000, True),
        ("deliberate_imagination", (3.0,), 1, 100, False),
        pytest.param("emso", (1,), 8, 100, False, marks=pytest.mark.soak),
        ("emso", (1,), 1, 5000, False),
        ("contrastive_decoding", (0.3,), 8, 100, False),
    ],
)
def test_a_deep_models_memory_is_told_from_shallow_ones(
    make_trial, make_shape, method, strengths, micro_batch, vocabulary, checkpointing
):
    """Activations outweigh weights in one case, in the other the vocabulary's logits and weights all else."""
    training = Training(
        global_batch=16, micro_batch=micro_batch, precision="bf16", activation_checkpointing=checkpointing
    )
    shape = make_shape(layers=6, hidden=48, vocabulary=vocabulary)
    trial = make_trial(method, strengths, shape, training=training, gpus=1.0)
    shallow, whole = run_shallow(dry_run, trial), dry_run(trial)
    assert shallow.peak.total == pytest.approx(whole.peak.total, rel=0.01)
    assert shallow.held.total == pytest.approx(whole.held.total, rel=0.01)
    assert shallow.trained == whole.trained


@pytest.mark.parametrize(("dense", "asked"), [([0], [2, 4]), ([5], [2, 4, None])])
def test_layers_that_are_not_alike_are_run_at_the_whole_depth(make_trial, tmp_path, dense, asked):
    """A dense layer among the first is in both shallow runs; one further up is in neither."""
    Qwen2MoeConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=8,
        moe_intermediate_size=8,
        shared_expert_intermediate_size=8,
        num_hidden_layers=8,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_experts=4,
        mlp_only_layers=dense,
    ).save_pretrained(tmp_path / "moe")
    trial = make_trial(shape=Checkpoint("moe", str(tmp_path / "moe"), str(tmp_path / "moe"), f"moe{dense}"))
    layers_run = []

    def run(trial, dtype, layers):
        layers_run.append(layers)
        return DryRunResult((Bytes(weights=1),), Bytes(), None, True, 1, 0, 0)

    run_shallow(run, trial)
    assert layers_run == asked


@pytest.mark.soak
def test_a_trial_that_asks_questions_needs_what_reading_them_holds(make_trial, make_shape):
    text = Source(source="miniature", rows=4, longest=24, prefix_tokens=8)
    trial = make_trial(shape=make_shape(vocabulary=20_000), forget=text, utility=text)
    asks = EvaluatorSpec(name="reasoning", version=1, settings={}, key="0" * 16)
    plain, asking = (estimate_memory(replace(trial, evaluators=names), SizeCache()) for names in ((), (asks,)))
    assert asking.erasing == plain.erasing
    # By hand: the logits of 1,024 tokens, where four texts of 24 tokens have 96.
    assert asking.measuring.activations > 1_024 * 20_000 * 4 > plain.measuring.activations


class Distils(METHODS.load("gradient_ascent")):
    """Holds a teacher that the training loop has frozen, and its own copy of the original."""

    def erase(self, task):
        teacher, other = task.load_original().requires_grad_(False), task.load_original()
        for erased in super().erase(task):
            yield ErasedModel(erased.strength, erased.model, {"others": len([teacher, other])})


def test_fused_activations_hold_less_while_erasing(make_trial, make_shape):
    training = Training(global_batch=16, micro_batch=16)
    trial = make_trial("gradient_ascent", (1, 2), make_shape(hidden=256), training=training)
    plain, fused = (
        estimate_memory(replace(trial, training=replace(trial.training, fused_gelu=on)), SizeCache())
        for on in (False, True)
    )
    # By hand: of the four tensors less, as wide as the MLP, one more is there while it is computed.
    of_mlp = 16 * 23 * 4 * 256 * 4 * 2  # Texts, tokens, four times the width, bytes, layers.
    assert 3 * of_mlp <= plain.erasing.activations - fused.erasing.activations <= 4 * of_mlp
    assert plain.measuring == fused.measuring


def test_on_a_gpu_the_moments_are_aside_while_a_model_is_measured(make_trial):
    trial = make_trial("gradient_ascent", (1, 2))
    on_cpu, on_gpu = estimate_memory(trial, SizeCache()), estimate_memory(replace(trial, gpus=1.0), SizeCache())
    assert on_cpu.measuring.optimizer == on_cpu.erasing.optimizer == on_gpu.erasing.optimizer > 0
    assert on_gpu.measuring.optimizer == 0
    assert on_gpu.measuring.weights == weights_of(trial)


def test_on_a_gpu_deepspeeds_own_is_aside_while_measuring_and_the_plain_model_while_it_trains(make_trial, monkeypatch):
    engine = Engine(name="deepspeed", zero_stage=2)
    training = Training(global_batch=8, micro_batch=1, precision="bf16")
    trial = make_trial("gradient_ascent", (1, 2), engine=engine, gpus=1.0, training=training)
    weights = weights_of(trial) / 4
    need = estimate_memory(trial, SizeCache())
    assert need.measuring.weights == pytest.approx(4 * weights, rel=0.1), "by hand: fp32"
    assert need.measuring.optimizer == 0
    on_cpu = estimate_memory(replace(trial, gpus=0.0), SizeCache())
    assert on_cpu.measuring.weights + on_cpu.measuring.optimizer == pytest.approx(18 * weights, rel=0.1)

    monkeypatch.setattr(type(METHODS), "load", lambda self, name: Distils)
    monkeypatch.setattr(type(METHODS), "configure", lambda self, name, settings: Distils(epochs=2))
    distilled = estimate_memory(replace(trial, method="distils"), SizeCache())
    more = distilled.measuring.weights - need.measuring.weights
    assert more == pytest.approx((2 + 4) * weights, rel=0.1), "a frozen teacher in bf16, another model in fp32"


def called(name, device):
    """Return the type of what an operation makes of bf16 under autocast, on a device's fake tensors."""
    with FakeTensorMode():
        x = torch.ones(4, 4, dtype=torch.bfloat16, device=device)
        target = torch.ones(4, 4, device=device)
        calls = {
            "layer_norm": lambda: functional.layer_norm(x, (4,)),
            "group_norm": lambda: functional.group_norm(x, 2),
            "pow": lambda: torch.pow(x, 3.0),
            "__pow__": lambda: x**2,
            "__rpow__": lambda: 2.0**x,
            "__rdiv__": lambda: 1.0 / x,
            "softmax": lambda: functional.softmax(x, dim=-1),
            "log_softmax": lambda: x.log_softmax(-1),
            "cumsum": lambda: x.cumsum(0),
            "sum": lambda: x.sum(),
            "norm": lambda: x.norm(),
            "cosine_similarity": lambda: functional.cosine_similarity(x, x),
            "mse_loss": lambda: functional.mse_loss(x, target),
            "softmax of a type": lambda: functional.softmax(x, dim=-1, dtype=torch.bfloat16),
            "sum of integers": lambda: torch.ones(4, dtype=torch.long, device=device).sum(),
            "linear": lambda: functional.linear(target, target),
            "matmul": lambda: target @ target,
            "cat": lambda: torch.cat([x, target]),
        }
        others = ("exp", "log", "rsqrt", "reciprocal", "tanh", "sqrt", "mean", "relu", "sigmoid", "prod")
        calls |= {name: lambda name=name: getattr(torch, name)(x) for name in others}
        calls |= {name: lambda name=name: getattr(functional, name)(x) for name in ("gelu", "silu", "softplus")}
        return calls[name]().dtype


@pytest.mark.parametrize(
    "name",
    [
        "layer_norm",
        "group_norm",
        "pow",
        "__pow__",
        "__rpow__",
        "__rdiv__",
        "softmax",
        "log_softmax",
        "cumsum",
        "sum",
        "norm",
        "cosine_similarity",
        "mse_loss",
        "linear",
        "matmul",
        "cat",
        "exp",
        "log",
        "rsqrt",
        "reciprocal",
        "tanh",
        "sqrt",
        "mean",
        "relu",
        "sigmoid",
        "prod",
        "gelu",
        "silu",
        "softplus",
        "softmax of a type",
        "sum of integers",
    ],
)
def test_cudas_casts_are_torchs_own(name):
    types = []
    for device, casts in (("cuda", torch.no_grad()), ("cpu", CudaAutocast())):
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, torch.bfloat16)
        try:
            with torch.no_grad(), casts:
                types.append(called(name, device))
        finally:
            torch.set_autocast_enabled(device, False)
            torch.clear_autocast_cache()
    assert types[0] == types[1]
    with CudaAutocast():
        in_mode = called(name, "cpu")
    assert in_mode == called(name, "cpu"), "without autocast nothing is cast"


def test_every_cast_that_is_written_down_is_one_of_torchs():
    assert not IN_FP32 & TO_FP32
    known = {
        name.removeprefix("aten::").partition(".")[0]
        for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    }
    composed = {"cross_entropy", "softmin"}
    named = {name for name in IN_FP32 | TO_FP32 if not name.startswith("__")} - composed
    assert named - {name.removeprefix("_") for name in known} == set()


def test_a_gpu_holds_more_in_bf16_than_a_cpu_and_as_much_in_fp32(make_trial):
    def activations(precision, gpus):
        training = Training(global_batch=8, micro_batch=8, precision=precision)
        trial = make_trial(training=training, gpus=gpus)
        validation = replace(trial.validation, rows=1)  # It is read in fp32 everywhere, and would hide the training.
        return dry_run(replace(trial, validation=validation)).peak.activations

    assert activations("fp32", 1.0) == activations("fp32", 0.0)
    assert activations("bf16", 1.0) > 1.1 * activations("bf16", 0.0)


@pytest.mark.soak
def test_what_no_setting_makes_fit_is_told_what_less_would(make_shape, make_trial):
    trial = replace(make_trial(shape=make_shape(hidden=512, layers=8, vocabulary=20_000)), evaluators=())
    adapted = replace(trial, training=replace(trial.training, micro_batch=1, lora=LoRA(rank=8)))
    whole, less = (estimate_memory(spec, SizeCache()).most.total for spec in (trial, adapted))
    assert less < 0.8 * whole

    def refusal(share):
        machine = Machine(cpus=1, memory=share + PROCESS_BYTES, gpus=0, gpu_memory=0, has_bf16=False)
        [fault] = check_fit([trial], machine).faults
        return fault.reason

    words = "training.lora: {rank: 8} with training.micro_batch: 1 makes it fit, and changes the numbers."
    assert refusal(less + 1000).endswith(words)
    smaller = f"Use a smaller model, or a machine with {gigabytes(whole)} for each trial."
    assert refusal(less // 2).endswith(smaller)


@pytest.mark.soak
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_the_fp32_weights_are_away_while_adapters_train_beside_a_bf16_base(make_shape, make_trial, precision):
    deep = make_shape(hidden=256, layers=6, vocabulary=50)
    training = Training(global_batch=1, micro_batch=1, precision=precision, lora=LoRA(rank=2))
    plain = make_trial(strengths=(1, 2), shape=deep, training=training, gpus=1.0)
    rounded = replace(plain, training=replace(training, lora=LoRA(rank=2, base="bf16")))
    weights, needs = weights_of(plain), [dry_run(trial) for trial in (plain, rounded)]
    assert {need.held.weights for need in needs} == {needs[0].held.weights}, "the fp32 weights are back while measured"
    assert max(need.held.activations for need in needs) < weights, "the matrices without their updates wait elsewhere"
    stepped = [
        max((moment for moment in need.moments if moment.gradients), key=lambda moment: moment.total) for need in needs
    ]
    assert stepped[0].weights - stepped[1].weights == pytest.approx(weights / 2, rel=0.05)
    if precision == "bf16":
        saved = stepped[0].activations - stepped[1].activations
        assert saved == pytest.approx(weights / 2, rel=0.15), "copies that autocast makes of fp32 matrices"
    shallow = [run_shallow(dry_run, trial).peak.total for trial in (plain, rounded)]
    assert shallow == [pytest.approx(need.peak.total, rel=0.01) for need in needs]
