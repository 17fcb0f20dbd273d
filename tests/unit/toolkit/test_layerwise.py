"""Gradients layer by layer: what they hold, what they leave behind, and what each worker adds to them.

That they are those of the whole model is held on every family: tests/unit/models/test_blocks_of_families.py.
"""

import re
from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

from harness import contracts, toolkit
from harness.contracts import Training
from harness.errors import TrialError
from harness.models.blocks import Block, blocks
from harness.planning.memory import MemoryTracker
from harness.toolkit import gradients_by_layer, token_negative_entropy, token_nll
from harness.toolkit.finetune import micro_batches

ROWS, TOKENS, WIDTH = 5, 12, 128


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


def differentiate_whole(model, batches):
    """Add up the gradients of both losses in all matrices at once, and let go of them."""
    weights = [model.get_parameter(name) for name in matrices(model)]
    sums = [[torch.zeros_like(weight) for weight in weights] for _ in LOSSES]
    model.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_(True)
    for batch in batches:
        logits_BSV = batch.logits(model)
        for loss, totals in zip(LOSSES, sums, strict=True):
            parts = torch.autograd.grad(loss(batch, logits_BSV), weights, retain_graph=loss is not LOSSES[-1])
            for total, part in zip(totals, parts, strict=True):
                total += part
        del logits_BSV, parts


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


def test_nothing_below_the_first_wanted_layer_is_computed_again(model, batches):
    runs = []
    for number, layer in enumerate(model.transformer.h):
        layer.register_forward_hook(lambda layer, inputs, output, number=number: runs.append(number))
    list(gradients_by_layer(model, batches[:1], ["transformer.h.2.mlp.c_fc.weight"], LOSSES))
    assert runs == [0, 1, 2, 3, 3, 2], "both losses in one more pass"


def test_the_example_of_the_guide_selects_the_steepest_blocks(model, batches):
    page = (Path(__file__).parents[3] / "docs" / "add-a-method.md").read_text()
    [code] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "gradients_by_layer(" in block]
    names = {"torch": torch, **vars(toolkit), **vars(contracts), "Sequence": Sequence, "Block": Block, "blocks": blocks}
    exec(code, names)
    chosen, _ = names["select"](model, batches)
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


@pytest.mark.parametrize("passes_before", [0, 3], ids=["forward", "again"])
def test_the_model_is_as_it_was_lent_after_an_error(model, batches, passes_before):
    model.transformer.wte.weight.requires_grad_(False)
    before, runs = trace(model), []

    def explode(*_):
        runs.append(1)
        if len(runs) > passes_before:
            raise RuntimeError("broken")

    handle = model.transformer.h[2].mlp.c_fc.register_forward_hook(explode)
    with pytest.raises(RuntimeError, match="broken"):
        list(gradients_by_layer(model, batches, matrices(model), LOSSES))
    handle.remove()
    assert len(runs) == passes_before + 1
    assert trace(model) == before


def held(make_model, batches, layers, select, precision="fp32"):
    """Return how many bytes a selection takes at most beside the model, counted on fake tensors."""
    autocast = torch.autocast("cpu", dtype=torch.bfloat16) if precision == "bf16" else nullcontext()
    with MemoryTracker() as tracker:
        model = tracker.loading(lambda: make_model(0, layers=layers, hidden=WIDTH))
        weights = tracker.held
        with autocast:
            select(model, batches)
    return tracker.peak - weights


def select_by_layer(model, batches):
    for of_layer in gradients_by_layer(model, batches, matrices(model), LOSSES):
        del of_layer


LAYER = 12 * WIDTH**2
"""Weights of a layer's matrices."""


@pytest.mark.parametrize(("precision", "copies"), [("fp32", 0), ("bf16", 2)])
def test_no_more_than_one_layers_gradients_are_held(make_model, batches, precision, copies):
    """By hand: two losses' sums and what is to be added to one, beside a layer's activations and copies in bf16."""
    deep, shallow = (held(make_model, batches[:2], layers, select_by_layer, precision) for layers in (4, 2))
    assert 3 * 4 * LAYER < deep < (3 * 4 + copies) * LAYER * 1.35
    states = 4 * (TOKENS - 1) * WIDTH * 4
    assert deep - shallow == pytest.approx(2 * states, rel=0.01), "a further layer adds what enters it, and no more"
    whole = held(make_model, batches[:2], 4, differentiate_whole, precision)
    assert whole > 4 * (3 * 4 + copies) * LAYER, "of all layers, where they are differentiated at once"


@contextmanager
def as_worker(rank, workers):
    """Let this process be one of several, whose sums nobody adds up."""
    distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=workers)
    try:
        yield
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_each_worker_computes_its_share(model, batches, workers):
    """Of three micro-batches: that they are then summed is held on two processes (tests/sweep/test_workers.py)."""
    whole = merged(gradients_by_layer(model, batches, matrices(model), LOSSES))
    shares = []
    for rank in range(workers):
        with as_worker(rank, workers):
            shares.append(merged(gradients_by_layer(model, batches, matrices(model), LOSSES)))
    for number, gradients in enumerate(whole):
        for name, gradient in gradients.items():
            of_workers = [share[number][name] for share in shares]
            assert torch.allclose(sum(of_workers), gradient, atol=1e-6)
            assert [bool(share.any()) for share in of_workers] == [rank < len(batches) for rank in range(workers)]
            assert not torch.allclose(of_workers[0], gradient, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("transformer.h.0.mlp.c_fx.weight", "Did you mean 'transformer.h.0.mlp.c_fc.weight'"),
        ("transformer.wte.weight", "no parameter of a layer is called 'transformer.wte.weight'"),
    ],
)
def test_a_parameter_that_is_in_no_layer_is_an_error(model, batches, name, words):
    with pytest.raises(TrialError) as told:
        list(gradients_by_layer(model, batches, [name], [nll]))
    assert words in str(told.value)


def test_dropout_is_an_error(model, batches):
    with pytest.raises(TrialError, match=r"Call model.eval\(\)"):
        list(gradients_by_layer(model.train(), batches, matrices(model), [nll]))


def test_a_model_of_no_known_family_is_an_error(batches):
    bloom = AutoModelForCausalLM.from_config(
        AutoConfig.for_model("bloom", hidden_size=32, n_layer=1, n_head=4, vocab_size=60)
    )
    with pytest.raises(TrialError, match="where the layers of a 'bloom' are is not known"):
        list(gradients_by_layer(bloom.eval(), batches, [], [nll]))


def test_layers_that_are_no_chain_are_an_error(model, batches):
    """Something between two layers would have a gradient of its own."""
    model.transformer.h[2].register_forward_pre_hook(lambda layer, inputs: (inputs[0] * 2, *inputs[1:]))
    before = trace(model)
    with pytest.raises(TrialError, match="are no chain: one is not given what the layer before it gave"):
        list(gradients_by_layer(model, batches, matrices(model), LOSSES))
    assert trace(model) == before
