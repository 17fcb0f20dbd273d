"""A checkpoint's weights are whole, finite and those that were planned with, or the model is refused by name."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.errors import ModelError
from harness.execution.trial.inputs import JudgeCache
from harness.models.loading import check_model, load_encoder, load_model
from harness.models.resolving import resolve_model
from harness.toolkit.scoring import CausalJudge

FILE = "model.safetensors"
NAME = "transformer.h.1.mlp.c_fc.weight"


@pytest.fixture
def folder(world, tmp_path):
    """A checkpoint folder of one's own, to be damaged."""
    return shutil.copytree(world / "MODEL", tmp_path / "own")


def changed(folder, change):
    tensors = load_file(folder / FILE)
    change(tensors)
    save_file(tensors, folder / FILE, metadata={"format": "pt"})


def put(**tensors):
    return lambda every: every.update({name.replace("__", "."): tensor for name, tensor in tensors.items()})


def refusals(folder):
    """Return what planning and loading say of a folder."""
    said = []
    for look in (check_model, load_model):
        try:
            look(resolve_model(str(folder)))
        except ModelError as error:
            said.append(str(error))
    assert all(str(folder) in message for message in said)
    return said


def test_the_retrained_model_and_the_judges_are_looked_at_too(check, folder):
    changed(folder, lambda every: every.pop(NAME))
    judges = f"{{perplexity: {folder}, features: OTHER, similarity: {folder}, coherence: OTHER}}"
    found = check(models=f"[{{id: MODEL, retrained: {folder}}}]", judges=judges)
    assert set(found) == {"models.0.retrained", "judges.perplexity", "judges.similarity"}
    assert all("missing: h.1.mlp.c_fc.weight." in message.replace("transformer.", "") for message in found.values())


@pytest.mark.parametrize("stores_head", [False, True])
def test_tied_weights_may_be_stored_once_or_twice_and_old_masks_are_no_weights(folder, stores_head):
    embedding = load_file(folder / FILE)["transformer.wte.weight"].clone()
    changed(folder, put(lm_head__weight=embedding.clone()) if stores_head else len)
    mask = {"bias": torch.ones(1, 1, 9, 9, dtype=torch.bool), "masked_bias": torch.tensor(-1e9)}
    changed(folder, put(**{f"transformer.h.1.attn.attention.{name}": tensor for name, tensor in mask.items()}))
    assert refusals(folder) == []
    model = load_model(resolve_model(str(folder)))
    assert model.lm_head.weight is model.transformer.wte.weight
    assert torch.equal(model.lm_head.weight, embedding)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_weights_that_are_not_finite_are_refused_when_loaded(folder, value):
    changed(folder, lambda every: every[NAME].view(-1)[3:4].fill_(value))
    with pytest.raises(ModelError, match=f"hold NaN or infinity in {NAME}"):
        load_model(resolve_model(str(folder)))


def load_judge(checkpoint):
    return JudgeCache().get(CausalJudge, checkpoint)


@pytest.mark.parametrize("file", [FILE, "config.json"])
@pytest.mark.parametrize("load", [load_model, load_judge, load_encoder])
def test_weights_that_changed_since_they_were_planned_with_are_refused(folder, file, load):
    planned = resolve_model(str(folder))
    load(planned)
    if file == FILE:
        contents = (folder / FILE).read_bytes()
        (folder / FILE).write_bytes(contents[:-1] + bytes([contents[-1] ^ 1]))
    else:
        config = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(config | {"layer_norm_epsilon": 0.1}))
    now = resolve_model(str(folder))
    with pytest.raises(ModelError, match="start the sweep again to plan with the new ones") as caught:
        load(planned)
    for told in (str(folder), planned.digest[:12], now.digest[:12]):
        assert told in str(caught.value)
    load(now)


CONFIGURATIONS = {
    "a list": ([1, 2], "is not a model's configuration"),
    "another size": ({"vocab_size": 512}, "do not fit its config.json: of another shape"),
    "code": ({"auto_map": {"AutoConfig": "x.Y"}, "model_type": "new"}, "code of the checkpoint's own is never run"),
    "an encoder": ({"model_type": "bert", "intermediate_size": 32}, "is a bert, which reads a text in both directions"),
    "what sees": ({"model_type": "llava"}, "is a llava, whose language model is only a part of it (text_config"),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations_that_fit_no_language_model(folder, name):
    changes, reason = CONFIGURATIONS[name]
    own = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(own | changes if isinstance(changes, dict) else changes))
    said = refusals(folder)
    assert len(said) == 2
    assert all(reason in message for message in said), said


def test_a_pickle_is_refused_with_the_command_that_converts_it(folder, monkeypatch):
    weights = load_model(resolve_model(str(folder))).state_dict()  # Two of them are tied.
    (folder / FILE).unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    lacks = f"the checkpoint folder {folder} lacks model.safetensors"
    with pytest.raises(ModelError, match=re.escape(lacks)) as refused:
        resolve_model(str(folder))
    [code] = re.findall(r'python -c "([^"]+)"', str(refused.value))
    monkeypatch.chdir(folder)
    exec(code, {})
    loaded = load_model(resolve_model(str(folder))).state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in weights.items())
