"""Moments and gradients of MLP matrices: against loops over single positions, in every layout, and without a trace."""

from types import SimpleNamespace

import pytest
import torch

from harness.contracts import Sequences, Training
from harness.errors import TrialError
from harness.models.blocks import FAMILIES, blocks
from harness.settings import replace
from harness.toolkit import loss_gradient, mlp_matrices, second_moments, token_nll
from harness.toolkit.layerwise import _drawn
from tests.unit.families import make_tiny
from tests.unit.tasks import random_rows

TRAINING = Training(micro_batch=2)


@pytest.fixture(scope="module")
def texts(make_sequences):
    """Three sequences of 9, 4 and 6 tokens."""
    return make_sequences(random_rows(9, 4, 6, seed=0, tokens=40), prefix_tokens=3)


def nll(model, batch):
    return batch.mean(token_nll(batch.logits(model), batch.targets_BS))


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
def test_moments_are_those_of_a_loop_over_positions(model_type, micro_batch, texts):
    model = make_tiny(model_type)
    rows = [row[:length].tolist() for row, length in zip(texts.tokens_NT, texts.lengths_N, strict=True)]
    matrices = mlp_matrices(model)
    found = second_moments(model, texts, matrices, replace(TRAINING, micro_batch=micro_batch))
    assert found.keys() == {matrix.parameter for matrix in matrices}
    for matrix in matrices:
        inputs_II, gradients_OO = moments_position_by_position(model, matrix, rows)
        ours = found[matrix.parameter]
        assert ours.inputs_II.dtype == ours.gradients_OO.dtype == torch.float64
        assert torch.allclose(ours.inputs_II.float(), inputs_II, rtol=1e-4, atol=1e-6)
        assert torch.allclose(ours.gradients_OO.float(), gradients_OO, rtol=1e-4, atol=1e-6)


def test_neither_padding_nor_what_a_loss_leaves_out_is_counted(texts):
    model = make_tiny("gpt_neo")
    [first, *_] = matrices = mlp_matrices(model)
    plain = second_moments(model, texts, matrices, TRAINING)[first.parameter]
    tokens_NT = texts.tokens_NT.clone()
    tokens_NT[1, 4:] = 7
    padded = second_moments(model, replace(texts, tokens_NT=tokens_NT), matrices, TRAINING)[first.parameter]
    assert torch.equal(plain.inputs_II, padded.inputs_II)
    assert torch.equal(plain.gradients_OO, padded.gradients_OO)
    continued = second_moments(model, texts, matrices, replace(TRAINING, loss_region="continuation"))[first.parameter]
    assert not torch.allclose(plain.inputs_II, continued.inputs_II, rtol=0.01)


def test_a_label_is_drawn_by_its_share():
    logits_BSV = torch.tensor([[[0.2, 0.3, 0.5]]]).log().expand(1, 5, 3)
    drawn = _drawn(logits_BSV, torch.tensor([[0.1, 0.25, 0.49, 0.51, 0.9999999, 0.5]]))
    assert drawn.tolist() == [[0, 1, 1, 2, 2]], "the last number is for a token that predicts nothing"


def test_drawn_labels_depend_on_their_seed_and_not_on_the_batches(texts):
    model = make_tiny("gpt_neo")
    matrices = mlp_matrices(model)

    def gradients(seed, micro_batch=2):
        found = second_moments(model, texts, matrices, replace(TRAINING, micro_batch=micro_batch), seed)
        return found[matrices[-1].parameter].gradients_OO

    assert torch.allclose(gradients(0), gradients(0, micro_batch=1), rtol=1e-4)
    assert not torch.allclose(gradients(0), gradients(1), rtol=0.01)
    assert not torch.allclose(gradients(0), gradients(None), rtol=0.01)


@pytest.mark.parametrize("micro_batch", [1, 2, 5])
def test_a_gradient_is_that_of_the_mean_over_all_texts(micro_batch, texts):
    model = make_tiny("gpt2")
    matrices = mlp_matrices(model)
    found = loss_gradient(model, texts, matrices, nll, replace(TRAINING, micro_batch=micro_batch))
    labels = texts.tokens_NT.masked_fill(torch.arange(9) >= texts.lengths_N[:, None], -100)
    model(texts.tokens_NT, labels=labels).loss.backward()
    for matrix in matrices:
        expected = model.get_parameter(matrix.parameter).grad
        assert torch.allclose(found[matrix.parameter], expected, rtol=1e-4, atol=1e-7)


def test_a_gradient_of_some_rows_is_theirs(texts):
    model = make_tiny("gpt2")
    [first, *_] = mlp_matrices(model)
    some = loss_gradient(model, texts, [first], nll, TRAINING, rows=torch.tensor([1]))
    alone = Sequences(texts.tokens_NT[1:2, :4], texts.lengths_N[1:2], 1, "")
    assert torch.allclose(some[first.parameter], loss_gradient(model, alone, [first], nll, TRAINING)[first.parameter])
    every = loss_gradient(model, texts, [first], nll, TRAINING)
    assert not torch.allclose(some[first.parameter], every[first.parameter])


def test_a_loss_that_is_not_a_number_is_refused(texts):
    broken = make_tiny("gpt_neo")
    broken.lm_head.weight.requires_grad_(False).fill_(float("nan"))
    matrices = mlp_matrices(broken)
    with pytest.raises(TrialError, match="the loss is nan"):
        loss_gradient(broken, texts, matrices, nll, TRAINING)
    with pytest.raises(TrialError, match="the loss is nan"):
        second_moments(broken, texts, matrices, TRAINING)


def test_the_example_of_the_guide_erases(texts, example):
    model = make_tiny("gpt2")
    task = SimpleNamespace(load_original=lambda: model, forget=texts, retain=texts, training=TRAINING)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    with torch.no_grad():
        next(iter(example("second_moments(")["erase"](SimpleNamespace(step=0.05), task)))
    changed = [name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])]
    assert changed == [f"transformer.h.1.mlp.{name}.weight" for name in ("c_fc", "c_proj")]
