"""BalancedSubnet: what it drops, and that it drops what the forget set needs."""

import pytest
import torch

from harness.contracts import LoRA, Training
from harness.toolkit import ascent, mean_nll, mlp_matrices, nll_loss, train
from methods import balanced_subnet
from methods.balanced_subnet import BalancedSubnet

TRAINING = Training(learning_rate=1e-2, global_batch=3, micro_batch=2, early_stop=None)


@pytest.fixture
def task(make_task, copies_of, make_model, make_sequences):
    """Return a task on a model that knows its forget texts and its retain texts alike."""
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randint(1, 60, (12,), generator=generator).tolist() for _ in range(6)]
    model = make_model(1, layers=2)
    list(train(make_task(make_sequences(rows), training=TRAINING), model, nll_loss, 30))
    original = copies_of(lambda: make_model(1, layers=2), model)
    return make_task(make_sequences(rows[:3]), make_sequences(rows[3:]), original, TRAINING)


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


def test_it_drops_what_the_forget_set_needs_and_the_retain_set_does_not(task, monkeypatch):
    original = task.load_original()
    method = BalancedSubnet(dropped=0.1, epochs=10, score_rate=0.02)
    [ours] = method.erase(task)
    forget, retain = nll(ours.model, task.forget), nll(ours.model, task.retain)
    assert forget > nll(original, task.forget) + 0.5
    assert forget > retain + 0.5
    monkeypatch.setattr(balanced_subnet, "mean_nll", ascent)
    monkeypatch.setattr(balanced_subnet, "ascent", mean_nll)
    [turned] = method.erase(task)
    assert nll(turned.model, task.forget) < nll(turned.model, task.retain) - 0.5


def test_it_trains_no_adapters():
    assert "lora: null" in BalancedSubnet().refuses_training(Training(lora=LoRA(rank=2)))
    assert BalancedSubnet().refuses_training(Training()) is None
    assert BalancedSubnet().refuses({"model_type": "mamba"})
