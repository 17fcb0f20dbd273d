"""K-FAC edit: its directions by hand, its ranking against a plain loop, and the same in every layout of a matrix."""

import json

import pytest
import torch

from harness.contracts import Training
from harness.models.adapters import apply_patch, save_patch
from harness.toolkit import SecondMoments, mlp_matrices, second_moments
from methods.kfac_edit import KFACEdit, least
from tests.unit.families import make_tiny
from tests.unit.tasks import Task

MOMENTS = SecondMoments(
    # Eigenvalues 1, 3 and 5; the eigenvector of 1 is (1, -1, 0) / √2, that of 3 is (1, 1, 0) / √2.
    inputs_II=torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 5.0]]).double(),
    gradients_OO=torch.diag(torch.tensor([6.0, 3.0, 1.0])).double(),
)
WEIGHT = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])


def edited(model, texts, **settings):
    return next(KFACEdit(**settings).erase(Task(None, texts, lambda: model, Training(micro_batch=2))))


# Sides: 0.2 of Σ λ = 9 is more than 1 and less than 1 + 3, and 0.2 of Σ μ = 10 more than 1 and less than 1 + 3.
# Pairs: 0.1 of 9 · 10 is 9; the products 1 · 1, 1 · 3 and 3 · 1 are 7 together, and 5 · 1 would make 12.
BY_HAND = [
    (KFACEdit(erased_mass=0.2, ranking="sides"), [[1.5, 1.5, 3.0], [4.5, 4.5, 6.0], [0.0, 0.0, 0.0]]),
    (KFACEdit(erased_mass=0.1), [[1.0, 2.0, 3.0], [4.5, 4.5, 6.0], [0.0, 0.0, 9.0]]),
]


@pytest.mark.parametrize(("method", "kept"), BY_HAND, ids=["sides", "pairs"])
def test_what_is_kept_by_hand(method, kept):
    assert torch.allclose(WEIGHT - method.erased_part(WEIGHT, MOMENTS), torch.tensor(kept), atol=1e-6)


def test_least_is_what_a_loop_takes_one_by_one():
    values = torch.rand(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for share in (0.0, 0.01, 0.3, 0.7, 0.999):
        taken, held = set(), 0.0
        for index, value in sorted(enumerate(values.flatten().tolist()), key=lambda pair: pair[1]):
            held += value
            if held >= share * float(values.sum()):
                break
            taken.add(index)
        assert set(least(values, share).flatten().nonzero().flatten().tolist()) == taken
    assert taken, "the last share takes almost all"


@pytest.mark.parametrize("ranking", ["pairs", "sides"])
def test_a_kept_mass_of_1_is_the_original_to_the_last_bit_even_where_curvature_is_0(ranking):
    empty = SecondMoments(torch.diag(torch.tensor([0.0, 0.0, 1.0])), torch.diag(torch.tensor([0.0, 1.0, 2.0])))
    assert torch.equal(WEIGHT - KFACEdit(erased_mass=0.0, ranking=ranking).erased_part(WEIGHT, empty), WEIGHT)
    assert not torch.equal(WEIGHT - KFACEdit(erased_mass=1e-9, ranking=ranking).erased_part(WEIGHT, empty), WEIGHT)


def test_only_the_layers_and_matrices_asked_for_change_and_a_patch_holds_them(tmp_path, make_model, alike):
    original, model = make_model(layers=4), make_model(layers=4)
    found = edited(model, alike, erased_mass=0.3, layers=2, depth=0.75)
    assert found.changed_blocks == ("L1.C_fc", "L2.C_fc")
    before = dict(original.named_parameters())
    changed = [name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])]
    assert changed == [f"transformer.h.{layer}.mlp.c_fc.weight" for layer in (1, 2)]
    assert all(0 < share < 1 for share in found.notes["kept_square_norm"].values())
    assert json.loads(json.dumps(found.notes)) == found.notes
    file = tmp_path / "patch.safetensors"
    save_patch(model, found.changed_blocks, "digest", file)
    apply_patch(original, "digest", file)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    both = edited(make_model(layers=4), alike, erased_mass=0.3, layers=1, depth=1.0, edited="all")
    assert both.changed_blocks == ("L3.C_fc", "L3.C_proj")


def test_a_conv1d_is_edited_as_the_same_matrix_of_a_linear_layer(alike):
    model = make_tiny("gpt2")
    before = {matrix.parameter: model.get_parameter(matrix.parameter).clone() for matrix in mlp_matrices(model)}
    moments = second_moments(model, alike, mlp_matrices(model), Training(micro_batch=2), labels_seed=0)
    edited(model, alike, erased_mass=0.3, edited="all", depth=1.0)
    for name, weight_IO in before.items():
        linear = torch.nn.Linear(*weight_IO.shape)
        linear.weight.data.copy_(weight_IO.T)
        expected_OI = linear.weight - KFACEdit(erased_mass=0.3).erased_part(linear.weight.detach(), moments[name])
        assert torch.allclose(model.get_parameter(name), expected_OI.T, atol=1e-5)
        assert not torch.allclose(model.get_parameter(name), weight_IO, atol=1e-2)


@pytest.mark.parametrize("ranking", ["pairs", "sides"])
def test_gate_and_up_in_one_matrix_are_edited_as_if_they_were_two(alike, ranking):
    llama, phi = (make_tiny(name, rms_norm_eps=1e-5) for name in ("llama", "phi3"))
    weights = dict(llama.state_dict())
    for layer in range(2):
        inside = f"model.layers.{layer}"
        parts = [weights.pop(f"{inside}.self_attn.{name}_proj.weight") for name in "qkv"]
        weights[f"{inside}.self_attn.qkv_proj.weight"] = torch.cat(parts)
        parts = [weights.pop(f"{inside}.mlp.{name}_proj.weight") for name in ("gate", "up")]
        weights[f"{inside}.mlp.gate_up_proj.weight"] = torch.cat(parts)
    phi.load_state_dict(weights)
    before_NTV = logits(llama, alike)
    assert torch.allclose(before_NTV, logits(phi, alike), atol=1e-4)
    settings = {"erased_mass": 0.2, "ranking": ranking, "edited": "all", "depth": 1.0}
    blocks = [edited(model, alike, **settings).changed_blocks for model in (llama, phi)]
    assert blocks[0] == blocks[1]
    after_NTV = logits(llama, alike)
    assert torch.allclose(after_NTV, logits(phi, alike), atol=1e-3)
    assert float((after_NTV - before_NTV).std()) > 0.1 * float(before_NTV.std())


def logits(model, texts):
    with torch.inference_mode():
        return model(texts.tokens_NT).logits
