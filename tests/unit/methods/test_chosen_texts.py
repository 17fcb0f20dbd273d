"""SGA: which texts it chooses, and what it is where it chooses all."""

import pytest
import torch

from harness.contracts import Training
from harness.toolkit import ascent
from methods.gradient_ascent import GradientAscent
from methods.gradient_difference import GradientDifference
from methods.sga import SelectiveGradientAscent
from methods.sugd import SequentialGradientDifference
from tests.unit.tasks import Task, random_rows, weights

TRAINING = Training(learning_rate=1e-3, global_batch=2, micro_batch=2, early_stop=None)
PREFIX = 3


@pytest.fixture
def task(make_reciter, make_sequences):
    """Return a task on a model that recites two of its four texts."""
    rows = random_rows(*[10] * 4, seed=2)
    original = make_reciter(make_sequences(rows[:2]), 12, global_batch=2)
    return Task(make_sequences(rows, prefix_tokens=PREFIX), None, original, TRAINING, strengths=(1, 2, 3))


def weights_by_strength(method, task):
    return {point.strength: weights(point.model) for point in method.erase(task)}


def accuracy(model, tokens):
    with torch.inference_mode():
        choices = model(tokens[None]).logits[0].argmax(-1)
    right = (choices[PREFIX - 1 : -2] == tokens[PREFIX:-1]).tolist()
    return sum(right) / len(right)


def test_a_threshold_of_0_is_gradient_ascent_to_the_bit(task):
    ours = weights_by_strength(SelectiveGradientAscent(threshold=0.0), task)
    theirs = weights_by_strength(GradientAscent(), task)
    assert ours.keys() == theirs.keys() == {1, 2, 3}
    assert all(torch.equal(ours[strength], theirs[strength]) for strength in ours)


def test_only_what_is_still_recited_is_trained_on(task, monkeypatch):
    model = task.load_original()
    assert [accuracy(model, tokens) for tokens in task.forget.tokens_NT[:2]] == [1.0, 1.0]
    assert max(accuracy(model, tokens) for tokens in task.forget.tokens_NT[2:]) < 0.5
    seen = []

    def spy(model, forget, retain):
        seen.append({tuple(tokens) for tokens in forget.tokens_BT.tolist()})
        return ascent(model, forget)

    monkeypatch.setattr("methods.sga.ascent", spy)
    task.strengths = (1,)
    [point] = SelectiveGradientAscent(threshold=0.9).erase(task)
    assert seen == [{tuple(tokens) for tokens in task.forget.tokens_NT[:2].tolist()}]
    assert point.notes["forget_sequences"] == 2
    assert not torch.equal(weights(point.model), weights(model))


def test_where_nothing_is_recited_any_more_it_ends(task):
    task.training = Training(learning_rate=1e-2, global_batch=2, micro_batch=2, early_stop=None)
    *_, last = SelectiveGradientAscent(threshold=0.9).erase(task)
    assert last.stop_reason.startswith("no forget sequence was chosen to train epoch")
    assert max(accuracy(last.model, tokens) for tokens in task.forget.tokens_NT) < 0.9


# SUGD: which chunk each pass trains on, and what it is where there is one chunk.


@pytest.fixture
def sugd_task(make_model, texts):
    return Task(texts(0), texts(1), lambda: make_model(1, layers=2), TRAINING, strengths=(1, 2))


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
    weights_by_strength(method, task)
    return seen


def test_one_chunk_and_one_pass_are_gradient_difference_to_the_bit(sugd_task):
    ours = weights_by_strength(SequentialGradientDifference(passes=1, chunk=5, retain_weight=2.0), sugd_task)
    theirs = weights_by_strength(GradientDifference(retain_weight=2.0), sugd_task)
    assert ours.keys() == theirs.keys() == {1, 2}
    assert all(torch.equal(ours[strength], theirs[strength]) for strength in ours)


def test_one_chunk_after_the_other_is_passed_over(sugd_task, monkeypatch):
    rows = beginnings(sugd_task.forget.tokens_NT)
    sugd_task.strengths = (2,)
    seen = seen_by(SequentialGradientDifference(passes=3, chunk=2), sugd_task, monkeypatch)
    assert [set(batch) for batch in seen] == ([{rows[0], rows[1]}] * 3 + [{rows[2], rows[3]}] * 3 + [{rows[4]}] * 3) * 2
    [erased] = SequentialGradientDifference(passes=3, chunk=2).erase(sugd_task)
    assert erased.notes["epoch"] == 6, "so often the whole forget set was trained on"


def test_part_of_an_epoch_has_trained_on_the_first_chunks_alone(sugd_task, monkeypatch):
    sugd_task.strengths = (2 / 3,)
    seen = seen_by(SequentialGradientDifference(passes=2, chunk=2), sugd_task, monkeypatch)
    assert {text for batch in seen for text in batch} == set(beginnings(sugd_task.forget.tokens_NT)[:4])
    method = SequentialGradientDifference(passes=2, chunk=2)
    sugd_task.strengths = (2 / 3, 1)
    with_stop = weights_by_strength(method, sugd_task)
    sugd_task.strengths = (1,)
    assert torch.equal(weights_by_strength(method, sugd_task)[1], with_stop[1])
    assert not torch.equal(with_stop[2 / 3], with_stop[1])


def test_a_strength_of_four_digits_is_the_step_it_was_rounded_from(sugd_task):
    """Four passes over a chunk of four take two steps each, four over the last text one each: twelve in all."""
    counted = []
    for strength in (0.5, 0.8125, 0.875, 1):
        sugd_task.strengths = (strength,)
        [erased] = SequentialGradientDifference(passes=4, chunk=4).erase(sugd_task)
        counted.append(erased.notes["total_steps"])
    assert counted == [8, 11, 11, 12]
    sugd_task.strengths = (0.6667,)  # Two of three chunks, at 12 of 18 steps; 0.6667 lies beyond.
    [erased] = SequentialGradientDifference(passes=6, chunk=2).erase(sugd_task)
    assert erased.notes["total_steps"] == erased.notes["optimizer_steps"] == 12
