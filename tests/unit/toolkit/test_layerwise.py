"""Gradients layer by layer: what they hold and what they leave behind.

That they are those of the whole model is held on every family: tests/unit/models/test_blocks_of_families.py.
"""

import pytest
import torch

from harness.contracts import Training
from harness.errors import TrialError
from harness.models.blocks import Block, blocks
from harness.toolkit import gradients_by_layer, token_negative_entropy, token_nll
from harness.toolkit.finetune import micro_batches

ROWS, TOKENS = 5, 12


def nll(batch, logits_BSV):
    return batch.mean(token_nll(logits_BSV, batch.targets_BS))


def negative_entropy(batch, logits_BSV):
    return batch.mean(token_negative_entropy(logits_BSV))


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
    wanted = {"transformer.h.1.mlp.c_fc.weight", "transformer.h.3.attn.attention.k_proj.weight"}
    by_layer = list(gradients_by_layer(model, batches, wanted, [nll]))
    assert [[*gradients] for [gradients] in by_layer] == [
        ["transformer.h.3.attn.attention.k_proj.weight"],
        [],
        ["transformer.h.1.mlp.c_fc.weight"],
    ]
    [whole, _] = merged(gradients_by_layer(model, batches, matrices(model), LOSSES))
    assert all(torch.equal(gradient, whole[name]) for [gradients] in by_layer for name, gradient in gradients.items())
    assert list(gradients_by_layer(model, batches, [], [nll])) == []


def test_the_example_of_the_guide_selects_the_steepest_blocks(model, batches, example):
    chosen, _ = example("gradients_by_layer(", Block=Block, blocks=blocks)["select"](model, batches)
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
    by_layer = gradients_by_layer(model, batches, matrices(model), LOSSES)
    assert [trace(model) for _ in by_layer] == [before] * 4
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
