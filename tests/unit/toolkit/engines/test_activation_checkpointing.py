"""Activation checkpointing: less memory and, in every part of training, not one bit of a difference."""

from dataclasses import dataclass, field, replace
from functools import partial

import pytest
import torch
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM

from harness.contracts import LoRA, Training
from harness.errors import TrialError
from harness.execution.fingerprint import changes, model_fingerprints
from harness.plugins import METHODS
from harness.specs import Engine
from harness.toolkit import LossTerms, WeightMasks, train
from harness.toolkit.engines import activation_checkpointing
from harness.toolkit.engines.activation_checkpointing import checkpointed_layers
from harness.toolkit.losses import mean_nll
from methods.emso import EMSO

TRAINING = Training(learning_rate=1e-3, global_batch=4, micro_batch=2, early_stop=None)
SIZES = {"hidden_size": 32, "num_layers": 2, "num_hidden_layers": 2, "num_heads": 4, "num_attention_heads": 4}
CONFIGURATIONS = {
    "gpt_neo": {**SIZES, "attention_types": [[["global", "local"], 1]], "window_size": 4},
    "llama": {**SIZES, "intermediate_size": 48, "num_key_value_heads": 2},
}


@dataclass
class Task:
    forget: object
    retain: object
    load_original: object = None
    training: Training = TRAINING
    engine: Engine = field(default_factory=Engine)
    strengths: tuple = (1,)
    seed: int = 0

    def validation_perplexity(self, model):
        return 1.0

    def progress(self, message):
        pass


@pytest.fixture
def texts(make_sequences):
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(1, 60, (length,), generator=generator).tolist() for length in (9, 12, 7, 12, 10, 8, 11, 12)]
    return make_sequences(rows[:5]), make_sequences(rows[5:])


@pytest.fixture
def passes(monkeypatch):
    """Return a list that grows by one whenever a layer runs whose activations are not kept."""
    run, checkpoint = [], activation_checkpointing.checkpoint

    def counted(*arguments, **named):
        run.append(arguments[0])
        return checkpoint(*arguments, **named)

    monkeypatch.setattr(activation_checkpointing, "checkpoint", counted)
    return run


def make(model_type):
    torch.manual_seed(0)
    ends = {"vocab_size": 60, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "initializer_range": 0.3}
    # As a checkpoint may say: in the mode of evaluation it must count for nothing.
    dropout = {"resid_dropout": 0.5, "embed_dropout": 0.5, "attention_dropout": 0.5}
    return AutoModelForCausalLM.from_config(
        AutoConfig.for_model(model_type, **CONFIGURATIONS[model_type], **ends, **dropout)
    ).eval()


def ascent(model, forget):
    return -mean_nll(model, forget)


def difference(model, forget, retain):
    return -mean_nll(model, forget) + 0.5 * mean_nll(model, retain)


def reconciled(step):
    forget, retain = step.gradient("forget"), step.gradient("retain")
    with step.moved({name: 0.01 * value for name, value in forget.items()}):
        there = step.gradient("forget")
    return {name: there[name] + retain[name] for name in there}


PARTS = {
    "all weights": (difference, lambda model: {}, {}),
    "bf16": (difference, lambda model: {}, {"precision": "bf16"}),
    "LoRA": (difference, lambda model: {}, {"lora": LoRA(rank=2)}),
    "blocks": (difference, lambda model: {"select": partial(EMSO(k=4).choose, generator=torch.Generator())}, {}),
    "a gradient": (LossTerms(ascent, mean_nll), lambda model: {"gradient": reconciled}, {}),
    "masks": (difference, lambda model: {"trains": WeightMasks(model, matrices(model), dropped=0.2, seed=0)}, {}),
}


def matrices(model):
    return [name for name, _ in model.named_parameters() if name.endswith(("c_fc.weight", "up_proj.weight"))]


def trained(model_type, texts, part, engine=Engine(), **changes):  # noqa: B008 - frozen
    """Return the weights and the losses of each epoch."""
    loss, parts, settings = PARTS[part]
    model = make(model_type)
    task = Task(*texts, training=replace(TRAINING, **settings, **changes), engine=engine)
    epochs = []
    for epoch in train(task, model, loss, 2, **parts(model)):
        weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        epochs.append((weights, epoch.notes.get("loss_mean")))
    return epochs


def assert_same(plain, checkpointed):
    assert len(plain) == len(checkpointed) == 3
    for (weights, loss), (their_weights, their_loss) in zip(plain, checkpointed, strict=True):
        assert loss == their_loss
        assert all(torch.equal(weight, their_weights[name]) for name, weight in weights.items())
    assert any(not torch.equal(weight, plain[0][0][name]) for name, weight in plain[-1][0].items()), "it has trained"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("model_type", CONFIGURATIONS)
