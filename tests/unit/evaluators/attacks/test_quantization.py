"""What is measured of a rounded copy: which matrices are rounded, which are not, and that the model stays as it is."""

import copy
import math
from functools import partial

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

from evaluators.metrics import extraction_strengths, likelihoods, seeded_prefixes
from evaluators.quantization import Quantization
from harness.errors import TrialError
from harness.toolkit import accuracies, greedy_continuations, rounded_copy
from harness.toolkit.rounding import rounded_to_integers, rounded_to_normal_float
from tests.unit.families import make_tiny
from tests.unit.tasks import Task, random_rows

LINEAR = (".attention.", "c_fc.weight", "c_proj.weight")


def to_4_bits(weight_OI):
    return rounded_to_integers(weight_OI, 4)


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(seed=3, layers=2)


@pytest.fixture(scope="module")
def forget(make_sequences):
    return make_sequences(random_rows(12, 12, 9, seed=5), prefix_tokens=4, digest="ab" * 8)


@pytest.mark.parametrize("is_tied", [True, False])
def test_every_linear_layer_is_rounded_and_nothing_else(make_model, is_tied):
    model = make_model(seed=3, layers=2)
    if not is_tied:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    count = 0
    for name, weight in rounded_copy(model, to_4_bits).named_parameters():
        is_linear = weight.ndim == 2 and any(part in name for part in LINEAR)
        assert torch.equal(weight, to_4_bits(before[name]) if is_linear else before[name]), name
        assert is_linear != torch.equal(weight, before[name]), name
        count += is_linear * weight.numel()
    assert count == 2 * 12 * 32 * 32


def test_a_fused_matrix_of_inputs_by_outputs_is_rounded_channel_by_channel():
    model = make_tiny("gpt2")
    fused = model.transformer.h[0].attn.c_attn.weight
    assert fused.shape == (32, 96), "queries, keys and values side by side"
    found = rounded_copy(model, to_4_bits).transformer.h[0].attn.c_attn.weight
    for column in range(96):
        assert torch.equal(found[:, column], to_4_bits(fused[:, column][None])[0])
    assert not torch.allclose(found, to_4_bits(fused))
    by_nf4 = rounded_copy(model, rounded_to_normal_float).transformer.h[0].attn.c_attn.weight
    assert torch.equal(by_nf4, rounded_to_normal_float(fused.T.contiguous()).T)


def test_the_numbers_are_those_of_a_model_that_is_rounded_by_hand(model, forget):
    found = Quantization(el_prefixes=3).evaluate(model, Task(forget))
    prefixes = seeded_prefixes(forget, 3, 3)
    schemes = {"int8": partial(rounded_to_integers, bits=8), "int4": to_4_bits, "nf4": rounded_to_normal_float}
    for scheme, rounded in schemes.items():
        by_hand = copy.deepcopy(model)
        with torch.no_grad():
            for name, weight in by_hand.named_parameters():
                if weight.ndim == 2 and any(part in name for part in LINEAR):
                    weight.copy_(rounded(weight))
        continuations = greedy_continuations(by_hand, forget, prefixes)
        choices = continuations.predicted_NT
        assert found.per_item[f"ma_{scheme}"].tolist() == accuracies(forget, choices, first=4, left_out=1).tolist()
        assert found.per_item[f"es_{scheme}"].tolist() == extraction_strengths(forget, choices).tolist()
        assert found.per_item[f"el_3_{scheme}"].tolist() == likelihoods(continuations, 3, prefixes).tolist()
        assert found.numbers[f"ma_{scheme}"] == pytest.approx(found.per_item[f"ma_{scheme}"].mean())


def test_a_text_without_room_for_an_n_gram_has_no_likelihood(model, make_sequences):
    found = Quantization(schemes=("nf4",)).evaluate(model, Task(make_sequences([[1, 2, 3], [1, 2, 3, 4, 5, 6]])))
    assert math.isnan(found.per_item["el_3_nf4"][0])
    assert not math.isnan(found.numbers["el_3_nf4"])
    assert "el_3_nf4" not in found.notes["standard_errors"], "of one sequence there is none"


def test_a_mixture_of_experts_is_refused_before_and_while_it_is_measured(model):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = MixtralConfig(**sizes, num_key_value_heads=2, vocab_size=60, num_local_experts=2)
    assert "experts in one tensor" in Quantization().refuses(config.to_dict())
    assert Quantization().refuses(model.config.to_dict()) is None
    with pytest.raises(TrialError, match="MixtralForCausalLM keeps the matrices of several experts"):
        rounded_copy(MixtralForCausalLM(config), to_4_bits)
