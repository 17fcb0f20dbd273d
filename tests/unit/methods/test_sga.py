"""SGA: which texts it chooses, and what it is where it chooses all."""

import pytest
import torch

from harness.contracts import Training
from harness.toolkit import ascent
from methods.gradient_ascent import GradientAscent
from methods.sga import SelectiveGradientAscent
from tests.unit.tasks import Task, random_rows, weights

TRAINING = Training(learning_rate=1e-3, global_batch=2, micro_batch=2, early_stop=None)
PREFIX = 3


@pytest.fixture
def task(make_reciter, make_sequences):
    """Return a task on a model that recites two of its four texts."""
    rows = random_rows(*[10] * 4, seed=2)
    original = make_reciter(make_sequences(rows[:2]), 12, global_batch=2)
    return Task(make_sequences(rows, prefix_tokens=PREFIX), None, original, TRAINING, strengths=(1, 2, 3))


def trajectory(method, task):
    return [(point, weights(point.model)) for point in method.erase(task)]


def accuracy(model, tokens):
    with torch.inference_mode():
        choices = model(tokens[None]).logits[0].argmax(-1)
    right = (choices[PREFIX - 1 : -2] == tokens[PREFIX:-1]).tolist()
    return sum(right) / len(right)


def test_a_threshold_of_0_is_gradient_ascent_to_the_bit(task):
    ours = trajectory(SelectiveGradientAscent(threshold=0.0), task)
    theirs = trajectory(GradientAscent(), task)
    assert len(ours) == len(theirs) == 3
    assert all(torch.equal(one, other) for (_, one), (_, other) in zip(ours, theirs, strict=True))


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
    [(point, after)] = trajectory(SelectiveGradientAscent(threshold=0.9), task)
    assert seen == [{tuple(tokens) for tokens in task.forget.tokens_NT[:2].tolist()}]
    assert point.notes["forget_sequences"] == 2
    assert not torch.equal(after, weights(model))


def test_where_nothing_is_recited_any_more_it_ends(task):
    task.training = Training(learning_rate=1e-2, global_batch=2, micro_batch=2, early_stop=None)
    *_, (last, _) = trajectory(SelectiveGradientAscent(threshold=0.9), task)
    assert last.stop_reason.startswith("no forget sequence was chosen to train epoch")
    assert max(accuracy(last.model, tokens) for tokens in task.forget.tokens_NT) < 0.9
