"""EMSO's choice of blocks: its numbers by hand, its signs, and what it may touch."""

import pytest
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM

from harness.contracts import Training
from harness.models.blocks import Block, blocks
from harness.settings import replace
from harness.toolkit.engines import TorchEngine
from harness.toolkit.losses import token_negative_entropy
from methods.emso import EMSO

TRAINING = Training(learning_rate=1e-2, global_batch=6, micro_batch=2)


@pytest.fixture
def batches(batches, texts):
    return batches(texts())


PAPER = [(12, 12, 768, 600), (24, 16, 2048, 1584), (32, 20, 2560, 2624)]


@pytest.mark.parametrize(("layers", "heads", "hidden", "count"), PAPER, ids=["125M", "1.3B", "2.7B"])
def test_there_are_as_many_blocks_as_the_paper_counts(layers, heads, hidden, count):
    sizes = {"num_layers": layers, "num_heads": heads, "hidden_size": hidden}
    with torch.device("meta"):
        model = GPTNeoForCausalLM(GPTNeoConfig(**sizes, attention_types=[[["global", "local"], layers // 2]]))
    assert len(blocks(model)) == count


def test_score_by_hand():
    """cos = 0.6, |g_em|_1 = 7, D = 4: M = 0.6 * 7 / 2."""
    entropy = {"w": torch.tensor([[3.0, 4.0], [0.0, 0.0]])}
    nll = {"w": torch.tensor([[1.0, 0.0], [0.0, 0.0]])}
    block = Block("L0.C_fc", "w", 0, 0, 2)
    assert EMSO().score(nll, entropy, block) == pytest.approx({"m": 2.1, "cosine": 0.6, "saliency": 3.5})
    assert EMSO(norm="l2").score(nll, entropy, block)["m"] == pytest.approx(0.6 * 5 / 2)
    assert EMSO(scale="d").score(nll, entropy, block)["m"] == pytest.approx(0.6 * 7 / 4)
    assert EMSO(scale="none").score(nll, entropy, block)["m"] == pytest.approx(0.6 * 7)


def test_the_k_most_salient_are_chosen(model, batches):
    """The k most negative: tests/promises/test_numbers_methods.py::test_emso_selects_what_whole_gradients_say."""
    _, of_all = EMSO(k=len(blocks(model))).choose(model, batches, torch.Generator())
    best = sorted(of_all["selected_blocks"], key=lambda entry: -entry["saliency"])[:3]
    chosen, notes = EMSO(k=3, selection="saliency").choose(model, batches, torch.Generator())
    assert [block.name for block in chosen] == [entry["block"] for entry in best]
    assert notes["selected_blocks"] == best


def test_random_blocks_follow_the_seed(model, batches):
    def draw(seed):
        chosen, _ = EMSO(k=4, selection="random").choose(model, batches, torch.Generator().manual_seed(seed))
        return [block.name for block in chosen]

    assert draw(0) == draw(0) != draw(1)


def test_require_negative_leaves_at_least_one(model, batches):
    many = EMSO(k=len(blocks(model)))
    everything, notes = many.choose(model, batches, torch.Generator())
    negative, _ = replace(many, require_negative=True).choose(model, batches, torch.Generator())
    assert 1 <= len(negative) < len(everything)
    assert notes["warnings"]


def test_a_slice_moves_as_adamw_says(model, batches):
    """And nothing else: tests/unit/models/test_blocks_of_families.py."""
    block = next(block for block in blocks(model) if block.name == "L1.W_o.H3")
    weight = model.get_parameter(block.parameter)
    before = block.of(weight).detach().clone()
    engine = TorchEngine(model, TRAINING, [block])
    for batch in batches:
        engine.backward(batch.mean(token_negative_entropy(batch.logits(model))))
    gradient = block.of(weight.grad).clone()
    engine.step()
    # AdamW's first step is lr * g / (|g| + eps)
    expected = -TRAINING.learning_rate * gradient / (gradient.abs() + 1e-8)
    assert torch.allclose(block.of(weight) - before, expected, atol=1e-6)
