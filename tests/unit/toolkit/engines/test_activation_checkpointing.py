"""Activation checkpointing: less memory and, in every part of training, not one bit of a difference."""

from functools import partial

import pytest
import torch

from harness.contracts import LoRA, Training
from harness.errors import TrialError
from harness.settings import DeepSpeed, Engine, replace
from harness.toolkit import LossTerms, WeightMasks, device, train
from harness.toolkit.device import checkpointed_layers
from harness.toolkit.losses import mean_nll
from methods.emso import EMSO
from tests.unit.families import make_tiny
from tests.unit.tasks import Task

TRAINING = Training(learning_rate=1e-3, global_batch=4, micro_batch=2, early_stop=None)
DROPOUT = {"resid_dropout": 0.5, "embed_dropout": 0.5, "attention_dropout": 0.5}
"""As a checkpoint may say: in the mode of evaluation it must count for nothing."""


@pytest.fixture
def passes(monkeypatch):
    """Return a list that grows by one whenever a layer runs whose activations are not kept."""
    run, checkpoint = [], device.checkpoint

    def counted(*arguments, **named):
        run.append(arguments[0])
        return checkpoint(*arguments, **named)

    monkeypatch.setattr(device, "checkpoint", counted)
    return run


def weights(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


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
    "a gradient": (LossTerms(ascent, mean_nll, gradient=reconciled), lambda model: {}, {}),
    "masks": (difference, lambda model: {"masks": WeightMasks(model, matrices(model), 0.2, 0, 1e-3)}, {}),
}


def matrices(model):
    return [name for name, _ in model.named_parameters() if name.endswith(("c_fc.weight", "up_proj.weight"))]


def trained(model_type, texts, part, engine=Engine(), **changes):  # noqa: B008 - frozen
    """Return the weights and the losses of each epoch."""
    loss, parts, settings = PARTS[part]
    model = make_tiny(model_type, **DROPOUT)
    task = Task(*texts, training=replace(TRAINING, **settings, **changes), engine=engine)
    epochs = []
    for epoch in train(task, model, loss, 2, **parts(model)):
        epochs.append((weights(model), epoch.notes.get("loss_mean")))
    return epochs


def assert_same(plain, checkpointed):
    assert len(plain) == len(checkpointed) == 3
    for (ours, loss), (theirs, their_loss) in zip(plain, checkpointed, strict=True):
        assert loss == their_loss
        assert all(map(torch.equal, ours.values(), theirs.values()))
    assert not all(map(torch.equal, plain[0][0].values(), plain[-1][0].values())), "it has trained"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("model_type", ["gpt_neo", pytest.param("llama", marks=pytest.mark.soak)])
def test_every_part_of_training_gives_the_same_bits(model_type, texts, part, passes):
    plain = trained(model_type, texts, part)
    assert not passes
    assert_same(plain, trained(model_type, texts, part, activation_checkpointing=True))
    assert passes


@pytest.mark.parametrize(("stage", "part"), [(0, "all weights"), (2, "bf16"), (3, "LoRA")])
def test_deepspeed_gives_the_same_bits(texts, stage, part, passes):
    engine = Engine(deepspeed=DeepSpeed(zero_stage=stage))
    plain = trained("gpt_neo", texts, part, engine)
    assert_same(plain, trained("gpt_neo", texts, part, engine, activation_checkpointing=True))
    assert passes


def test_a_model_without_layers_of_transformers_is_refused():
    said = "a Linear has no layers of transformers .* Set training.activation_checkpointing to false"
    with pytest.raises(TrialError, match=said), checkpointed_layers(torch.nn.Linear(2, 2)):
        pass
