"""The DeepSpeed engine against the plain one: the same losses and weights, and each known trap."""

import pytest
import torch

from harness.contracts import LoRA, Training
from harness.settings import DeepSpeed, Engine, replace
from harness.toolkit.finetune import train, train_and_yield
from harness.toolkit.losses import nll_loss as loss
from tests.contract.test_golden import erase_small
from tests.unit import tasks

TRAINING = Training(learning_rate=1e-3, global_batch=4, micro_batch=2, early_stop=None)
STAGES = [Engine(deepspeed=DeepSpeed(zero_stage=stage)) for stage in (0, 1, 2, 3)]


def Task(forget, engine, training=TRAINING, strengths=(1, 2)):
    """Return a task on five sequences in global batches of four, in parts of two: the last of both are partial."""
    return tasks.Task(forget, training=training, strengths=strengths, engine=engine)


def run(make_model, task):
    """Return each epoch's weights and notes."""
    return [(tasks.weights(one.model), one.notes) for one in train_and_yield(task, make_model(1, layers=2), loss)]


@pytest.mark.parametrize("stage", [0, 3])
def test_a_stop_within_an_epoch_is_the_plain_engines_and_changes_nothing_later(make_model, forget, stage):
    divided = Task(forget, STAGES[stage], strengths=(1.5, 2))
    plain, ours = run(make_model, replace(divided, engine=Engine())), run(make_model, divided)
    assert torch.equal(ours[1][0], run(make_model, Task(forget, STAGES[stage], strengths=(2,)))[0][0])
    for (weights, notes), (their_weights, their_notes) in zip(plain, ours, strict=True):
        assert torch.allclose(weights, their_weights, atol=1e-5)
        assert notes["optimizer_steps"] == their_notes["optimizer_steps"]


def test_adapters_in_bf16_are_merged_into_fp32_weights(make_model, forget):
    """The model around them is rounded while it trains, and not what is measured."""
    adapted = replace(TRAINING, lora=LoRA(rank=2), precision="bf16")
    *_, (weights, notes) = run(make_model, Task(forget, STAGES[2], adapted))
    before = make_model(1, layers=2)
    embeddings = before.get_input_embeddings().weight.flatten()
    assert notes["precision"] == "bf16 weights"
    assert torch.equal(weights[: len(embeddings)], embeddings)
    whole = tasks.weights(before)
    assert 0 < float((weights - whole).abs().max()) < 0.05


@pytest.mark.parametrize("stage", [1, 3])
def test_the_optimisers_state_in_the_cpus_memory_changes_nothing(make_model, forget, stage):
    """Not a bit of what ZeRO computes without, whose numbers are the plain engine's: tests/promises/test_engines.py."""
    offload = Engine(deepspeed=DeepSpeed(zero_stage=stage, offload=True))
    ours, kept = run(make_model, Task(forget, offload)), run(make_model, Task(forget, STAGES[stage]))
    assert len(ours) == len(kept) == 2
    for (weights, notes), (their_weights, their_notes) in zip(ours, kept, strict=True):
        assert torch.equal(weights, their_weights)
        assert notes["loss_mean"] == their_notes["loss_mean"]


@pytest.mark.parametrize("engine", STAGES[1:], ids=str)
def test_bf16_keeps_fp32_weights_behind(make_model, forget, engine):
    """Updates of 1e-5 vanish in bf16 weights of about 0.3, and rounding moves those by more: neither may show."""
    training = replace(TRAINING, precision="bf16", learning_rate=1e-5)
    before = tasks.weights(make_model(1, layers=2))
    [*_, (after, notes)] = run(make_model, Task(forget, engine, training))
    [*_, (plain, plain_notes)] = run(make_model, Task(forget, Engine(), training))
    moved, expected = after - before, plain - before
    assert after.dtype == torch.float32
    assert float((moved.abs() > 1e-6).float().mean()) > 0.8  # unused positions stay
    assert float(torch.nn.functional.cosine_similarity(moved, expected, dim=0)) > 0.9
    assert notes["loss_mean"] == pytest.approx(plain_notes["loss_mean"], rel=0.02)


def test_steps_that_were_left_out_are_a_warning(make_model, forget):
    def explodes(model, batch, retain):
        weight = next(model.parameters()).float()
        return loss(model, batch, retain) + ((weight - weight.detach()) * 3e38 * 10).sum()

    task = Task(forget, STAGES[2], training=replace(TRAINING, precision="bf16"))
    before = make_model(1, layers=2)
    *_, last = train(task, before, explodes, 1)
    assert last.notes["skipped_steps"] == last.notes["optimizer_steps"] == 2
    assert last.notes["warnings"] == ["2 optimiser steps were left out: their gradients were not finite"]
    assert torch.equal(tasks.weights(before), tasks.weights(make_model(1, layers=2))), "nothing was stepped"
    *_, last = train(task, make_model(1, layers=2), loss, 1)
    assert "warnings" not in last.notes


def erased(name, settings, folder, engine):
    """Return the logits of the erased miniature-s on an engine."""
    model, forget = erase_small(name, settings, folder, engine=engine)
    with torch.inference_mode():
        return model(forget.tokens_NT[:, :-1]).logits


EVERY_KIND = [
    ("emso", {"epochs": 1}), ("kl_divergence", {"epochs": 1}), ("pdu", {"epochs": 1}), ("repselect", {"epochs": 1}),
    ("rmu", {"epochs": 1}), ("contrastive_decoding", {"gamma": 3.0}),
    ("balanced_subnet", {"dropped": 0.05, "epochs": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings"), EVERY_KIND)
def test_a_method_gives_what_the_plain_engine_gives(name, settings, tmp_path):
    """Blocks, a teacher, steps that depend on losses, edits, hidden states, a pair of models, masks."""
    plain, ours = (erased(name, settings, tmp_path / engine.name, engine) for engine in (Engine(), STAGES[3]))
    assert torch.allclose(plain, ours, atol=2e-3)
