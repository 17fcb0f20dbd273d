"""Relearning: who is shown, who is measured, what the curves come to, and what a method-erased model gives away."""

import math

import numpy as np
import pytest
import torch

from evaluators.metrics import likelihoods, seeded_prefixes
from evaluators.relearning import Relearning
from harness.toolkit import chosen_sequences, greedy_choices, greedy_continuations, trained_briefly
from tests.unit.tasks import Task, random_rows

PREFIX, LENGTH, TEXTS = 4, 16, 12
FEW = {"steps": (1, 3), "rates": (1e-4, 1e-3), "batch": 2, "context": 2}


ORDER = torch.randperm(TEXTS, generator=torch.Generator().manual_seed(0xABABABAB)).tolist()
"""Of the forget texts, by their digest: the first half is shown."""


@pytest.fixture(scope="module")
def forget(make_sequences):
    return make_sequences(random_rows(*[LENGTH] * TEXTS), prefix_tokens=PREFIX, digest="ab" * 8)


@pytest.fixture(scope="module")
def retain(make_sequences):
    return make_sequences(random_rows(*[LENGTH] * 20, seed=2), digest="cd" * 8)


@pytest.fixture(scope="module")
def original(make_model, forget):
    """A model that recites the forget set."""
    start = make_model(seed=1, layers=2, scale=0.05)
    [(_, model)] = trained_briefly(start, forget, steps=(150,), learning_rate=3e-3, batch=TEXTS, seed=0)
    return model


@pytest.fixture(scope="module")
def measured(original, forget, retain):
    return Relearning(**FEW).evaluate(original, Task(forget, retain))


def rows_measured(evaluation):
    return np.flatnonzero(~np.isnan(evaluation.per_item["relearned_ma"])).tolist()


def mean_accuracy(model, sequences):
    """MA by definition: the last token does not count."""
    return float((greedy_choices(model, sequences) == sequences.tokens_NT)[:, PREFIX : LENGTH - 1].float().mean())


def test_half_of_the_texts_are_shown_and_the_others_measured(measured):
    rows = rows_measured(measured)
    others = [row for row in range(TEXTS) if row not in rows]
    assert (len(rows), len(others)) == (6, 6)
    assert measured.notes["measured"] == measured.notes["shown"] == 6
    assert sorted(ORDER[:6]) == others
    for name, values in measured.per_item.items():
        assert values.shape == (TEXTS,), name
        assert np.isnan(values[others]).all(), name
        assert not np.isnan(values[rows]).any(), name


def test_the_number_is_the_highest_mean_height_of_curves_of_copies_trained_by_hand(measured, original, forget, retain):
    rows = rows_measured(measured)
    of_retain = torch.randperm(20, generator=torch.Generator().manual_seed(0xCDCDCDCD)).tolist()
    texts = chosen_sequences(forget, [row for row in ORDER[6:] if row in rows])
    arms = {"forget": chosen_sequences(forget, ORDER[:6]), "retain": chosen_sequences(retain, of_retain[:6])}
    for (arm, shown), name in zip(arms.items(), ("relearned", "relearned_by_retain"), strict=True):
        curves = {}
        for rate in FEW["rates"]:
            made = trained_briefly(original, shown, steps=(0, 1, 3), learning_rate=rate, batch=2, seed=0)
            curves[rate] = [mean_accuracy(copied, texts) for _, copied in made]
        heights = {rate: np.trapezoid(of_rate, [0, 1, 3]) / 3 for rate, of_rate in curves.items()}
        worst = measured.notes["worst_rate"][arm]
        assert measured.numbers[f"{name}_ma"] == pytest.approx(heights[worst]) == pytest.approx(max(heights.values()))
        [drawn] = [one for one in measured.curves if one.name == f"relearned_by_{arm}"]
        assert (drawn.xs, drawn.ys) == ((0.0, 1.0, 3.0), pytest.approx(tuple(curves[worst]))), "the report draws it"
    worst = measured.notes["worst_rate"]["forget"]
    [(_, last)] = trained_briefly(original, arms["forget"], steps=(3,), learning_rate=worst, batch=2, seed=0)
    prefixes = seeded_prefixes(texts, 3, 1)
    expected = likelihoods(greedy_continuations(last, texts, prefixes), 3, prefixes)
    assert measured.numbers["relearned_el_3"] == pytest.approx(expected.mean())


