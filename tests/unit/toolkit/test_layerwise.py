"""Gradients layer by layer: what they hold and what they leave behind.

That they are those of the whole model is held on every family: tests/unit/models/test_blocks_of_families.py.
"""

from types import SimpleNamespace

import pytest
import torch

from harness.contracts import Sequences, Training
from harness.errors import TrialError
from harness.models.blocks import FAMILIES, blocks
from harness.settings import replace
from harness.toolkit import gradients_by_layer, loss_gradient, mean_nll, mlp_matrices, second_moments
from harness.toolkit.finetune import micro_batches
from tests.unit.families import make_tiny
from tests.unit.tasks import negative_entropy, nll, random_rows

ROWS, TOKENS = 5, 12


LOSSES = (nll, negative_entropy)


@pytest.fixture
def model(make_model):
    return make_model(1)


@pytest.fixture
def batches(make_sequences):
    rows = torch.randint(1, 60, (ROWS, TOKENS), generator=torch.Generator().manual_seed(0)).tolist()
    return micro_batches(make_sequences(rows), torch.arange(ROWS), Training(micro_batch=2), torch.device("cpu"))


def matrices(model):
    return [name for name, weight in model.named_parameters() if ".h." in name and weight.ndim == 2]


def merged(by_layer):
    """Return each loss's gradients in all layers."""
    every = [{}, {}]
    for of_layer in by_layer:
        for gradients, further in zip(every, of_layer, strict=True):
            gradients |= further
    return every


def test_the_deepest_layer_comes_first_and_only_what_is_wanted(model, batches):
    wanted = ("transformer.h.1.mlp.c_fc.weight", "transformer.h.3.attn.attention.k_proj.weight")
    by_layer = list(gradients_by_layer(model, batches, wanted, [nll]))
    assert [[*gradients] for [gradients] in by_layer] == [[wanted[1]], [], [wanted[0]]]
    [whole, _] = merged(gradients_by_layer(model, batches, matrices(model), LOSSES))
    assert all(torch.equal(gradient, whole[name]) for [gradients] in by_layer for name, gradient in gradients.items())
    assert list(gradients_by_layer(model, batches, [], [nll])) == []


def test_the_example_of_the_guide_selects_the_steepest_blocks(model, batches, example):
    chosen, _ = example("select_blocks")["select"](model, batches)
    [whole, _] = merged(gradients_by_layer(model, batches, matrices(model), LOSSES))
    slopes = {block: float(block.of(whole[block.parameter]).norm()) for block in blocks(model)}
    assert [slopes[block] for block in chosen] == sorted(slopes.values(), reverse=True)[:2]


def trace(model):
    """Return what a selection may leave behind in a model."""
    asking = [weight.requires_grad for weight in model.parameters()]
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    return asking, hooks, [weight.grad for weight in model.parameters()]


def test_the_model_is_as_it_was_lent_whenever_a_layer_is_given(model, batches):
    model.transformer.wte.weight.requires_grad_(False)
    before = trace(model)
    assert True in before[0], "some ask and some do not"
    assert [trace(model) for _ in gradients_by_layer(model, batches, matrices(model), LOSSES)] == [before] * 4
    assert trace(model) == before
    next(gradients_by_layer(model, batches, matrices(model), LOSSES))
    assert trace(model) == before, "whoever began may stop"


def test_a_parameter_that_is_in_no_layer_is_an_error(model, batches):
    with pytest.raises(TrialError, match=r"no parameter of a layer is called 'transformer.wte.weight'"):
        list(gradients_by_layer(model, batches, ["transformer.wte.weight"], [nll]))


def test_dropout_is_an_error(model, batches):
    with pytest.raises(TrialError, match=r"Call model.eval\(\)"):
        list(gradients_by_layer(model.train(), batches, matrices(model), [nll]))


def test_layers_that_are_no_chain_are_an_error(model, batches):
    """Something between two layers would have a gradient of its own."""
    model.transformer.h[2].register_forward_pre_hook(lambda layer, inputs: (inputs[0] * 2, *inputs[1:]))
    before = trace(model)
    with pytest.raises(TrialError, match="are no chain: one is not given what the layer before it gave"):
        list(gradients_by_layer(model, batches, matrices(model), LOSSES))
    assert trace(model) == before


# Moments and gradients of MLP matrices: against loops over single positions, in every layout, and without a trace.


TRAINING = Training(micro_batch=2)


@pytest.fixture(scope="module")
def three_texts(make_sequences):
    """Three sequences of 9, 4 and 6 tokens."""
    return make_sequences(random_rows(9, 4, 6, seed=0, tokens=40), prefix_tokens=3)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_they_are_the_matrices_of_the_mlp_blocks(model_type):
    model = make_tiny(model_type)
    matrices = mlp_matrices(model)
    shapes = {name: weight.shape for name, weight in model.named_parameters()}
    rows = {}
    for matrix in matrices:
        for name, part in matrix.rows_of_blocks(torch.empty(shapes[matrix.parameter])).items():
            rows[name] = (matrix.parameter, part.start, part.stop)
    of_blocks = {block.name: block for block in blocks(model) if block.name.split(".")[1].startswith("C_")}
    assert rows.keys() == of_blocks.keys()
    assert [matrix.layer for matrix in matrices] == sorted(matrix.layer for matrix in matrices)
    for name, (parameter, start, stop) in rows.items():
        block = of_blocks[name]
        assert parameter == block.parameter
        if "C_proj" not in name:
            assert (start, stop) == (block.start, block.stop), "what a gate or an up-projection gives are its rows"


