"""The training loop: what must not change its numbers, what must, and when it stops."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from harness.contracts import Training
from harness.errors import TrialError
from harness.execution.isolate import ProcessState, compared, fingerprints
from harness.models.blocks import blocks
from harness.settings import replace
from harness.toolkit import LossTerms, chosen_sequences, trained_briefly
from harness.toolkit.engines import shares_of_worker
from harness.toolkit.finetune import micro_batches, train, train_and_yield
from harness.toolkit.losses import nll_loss as loss, token_nll
from tests.unit import tasks
from tests.unit.tasks import weights

TRAINING = Training(learning_rate=1e-3, global_batch=4, micro_batch=4, early_stop=None)


def Task(forget, training, strengths=(1, 2, 3), perplexities=()):
    """Return a task whose validation perplexity is scripted: nothing asks for it without an early stop."""
    task, script = tasks.Task(forget, training=training, strengths=strengths), iter(perplexities)
    task.validation_perplexity = lambda model: next(script)
    return task


def run(make_model, task):
    points = train_and_yield(task, make_model(1, layers=2), loss)
    return [(erased.strength, weights(erased.model), erased) for erased in points]


def token_nll_in_fp64(model, batch):
    """`Batch.logits` are in fp32."""
    return token_nll(model(input_ids=batch.tokens_BT[:, :-1]).logits, batch.targets_BS)


def preference(model, batch):
    """NPO's loss with a β of 0.1, of an original that is certain of every text."""
    log_ratio = -batch.sums_per_sequence(token_nll_in_fp64(model, batch))
    return batch.sequence_mean(torch.nn.functional.softplus(0.1 * log_ratio) * 20)


def preference_one_by_one(model, sequences, rows, first):
    losses = []
    for row in rows:
        tokens = sequences.tokens_NT[row, : sequences.lengths_N[row]]
        log_p = model(tokens[None]).logits[0, :-1].log_softmax(dim=-1)
        of_text = log_p[torch.arange(len(tokens) - 1), tokens[1:]][first - 1 :].sum()
        losses.append(-20 * torch.nn.functional.logsigmoid(-0.1 * of_text))
    return sum(losses) / len(losses)


@pytest.mark.parametrize(("region", "first"), [("all", 1), ("continuation", 6)])
@pytest.mark.parametrize(("micro_batch", "workers"), [(4, 1), (3, 1), (1, 1), (4, 2), (1, 2), (2, 3)])
def test_a_loss_of_sequences_is_that_of_the_whole_global_batch(in_fp64, forget, region, first, micro_batch, workers):
    model, training = in_fp64, replace(TRAINING, micro_batch=micro_batch, loss_region=region)
    forget, rows = replace(forget, prefix_tokens=6), torch.tensor([4, 0, 2, 1, 3])
    parts = micro_batches(forget, rows, training, torch.device("cpu"), workers)
    engines = [SimpleNamespace(rank=rank, workers=workers) for rank in range(workers)]
    weighted = [pair for engine in engines for pair in shares_of_worker(parts, engine)]
    shares = [preference(model, part) * weight for part, weight in weighted]
    gradients = []
    for value in (sum(shares), preference_one_by_one(model, forget, rows, first)):
        model.zero_grad()
        value.backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
    # Of 1e-16 each, some hundred roundings of terms below 10.
    assert sum(shares).item() == pytest.approx(value.item(), rel=1e-12)
    assert torch.allclose(*gradients, rtol=0, atol=1e-12)


def test_micro_batches_change_no_weight(in_fp64, forget):
    """Also in the last global batch, of one sequence; a loss of sequences is shared out alike, as the test above says.

    AdamW divides a gradient by its size + 1e-8. Where it should be 0, as that of a key's bias is, it is rounding alone:
    below 1e-15 here, of which each of the four steps makes less than 1e-3 · 1e-15 / 1e-8 = 1e-10 of a weight. In fp32
    it is 1e-7, and its step a whole one of 1e-3, up or down by the CPU.
    """

    def trained(**changes):
        model, task = copy.deepcopy(in_fp64), Task(forget, replace(TRAINING, **changes))
        list(train(task, model, lambda model, batch, _: batch.mean(token_nll_in_fp64(model, batch)), 2))
        return weights(model)

    whole = trained(micro_batch=4)
    for size in (1, 3):
        assert torch.allclose(whole, trained(micro_batch=size), rtol=0, atol=1e-9)
    assert not torch.allclose(whole, trained(global_batch=2), rtol=0, atol=1e-3)


