"""What the paper's table 1 takes: operations against their closed form, tokens against what evaluators ask for."""

import pytest
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM

from benchmarks.full_size import JUDGES, SWEEP, PointTokens, Size, Speed, flops_per_text, point_tokens
from benchmarks.gpu_check import SHAPES, Bench
from evaluators.memorization import Memorization
from harness.execution.trial.tasks import MeasuringTask
from harness.models.loading import load_tokenizer
from harness.models.resolving import resolve_judge, resolve_model
from harness.planning.sweep_file import read_sweep_file
from harness.records.artifacts import Artifacts
from harness.settings import Source, replace

HIDDEN, LAYERS, TOKENS = 32, 6, 12


def configure():
    kinds = [[["global", "local"], LAYERS // 2]]
    return GPTNeoConfig(
        vocab_size=300, hidden_size=HIDDEN, num_layers=LAYERS, num_heads=4, attention_types=kinds,
        max_position_embeddings=32, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


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


@pytest.fixture
def passed(tmp_path, make_spec):
    """Return a function that says how many tokens measuring reads and writes, with a model that recites nothing."""
    miniature = resolve_model("miniature-s", None)
    config = GPTNeoConfig(
        vocab_size=len(load_tokenizer(miniature)), hidden_size=16, num_layers=2, num_heads=2,
        attention_types=[[["global"], 2]], max_position_embeddings=400,
    )  # fmt: skip

    def count(sequences, prompts):
        counts = {"read": 0, "stepped": 0}

        def add(module, arguments):
            rows, tokens = arguments[0].shape[:2]
            counts["stepped" if tokens == 1 else "read"] += rows * tokens

        text = Source(source="miniature", sequences=sequences, prefix_tokens=30, sequence_tokens=60)
        utility = replace(text, sequences=prompts, prefix_tokens=20)
        judges = {"similarity": resolve_judge("similarity", "minilm")}
        spec = make_spec(model=miniature, judges=judges, forget=text, utility=utility)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = GPTNeoForCausalLM(config).eval()
        model.transformer.h[0].register_forward_pre_hook(add)
        task = MeasuringTask(spec, Artifacts(tmp_path / "artifacts"), model, prepares=True)
        Memorization(definition="table").evaluate(model, task)
        task.generations("table")
        return counts

    return count


@pytest.mark.soak
def test_tokens_are_those_that_evaluators_ask_for(passed):
    few, more_sequences, more_prompts = passed(3, 2), passed(7, 2), passed(3, 5)
    # Each call also tries the model's cache on two rows, however many there are.
    of_sequences = {what: more_sequences[what] - few[what] for what in few}
    of_prompts = {what: more_prompts[what] - few[what] for what in few}
    sequences = point_tokens(sequences=4, tokens=60, prefix=30, prompts=0, prompt_tokens=20)
    prompts = point_tokens(sequences=0, tokens=60, prefix=30, prompts=3, prompt_tokens=20)
    assert of_sequences == {"read": sequences.read, "stepped": sequences.stepped}
    assert of_prompts == {"read": prompts.read, "stepped": prompts.stepped}


def test_hours_are_operations_over_what_a_card_reaches():
    speed = Speed({"bf16": 1000.0, "fp32": 100.0}, share=0.5, stepping_share=0.1)
    size = Size("small", "bf16", {"emso": 3600.0 * 500}, points=2, of_token=10.0)
    tokens = PointTokens(read=18_000, stepped=0, judged=0)
    assert size.hours(tokens, speed, "fp32", "fp32") == (1.0, 2.0)
    assert size.hours(tokens, speed, "bf16", "fp32") == (1.0, 0.2)
    assert size.hours(PointTokens(0, 18_000, 0), speed, "bf16", "fp32")[1] == pytest.approx(1.0)
    of_judges = size.hours(PointTokens(0, 0, 1), speed, "bf16", "fp32")[1]
    assert of_judges == pytest.approx(10 * size.hours(PointTokens(0, 0, 1), speed, "bf16", "bf16")[1])


def test_what_is_counted_is_what_the_sweep_asks_for():
    settings = read_sweep_file(SWEEP).settings
    assert {model["id"].rpartition("/")[2].lower() for model in settings["models"]} <= set(SHAPES)
    assert {settings["evaluators"][name]["definition"] for name in ("memorization", "generation")} == {"table"}
    assert {settings["judges"][role] for role in ("perplexity", "features")} == set(JUDGES)
    assert "prefix_tokens" not in settings["data"]["forget"], "it is the default"
