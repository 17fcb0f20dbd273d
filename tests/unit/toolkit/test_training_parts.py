"""What a method may add to the training loop: each part does what it says, and what is not added changes nothing.

Activation checkpointing: less memory and, in every part, not one bit of a difference.
"""

import copy
import math
import re
from functools import partial

import pytest
import torch

from harness import toolkit
from harness.contracts import LoRA, Training
from harness.errors import TrialError
from harness.settings import DeepSpeed, Engine, replace
from harness.toolkit import LossTerms, WeightMasks, device, train, whole_loss
from harness.toolkit.device import checkpointed_layers
from harness.toolkit.losses import Batch, token_distillation, token_kl, token_negative_entropy, token_nll
from methods.emso import EMSO
from tests.unit import tasks
from tests.unit.families import make_tiny
from tests.unit.tasks import weights

TRAINING = Training(learning_rate=1e-3, global_batch=4, micro_batch=2, early_stop=None)
WITH_ADAPTERS = replace(TRAINING, lora=LoRA(rank=2))
ON_DEEPSPEED = Engine(deepspeed=DeepSpeed(zero_stage=0))


Task = partial(tasks.Task, training=TRAINING, strengths=(2,))


def nll(model, batch):
    return batch.mean(token_nll(model(input_ids=batch.tokens_BT[:, :-1]).logits, batch.targets_BS))


def ascent(model, forget):
    return -nll(model, forget)


def difference(model, forget, retain):
    return -nll(model, forget) + 0.5 * nll(model, retain)


def trained(model, task, loss, **parts):
    """Return the weights of a copy after the last epoch, and that epoch."""
    copied = copy.deepcopy(model)
    *_, last = train(task, copied, loss, 2, **parts)
    return weights(copied), last


def largest_change(one, other):
    return float((one - other).abs().max())


@pytest.mark.parametrize(("share", "fault"), [(0.5, "is a float"), (torch.zeros(3), "has the shape (3,)")])
def test_what_is_no_loss_is_refused(share, fault, make_model, texts):
    with pytest.raises(TrialError, match=re.escape(f"the method's loss {fault}: it must be a tensor of one number,")):
        trained(make_model(1), Task(*texts), lambda *arguments: share)


def test_a_loss_of_two_terms_is_their_sum_to_the_bit(make_model, texts):
    whole, _ = trained(make_model(1), Task(*texts), difference)
    told = []
    terms, last = trained(make_model(1), Task(*texts), LossTerms(ascent, nll, 0.5, after_step=told.append))
    assert torch.equal(whole, terms)
    assert [sorted(values) for values in told] == [["forget", "loss", "retain"]] * 4
    assert all(v["loss"] == pytest.approx(v["forget"] + 0.5 * v["retain"], rel=1e-5) for v in told)
    for name in ("forget", "retain"):
        assert last.notes[f"{name}_loss_mean"] == pytest.approx((told[2][name] + told[3][name]) / 2)


def test_the_sum_of_both_terms_gradients_is_that_of_the_loss(in_fp64, texts):
    def added(step):
        forget, retain = step.gradient("forget"), step.gradient("retain")
        return {name: forget[name] + 0.5 * retain[name] for name in forget}

    whole, last = trained(in_fp64, Task(*texts), difference)
    ours, by_rule = trained(in_fp64, Task(*texts), LossTerms(ascent, nll, 0.5, gradient=added))
    assert largest_change(whole, ours) < 1e-9
    assert by_rule.notes["loss_mean"] == pytest.approx(last.notes["loss_mean"])
    alone, _ = trained(in_fp64, Task(*texts), LossTerms(ascent, nll, gradient=lambda step: step.gradient("forget")))
    assert largest_change(whole, alone) > 1e-3


def test_weights_are_moved_for_as_long_as_the_context_lasts(in_fp64, texts):
    seen = []

    def rule(step):
        here = step.gradient("forget")
        before = {name: weight.detach().clone() for name, weight in step.weights.items()}
        with step.moved({name: 0.1 * torch.ones_like(weight) for name, weight in step.weights.items()}):
            there = step.gradient("forget")
        assert all(torch.equal(before[name], weight) for name, weight in step.weights.items())
        seen.append((here, there, step.values))
        return there

    task = Task(*texts, training=replace(TRAINING, global_batch=5, micro_batch=5))
    trained(in_fp64, task, LossTerms(ascent, nll, gradient=rule))
    here, there, values = seen[0]
    for moved, ours in ((0.0, here), (0.1, there)):
        model = copy.deepcopy(in_fp64)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(moved)
        expected: list[torch.Tensor] = []
        list(train(task, model, noting_its_gradient(expected), 1))
        in_order = torch.cat([ours[name].flatten() for name, _ in model.named_parameters()])
        assert largest_change(expected[0], in_order) < 1e-12
    assert values.keys() == {"forget"}


def noting_its_gradient(gradients):
    """Return the ascent's loss, which notes the model's gradient of it."""

    def loss(model, forget, retain):
        value = ascent(model, forget)
        of_weights = torch.autograd.grad(value, model.parameters(), retain_graph=True)
        gradients.append(torch.cat([gradient.flatten() for gradient in of_weights]))
        return value

    return loss


