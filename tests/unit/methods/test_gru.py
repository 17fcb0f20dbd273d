"""GRU: the rectified gradient by hand, and what its steps spare."""

import pytest
import torch

from harness.toolkit import LossTerms
from methods.gru import GRU, rectified


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
