"""The blocks of every family: each is what the model computes with, in whatever matrix it lies."""

import json

import pytest
import torch
from transformers.pytorch_utils import Conv1D

from harness.contracts import Training
from harness.errors import ModelError
from harness.models.adapters import apply_patch, save_patch
from harness.models.blocks import FAMILIES, block_count, block_place, blocks, counts_by_kind, kinds_among, lacks_blocks
from harness.toolkit.engines import TorchEngine
from harness.toolkit.finetune import micro_batches
from harness.toolkit.layerwise import gradients_by_layer
from methods.emso import EMSO
from tests.unit.families import HEADS, HIDDEN, LAYERS, UNGROUPED, make_tiny
from tests.unit.tasks import negative_entropy, nll

OWN_WIDTH = ("mistral", "qwen3", "gemma", "gemma2", "gemma3_text")
"""Heads of these may be wider than the hidden size divided among them."""
GATED = [name for name, family in FAMILIES.items() if "C_gate" in family.matrices]
OFTEN = ("gpt_neo", "gpt2", "gpt_neox", "llama", "phi3")
"""One of each layout; all others are tried in `make soak`."""
EVERY = [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.soak) for name in FAMILIES]
DTYPES = (torch.float32, torch.bfloat16)
TRAINING = Training(learning_rate=1e-2, global_batch=4, micro_batch=2)
TOKENS = torch.randint(1, 60, (4, 10), generator=torch.Generator().manual_seed(0))


def make(model_type, dtype=torch.float32):
    own = {"head_dim": 12} if model_type in OWN_WIDTH else {}
    return make_tiny(model_type, **own).to(dtype)


def named(model):
    return {block.name: block for block in blocks(model)}


@pytest.mark.parametrize("model_type", EVERY)
def test_a_configuration_tells_how_many_blocks_there_are(model_type):
    model = make(model_type)
    assert block_count(json.loads(model.config.to_json_string())) == len(blocks(model))


def slice_of(model, block):
    return block.of(model.get_parameter(block.parameter).data)


def logits(model):
    with torch.inference_mode():
        return model(input_ids=TOKENS).logits.float()


def module_of(model, block):
    return model.get_submodule(named(model)[block].parameter.removesuffix(".weight"))


def input_of(model, block):
    """Return what the matrix of a block is given."""
    seen = []
    module_of(model, block).register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    logits(model)
    return seen[0]


def change(model, before):
    """Return how far the logits have moved in the quadratic mean, as a share of their spread."""
    return float((logits(model) - before).square().mean().sqrt() / before.std())


def rounding(dtype):
    """Return how far sums in another order may move them; all other changes here are at least twice as large."""
    return 1e-5 if dtype == torch.float32 else 0.02


def swap(model, first, second):
    one, other = (slice_of(model, named(model)[name]) for name in (first, second))
    kept = one.clone()
    one.copy_(other)
    other.copy_(kept)


def groups_of(model):
    """Return how many heads share keys and values: 1 if none do, and how the blocks of the shared are called."""
    groups = len([name for name in named(model) if name.startswith("L0.W_k")])
    return HEADS // groups, "H" if groups == HEADS else "G"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model_type", FAMILIES)
def test_blocks_tile_the_matrices_of_attention_and_mlp_and_nothing_else(model_type, dtype):
    model = make(model_type, dtype)
    covered = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
    for block in blocks(model):
        block.of(covered[block.parameter]).add_(1)
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear | Conv1D)]
    in_layers = {f"{name}.weight" for name in linear if name.startswith(f"{FAMILIES[model_type].layers}.")}
    assert {block.parameter for block in blocks(model)} == in_layers
    assert all(torch.equal(weight, torch.full_like(weight, name in in_layers)) for name, weight in covered.items())


@pytest.mark.parametrize("model_type", FAMILIES)
def test_they_are_called_as_in_the_paper(model_type):
    model = make(model_type)
    names = list(named(model))
    places = [block_place(name) for name in names]
    assert None not in places
    is_grouped = model_type not in UNGROUPED
    heads, groups = [HEADS] * LAYERS, [2 if is_grouped else HEADS] * LAYERS
    of_mlp = dict.fromkeys(FAMILIES[model_type].matrices.keys() & {"C_gate", "C_fc", "C_proj"}, [1] * LAYERS)
    assert counts_by_kind(blocks(model)) == {"W_q": heads, "W_k": groups, "W_v": groups, "W_o": heads, **of_mlp}
    assert ("L1.W_k.G1" in names) == is_grouped != ("L1.W_k.H1" in names)
    kinds = kinds_among(place.kind for place in places)
    order = [(place.layer, kinds.index(place.kind), place.head or 0) for place in places]
    assert order == sorted(order)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model_type", EVERY)
