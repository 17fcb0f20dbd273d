"""Fused GELU: the same function but for the last bits, less kept for the backward pass, and no trace afterwards."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from harness.contracts import Training
from harness.errors import ConfigError, TrialError
from harness.execution.fingerprint import changes, model_fingerprints
from harness.planning.plan import plan
from harness.specs import Engine
from harness.toolkit import token_distillation, train
from harness.toolkit.engines.fused_gelu import fused_gelu
from harness.toolkit.losses import mean_nll

ENDS = {"vocab_size": 60, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "initializer_range": 0.3}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "n_positions": 64}
CONFIGURATIONS = {
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 4},
    "gpt2": {},
    "phi": {"intermediate_size": 64},
    "llama": {"intermediate_size": 48},
}


def make(model_type):
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **SIZES, **CONFIGURATIONS[model_type], **ENDS)
    return AutoModelForCausalLM.from_config(config).eval()


class Task:
    def __init__(self, forget, model, training, engine=Engine()):  # noqa: B008 - frozen
        self.forget, self.retain, self.training, self.engine, self.seed = forget, None, training, engine, 0

    def validation_perplexity(self, model):
        return 1.0

    def progress(self, message):
        pass


@pytest.fixture
def texts(make_sequences):
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(1, 60, (length,), generator=generator).tolist() for length in (9, 12, 7, 12, 10)]
    return make_sequences(rows)


TRAINING = Training(learning_rate=1e-3, global_batch=4, micro_batch=2, early_stop=None)


@pytest.mark.parametrize("model_type", ["gpt_neo", "gpt2", "phi"])
def test_values_and_gradients_agree_and_no_trace_is_left(model_type):
    model, tokens = make(model_type).double(), torch.arange(1, 25).view(2, 12)
    fingerprints = model_fingerprints(model)

    def logits_and_gradient():
        model.zero_grad()
        logits = model(input_ids=tokens).logits
        logits.logsumexp(-1).sum().backward()
        return logits.detach(), [weight.grad.clone() for weight in model.parameters()]

    logits, gradients = logits_and_gradient()
    with fused_gelu(model):
        fused_logits, fused_gradients = logits_and_gradient()
    assert torch.allclose(logits, fused_logits, atol=1e-10)
    assert not torch.equal(logits, fused_logits), "it was fused"
    assert all(map(torch.allclose, gradients, fused_gradients))
    assert torch.equal(logits_and_gradient()[0], logits)
    model.zero_grad()
    assert changes(fingerprints, model_fingerprints(model)) == []


def test_less_is_kept_for_the_backward_pass():
    model, tokens = make("gpt_neo"), torch.arange(1, 25).view(2, 12)

    def kept():
        storages = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: storages.setdefault(tensor.data_ptr(), tensor), lambda tensor: tensor
        ):
            model(input_ids=tokens).logits.sum()
        return sum(tensor.nbytes for tensor in storages.values())

    whole = kept()
    with fused_gelu(model):
        fused = kept()
    of_mlp = 2 * 12 * 4 * 32 * 4 * 2  # Rows, tokens, four times the width, bytes, layers.
    assert whole - fused >= 3 * of_mlp


@pytest.mark.parametrize("engine", [Engine(), pytest.param(Engine(name="deepspeed", zero_stage=2), id="zero-2")])
def test_training_with_it_ends_near_the_same_weights_and_leaves_the_teacher_as_it_was(texts, engine):
    def trained(**settings):
        model, teacher = make("gpt_neo"), make("gpt_neo")
        before = model_fingerprints(teacher)
        task = Task(texts, model, replace(TRAINING, **settings), engine)
        for _ in train(task, model, lambda trained, forget, retain: -mean_nll(trained, forget), 2, frozen=[teacher]):
            pass
        teacher.requires_grad_(True)
        assert changes(before, model_fingerprints(teacher)) == []
        return torch.cat([weight.detach().flatten() for weight in model.parameters()])

    plain, fused = trained(), trained(fused_gelu=True)
    assert torch.allclose(plain, fused, atol=1e-4)
    assert not torch.equal(plain, fused)
    assert torch.equal(fused, trained(fused_gelu=True, activation_checkpointing=True)), "the same bits"


def test_student_and_teacher_are_both_fused_so_that_where_they_agree_nothing_moves(texts):
    model, teacher = make("gpt_neo"), make("gpt_neo")
    before = [weight.detach().clone() for weight in model.parameters()]

    def distil(trained, forget, retain):
        with torch.no_grad():
            target = forget.logits(teacher)
        return forget.mean(token_distillation(target, forget.logits(trained)))

    task = Task(texts, model, replace(TRAINING, fused_gelu=True))
    for _ in train(task, model, distil, 1, frozen=[teacher]):
        pass
    assert all(map(torch.equal, model.parameters(), before))


def test_it_is_part_of_the_identity():
    assert Training(fused_gelu=True).identity() != Training().identity()
    assert "fused_gelu" not in Training().plain(), "trials of before it have the same identity"


def test_a_model_without_it_is_refused_before_anything_runs(world, tmp_path):
    said = "a LlamaForCausalLM computes no gelu_new .* Set training.fused_gelu to false"
    with pytest.raises(TrialError, match=said), fused_gelu(make("llama")):
        pass
    llama = tmp_path / "llama"
    make("llama").save_pretrained(llama)
    for file in (world / "MODEL").glob("tokenizer*"):
        (llama / file.name).write_bytes(file.read_bytes())
    (tmp_path / "sweep.yaml").write_text(
        f"# Which?\nmodels: [{{id: {llama}}}]\ntraining: {{fused_gelu: true, early_stop: null}}\n"
        "data:\n  forget: {source: jsonl, path: letters.jsonl, sequences: 4, prefix_tokens: 2, sequence_tokens: 8}\n"
        "  utility: {source: jsonl, path: letters.jsonl, prompts: 4, prompt_tokens: 2, reference_tokens: 8}\n"
        "methods: {gradient_ascent: {epochs: [1]}}\nevaluators: {language_modelling: }\n"
    )
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path / "sweep.yaml")
    assert any("computes no gelu_new" in fault.reason for fault in caught.value.faults), caught.value
