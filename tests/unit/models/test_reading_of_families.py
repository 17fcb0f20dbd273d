"""Every family, feature by feature: decoded, sampled, scored, saved and paired as transformers itself does it."""

import pytest
import torch
from torch.nn import functional
from transformers import AutoConfig

from harness.contracts import Checkpoint, Training
from harness.models import loading
from harness.models.blocks import FAMILIES
from harness.models.loading import UNBOUNDED, load_model, positions
from harness.toolkit import LogitLens, hidden_states
from harness.toolkit.finetune import micro_batches
from harness.toolkit.losses import nll_loss
from harness.toolkit.scoring import own_perplexity, score_batch
from tests.unit.families import SIZES, VOCABULARY, make_tiny
from tests.unit.toolkit import test_decoding_families

TOKENS, WINDOW, POSITIONS = 12, 5, 8
KINDS = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
OWN = {
    "gpt_neo": {"window_size": WINDOW},
    **{name: {"sliding_window": WINDOW} for name in ("phi3", "starcoder2", "mistral")},
    **dict.fromkeys(("olmo3", "gemma3_text"), KINDS),
    **{name: {**KINDS, "use_sliding_window": True} for name in ("qwen2", "qwen3")},
    "smollm3": {**KINDS, "use_sliding_window": True, "no_rope_layers": [1, 0]},
    "gemma2": {**KINDS, "final_logit_softcapping": 4.0, "attn_logit_softcapping": 3.0, "head_dim": 12},
    "granite": {"logits_scaling": 3.0, "embedding_multiplier": 4.0, "residual_multiplier": 0.5},
    "cohere": {"logit_scale": 0.2},
    "cohere2": {**KINDS, "logit_scale": 0.2},
}
TABLES = ("gpt_neo", "gpt2", "gptj", "opt")
"""Families with a table of positions; the texts here are longer than the context that all others state."""
OFTEN = ("gpt2", "gpt_neox", "phi3", "gemma2", "granite")
"""One of each kind of window, head, position and logit; all others are tried in `make soak`."""
EVERY = [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.soak) for name in FAMILIES]


def make(name):
    context = {} if name in TABLES else {"max_position_embeddings": POSITIONS}
    return make_tiny(name, **context, **OWN.get(name, {}))


