"""LoRA: adapters against peft's own, merged and taken apart again, trained alone, kept and read back."""

import pytest
import torch
from peft import LoraConfig, PeftModel, inject_adapter_in_model

from harness.contracts import Checkpoint, LoRA
from harness.errors import ModelError
from harness.models import adapters as low_rank
from harness.models.adapters import LowRankAdapters, merged_adapter, read_adapter, save_adapter, target_modules
from tests.unit.families import make_tiny
from tests.unit.tasks import weights

ORIGINAL = Checkpoint("original", "/m", "/m", "0" * 16)


@pytest.fixture(params=["gpt_neo", "gpt2", "llama"])
def make(request):
    """Return a maker of one tiny model: GPT-Neo, GPT-2 (matrices [inputs, outputs]) or Llama."""
    return lambda: make_tiny(request.param, seed=3)


def logits(model):
    with torch.inference_mode():
        return model(input_ids=torch.arange(24).reshape(2, 12)).logits


def adapted(make, lora=LoRA(rank=2)):  # noqa: B008 - frozen
    """Return a model, and adapters on it that are not at their start any more."""
    model = make()
    adapters = LowRankAdapters(model, lora, seed=0)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in adapters.model.named_parameters():
            if "lora_B" in name:
                weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    return model, adapters


def test_all_linear_is_what_peft_means(make):
    theirs = make()
    inject_adapter_in_model(LoraConfig(target_modules="all-linear", fan_in_fan_out="GPT2" in str(type(theirs))), theirs)
    named = [name for name, module in theirs.named_modules() if hasattr(module, "lora_A")]
    assert list(target_modules(make(), LoRA(rank=1))) == named


def test_fresh_adapters_change_nothing_and_only_they_ask_for_gradients(make):
    model, before = make(), torch.get_rng_state()
    adapters = LowRankAdapters(model, LoRA(rank=3), seed=0)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(logits(adapters.model), logits(make()))
    asking = {name: weight for name, weight in adapters.model.named_parameters() if weight.requires_grad}
    assert all(".lora_" in name for name in asking)
    matrices = [make().get_submodule(name).weight for name in target_modules(model, LoRA(rank=3))]
    assert sum(weight.numel() for weight in asking.values()) == sum(3 * sum(matrix.shape) for matrix in matrices)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # By PeftModel.
def test_peft_merges_the_same_model(make, tmp_path):
    model, adapters = adapted(make)
    unmerged = logits(adapters.model)
    adapters.merge()
    assert torch.allclose(logits(model), unmerged, atol=1e-5)
    assert not torch.allclose(logits(model), logits(make()), atol=1e-3)
    save_adapter(merged_adapter(model), ORIGINAL, tmp_path)
    theirs = PeftModel.from_pretrained(make(), tmp_path).eval()
    assert torch.allclose(logits(theirs), logits(model), atol=1e-5)
    assert torch.allclose(weights(theirs.merge_and_unload()), weights(model), atol=1e-6)
    assert not list(tmp_path.glob("*.bin"))


def test_what_was_merged_comes_back_bit_for_bit(make):
    model, adapters = adapted(make)
    adapters.merge()
    assert type(model) is type(make())
    assert [name for name, _ in model.named_modules()] == [name for name, _ in make().named_modules()]
    assert not torch.equal(weights(model), weights(make()))
    adapters.unmerge()
    assert torch.equal(weights(model), weights(make()))
    assert merged_adapter(model) is None


def test_a_kept_adapter_makes_the_same_model(make, tmp_path):
    model, adapters = adapted(make, LoRA(rank=2, alpha=3))
    adapters.merge()
    save_adapter(merged_adapter(model), ORIGINAL, tmp_path)
    read = read_adapter(tmp_path, ORIGINAL.digest)
    assert read.lora == LoRA(rank=2, alpha=3)
    assert torch.equal(weights(low_rank.add_adapter(make(), read)), weights(model))
    assert low_rank.has_same_weights(low_rank.add_adapter(make(), read), model)
    with torch.no_grad():
        model.get_input_embeddings().weight[0, 0] += 1
    assert not low_rank.has_same_weights(low_rank.add_adapter(make(), read), model)
    with pytest.raises(ModelError, match="belongs to the model with digest 0000000000000000, and this one's is f"):
        read_adapter(tmp_path, "f")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelError, match="is damaged"):
        read_adapter(tmp_path, ORIGINAL.digest)