def test_without_its_w_o_a_head_is_as_if_it_had_attended_to_nothing(model_type, dtype):
    """The input of W_o is all heads' outputs side by side: a hook takes one of them away."""
    for head in (0, HEADS - 1):
        hooked, erased = make(model_type, dtype), make(model_type, dtype)
        original = logits(hooked)

        def without(module, inputs, head=head):
            kept = inputs[0].clone().unflatten(-1, (HEADS, -1))
            kept[..., head, :] = 0
            return (kept.flatten(-2),)

        module_of(hooked, f"L1.W_o.H{head}").register_forward_pre_hook(without)
        slice_of(erased, named(erased)[f"L1.W_o.H{head}"]).zero_()
        assert torch.equal(logits(erased), logits(hooked))
        assert change(erased, original) > 2 * rounding(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model_type", EVERY)
def test_heads_may_change_places_with_all_their_blocks_and_not_with_fewer(model_type, dtype):
    model = make(model_type, dtype)
    share, letter = groups_of(model)
    before = logits(model)
    if share > 1:  # Two heads that share their keys and values.
        swap(model, "L1.W_q.H2", "L1.W_q.H3")
        assert change(model, before) > 2 * rounding(dtype)
        swap(model, "L1.W_o.H2", "L1.W_o.H3")
        assert change(model, before) < rounding(dtype)
    pairs = [(f"L1.{kind}.{letter}0", f"L1.{kind}.{letter}1") for kind in ("W_k", "W_v")]
    for kind in ("W_q", "W_o"):  # The heads of two groups, or two heads.
        pairs += [(f"L1.{kind}.H{head}", f"L1.{kind}.H{head + share}") for head in range(share)]
    for first, second in pairs:
        assert change(model, before) > 2 * rounding(dtype) or (first, second) == pairs[0]
        swap(model, first, second)
    assert change(model, before) < rounding(dtype)


@pytest.mark.parametrize("model_type", [param for param in EVERY if param.values[0] in GATED])
def test_c_fc_is_what_the_gate_multiplies(model_type):
    """The inner activations follow C_fc in proportion, and C_gate through the activation function."""
    inner = {}
    for scaled in ("", "L0.C_fc", "L0.C_gate"):
        model = make(model_type)
        if scaled:
            slice_of(model, named(model)[scaled]).mul_(2)
        inner[scaled] = input_of(model, "L0.C_proj")
    assert torch.allclose(inner["L0.C_fc"], 2 * inner[""], rtol=1e-5)
    assert not torch.allclose(inner["L0.C_gate"], 2 * inner[""], rtol=1e-2)


def matrices_by_hand(model_type, weights):
    """Return the attention's matrices of layer 0 as [heads or groups, width, hidden], by reshaping alone."""
    width = HIDDEN // HEADS
    if model_type == "gpt2":
        q, k, v = weights["transformer.h.0.attn.c_attn.weight"].T.reshape(3, HEADS, width, HIDDEN)
        out = weights["transformer.h.0.attn.c_proj.weight"].T
    elif model_type == "gpt_neox":
        fused = weights["gpt_neox.layers.0.attention.query_key_value.weight"].reshape(HEADS, 3, width, HIDDEN)
        q, k, v = fused.unbind(1)
        out = weights["gpt_neox.layers.0.attention.dense.weight"]
    elif model_type == "phi3":
        fused = weights["model.layers.0.self_attn.qkv_proj.weight"].reshape(HEADS + 2 + 2, width, HIDDEN)
        q, k, v = fused[:HEADS], fused[HEADS : HEADS + 2], fused[HEADS + 2 :]
        out = weights["model.layers.0.self_attn.o_proj.weight"]
    else:
        q, k, v, out = (weights[f"model.layers.0.self_attn.{name}_proj.weight"] for name in "qkvo")
        q, k, v = (matrix.reshape(-1, width, HIDDEN) for matrix in (q, k, v))
    return {"W_q": q, "W_k": k, "W_v": v, "W_o": out.reshape(HIDDEN, HEADS, width).transpose(0, 1)}


@pytest.fixture
def batches(make_sequences):
    return micro_batches(make_sequences(TOKENS.tolist()), torch.arange(4), TRAINING, torch.device("cpu"))


@pytest.mark.parametrize("model_type", ["gpt2", "gpt_neox", "llama", "phi3"])
def test_scores_and_selection_are_those_of_gradients_taken_by_hand(model_type, batches):
    model = make(model_type)
    _, notes = EMSO(k=len(blocks(model))).choose(model, batches, torch.Generator())
    model.requires_grad_(True)
    log_p = model(TOKENS[:, :-1]).logits.log_softmax(-1)
    losses = (-log_p.gather(-1, TOKENS[:, 1:, None]).mean(), (log_p.exp() * log_p).sum(-1).mean())
    names, weights = zip(*model.named_parameters(), strict=True)
    of_losses = [torch.autograd.grad(loss, weights, retain_graph=True) for loss in losses]
    nll, entropy = (matrices_by_hand(model_type, dict(zip(names, one, strict=True))) for one in of_losses)
    by_hand = {}
    for kind, gradients in nll.items():
        letter = "G" if groups_of(model)[0] > 1 and kind in ("W_k", "W_v") else "H"
        for index, (a, b) in enumerate(zip(gradients, entropy[kind], strict=True)):
            cosine = (a * b).sum() / (a.norm() * b.norm())
            by_hand[f"L0.{kind}.{letter}{index}"] = float(cosine * b.abs().sum() / b.numel() ** 0.5)
    scores = {entry["block"]: entry["m"] for entry in notes["selected_blocks"]}
    assert list(scores.values()) == sorted(scores.values())
    of_heads = {name: m for name, m in scores.items() if name.startswith("L0.W")}
    assert of_heads == pytest.approx(by_hand, rel=1e-3, abs=1e-6)
    assert list(of_heads) == sorted(by_hand, key=lambda name: by_hand[name])


def of_the_whole_model(model, batches, names, losses):
    """Return each loss's gradients, summed micro-batch by micro-batch, of passes through the whole model."""
    weights = [model.get_parameter(name) for name in names]
    model.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_(True)
    sums = [dict.fromkeys(names, 0) for _ in losses]
    for batch in batches:
        logits_BSV = batch.logits(model)
        for loss, totals in zip(losses, sums, strict=True):
            gradients = torch.autograd.grad(loss(batch, logits_BSV), weights, retain_graph=True)
            totals |= {name: totals[name] + gradient for name, gradient in zip(names, gradients, strict=True)}
    return sums


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_gradients_layer_by_layer_are_those_of_the_whole_model_to_the_last_bit(model_type, precision, make_sequences):
    """Of both of EMSO's losses, over three micro-batches of unequal size, with padding."""
    model = make(model_type)
    rows = [row[:length] for row, length in zip([*TOKENS.tolist(), [7] * 9], (10, 4, 10, 7, 9), strict=True)]
    batches = micro_batches(make_sequences(rows), torch.arange(5), TRAINING, torch.device("cpu"))
    names = list(dict.fromkeys(block.parameter for block in blocks(model)))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        by_layer = list(gradients_by_layer(model, batches, names, (nll, negative_entropy)))
        whole = of_the_whole_model(model, batches, names, (nll, negative_entropy))
    assert len(by_layer) == LAYERS
    for number, expected in enumerate(whole):
        ours = {name: gradient for layer in by_layer for name, gradient in layer[number].items()}
        assert ours.keys() == expected.keys()
        assert all(torch.equal(gradient, expected[name]) and gradient.any() for name, gradient in ours.items())


@pytest.mark.parametrize("model_type", EVERY)
def test_the_chosen_blocks_alone_move_and_a_patch_has_all_that_moved(model_type, batches, tmp_path):
    model, original = make(model_type), make(model_type)
    chosen, _ = EMSO(k=3).choose(model, batches, torch.Generator())
    one_of_each = {place.kind: block for block in blocks(model) if (place := block_place(block.name)).layer == 0}
    trained = list({block.name: block for block in [*chosen, *one_of_each.values()]}.values())
    engine = TorchEngine(model, TRAINING, trained)
    for batch in batches:
        engine.backward(EMSO().erasure_loss(model, batch, batch))
    engine.step()
    names = {block.name for block in trained}
    for name, block in named(model).items():
        assert torch.equal(slice_of(model, block), slice_of(original, block)) == (name not in names)
    save_patch(model, names, "abc", tmp_path / "patch.safetensors")
    patched = apply_patch(make(model_type), "abc", tmp_path / "patch.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(patched.parameters(), model.parameters(), strict=True))


def test_what_is_in_no_entry_is_refused_with_the_entries_and_the_way_to_add_one():
    with pytest.raises(ModelError) as told:
        blocks(make_tiny("bloom"))
    for said in (str(told.value), EMSO().refuses({"model_type": "bloom"})):
        assert "blocks are defined for models of the types cohere, cohere2, gemma" in said
        assert "this is a 'bloom'. One entry of FAMILIES in harness/models/blocks.py adds it" in said
        assert "selection: all" in said
    assert EMSO(selection="all").refuses({"model_type": "bloom"}) is None
    assert lacks_blocks("gpt_neo") is None


@pytest.mark.parametrize("model_type", EVERY)
def test_without_its_w_v_a_group_gives_its_heads_nothing(model_type):
    model = make(model_type)
    share, letter = groups_of(model)
    slice_of(model, named(model)[f"L0.W_v.{letter}1"]).zero_()
    of_heads = input_of(model, "L0.W_o.H0").unflatten(-1, (HEADS, -1)).abs().amax(dim=(0, 1, 3))
    assert [bool(most) for most in of_heads] == [head // share != 1 for head in range(HEADS)]
