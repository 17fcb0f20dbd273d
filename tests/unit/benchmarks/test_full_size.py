"""What the paper's table 1 takes: operations against their closed form, tokens against what evaluators ask for."""

import pytest
import torch
from transformers import GPTNeoConfig

from benchmarks.full_size import PointTokens, Size, Speed, flops_per_text
from benchmarks.gpu_check import Bench

HIDDEN, LAYERS, TOKENS = 32, 6, 12


def configure():
    sizes = {"vocab_size": 300, "hidden_size": HIDDEN, "num_layers": LAYERS, "num_heads": 4}
    sizes |= {"attention_types": [[["global", "local"], LAYERS // 2]], "max_position_embeddings": 32}
    return GPTNeoConfig(**sizes, bos_token_id=0, eos_token_id=0)


@pytest.mark.soak
def test_operations_are_those_of_the_closed_form(tmp_path):
    bench = Bench(torch.device("cpu"), "none", tmp_path, {"small": configure}, sequences=16, tokens=TOKENS)
    read = TOKENS - 1  # The last token is only predicted.
    matrices = LAYERS * 12 * HIDDEN**2 + configure().vocab_size * HIDDEN
    attention = 2 * LAYERS * read * HIDDEN  # Of all pairs of positions: queries by keys, and weights by values.
    forward = 2 * read * (matrices + attention)
    passes = {
        "task_arithmetic": 3,  # its memorised model's: forward, and backward for inputs and for weights
        "kl_divergence": 7,  # of a forget and a retain text, and the original's forward pass
        "deliberate_imagination": 4,
    }
    for method, forwards in passes.items():
        assert flops_per_text(bench, "small", method) == forwards * forward, method
    assert flops_per_text(bench, "small", "emso") > 3 * forward, "its selection is counted"


def test_hours_are_operations_over_what_a_card_reaches():
    speed = Speed({"bf16": 1000.0, "fp32": 100.0}, share=0.5, stepping_share=0.1)
    size = Size("small", "bf16", {"emso": 3600.0 * 500}, points=2, of_token=10.0)
    tokens = PointTokens(read=18_000, stepped=0, judged=0)
    assert size.hours(tokens, speed, "fp32", "fp32") == (1.0, 2.0)
    assert size.hours(tokens, speed, "bf16", "fp32") == (1.0, 0.2)
    assert size.hours(PointTokens(0, 18_000, 0), speed, "bf16", "fp32")[1] == pytest.approx(1.0)
    of_judges = size.hours(PointTokens(0, 0, 1), speed, "bf16", "fp32")[1]
    assert of_judges == pytest.approx(10 * size.hours(PointTokens(0, 0, 1), speed, "bf16", "bf16")[1])