def moments_position_by_position(model, matrix, rows):
    """Return A and G from each sequence alone, unpadded, one outer product after the other."""
    module = model.get_submodule(matrix.parameter.removesuffix(".weight"))
    products_A, products_G, seen = [], [], []
    handle = module.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    for row in rows:
        log_p = model(torch.tensor([row])).logits.log_softmax(-1)[0]
        inputs, outputs = seen.pop()
        loss = sum(-log_p[position, row[position + 1]] for position in range(len(row) - 1))
        [gradients] = torch.autograd.grad(loss, [outputs])
        for position in range(len(row) - 1):
            products_A.append(torch.outer(inputs[0, position], inputs[0, position]).detach())
            products_G.append(torch.outer(gradients[0, position], gradients[0, position]))
    handle.remove()
    return torch.stack(products_A).mean(0), torch.stack(products_G).mean(0)


@pytest.mark.parametrize("micro_batch", [1, 2, 5])
@pytest.mark.parametrize("model_type", ["gpt_neo", "gpt2", "phi3"])
def test_moments_are_those_of_a_loop_over_positions(model_type, micro_batch, three_texts):
    model = make_tiny(model_type)
    rows = [row[:length].tolist() for row, length in zip(three_texts.tokens_NT, three_texts.lengths_N, strict=True)]
    matrices = mlp_matrices(model)
    found = second_moments(model, three_texts, matrices, replace(TRAINING, micro_batch=micro_batch))
    assert found.keys() == {matrix.parameter for matrix in matrices}
    for matrix in matrices:
        inputs_II, gradients_OO = moments_position_by_position(model, matrix, rows)
        ours = found[matrix.parameter]
        assert ours.inputs_II.dtype == ours.gradients_OO.dtype == torch.float64
        assert torch.allclose(ours.inputs_II.float(), inputs_II, rtol=1e-4, atol=1e-6)
        assert torch.allclose(ours.gradients_OO.float(), gradients_OO, rtol=1e-4, atol=1e-6)


def test_neither_padding_nor_what_a_loss_leaves_out_is_counted(three_texts):
    model = make_tiny("gpt_neo")
    [first, *_] = matrices = mlp_matrices(model)
    plain = second_moments(model, three_texts, matrices, TRAINING)[first.parameter]
    tokens_NT = three_texts.tokens_NT.clone()
    tokens_NT[1, 4:] = 7
    padded = second_moments(model, replace(three_texts, tokens_NT=tokens_NT), matrices, TRAINING)[first.parameter]
    assert torch.equal(plain.inputs_II, padded.inputs_II)
    assert torch.equal(plain.gradients_OO, padded.gradients_OO)
    of_region = replace(TRAINING, loss_region="continuation")
    continued = second_moments(model, three_texts, matrices, of_region)[first.parameter]
    assert not torch.allclose(plain.inputs_II, continued.inputs_II, rtol=0.01)


def test_drawn_labels_depend_on_their_seed_and_not_on_the_batches(three_texts):
    model = make_tiny("gpt_neo")
    matrices = mlp_matrices(model)

    def gradients(seed, micro_batch=2):
        found = second_moments(model, three_texts, matrices, replace(TRAINING, micro_batch=micro_batch), seed)
        return found[matrices[-1].parameter].gradients_OO

    assert torch.allclose(gradients(0), gradients(0, micro_batch=1), rtol=1e-4)
    assert not torch.allclose(gradients(0), gradients(1), rtol=0.01)
    assert not torch.allclose(gradients(0), gradients(None), rtol=0.01)


@pytest.mark.parametrize("micro_batch", [1, 2, 5])
def test_a_gradient_is_that_of_the_mean_over_all_texts(micro_batch, three_texts):
    model = make_tiny("gpt2")
    matrices = mlp_matrices(model)
    found = loss_gradient(model, three_texts, matrices, mean_nll, replace(TRAINING, micro_batch=micro_batch))
    labels = three_texts.tokens_NT.masked_fill(torch.arange(9) >= three_texts.lengths_N[:, None], -100)
    model(three_texts.tokens_NT, labels=labels).loss.backward()
    for matrix in matrices:
        assert torch.allclose(found[matrix.parameter], model.get_parameter(matrix.parameter).grad, rtol=1e-4, atol=1e-7)


def test_a_gradient_of_some_rows_is_theirs(three_texts):
    model = make_tiny("gpt2")
    [first, *_] = mlp_matrices(model)
    some = loss_gradient(model, three_texts, [first], mean_nll, TRAINING, rows=torch.tensor([1]))
    alone = Sequences(three_texts.tokens_NT[1:2, :4], three_texts.lengths_N[1:2], 1, "")
    theirs = loss_gradient(model, alone, [first], mean_nll, TRAINING)
    assert torch.allclose(some[first.parameter], theirs[first.parameter])
    every = loss_gradient(model, three_texts, [first], mean_nll, TRAINING)
    assert not torch.allclose(some[first.parameter], every[first.parameter])


def test_a_loss_that_is_not_a_number_is_refused(three_texts):
    broken = make_tiny("gpt_neo")
    broken.lm_head.weight.requires_grad_(False).fill_(float("nan"))
    matrices = mlp_matrices(broken)
    with pytest.raises(TrialError, match="the loss is nan"):
        loss_gradient(broken, three_texts, matrices, mean_nll, TRAINING)
    with pytest.raises(TrialError, match="the loss is nan"):
        second_moments(broken, three_texts, matrices, TRAINING)


def test_the_example_of_the_guide_erases(three_texts, example):
    model = make_tiny("gpt2")
    task = SimpleNamespace(load_original=lambda: model, forget=three_texts, retain=three_texts, training=TRAINING)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    with torch.no_grad():
        next(iter(example("edit_weights")["erase"](task, 0.05)))
    changed = [name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])]
    assert changed == [f"transformer.h.1.mlp.{name}.weight" for name in ("c_fc", "c_proj")]
