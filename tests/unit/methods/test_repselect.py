"""RepSelect: plain steps of gradient ascent where nothing is damped; damping by hand; adapters by autograd."""

import pytest
import torch

from harness.contracts import Training
from harness.toolkit import mlp_matrices
from methods.repselect import RepSelect, damp
from tests.unit.families import make_tiny
from tests.unit.tasks import Task

SMALL = {"gpt2": {"n_embd": 16, "n_head": 2}, "llama": {"hidden_size": 16, "num_attention_heads": 2}}
TRAINING = Training(global_batch=4, micro_batch=2)


@pytest.fixture(params=["gpt2", "llama"])
def make(request):
    """Return a maker of one tiny model, again and again: of Conv1D and of Linear matrices."""
    return lambda: make_tiny(request.param, **SMALL[request.param])


def erase(model, texts, strengths=(1,), **settings):
    """Return the MLP matrices after each epoch."""
    names = [matrix.parameter for matrix in mlp_matrices(model)]
    steps = RepSelect(**settings).erase(Task(texts, None, lambda: model, TRAINING, strengths))
    return [{name: erased.model.get_parameter(name).detach().clone() for name in names} for erased in steps]


def test_undamped_and_without_adapters_it_takes_plain_steps_along_the_gradient_of_the_original(make, alike):
    model = make()
    model(alike.tokens_NT, labels=alike.tokens_NT).loss.backward()
    original = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for epoch, matrices in enumerate(erase(make(), alike, (1, 2, 3), step=0.1, damped=0.0, adapter_step=0.0), start=1):
        for name, matrix in matrices.items():
            moved = epoch * 2 * 0.1 * model.get_parameter(name).grad
            assert torch.allclose(matrix, original[name] + moved, atol=1e-5)
            assert float(moved.abs().max()) > 1e-3


def test_damping_by_hand():
    """Of 8, 4, 2, 1 the strongest three become 4/8, 4/4 and 2; in any bases, and for matrices of either shape."""
    generator = torch.Generator().manual_seed(0)
    left = torch.linalg.qr(torch.randn(6, 4, generator=generator))[0]
    right = torch.linalg.qr(torch.randn(4, 4, generator=generator))[0]
    gradient = left @ torch.diag(torch.tensor([8.0, 4.0, 2.0, 1.0])) @ right.T
    expected = left @ torch.diag(torch.tensor([0.5, 1.0, 2.0, 1.0])) @ right.T
    assert torch.allclose(damp(gradient, 3), expected, atol=1e-5)
    assert torch.allclose(damp(gradient.T, 3), expected.T, atol=1e-5)
    assert torch.allclose(damp(gradient, 0), gradient, atol=1e-6)
    assert torch.allclose(damp(gradient, 1), gradient, atol=1e-5), "the strongest alone is its own measure"


def test_a_gradient_of_lower_rank_than_is_damped_is_finite():
    column = torch.arange(1.0, 5.0)[:, None]
    assert torch.allclose(damp(column @ column.T, 3), torch.zeros(4, 4), atol=1e-4)
    assert torch.equal(damp(torch.zeros(4, 4), 3), torch.zeros(4, 4))


def with_adapters(model, texts, rate, rank):
    """Return the gradients of the MLP matrices with trained adapters in place, by autograd on A and B themselves."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    adapters, inputs_first = {}, {}
    for matrix in mlp_matrices(model):
        outputs, inputs = matrix.outputs_first(weights[matrix.parameter]).shape
        inner = (torch.rand(rank, inputs, generator=generator) * 2 - 1) / inputs**0.5
        adapters[matrix.parameter] = (inner.requires_grad_(), torch.zeros(outputs, rank, requires_grad=True))
        inputs_first[matrix.parameter] = matrix.inputs_first

    def adapted():
        changed = dict(weights)
        for name, (inner, outer) in adapters.items():
            update = outer @ inner
            changed[name] = weights[name] + (update.T if inputs_first[name] else update)
        return changed

    def loss_of(parameters, tokens):
        return torch.func.functional_call(model, parameters, (tokens,), {"labels": tokens}).loss

    for rows in torch.randperm(6, generator=generator).split(4):
        both = [tensor for pair in adapters.values() for tensor in pair]
        steps = torch.autograd.grad(loss_of(adapted(), texts.tokens_NT[rows]), both)
        with torch.no_grad():
            for tensor, gradient in zip(both, steps, strict=True):
                tensor -= rate * gradient
    inside = {name: weight.detach().requires_grad_() for name, weight in adapted().items()}
    gradients = torch.autograd.grad(loss_of(inside, texts.tokens_NT), [inside[name] for name in adapters])
    return dict(zip(adapters, gradients, strict=True))


def test_adapters_are_those_that_autograd_trains_and_they_are_dropped(make, alike):
    original = dict(make().named_parameters())
    expected = with_adapters(make(), alike, rate=0.5, rank=4)
    settings = {"step": 0.1, "damped": 0.0, "adapter_rank": 4}
    [found] = erase(make(), alike, adapter_step=0.5, **settings)
    [without] = erase(make(), alike, adapter_step=0.0, **settings)
    for name, matrix in found.items():
        assert torch.allclose(matrix, original[name] + 2 * 0.1 * expected[name], atol=1e-4)
    assert any(not torch.allclose(matrix, without[name], atol=1e-3) for name, matrix in found.items())


def test_each_half_of_a_fused_matrix_has_its_own_directions(monkeypatch, make_sequences):
    model, shapes = make_tiny("phi3"), []
    monkeypatch.setattr("methods.repselect.damp", lambda part, q: shapes.append((*part.shape, q)) or part)
    erase(model, make_sequences([[1, 2, 3, 4]]), damped=0.5, adapter_step=0.0)
    assert shapes == [(48, 32, 16), (48, 32, 16), (32, 48, 16)] * 2


def test_nothing_but_mlp_matrices_moves_and_all_of_them_do(make, alike):
    model, original = make(), dict(make().named_parameters())
    erase(model, alike, step=1.0)
    changed = {name for name, weight in model.named_parameters() if not torch.equal(weight, original[name])}
    assert changed == {matrix.parameter for matrix in mlp_matrices(model)}