def test_an_epoch_sees_every_sequence_once_in_an_order_of_its_own(make_model, forget):
    seen = []

    def spy(model, batch, retain):
        seen.append([row[row > 0].tolist() for row in batch.tokens_BT])
        return loss(model, batch, retain)

    list(train(Task(forget, TRAINING), make_model(1, layers=2), spy, 3))
    epochs = [seen[0] + seen[1], seen[2] + seen[3], seen[4] + seen[5]]
    texts = [row[:length].tolist() for row, length in zip(forget.tokens_NT, forget.lengths_N, strict=True)]
    assert all(sorted(epoch) == sorted(texts) for epoch in epochs)
    assert epochs[0] != epochs[2]


def test_early_stop_after_a_whole_epoch_with_its_reason(make_model, forget):
    stopping = replace(TRAINING, early_stop=1.03)
    steps = run(make_model, Task(forget, stopping, strengths=(1, 3), perplexities=(10.0, 10.2, 10.4, 99.0)))
    assert [strength for strength, _, _ in steps] == [1, 2]
    assert steps[-1][2].stop_reason == "validation perplexity 10.4 is above 1.03 times the original's 10"
    assert steps[0][2].stop_reason is None
    gone = run(make_model, Task(forget, stopping, strengths=(1, 3), perplexities=(10.0, math.inf)))
    assert [strength for strength, _, _ in gone] == [1]
    assert gone[0][2].stop_reason == "validation perplexity ∞ is above 1.03 times the original's 10"
    patient = Task(forget, stopping, strengths=(1, 3), perplexities=(10.0, 10.2, 10.29, 10.1))
    assert [strength for strength, _, _ in run(make_model, patient)] == [1, 3]


def test_a_part_of_an_epoch_is_the_model_after_so_many_of_its_steps(make_model, forget):
    model, after_step = make_model(1, layers=2), []
    terms = LossTerms(lambda model, batch: loss(model, batch, batch), lambda model, batch: torch.zeros(()))
    terms.after_step = lambda values: after_step.append(weights(model))
    list(train_and_yield(Task(forget, TRAINING, strengths=(2,)), model, terms))
    assert len(after_step) == 4, "two steps an epoch"
    points = run(make_model, Task(forget, TRAINING, strengths=(0.5, 1.5, 2)))
    assert [strength for strength, _, _ in points] == [0.5, 1.5, 2]
    for (_, reached, _), expected in zip(points, (after_step[0], after_step[2], after_step[3]), strict=True):
        assert torch.equal(reached, expected)
    notes = [erased.notes for _, _, erased in points]
    assert [(note["epoch"], note["optimizer_steps"]) for note in notes] == [(1, 1), (2, 1), (2, 2)]
    assert [len(note["loss_by_step"]) for note in notes] == [note["total_steps"] for note in notes] == [1, 3, 4]
    assert notes[1]["loss_mean"] == notes[1]["loss_by_step"][2] != notes[2]["loss_by_step"][3]


def test_a_loss_that_is_not_finite_ends_the_trial(make_model, forget):
    with pytest.raises(TrialError, match="learning_rate"):
        list(train(Task(forget, TRAINING), make_model(1, layers=2), lambda *inputs: loss(*inputs) * float("nan"), 1))


def test_a_point_holds_what_every_epoch_up_to_it_selected(make_model, forget):
    model = make_model(1, layers=2)
    turns = iter([["L0.C_fc"], ["L1.W_v.H2", "L0.C_proj"], ["L0.C_fc"]])

    def select(model, batches):
        names = next(turns)
        return [block for name in names for block in blocks(model) if block.name == name], {"mine": names}

    points = train_and_yield(Task(forget, TRAINING, (2, 3)), model, loss, select=select)
    erased = {point.strength: point.notes for point in points}
    assert erased[2]["selected_by_epoch"] == [["L0.C_fc"], ["L1.W_v.H2", "L0.C_proj"]], "what is noted stays as it was"
    assert erased[3]["selected_by_epoch"] == [*erased[2]["selected_by_epoch"], ["L0.C_fc"]]
    assert erased[3]["mine"] == ["L0.C_fc"]
    plain = train_and_yield(Task(forget, TRAINING, (1,)), make_model(1, layers=2), loss)
    assert [point.notes for point in plain if "selected_by_epoch" in point.notes] == []


