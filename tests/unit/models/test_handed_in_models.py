"""What several workers hand in: an erased model as what changed, where that makes it bit for bit."""

import pytest
import torch

from harness.contracts import ErasedModel
from harness.execution.trial.erasing import write_erased
from harness.models.adapters import load_erased
from harness.models.loading import load_model
from harness.testing import small_spec
from tests.unit.tasks import weights

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
    write_erased(ErasedModel(1, model, changed_blocks=(BLOCK,)), SPEC.model, tmp_path / "0")
    assert files(tmp_path / "0") == ["patch.safetensors"]
    assert torch.equal(weights(load_erased(SPEC.model, tmp_path / "0")), weights(model))
    write_erased(ErasedModel(0, load_model(SPEC.model), changed_blocks=()), SPEC.model, tmp_path / "1")
    assert files(tmp_path / "1") == ["patch.safetensors"], "nothing changed before the first epoch"


@pytest.mark.parametrize("promised", [None, (), ("L1.W_v.H0",)], ids=["nothing", "no block", "another block"])
def test_a_model_that_its_promised_blocks_do_not_make_is_handed_in_whole(tmp_path, promised):
    model = with_a_changed_block()
    write_erased(ErasedModel(1, model, changed_blocks=promised), SPEC.model, tmp_path / "0")
    assert "model.safetensors" in files(tmp_path / "0")
    assert "patch.safetensors" not in files(tmp_path / "0")
    assert torch.equal(weights(load_erased(SPEC.model, tmp_path / "0")), weights(model))
