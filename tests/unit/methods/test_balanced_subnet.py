"""BalancedSubnet: what it drops, and that it drops what the forget set needs."""

import pytest
import torch

from harness.contracts import Training
from harness.settings import replace
from harness.toolkit import ascent, mean_nll, mlp_matrices
from methods import balanced_subnet
from methods.balanced_subnet import BalancedSubnet
from tests.unit.tasks import Task, random_rows


@pytest.fixture
def task(make_reciter, make_sequences):
    """Return a task on a model that knows its forget texts and its retain texts alike."""
    rows = random_rows(*[12] * 6, seed=2)
    original = make_reciter(make_sequences(rows), 30, global_batch=3)
    training = Training(learning_rate=1e-2, global_batch=3, micro_batch=2, early_stop=None)
    return Task(make_sequences(rows[:3]), make_sequences(rows[3:]), original, training)


def nll(model, sequences):
    with torch.inference_mode():
        return float(model(sequences.tokens_NT, labels=sequences.tokens_NT).loss)


def test_a_share_of_each_mlp_matrix_is_dropped_and_no_other_weight_changes(task):
    [erased] = BalancedSubnet(dropped=0.1, epochs=2).erase(task)
    before = dict(task.load_original().named_parameters())
    names = {matrix.parameter for matrix in mlp_matrices(erased.model)}
    assert len(names) == 4
    for name, weight in erased.model.named_parameters():
        if name in names:
            assert int((weight == 0).sum()) == round(0.1 * weight.numel())
            assert torch.equal(weight[weight != 0], before[name][weight != 0])
        else:
            assert torch.equal(weight, before[name])


def test_masks_that_begin_as_noise_are_trained_to_the_end(task, monkeypatch):
    strict, perplexities = replace(task, training=replace(task.training, early_stop=1.03)), iter(range(1, 99))
    monkeypatch.setattr(strict, "validation_perplexity", lambda model: next(perplexities))
    [erased] = BalancedSubnet(dropped=0.2, epochs=3).erase(strict)
    assert (erased.notes["epoch"], erased.stop_reason) == (3, None)


def test_it_drops_what_the_forget_set_needs_and_the_retain_set_does_not(task, monkeypatch):
    method = BalancedSubnet(dropped=0.1, epochs=10, score_rate=0.02)
    [ours] = method.erase(task)
    forget, retain = nll(ours.model, task.forget), nll(ours.model, task.retain)
    assert forget > nll(task.load_original(), task.forget) + 0.5
    assert forget > retain + 0.5
    monkeypatch.setattr(balanced_subnet, "mean_nll", ascent)
    monkeypatch.setattr(balanced_subnet, "ascent", mean_nll)
    [turned] = method.erase(task)
    assert nll(turned.model, task.forget) < nll(turned.model, task.retain) - 0.5