# Short training of a copy, against AdamW by hand; and the model that is lent stays as it is.


RATE = 1e-3


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(seed=1, layers=2)


def trained(model, texts, steps, seed=0):
    made = trained_briefly(model, texts, steps=steps, learning_rate=RATE, batch=3, seed=seed)
    return {step: weights(copied) for step, copied in made}


def by_hand(model, texts, batches):
    """AdamW on the mean NLL of every token of each batch."""
    copied = copy.deepcopy(model).requires_grad_(True)
    optimizer = torch.optim.AdamW(copied.parameters(), lr=RATE, weight_decay=0.0)
    for rows in batches:
        nll = []
        for row in rows:
            tokens = texts.tokens_NT[row, : texts.lengths_N[row]]
            nll.append(functional.cross_entropy(copied(tokens[None, :-1]).logits[0], tokens[1:], reduction="none"))
        optimizer.zero_grad()
        torch.cat(nll).mean().backward()
        optimizer.step()
    return weights(copied)


def test_two_steps_are_what_adamw_does_by_hand(model, forget):
    order = torch.randperm(5, generator=torch.Generator().manual_seed(7)).tolist()
    batches = [order[:3], [*order[3:], order[0]]]  # The texts come again once all have been seen.
    found = trained(model, forget, (1, 2), seed=7)
    for step in (1, 2):
        assert torch.allclose(found[step], by_hand(model, forget, batches[:step]), atol=1e-6)
        assert not torch.allclose(found[step], weights(model), atol=1e-4)
    assert not torch.allclose(found[2], by_hand(model, forget, [order[:3], order[:3]]), atol=1e-5)


def test_only_the_steps_that_are_asked_for_come_and_later_ones_change_none_of_them(model, forget):
    found = trained(model, forget, (0, 2, 4))
    assert list(found) == [0, 2, 4]
    assert torch.equal(found[0], weights(model))
    assert torch.equal(found[2], trained(model, forget, (2,))[2])
    assert not torch.equal(found[2], trained(model, forget, (2,), seed=1)[2])


@pytest.mark.parametrize("surroundings", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_it_trains_wherever_it_is_called_and_leaves_the_model_and_the_process_alone(model, forget, surroundings):
    lent = copy.deepcopy(model).requires_grad_(False)
    before, expected = fingerprints("model", lent), trained(model, forget, (1, 2))
    with surroundings():
        state, found = ProcessState(), {}
        for step, copied in trained_briefly(lent, forget, steps=(1, 2), learning_rate=RATE, batch=3, seed=0):
            assert state.changed() == []
            assert not copied.training
            found[step] = weights(copied)
        assert state.changed() == []
    assert compared(before, fingerprints("model", lent)) == []
    assert all(torch.equal(found[step], expected[step]) for step in (1, 2))


def test_a_model_in_training_mode_is_trained_without_dropout(make_model, forget):
    lent = make_model(seed=1, layers=2).train()
    for part in lent.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    [(_, copied)] = trained_briefly(lent, forget, steps=(1,), learning_rate=RATE, batch=3, seed=0)
    assert torch.equal(weights(copied), trained(lent.eval(), forget, (1,))[1])


def test_chosen_sequences_are_named_by_what_they_hold(forget):
    some = chosen_sequences(forget, [2, 4])
    assert some.tokens_NT.tolist() == forget.tokens_NT[[2, 4], :10].tolist()
    assert some.lengths_N.tolist() == [7, 10]
    assert some.digest == chosen_sequences(chosen_sequences(forget, [4, 2]), [1, 0]).digest
    assert some.digest != chosen_sequences(forget, [4, 2]).digest
    assert len(chosen_sequences(forget, [])) == 0
