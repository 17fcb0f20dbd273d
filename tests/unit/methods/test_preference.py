"""NPO, SimNPO and AltPO: by hand, against losses that read one text after the other."""

from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch.nn.functional import logsigmoid

from harness.contracts import Training
from harness.settings import replace
from harness.toolkit import sample
from methods.altpo import AltPO
from methods.npo import NPO
from methods.npo_sam import NPOSAM
from methods.simnpo import SimNPO
from tests.unit.tasks import Task, random_rows, weights

PREFIX, LENGTH = 4, 20


@pytest.fixture
def original(make_model):
    return make_model(2, layers=2)


@pytest.fixture
def rises(model, original, nll_of):
    """Return a function from texts to how much less likely than to the original each is."""

    def rises(texts):
        pairs = zip(nll_of(model, texts), nll_of(original, texts), strict=True)
        return torch.stack([ours.sum() - theirs.sum().detach() for ours, theirs in pairs])

    return rises


def test_npo_is_the_papers_loss_one_text_after_the_other(model, original, texts, nll_of, rises, check_loss):
    forget, retain = texts(), texts(seed=1)
    expected = (-2 / 0.07 * logsigmoid(0.07 * rises(forget))).mean() + 3.0 * torch.cat(nll_of(model, retain)).mean()
    check_loss(partial(NPO(beta=0.07, retain_weight=3.0).loss, original), expected, forget, retain)
    assert len(set(rises(forget).round().tolist())) > 1


@pytest.mark.parametrize("retain", [True, False])
def test_simnpo_is_the_papers_loss_one_text_after_the_other(model, texts, nll_of, check_loss, retain):
    forget, others = texts(), texts(seed=1)
    means = torch.stack([nll.mean() for nll in nll_of(model, forget)])
    kept = torch.cat(nll_of(model, others)).mean()
    expected = (-2 / 2.5 * logsigmoid(2.5 * (means - 1.5))).mean() + 3.0 * retain * kept
    method = SimNPO(beta=2.5, margin=1.5, retain_weight=3.0, retain=retain)
    check_loss(method.loss, expected, forget, others, atol=1e-5)


def test_altpo_is_the_papers_loss_one_text_after_the_other(model, original, texts, nll_of, rises, check_loss):
    forget, beside, retain = texts(), texts(seed=3), texts(seed=1)
    preferences = -2 / 0.07 * logsigmoid(0.07 * (rises(forget) - rises(beside)))
    expected = preferences.mean() + 3.0 * torch.cat(nll_of(model, retain)).mean()
    check_loss(partial(AltPO(beta=0.07, retain_weight=3.0).loss, original), expected, forget, retain, beside)


# What NPO+SAM adds.


def test_without_a_move_it_is_npo(make_model, texts):
    training = Training(learning_rate=1e-3, global_batch=3, micro_batch=3, early_stop=None)
    task = Task(texts(), texts(seed=1), lambda: make_model(1, layers=2), training, strengths=(2,))
    methods = NPOSAM(radius=0.0), NPO(), NPOSAM(radius=0.5)
    still, npo, moved = (weights(next(method.erase(task)).model) for method in methods)
    # One backward pass for each term, and the sum of two: rounding alone, of which AdamW makes 1e-6 of a weight.
    assert torch.allclose(still, npo, atol=2e-5)
    assert not torch.allclose(still, moved, atol=1e-4)


def test_the_forget_gradient_is_taken_up_the_slope_and_the_retain_gradient_where_it_is():
    """The forget term is w³ and the retain term w² at w = (3, 4): the gradients are 3 w² and 2 w."""
    start = torch.tensor([3.0, 4.0])

    class Step:
        def __init__(self):
            self.weights = {"w": start}

        def gradient(self, term):
            weight = self.weights["w"]
            return {"w": 3 * weight**2 if term == "forget" else 2 * weight}

        @contextmanager
        def moved(self, by):
            self.weights = {"w": start + by["w"]}
            yield
            self.weights = {"w": start}

    slope = torch.tensor([27.0, 48.0])
    there = start + 0.5 * slope / slope.norm()
    assert torch.allclose(NPOSAM(radius=0.5, retain_weight=2.0).gradient(Step())["w"], 3 * there**2 + 2.0 * 2 * start)
    assert torch.allclose(NPOSAM(radius=0.0, retain_weight=2.0).gradient(Step())["w"], slope + 4 * start)


# What AltPO writes.


def longest_common_run(one, other):
    """Return the length of the longest run in both texts, by a loop over all runs."""
    runs = {tuple(one[start:stop]) for stop in range(len(one) + 1) for start in range(stop)}
    shared = [run for run in runs if any(run == tuple(other[at : at + len(run)]) for at in range(len(other)))]
    return max(map(len, shared), default=0)


def test_an_alternative_is_another_text_of_the_same_prefix_and_length(make_reciter, make_sequences):
    forget = make_sequences(random_rows(*range(LENGTH, LENGTH - 4, -1), seed=2), prefix_tokens=PREFIX)
    task = Task(forget, forget, make_reciter(forget, 40, global_batch=4))
    original, method = task.load_original(), AltPO(longest_run=3, tries=20)
    drawn = sample(original, forget.tokens_NT[:, :PREFIX], LENGTH - PREFIX, seed=0, top_p=1.0)
    recited = [
        longest_common_run(text[PREFIX:length].tolist(), written.tolist())
        for text, length, written in zip(forget.tokens_NT, forget.lengths_N.tolist(), drawn, strict=True)
    ]
    assert max(recited) >= 3, "the original recites"
    beside, runs = method.alternatives(original, task)
    for row, length in enumerate(forget.lengths_N.tolist()):
        text, other = forget.tokens_NT[row].tolist(), beside.tokens_NT[row].tolist()
        assert text[:PREFIX] == other[:PREFIX]
        assert other[length:] == text[length:] == [0] * (LENGTH - length)
        assert longest_common_run(text[PREFIX:length], other[PREFIX:length]) == runs[row] < 3
    assert torch.equal(method.alternatives(original, task)[0].tokens_NT, beside.tokens_NT)
    assert not torch.equal(method.alternatives(original, replace(task, seed=1))[0].tokens_NT, beside.tokens_NT)
    beside, runs = AltPO(longest_run=LENGTH, tries=20).alternatives(original, task)
    for row, length in enumerate(forget.lengths_N.tolist()):
        assert runs[row] < length - PREFIX, "no alternative is the text, however short"
        assert not torch.equal(beside.tokens_NT[row], forget.tokens_NT[row])