def test_every_part_of_training_gives_the_same_bits(model_type, texts, part, passes):
    plain = trained(model_type, texts, part)
    assert not passes
    assert_same(plain, trained(model_type, texts, part, activation_checkpointing=True))
    assert passes


@pytest.mark.parametrize(
    ("stage", "part"),
    [
        *((0, "all weights"), (2, "bf16"), (3, "LoRA")),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in ((0, "LoRA"), (2, "LoRA"), (3, "bf16"))),
    ],
)
def test_deepspeed_gives_the_same_bits(texts, stage, part, passes):
    engine = Engine(name="deepspeed", zero_stage=stage)
    plain = trained("gpt_neo", texts, part, engine)
    assert_same(plain, trained("gpt_neo", texts, part, engine, activation_checkpointing=True))
    assert passes


OF_NO_TRAINING = ("contrastive_decoding", "kfac_edit", "memfree", "task_arithmetic")
"""They train no more than the memorised model, which is one of `all weights`; second moments are read without it."""
OF_TEXTS = ("altpo",)
"""It writes texts of its own, with a tokenizer; the weights that it then trains are `all weights` too."""


@pytest.mark.parametrize("name", sorted({*METHODS.names()} - {*OF_NO_TRAINING, *OF_TEXTS}))
@pytest.mark.parametrize("model_type", CONFIGURATIONS)
def test_every_method_gives_the_same_bits(model_type, texts, name, passes):
    dial = METHODS.load(name).strength.field
    strength = {"epochs": 1, "erased_mass": 0.01, "dropped": 0.05}.get(dial, 3.0)
    settings = {"epochs": 1} if dial in ("gamma", "dropped") else {"threshold": 0} if name == "sga" else {}
    method = METHODS.configure(name, {dial: strength} | settings)

    def erased(**changes):
        task = Task(*texts, lambda: make(model_type), replace(TRAINING, **changes), strengths=(strength,))
        model = next(method.erase(task)).model
        return {weight_name: weight.detach().clone() for weight_name, weight in model.named_parameters()}

    plain, checkpointed = erased(), erased(activation_checkpointing=True)
    assert passes
    assert all(torch.equal(weight, checkpointed[weight_name]) for weight_name, weight in plain.items())
    original = dict(make(model_type).named_parameters())
    assert any(not torch.equal(weight, original[weight_name]) for weight_name, weight in plain.items())


def test_a_step_holds_less(make_model, make_sequences, measured):
    texts = make_sequences([list(range(1, 49))] * 4), make_sequences([list(range(1, 49))] * 4)
    model = make_model(1, layers=8, hidden=32)

    def most(**changes):
        task = Task(*texts, training=replace(TRAINING, micro_batch=4, **changes))
        return measured(lambda: list(train(task, model, difference, 1)))

    assert most(activation_checkpointing=True) < 0.5 * most()


def test_a_model_is_given_back_without_a_trace():
    model = make("gpt_neo")
    before = model_fingerprints(model)
    with checkpointed_layers(model):
        assert changes(before, model_fingerprints(model))
        with checkpointed_layers(model):
            pass
        within = model_fingerprints(model)
        assert changes(before, within), "what the inner context did not make it leaves"
    assert not changes(before, model_fingerprints(model))
    with pytest.raises(RuntimeError, match="a loss broke"), checkpointed_layers(model):
        raise RuntimeError("a loss broke")
    assert not changes(before, model_fingerprints(model))


def test_a_pass_that_fills_a_cache_keeps_what_it_computes(passes):
    model, tokens = make("llama"), torch.ones(2, 5, dtype=torch.long)

    def gradients(**settings):
        model.zero_grad()
        loss = model(input_ids=tokens, labels=tokens, **settings).loss
        loss.backward()
        return [weight.grad.clone() for weight in model.parameters()]

    plain = gradients(use_cache=True)
    with checkpointed_layers(model):
        cached = gradients(use_cache=True)
        assert not passes
        checkpointed = gradients(use_cache=False)
    assert len(passes) == 2
    assert all(map(torch.equal, plain, cached))
    assert all(map(torch.equal, plain, checkpointed))


def test_what_is_computed_again_is_computed_in_the_same_mode():
    """As the dry run's, which casts as a GPU does: a backward pass would be in none."""

    class Halving(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            return made / 2 if function is torch.nn.functional.layer_norm else made

    model, tokens = make("gpt_neo"), torch.ones(2, 5, dtype=torch.long)

    def gradients():
        model.zero_grad()
        with Halving():
            model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
        return [weight.grad.clone() for weight in model.parameters()]

    plain = gradients()
    with checkpointed_layers(model):
        assert all(map(torch.equal, plain, gradients()))


def test_a_model_without_layers_of_transformers_is_refused():
    said = "a Linear has no layers of transformers .* Set training.activation_checkpointing to false"
    with pytest.raises(TrialError, match=said), checkpointed_layers(torch.nn.Linear(2, 2)):
        pass
