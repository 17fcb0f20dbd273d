"""PDU: the multiplier's course by hand, and what it is tied to. GRU: the rectified gradient, and what it spares."""

import pytest
import torch

from harness.contracts import Training
from harness.toolkit import Batch, LossTerms, token_nll, train_and_yield
from methods.gru import GRU, rectified
from methods.pdu import PDU, logit_spread
from tests.unit.tasks import Task, random_rows, weights

TRAINING = Training(learning_rate=1e-3, global_batch=2, micro_batch=1, early_stop=None)


@pytest.fixture
def task(make_model, make_sequences):
    rows = random_rows(9, 12, 7, 12, 10, 8)
    forget, retain = make_sequences(rows[:3]), make_sequences(rows[3:])
    return Task(forget, retain, lambda: make_model(1, layers=2), TRAINING, strengths=(1, 2, 3))


def test_the_variances_gradient_is_that_of_the_formula():
    logits = torch.tensor([[[1.0, 2.0, 6.0]]], requires_grad=True)
    logit_spread(logits, "variance").sum().backward()
    # 2 (z − mean) / V
    assert torch.allclose(logits.grad, torch.tensor([[[-4 / 3, -2 / 3, 2.0]]]))


def test_the_multiplier_learns_from_each_steps_violation(task, nll_of):
    seen = []

    class Watched(PDU):
        def learnt(self, multiplier, violation):
            after = super().learnt(multiplier, violation)
            seen.append((multiplier, violation, after))
            return after

    points = list(Watched(multiplier=2.0, slack=0.01, dual_step=3.0, warm_up=1).erase(task))
    assert points[0].notes["multiplier"] == 2.0, "the warm-up leaves it"
    assert len(seen) == 4, "two steps in each of the epochs after the warm-up"
    expected = 2.0
    for before, violation, after in seen:
        assert before == expected
        assert after == pytest.approx(max(0.0, before + 3.0 * violation))
        expected = after
    assert points[-1].notes["multiplier"] == expected != 2.0
    mean_nll = torch.cat(nll_of(task.load_original(), task.retain)).mean().item()
    assert points[0].notes["retain_limit"] == pytest.approx(mean_nll + 0.01, rel=1e-5)


@pytest.mark.parametrize("spread", ["margin", "variance"])
def test_with_a_fixed_multiplier_it_is_gradient_differences_shape(task, spread):
    def loss(model, forget: Batch, retain: Batch):
        logits = forget.logits(model)
        if spread == "margin":
            flatness = (logits.max(-1).values - logits.mean(-1)) ** 2
        else:
            flatness = ((logits - logits.mean(-1, keepdim=True)) ** 2).mean(-1)
        return forget.mean(flatness) + 4.0 * retain.mean(token_nll(retain.logits(model), retain.targets_BS))

    *_, ours = PDU(multiplier=4.0, dual_step=0.0, spread=spread).erase(task)
    ours = weights(ours.model)
    *_, theirs = train_and_yield(task, task.load_original(), loss)
    assert torch.allclose(ours, weights(theirs.model), atol=1e-4)
    *_, other = PDU(multiplier=0.0, dual_step=0.0, spread=spread).erase(task)
    assert not torch.allclose(ours, weights(other.model), atol=1e-4)


def named(*rows):
    return {f"w{number}": torch.tensor(row) for number, row in enumerate(rows)}


def product(one, other):
    return sum(float((one[name] * other[name]).sum()) for name in one)


def test_what_points_against_the_retain_gradient_is_taken_away_over_all_weights_together():
    forget, retain = named([3.0, -1.0], [2.0]), named([-1.0, 0.0], [-1.0])
    # ⟨g, m⟩ = −5 and ‖m‖² = 2: 2.5 m is added.
    ours = rectified(forget, retain)
    assert [ours[name].tolist() for name in ours] == [[0.5, -1.0], [-0.5]]
    assert product(ours, retain) == pytest.approx(0.0)
    shorter = {name: 1e-3 * gradient for name, gradient in retain.items()}
    assert all(torch.allclose(ours[name], value) for name, value in rectified(forget, shorter).items())


def test_what_does_not_point_against_it_is_left_to_the_bit():
    forget = named([3.0, -1.0], [2.0])
    for retain in (forget, named([1.0, 0.0], [0.0]), named([0.0, 0.0], [0.0])):
        ours = rectified(forget, retain)
        assert all(torch.equal(ours[name], forget[name]) for name in forget)


def test_its_average_begins_at_zero_and_keeps_a_fifth(monkeypatch):
    retains, forgets = iter([named([1.0, 0.0]), named([0.0, 1.0])]), named([-10.0, -1.0])
    seen = []

    class Step:
        def gradient(self, term):
            return next(retains) if term == "retain" else forgets

    def stepping(task, model, loss):
        assert isinstance(loss, LossTerms)
        seen.extend(loss.gradient(Step()) for _ in range(2))
        return iter(())

    monkeypatch.setattr("methods.gru.train_and_yield", stepping)
    list(GRU(newest=0.8).erase(type("Task", (), {"load_original": lambda self: None})()))
    assert seen[0]["w0"].tolist() == [0.0, -1.0]
    # m is [0.8, 0] after the first step, so [0.16, 0.8] after the second: ⟨g, m⟩ = −2.4 and ‖m‖² = 0.6656.
    assert seen[1]["w0"].tolist() == pytest.approx([-10 + 2.4 / 0.6656 * 0.16, -1 + 2.4 / 0.6656 * 0.8])
    assert product(seen[1], named([0.16, 0.8])) == pytest.approx(0.0, abs=1e-6)
    assert product(seen[1], named([0.2, 0.8])) != pytest.approx(0.0, abs=0.1), "it would, if it began with the first"