def test_a_whole_loss_is_that_of_the_region_that_training_counts(in_fp64, texts):
    forget = replace(texts[0], prefix_tokens=4)
    for region, first in (("all", 1), ("continuation", 4)):
        values = []
        for row, length in zip(forget.tokens_NT, forget.lengths_N.tolist(), strict=True):
            log_p = in_fp64(row[None, :length]).logits[0, :-1].log_softmax(-1).detach()
            values.append(-log_p[torch.arange(length - 1), row[1:length]][first - 1 :])
        training = replace(TRAINING, loss_region=region)
        assert whole_loss(in_fp64, forget, nll, training) == pytest.approx(float(torch.cat(values).mean()))


def test_texts_beside_the_forget_set_come_with_their_own(make_model, make_sequences, texts):
    forget, retain = texts
    beside = make_sequences([[row + 1, 50] for row in range(5)])
    first = {int(tokens[0]): row for row, tokens in enumerate(forget.tokens_NT)}
    seen = []

    def loss(model, forget, retain, beside):
        for tokens, other in zip(forget.tokens_BT, beside.tokens_BT, strict=True):
            seen.append((first[int(tokens[0])], int(other[0]) - 1))
        return ascent(model, forget) + nll(model, beside)

    assert len(first) == 5
    trained(make_model(1), Task(forget, retain), loss, paired_texts=beside)
    assert len(seen) == 10
    assert all(row == other for row, other in seen)
    with pytest.raises(TrialError, match="3 texts are paired with 5 forget sequences"):
        trained(make_model(1), Task(forget, retain), loss, paired_texts=retain)


NOT_TOGETHER = [
    (LossTerms(ascent, nll, gradient=dict), {}, {"engine": ON_DEEPSPEED}, "Say engine: torch"),
    (difference, {"masks": None}, {"training": WITH_ADAPTERS}, "only one of these: set lora: null"),
    (difference, {"select_row": lambda model, epoch: [0]}, {}, "called 'select_row'. Did you mean 'select_rows'"),
]


@pytest.mark.parametrize(("loss", "parts", "changes", "said"), NOT_TOGETHER)
def test_parts_that_do_not_go_together_are_refused(make_model, texts, loss, parts, changes, said):
    with pytest.raises(TrialError, match=said):
        trained(make_model(1), Task(*texts, **changes), loss, **parts)


def test_the_example_of_the_guide_takes_no_step_against_the_retain_set(in_fp64, texts, example):
    task = Task(*texts, load_original=lambda: copy.deepcopy(in_fp64))
    [erased] = example("gradient_of_two_terms")["erase"](task)
    plain, _ = trained(in_fp64, task, LossTerms(ascent, nll))
    assert largest_change(weights(erased.model), plain) > 1e-4, "a conflict was taken away"
    assert erased.notes["forget_loss_mean"] < 0 < erased.notes["retain_loss_mean"]


# Activation checkpointing.


@pytest.fixture
def passes(monkeypatch):
    """Return a list that grows by one whenever a layer runs whose activations are not kept."""
    run, checkpoint = [], device.checkpoint

    def counted(*arguments, **named):
        run.append(arguments[0])
        return checkpoint(*arguments, **named)

    monkeypatch.setattr(device, "checkpoint", counted)
    return run


def reconciled(step):
    forget, retain = step.gradient("forget"), step.gradient("retain")
    with step.moved({name: 0.01 * value for name, value in forget.items()}):
        there = step.gradient("forget")
    return {name: there[name] + retain[name] for name in there}


def checkpointed_difference(model, forget, retain):
    return toolkit.ascent(model, forget) + 0.5 * toolkit.mean_nll(model, retain)


def four_blocks(model):
    return {"select": partial(EMSO(k=4).choose, generator=torch.Generator())}


DROPOUT = {"resid_dropout": 0.5, "embed_dropout": 0.5, "attention_dropout": 0.5}
"""As a checkpoint may say: in the mode of evaluation it must count for nothing."""
PARTS = {
    "all weights": (checkpointed_difference, lambda model: {}, {}),
    "bf16": (checkpointed_difference, lambda model: {}, {"precision": "bf16"}),
    "LoRA": (checkpointed_difference, lambda model: {}, {"lora": LoRA(rank=2)}),
    "blocks": (checkpointed_difference, four_blocks, {}),
    "a gradient": (LossTerms(toolkit.ascent, toolkit.mean_nll, gradient=reconciled), lambda model: {}, {}),
    "masks": (checkpointed_difference, lambda model: {"masks": WeightMasks(model, matrices(model), 0.2, 0, 1e-3)}, {}),
}


def matrices(model):
    return [name for name, _ in model.named_parameters() if name.endswith(("c_fc.weight", "up_proj.weight"))]


def epochs_of(model_type, texts, part, engine=Engine(), **changes):  # noqa: B008 - frozen
    """Return the weights and the losses of each epoch."""
    loss, parts, settings = PARTS[part]
    model = make_tiny(model_type, **DROPOUT)
    task = Task(*texts, training=replace(TRAINING, **settings, **changes), engine=engine)
    return [(weights(model), epoch.notes.get("loss_mean")) for epoch in train(task, model, loss, 2, **parts(model))]