def test_a_text_with_the_continuation_of_a_shown_one_is_never_measured(original, forget, retain, make_sequences):
    rows = forget.tokens_NT.tolist()
    rows[ORDER[6]] = rows[ORDER[0]]  # The same text, and one with another prefix.
    rows[ORDER[8]] = [7] * PREFIX + rows[ORDER[1]][PREFIX:]
    copies = make_sequences(rows, prefix_tokens=PREFIX, digest="ab" * 8)
    few = FEW | {"steps": (1,), "rates": (1e-4,)}
    found = Relearning(**few).evaluate(original, Task(copies, retain))
    assert rows_measured(found) == sorted(row for row in ORDER[6:] if row not in (ORDER[6], ORDER[8]))
    assert [text for text in found.notes["warnings"] if text.startswith("4 sequences are measured")]
    enough = Relearning(**few, shown=4, measured=2).evaluate(original, Task(copies, retain))
    assert len(rows_measured(enough)) == 2
    assert enough.notes["warnings"] == []


def test_a_rate_that_ends_in_no_number_is_left_out_and_the_others_count(original, forget, retain):
    found = Relearning(**FEW | {"rates": (1e-4, 1e30)}).evaluate(original, Task(forget, retain))
    assert found.notes["worst_rate"] == {"forget": 1e-4, "retain": 1e-4}
    assert found.numbers["relearned_ma"] > 0.98
    assert [text for text in found.notes["warnings"] if "a rate of 1e+30" in text]
    alone = Relearning(**FEW | {"rates": (1e30,)}).evaluate(original, Task(forget, retain))
    assert alone.notes["worst_rate"] == {"forget": None, "retain": None}
    assert math.isnan(alone.numbers["relearned_ma"])
    assert math.isnan(alone.numbers["relearned_el_3"])
    assert not math.isnan(alone.numbers["in_context_ma"])


def test_in_context_others_stand_before_a_text_as_if_they_were_one(measured, original, forget):
    for number, row in enumerate(ORDER[6:]):
        before = [ORDER[number % 6], ORDER[(number + 1) % 6]]
        tokens = torch.cat([forget.tokens_NT[other] for other in (*before, row)])
        with torch.inference_mode():
            choices = original(tokens[None]).logits[0].argmax(dim=-1)
        start = 2 * LENGTH + PREFIX
        is_right = (choices[start - 1 : -1] == tokens[start:]).tolist()
        assert measured.per_item["in_context_ma"][row] == pytest.approx(sum(is_right[:-1]) / len(is_right[:-1]))
        recited = is_right[::-1].index(False) if False in is_right else len(is_right)
        assert measured.per_item["in_context_es"][row] == pytest.approx(recited / len(is_right))


def test_where_no_other_fits_before_a_text_there_is_no_number(make_model, forget, retain):
    few = FEW | {"steps": (1,), "rates": (1e-4,), "context": 5}
    found = Relearning(**few).evaluate(make_model(seed=1, layers=2, positions=2 * LENGTH), Task(forget, retain))
    assert not math.isnan(found.numbers["in_context_ma"]), "one fits"
    found = Relearning(**few).evaluate(make_model(seed=1, layers=2, positions=LENGTH), Task(forget, retain))
    assert math.isnan(found.numbers["in_context_ma"])
    assert math.isnan(found.numbers["in_context_es"])
    assert not math.isnan(found.numbers["relearned_ma"])
    assert found.notes["warnings"][0].startswith("6 of 6 sequences are not measured in context")
