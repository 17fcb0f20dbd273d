"""What several workers hand in: an erased model as what changed, where that makes it bit for bit."""

import pytest
import torch

from harness.contracts import ErasedModel
from harness.errors import ModelError
from harness.execution.trial.erasing import hand_in
from harness.execution.trial.tasks import ErasingTask
from harness.models.adapters import apply_patch, load_erased, merged_adapter, save_patch
from harness.models.loading import load_model
from harness.plugins import METHODS
from harness.records.artifacts import Artifacts
from harness.settings import TrialSpec
from harness.testing import small_spec

SPEC = small_spec()
BLOCK = "L0.W_v.H0"


def with_a_changed_block():
    model = load_model(SPEC.model)
    rows = model.config.hidden_size // model.config.num_heads
    with torch.no_grad():
        model.transformer.h[0].attn.attention.v_proj.weight[:rows] += 0.25
    return model


def files(folder):
    return sorted(file.name for file in folder.iterdir())


def test_blocks_that_changed_alone_are_a_patch(tmp_path):
    model = with_a_changed_block()
    hand_in(ErasedModel(1, model, changed_blocks=(BLOCK,)), SPEC.model, tmp_path / "0")
    assert files(tmp_path / "0") == ["patch.safetensors"]
    for name, weight in load_erased(SPEC.model, tmp_path / "0").named_parameters():
        assert torch.equal(weight, model.get_parameter(name)), name
    hand_in(ErasedModel(0, load_model(SPEC.model), changed_blocks=()), SPEC.model, tmp_path / "1")
    assert files(tmp_path / "1") == ["patch.safetensors"], "nothing changed before the first epoch"


@pytest.mark.parametrize("promised", [None, (), ("L1.W_v.H0",)], ids=["nothing", "no block", "another block"])
def test_a_model_that_its_promised_blocks_do_not_make_is_handed_in_whole(tmp_path, promised):
    model = with_a_changed_block()
    hand_in(ErasedModel(1, model, changed_blocks=promised), SPEC.model, tmp_path / "0")
    assert "model.safetensors" in files(tmp_path / "0")
    assert "patch.safetensors" not in files(tmp_path / "0")
    for name, weight in load_erased(SPEC.model, tmp_path / "0").named_parameters():
        assert torch.equal(weight, model.get_parameter(name)), name


def lora_spec():
    data = SPEC.model_dump(mode="json")
    data |= {"method": "gradient_ascent", "strength_name": "epochs", "strengths": [1]}
    data["training"] |= {"lora": {"rank": 2}, "early_stop": None}
    return TrialSpec.model_validate(data, strict=False)


@pytest.mark.parametrize("is_harmed", [False, True])
def test_an_adapter_is_handed_in_alone_if_it_is_all_that_changed(tmp_path, is_harmed):
    spec = lora_spec()
    task = ErasingTask(spec, Artifacts(tmp_path / "artifacts"), (1,), lambda message: None)
    [erased] = METHODS.configure("gradient_ascent", {"epochs": 1}).erase(task)
    assert merged_adapter(erased.model) is not None
    if is_harmed:
        with torch.no_grad():
            erased.model.transformer.wpe.weight[0, 0] += 1
    hand_in(erased, spec.model, tmp_path / "0")
    assert ("adapter_model.safetensors" in files(tmp_path / "0")) != is_harmed
    for name, weight in load_erased(spec.model, tmp_path / "0").named_parameters():
        assert torch.equal(weight, erased.model.get_parameter(name)), name


def test_a_patch_of_its_own_must_fit_the_original(make_model, tmp_path):
    model = make_model(0)
    file = tmp_path / "patch.safetensors"
    save_patch(make_model(1), ["L0.W_q.H1"], "abc", file)
    expected = dict(make_model(1).named_parameters())["transformer.h.0.attn.attention.q_proj.weight"][8:16]
    patched = dict(apply_patch(make_model(0), "abc", file).named_parameters())
    assert torch.equal(patched["transformer.h.0.attn.attention.q_proj.weight"][8:16], expected)
    with pytest.raises(
        ModelError, match=r"patches the block L0.W_q.H1 of another shape: \(8, 32\) there and \(16, 64\)"
    ):
        apply_patch(make_model(0, hidden=64), "abc", file)
    with pytest.raises(ModelError, match=r"a patch cannot hold L9.W_q.H1: this model has no such block"):
        save_patch(model, ["L9.W_q.H1", "L0.W_q.H1"], "abc", tmp_path / "other")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"patch.safetensors is damaged, or no patch that Lethe wrote \(Safetensor"):
        apply_patch(model, "abc", file)