def assert_same(plain, checkpointed):
    assert len(plain) == len(checkpointed) == 3
    for (ours, loss), (theirs, their_loss) in zip(plain, checkpointed, strict=True):
        assert loss == their_loss
        assert torch.equal(ours, theirs)
    assert not torch.equal(plain[0][0], plain[-1][0]), "it has trained"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("model_type", ["gpt_neo", pytest.param("llama", marks=pytest.mark.soak)])
def test_every_part_of_training_gives_the_same_bits(model_type, texts, part, passes):
    plain = epochs_of(model_type, texts, part)
    assert not passes
    assert_same(plain, epochs_of(model_type, texts, part, activation_checkpointing=True))
    assert passes


@pytest.mark.parametrize(("stage", "part"), [(0, "all weights"), (2, "bf16"), (3, "LoRA")])
def test_deepspeed_gives_the_same_bits(texts, stage, part, passes):
    engine = Engine(deepspeed=DeepSpeed(zero_stage=stage))
    plain = epochs_of("gpt_neo", texts, part, engine)
    assert_same(plain, epochs_of("gpt_neo", texts, part, engine, activation_checkpointing=True))
    assert passes


def test_a_model_without_layers_of_transformers_is_refused():
    said = "a Linear has no layers of transformers .* Set training.activation_checkpointing to false"
    with pytest.raises(TrialError, match=said), checkpointed_layers(torch.nn.Linear(2, 2)):
        pass


torch.manual_seed(0)
LOGITS = torch.randn(1, 1, 7, dtype=torch.double)
OTHERS = torch.randn(1, 1, 7, dtype=torch.double)
TARGET = torch.tensor([[3]])


def finite_differences(function, logits, step=1e-6):
    gradient = torch.zeros_like(logits)
    for place in range(logits.shape[-1]):
        nudge = torch.zeros_like(logits)
        nudge[..., place] = step
        gradient[..., place] = (function(logits + nudge) - function(logits - nudge)).sum() / (2 * step)
    return gradient


def analytic(function, logits):
    leaf = logits.clone().requires_grad_()
    function(leaf).sum().backward()
    return leaf.grad


LOSSES = {
    "nll": lambda z: token_nll(z, TARGET),
    "negative entropy": token_negative_entropy,
    "kl": lambda z: token_kl(OTHERS, z),
    "distillation": lambda z: token_distillation(OTHERS, z),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_equals_finite_differences(name):
    if name == "distillation":  # its value is cut off from the graph; the cross entropy itself is not
        numeric = finite_differences(lambda z: -(OTHERS.softmax(-1) * z.log_softmax(-1)).sum(-1), LOGITS)
    else:
        numeric = finite_differences(LOSSES[name], LOGITS)
    assert torch.allclose(analytic(LOSSES[name], LOGITS), numeric, atol=1e-8)


def test_values_against_hand_worked_cases():
    fair = torch.zeros(1, 1, 4)
    assert token_nll(fair, TARGET).item() == pytest.approx(math.log(4))
    assert token_negative_entropy(fair).item() == pytest.approx(-math.log(4))
    assert token_negative_entropy(torch.tensor([[[100.0, 0.0]]])).item() == pytest.approx(0.0, abs=1e-6)
    quarter = torch.tensor([[[math.log(0.25), math.log(0.75)]]])
    half = torch.zeros(1, 1, 2)
    by_hand = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert token_kl(quarter, half).item() == pytest.approx(by_hand)
    assert token_kl(half, quarter).item() != pytest.approx(by_hand)
    assert token_distillation(half, quarter).item() == pytest.approx(-0.5 * math.log(0.25 * 0.75))


def test_no_gradient_at_all_where_student_and_teacher_agree():
    logits = torch.randn(3, 5, 50)
    assert torch.equal(analytic(lambda z: token_distillation(logits, z), logits), torch.zeros_like(logits))
    assert analytic(lambda z: token_distillation(logits + torch.randn(50), z), logits).abs().max() > 1e-3


def test_a_sequence_of_which_nothing_counts_has_no_say():
    values = torch.tensor([[0.5, 1.5], [9.0, 9.0]], requires_grad=True)
    batch = Batch(torch.zeros(2, 3), torch.tensor([[True, True], [False, False]]), 2, 1)
    batch.sequence_mean(batch.means_per_sequence(values)).backward()
    assert values.grad.tolist() == [[0.5, 0.5], [0.0, 0.0]]


def test_values_of_the_wrong_kind_are_refused_and_not_broadcast():
    batch = Batch(torch.zeros(2, 3), torch.ones(2, 2, dtype=torch.bool), 4, 2)
    with pytest.raises(ValueError, match=r"\(2,\); give one value for each prediction, \(2, 2\)"):
        batch.mean(torch.ones(2))
    with pytest.raises(ValueError, match="each prediction"):
        batch.sums_per_sequence(torch.ones(2, 1))
    with pytest.raises(ValueError, match="each sequence"):
        batch.sequence_mean(torch.ones(2, 2))
