"""SUGD: which chunk each pass trains on, and what it is where there is one chunk."""

import pytest
import torch

from harness.contracts import Training
from methods.gradient_difference import GradientDifference
from methods.sugd import SequentialGradientDifference
from tests.unit.tasks import Task, weights

TRAINING = Training(learning_rate=1e-3, global_batch=2, micro_batch=2, early_stop=None)


@pytest.fixture
def task(make_model, texts):
    return Task(texts(0), texts(1), lambda: make_model(1, layers=2), TRAINING, strengths=(1, 2))


def trajectory(method, task):
    return {point.strength: weights(point.model) for point in method.erase(task)}


def beginnings(tokens_BT):
    """Return what texts begin with, by which they are told apart; batches differ in their padding."""
    return [tuple(tokens[:3]) for tokens in tokens_BT.tolist()]


def seen_by(method, task, monkeypatch):
    """Return the beginnings of the forget texts of every batch."""
    seen, plain = [], type(method).loss

    def spy(self, model, forget, retain):
        seen.append(beginnings(forget.tokens_BT))
        return plain(self, model, forget, retain)

    monkeypatch.setattr(type(method), "loss", spy)
    trajectory(method, task)
    return seen


def test_one_chunk_and_one_pass_are_gradient_difference_to_the_bit(task):
    ours = trajectory(SequentialGradientDifference(passes=1, chunk=5, retain_weight=2.0), task)
    theirs = trajectory(GradientDifference(retain_weight=2.0), task)
    assert ours.keys() == theirs.keys() == {1, 2}
    assert all(torch.equal(ours[strength], theirs[strength]) for strength in ours)


def test_one_chunk_after_the_other_is_passed_over(task, monkeypatch):
    rows = beginnings(task.forget.tokens_NT)
    task.strengths = (2,)
    seen = seen_by(SequentialGradientDifference(passes=3, chunk=2), task, monkeypatch)
    of_epoch = [{rows[0], rows[1]}] * 3 + [{rows[2], rows[3]}] * 3 + [{rows[4]}] * 3
    assert [set(batch) for batch in seen] == of_epoch * 2
    [erased] = SequentialGradientDifference(passes=3, chunk=2).erase(task)
    assert erased.notes["epoch"] == 6, "so often the whole forget set was trained on"


def test_part_of_an_epoch_has_trained_on_the_first_chunks_alone(task, monkeypatch):
    rows = beginnings(task.forget.tokens_NT)
    task.strengths = (2 / 3,)
    seen = seen_by(SequentialGradientDifference(passes=2, chunk=2), task, monkeypatch)
    assert {text for batch in seen for text in batch} == set(rows[:4])
    method = SequentialGradientDifference(passes=2, chunk=2)
    task.strengths = (2 / 3, 1)
    with_stop = trajectory(method, task)
    task.strengths = (1,)
    assert torch.equal(trajectory(method, task)[1], with_stop[1])
    assert not torch.equal(with_stop[2 / 3], with_stop[1])


def test_a_strength_of_four_digits_is_the_step_it_was_rounded_from(task):
    """Four passes over a chunk of four take two steps each, four over the last text one each: twelve in all."""
    counted = []
    for strength in (0.5, 0.8125, 0.875, 1):
        task.strengths = (strength,)
        [erased] = SequentialGradientDifference(passes=4, chunk=4).erase(task)
        counted.append(erased.notes["total_steps"])
    assert counted == [8, 11, 11, 12]
    task.strengths = (0.6667,)  # Two of three chunks, at 12 of 18 steps; 0.6667 lies beyond.
    [erased] = SequentialGradientDifference(passes=6, chunk=2).erase(task)
    assert erased.notes["total_steps"] == 12
