"""What a method did to the weights: hand-worked updates of rank one and of full rank, and of nothing."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch

from evaluators.weights import Weights, stable_rank

NO_LAYER = "no matrix of a layer differs from the original's: only embeddings, biases or norms do"
MATRIX = "transformer.h.1.attn.attention.out_proj.weight"


@pytest.fixture(scope="module")
def original(make_model):
    return make_model(seed=1, layers=2, hidden=8, heads=2)


@pytest.fixture
def measured(original):
    """Return a function from additions to parameters, by name, to what is measured of the model that has them."""

    def measure(additions=None, model=None):
        erased = copy.deepcopy(original)
        with torch.no_grad():
            for name, added in (additions or {}).items():
                erased.get_parameter(name).add_(added)
        return Weights().evaluate(model or erased, SimpleNamespace(load_original=lambda: copy.deepcopy(original)))

    return measure


def norm(model):
    return math.sqrt(sum(weight.double().square().sum().item() for weight in model.parameters() if weight.ndim == 2))


def test_an_update_of_rank_one_has_the_stable_rank_one(original, measured):
    left, right = torch.arange(1.0, 9.0), torch.linspace(-1, 1, 8)
    update = 0.1 * torch.outer(left, right)
    evaluation = measured({MATRIX: update})
    assert evaluation.numbers["stable_rank"] == pytest.approx(1.0, rel=1e-5)
    assert evaluation.numbers["weight_change"] == pytest.approx(update.norm().item() / norm(original), rel=1e-5)
    assert not evaluation.notes.keys() & {"warnings", "erasure_warnings"}


def test_what_did_not_move_has_no_rank_and_that_is_said(measured):
    evaluation = measured()
    assert evaluation.numbers["weight_change"] == 0.0
    assert math.isnan(evaluation.numbers["stable_rank"])
    assert evaluation.notes["erasure_warnings"] == ["no weight differs from the original's, so this erased nothing"]


def test_embeddings_count_as_moved_and_are_no_layer_and_tied_ones_count_once(original, measured):
    assert original.lm_head.weight is original.transformer.wte.weight
    evaluation = measured({"transformer.wte.weight": torch.ones(60, 8)})
    assert evaluation.numbers["weight_change"] == pytest.approx(math.sqrt(60 * 8) / norm(original), rel=1e-5)
    assert math.isnan(evaluation.numbers["stable_rank"])
    assert evaluation.notes["erasure_warnings"] == [NO_LAYER]


def test_the_matrices_of_experts_in_one_parameter_are_looked_at_one_by_one():
    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Module()])
            self.layers[0].experts = torch.nn.Parameter(torch.ones(3, 4, 6))

    erased = Experts()
    with torch.no_grad():
        erased.layers[0].experts[1] += torch.eye(4, 6)
        erased.layers[0].experts[2] += torch.ones(4, 6)
    evaluation = Weights().evaluate(erased, SimpleNamespace(load_original=Experts))
    assert evaluation.numbers["stable_rank"] == pytest.approx((4 + 1) / 2)
    assert evaluation.numbers["weight_change"] == pytest.approx(math.sqrt((4 + 24) / 72))


def test_a_diverged_model_has_no_numbers_rather_than_wrong_ones(measured):
    evaluation = measured({MATRIX: torch.full((8, 8), math.nan)})
    assert all(map(math.isnan, evaluation.numbers.values()))
    assert "some weights are not numbers" in evaluation.notes["warnings"][0]


@pytest.mark.parametrize("shape", [(30, 7), (7, 30), (16, 16)])
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e30])
def test_the_stable_rank_is_that_of_the_singular_values_at_any_scale(shape, scale):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    values = torch.linalg.svdvals(matrix)
    assert stable_rank(matrix * scale) == pytest.approx(float((values**2).sum() / values[0] ** 2), rel=1e-9)
    assert stable_rank(matrix * scale) < min(shape)


def test_what_is_all_zeros_or_not_finite_has_no_stable_rank():
    for matrix in (torch.zeros(3, 4), torch.tensor([[math.nan, 1.0]]), torch.tensor([[math.inf, 1.0]])):
        assert math.isnan(stable_rank(matrix))