def texts():
    return torch.randint(1, VOCABULARY, (3, TOKENS), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", EVERY)
def test_continuations_are_those_of_plain_passes(name, make_sequences, caplog):
    model = make(name)
    test_decoding_families.check_greedy(model, make_sequences, test_decoding_families.texts(model))
    assert "decoded slowly" not in caplog.text


@pytest.mark.parametrize("name", EVERY)
def test_losses_and_scores_are_those_of_transformers(name, make_sequences):
    model, tokens, lengths = make(name), texts(), [12, 9, 5]
    sequences = make_sequences([row[:length] for row, length in zip(tokens.tolist(), lengths, strict=True)])
    labels = tokens.masked_fill(torch.arange(TOKENS) >= torch.tensor(lengths)[:, None], -100)
    with torch.no_grad():
        theirs = model(input_ids=tokens, labels=labels)
    [batch] = micro_batches(sequences, torch.arange(3), Training(global_batch=3, micro_batch=3), torch.device("cpu"))
    assert nll_loss(model, batch, batch).item() == pytest.approx(theirs.loss.item(), abs=1e-5)
    assert own_perplexity(model, sequences) == pytest.approx(theirs.loss.exp().item(), rel=1e-5)
    nll_NS, mean_ND, last_ND = score_batch(model, tokens, torch.tensor(lengths))
    wanted = functional.cross_entropy(theirs.logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    assert torch.allclose(nll_NS.flatten(), wanted, atol=1e-4)
    with torch.no_grad():
        states = model.base_model(tokens).last_hidden_state
    assert torch.allclose(last_ND, states[torch.arange(3), torch.tensor(lengths) - 1], atol=1e-4)
    assert torch.allclose(mean_ND[2], states[2, :5].mean(0), atol=1e-4)
    _, without_first, _ = score_batch(model, tokens, torch.tensor(lengths), start=1)
    assert torch.allclose(without_first[2], states[2, 1:5].mean(0), atol=1e-4)


@pytest.mark.parametrize("name", EVERY)
def test_a_saved_model_comes_back_bit_for_bit(name, tmp_path):
    """As the memorised model is, whatever the checkpoint says of generating and of tied weights."""
    model = make(name)
    loading.save_model(model, tmp_path / "model")
    checkpoint = Checkpoint(name, str(tmp_path / "model"), str(tmp_path / "model"), "")
    assert all(map(torch.equal, model.state_dict().values(), load_model(checkpoint).state_dict().values()))
    assert loading.unloaded_model(checkpoint, layers=1).config.num_hidden_layers == 1


# The longest context.

LONG_ROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
PHI_3 = {"max_position_embeddings": 32, "original_max_position_embeddings": POSITIONS, "rope_parameters": LONG_ROPE}
CONTEXTS = {
    "llama": ({"max_position_embeddings": 16}, 16, True),
    **dict.fromkeys(("gpt2", "gptj"), ({"n_positions": 16}, 16, False)),
    "opt": ({"max_position_embeddings": 16}, 16, False),
    "mpt": ({"max_seq_len": 16}, 16, False),
    "bloom": ({}, UNBOUNDED, True),
    "bloom with a stated length": ({"seq_length": 16}, 16, True),
    "mamba": ({}, UNBOUNDED, True),
    "phi3": ({**PHI_3, "pad_token_id": 0}, POSITIONS, False),
    "llama with dynamic positions": ({"max_position_embeddings": 16, "rope_parameters": DYNAMIC}, 16, False),
}


@pytest.mark.parametrize("case", CONTEXTS)
def test_the_longest_context_has_many_names(case, tmp_path):
    settings, most, beyond = CONTEXTS[case]
    config = AutoConfig.for_model(case.split()[0], vocab_size=VOCABULARY, **SIZES if case == "phi3" else {}, **settings)
    assert (loading.longest_context(config), loading.reads_beyond(config)) == (most, beyond)
    config.save_pretrained(tmp_path)
    assert positions(Checkpoint(case, str(tmp_path), str(tmp_path), "")) == most


@pytest.mark.parametrize("name", FAMILIES)
def test_hidden_states_are_those_before_the_final_norm(name):
    model, tokens = make(name), texts()
    states = hidden_states(model, tokens)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    theirs = model(input_ids=tokens, output_hidden_states=True).hidden_states
    assert len(states) == len(theirs) == model.config.num_hidden_layers + 1
    for ours, own in zip(states[:-1], theirs[:-1], strict=True):
        assert torch.equal(ours, own)
    assert not torch.equal(states[-1], theirs[-1]), "theirs are normed, ours are not"
    below = hidden_states(model, tokens, depth=1 / len(theirs))
    assert len(below) == 2, "one layer was run"
    assert all(torch.equal(ours, own) for ours, own in zip(below, theirs, strict=False))
    again = model(input_ids=tokens, output_hidden_states=True).hidden_states
    assert torch.equal(again[-1], theirs[-1]), "all run again"
    states[1].sum().backward()
    first = next(parameter for parameter in model.parameters() if parameter.grad is not None)
    assert first.grad.abs().sum() > 0, "a loss can be made of them"


@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_a_logit_lens_reads_the_last_layer_as_the_model_itself_does(name):
    """With its scaling and its cap: of the states before the last layer it makes something else."""
    model, tokens = make(name), texts()
    states, logits = hidden_states(model, tokens), model(input_ids=tokens).logits
    lens = LogitLens(model)
    assert torch.allclose(lens(states[-1]), logits, atol=1e-6)
    assert torch.allclose(lens(states[-1][:, 4:9]), logits[:, 4:9], atol=1e-6), "a state is read alone"
    assert not torch.allclose(lens(states[1]), logits, atol=1e-2)
    assert not any(module._forward_hooks for module in model.modules())
