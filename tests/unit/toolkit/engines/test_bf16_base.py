"""LoRA with a bf16 base: adapters as beside weights rounded by hand, merged into the fp32 ones to the last bit."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from harness.contracts import Checkpoint, LoRA, Training
from harness.errors import TrialError
from harness.models.adapters import LowRankAdapters, add_adapter, is_all_of, merged_adapter, read_adapter, save_adapter
from harness.plugins import METHODS
from harness.specs import Engine
from harness.toolkit.engines.bf16_base import AdaptersOnBf16
from harness.toolkit.finetune import train, train_and_yield
from harness.toolkit.losses import nll_loss, token_kl

ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "vocab_size": 60}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
ON_FP32 = LoRA(rank=2)
ON_BF16 = LoRA(rank=2, base="bf16")
TRAINING = Training(learning_rate=1e-2, global_batch=4, micro_batch=2, early_stop=None, lora=ON_BF16)


def gpt_neo():
    attention = [[["global", "local"], 1]]
    return GPTNeoForCausalLM(
        GPTNeoConfig(hidden_size=16, num_layers=2, num_heads=2, attention_types=attention, window_size=4, **ENDS)
    )


def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, **ENDS))


def llama():
    return LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=24, attention_bias=True, **HEADS, **ENDS))


def gemma2():
    return Gemma2ForCausalLM(Gemma2Config(hidden_size=16, intermediate_size=24, head_dim=4, **HEADS, **ENDS))


@pytest.fixture(params=[gpt_neo, gpt2, llama, gemma2], ids=lambda make: make.__name__)
def make(request):
    """Return a maker of one tiny model: of matrices either way round, biases, tied embeddings, scaled ones."""

    def made():
        torch.manual_seed(3)
        return request.param().eval()

    return made


@dataclass
class Task:
    forget: object
    training: Training = TRAINING
    strengths: tuple = (1, 2)
    seed: int = 0
    retain: object = None
    engine: Engine = field(default_factory=Engine)
    load_original: object = None

    def validation_perplexity(self, model):
        return float("nan")

    def progress(self, message):
        pass


@pytest.fixture
def forget(make_sequences):
    generator = torch.Generator().manual_seed(1)
    return make_sequences([torch.randint(1, 60, (9,), generator=generator).tolist() for _ in range(6)])


def rounded_by_hand(model):
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.to(torch.bfloat16))
    return model


def weights(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def equal(ours, theirs):
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def erased(model, task):
    """Return the first loss, and the trained updates and weights at each strength."""
    first, updates, made = None, {}, {}
    for epoch in train(task, model, nll_loss, 2):
        first = epoch.notes.get("loss_first", first) if epoch.number == 1 else first
        updates[epoch.number] = merged_adapter(model) and dict(merged_adapter(model).updates)
        made[epoch.number] = weights(model)
    return first, updates, made


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_adapters_train_as_beside_weights_rounded_by_hand(make, forget, precision, is_checkpointed):
    training = replace(TRAINING, precision=precision, activation_checkpointing=is_checkpointed)
    task = Task(forget, training)
    by_hand = Task(forget, replace(training, lora=ON_FP32))
    loss, updates, _ = erased(make(), task)
    expected_loss, expected, _ = erased(rounded_by_hand(make()), by_hand)
    assert loss == expected_loss
    for name, (inner, outer) in expected[2].items():
        assert torch.equal(updates[2][name][0], inner)
        assert torch.equal(updates[2][name][1], outer)
        assert bool(outer.any())
        assert inner.dtype == updates[2][name][0].dtype == torch.float32
    unrounded_loss, unrounded, _ = erased(make(), by_hand)
    assert unrounded_loss != loss
    assert not all(torch.equal(updates[2][name][1], outer) for name, (_, outer) in unrounded[2].items())


def test_what_is_measured_is_the_fp32_weights_plus_the_update(make, forget, tmp_path):
    model = make()
    for point in train_and_yield(Task(forget), model, nll_loss):
        adapter = merged_adapter(point.model)
        assert is_all_of(adapter, point.model, make()), "to the bit: a kept patch makes the same model"
        assert equal(weights(point.model), weights(add_adapter(make(), adapter)))
        assert not is_all_of(adapter, point.model, rounded_by_hand(make()))
        assert {weight.dtype for weight in point.model.parameters()} == {torch.float32}
    save_adapter(adapter, Checkpoint("original", "/m", "/m", "0" * 16), tmp_path)
    read = read_adapter(tmp_path, "0" * 16)
    assert read.lora == ON_BF16
    assert equal(weights(add_adapter(make(), read)), weights(model))


def test_measuring_disturbs_no_training(make, forget):
    def at_two(strengths):
        return [weights(point.model) for point in train_and_yield(Task(forget, strengths=strengths), make(), nll_loss)][
            -1
        ]

    assert equal(at_two((2,)), at_two((0.5, 1, 1.5, 2)))


def test_rounded_weights_are_held_while_adapters_train_alone(make):
    model = make()
    adapters = AdaptersOnBf16(model, LowRankAdapters(model, ON_BF16, seed=0))
    frozen = [weight for name, weight in adapters.model.named_parameters() if ".lora_" not in name]
    assert {weight.dtype for weight in frozen} == {torch.bfloat16}
    assert not any(weight.requires_grad for weight in frozen)
    count = sum(weight.numel() for weight in model.parameters())

    def held():
        return sum(weight.numel() for weight in frozen)

    assert held() == 0
    adapters.unmerge()
    assert held() == count, "tied weights once"
    adapters.merge()
    assert held() == 0
    adapters.close()
    assert equal(weights(model), weights(make())), "B is 0"


def test_no_fp32_copy_of_a_matrix_waits_for_the_backward_pass(make):
    model = make()
    adapters = AdaptersOnBf16(model, LowRankAdapters(model, ON_BF16, seed=0))
    adapters.unmerge()
    matrices = {weight.shape for name, weight in model.named_parameters() if weight.dim() == 2}
    matrices |= {shape[::-1] for shape in matrices}

    def kept(model):
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor
        ):
            model(input_ids=torch.arange(1, 10).expand(3, -1)).logits.sum()
        return {tensor.dtype for tensor in saved if tensor.shape in matrices and tensor.shape[0] > 2}

    assert kept(adapters.model) == {torch.bfloat16}


def test_a_training_that_ends_in_the_middle_leaves_the_model_as_it_was(make, forget):
    calls = []

    def failing(model, forget, retain):
        calls.append(1)
        return nll_loss(model, forget, retain) * (float("nan") if len(calls) == 3 else 1.0)

    model = make()
    with pytest.raises(TrialError, match="the loss is nan"):
        list(train(Task(forget), model, failing, 2))
    assert equal(weights(model), weights(make()))


@pytest.mark.parametrize("make", [gpt_neo, llama], ids=lambda make: make.__name__, indirect=True)
@pytest.mark.parametrize("name", ["kl_divergence", "npo_sam"])
def test_a_methods_adapters_are_those_beside_a_model_rounded_by_hand(make, forget, name):
    """KL has a teacher, and NPO+SAM moves the adapters for a moment."""

    def trained(lora, load):
        models = iter([load(), load()])
        training = replace(TRAINING, lora=lora)
        task = Task(forget, training, retain=forget, load_original=lambda: next(models))
        *_, point = METHODS.configure(name, {"epochs": 2}).erase(task)
        return point.model

    model = trained(ON_BF16, make)
    adapter = merged_adapter(model)
    assert is_all_of(adapter, model, make())
    expected = merged_adapter(trained(ON_FP32, lambda: rounded_by_hand(make())))
    for module, (inner, outer) in expected.updates.items():
        assert torch.equal(adapter.updates[module][0], inner)
        assert torch.equal(adapter.updates[module][1], outer)
        assert bool(outer.any())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_imagining_nothing_leaves_every_weight_as_it_was(make, forget, precision):
    """At γ = 0 the teacher is what training starts from: the gradient is 0 to the last bit, of a rounded base too."""

    def imagined(gamma):
        training = replace(TRAINING, lora=ON_BF16, precision=precision)
        [point] = METHODS.configure("deliberate_imagination", {"gamma": gamma, "epochs": 2}).erase(
            Task(forget, training, load_original=make)
        )
        return point.model

    off = imagined(0.0)
    assert not any(bool(outer.any()) for _, outer in merged_adapter(off).updates.values())
    assert equal(weights(off), weights(make()))
    on = imagined(3.0)
    assert any(bool(outer.any()) for _, outer in merged_adapter(on).updates.values())
    assert not equal(weights(on), weights(make()))


def test_a_first_step_starts_at_its_reference(make, forget):
    """KL's divergence from the original is 0 to the last bit, until a step is taken."""
    divergences, original = [], make()

    def divergence(model, forget, retain):
        with torch.no_grad():
            reference = forget.logits(original)
        divergences.append(float(token_kl(reference, forget.logits(model)).detach().abs().max()))
        return -nll_loss(model, forget, retain)

    list(train(Task(forget), make(), divergence, 1, frozen=[original]))
    assert divergences[:2] == [0.0, 0.0], "two micro-batches"
    assert divergences[2] > 0
    assert equal(weights(original), weights(rounded_by_hand(make())))
    untouched = make()
    list(train(Task(forget, replace(TRAINING, lora=ON_FP32)), make(), nll_loss, 1, frozen=[untouched]))
    assert equal(weights(untouched), weights(make()))


def test_what_trained_beside_references_in_fp32_has_another_identity():
    assert "references" not in replace(TRAINING, lora=ON_FP32).identity()["lora"]
    assert TRAINING.identity()["lora"] == {**ON_BF16.plain(), "references": "bf16"}
    assert TRAINING.plain()["lora"] == ON_BF16.plain()


def test_deepspeed_refuses_it_in_one_sentence(make, forget):
    engine = Engine(name="deepspeed", zero_stage=2)
    assert engine.refuses(replace(TRAINING, lora=ON_FP32)) is None
    assert engine.refuses(replace(TRAINING, lora=None)) is None
    with pytest.raises(TrialError, match=r"base: bf16 needs engine: torch"):
        list(train(Task(forget, engine=engine), make(), nll_loss, 1))
