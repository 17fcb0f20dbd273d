"""Standard errors over the sequences: those of the very numbers that are reported beside them."""

import math

import numpy as np
import pytest
import torch

from evaluators.memorization import Memorization

ROWS = [[1, 2, 3, 4, 5, 6, 7, 8], [9, 8, 7, 6, 5, 4, 3], [1, 3, 5, 7, 9, 11, 13, 15], [2, 4, 6, 8, 10, 12]]


class Task:
    """An evaluation task whose judge finds all texts alike."""

    seed, sample_count, holdout, validation = 0, 4, None, None

    def __init__(self, forget, model, tokenizer):
        self.forget, self.model, self.tokenizer = forget, model, tokenizer

    def judge(self, role, load):
        return Judge()

    def cached(self, key, make):
        return make()

    def original_digest(self):
        return "0"

    def load_original(self):
        return self.model


class Judge:
    digest = "0"

    def embed(self, texts):
        return np.ones((len(texts), 2))

    encode = embed


def test_each_is_that_of_what_single_sequences_have(make_model, make_sequences, tokenizer):
    model = make_model()
    with torch.no_grad():  # So that it says one token again and again, and is right about some.
        model.transformer.ln_f.bias.copy_(100 * model.lm_head.weight[5])
    rows = [*ROWS, [5] * 8, [1, 2, 5, 5, 5, 5, 5]]
    task = Task(make_sequences(rows, 2), model, tokenizer)
    every = Memorization().evaluate(model, task)
    alone = [Memorization().evaluate(model, Task(make_sequences([row], 2), model, tokenizer)).numbers for row in rows]
    errors = every.notes["standard_errors"]
    assert set(errors) == {"el_3", "ma"}
    for name, error in errors.items():
        values = [numbers[name] for numbers in alone]
        assert every.numbers[name] == pytest.approx(np.mean(values))
        assert error == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)))
        assert error > 0


def test_under_table_each_sequence_counts_over_its_windows(make_model, make_sequences, tokenizer):
    rows = [[7] * 10, list(range(10, 20)), [7, 8] * 5]
    model = make_model()
    task = Task(make_sequences(rows, 2), model, tokenizer)
    found = Memorization(definition="table").evaluate(model, task)
    predicted = model(task.forget.tokens_NT).logits.argmax(-1)
    hits = np.array([[int(predicted[row, at - 1] == rows[row][at]) for at in (2, 4, 6, 8)] for row in range(3)])
    assert found.numbers["ma"] == pytest.approx(hits.mean())
    expected = hits.mean(axis=1).std(ddof=1) / math.sqrt(3)
    assert found.notes["standard_errors"]["ma"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (2, 2), (9, 3)])
def test_an_evaluator_gives_as_many_samples_as_the_report_asks_for(asked, given, make_model, make_sequences, tokenizer):
    rows = [[7] * 10, list(range(10, 20)), [7, 8] * 5]
    model = make_model()
    task = Task(make_sequences(rows, 4), model, tokenizer)
    task.sample_count = asked
    found = Memorization().evaluate(model, task)
    assert len(found.samples) == given
    task.sample_count = 4
    assert found.numbers == Memorization().evaluate(model, task).numbers
