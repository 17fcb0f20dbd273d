"""A checkpoint's weights are whole, finite and those that were planned with, or the model is refused by name."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.base import hub
from harness.cli import main
from harness.contracts import Checkpoint, ErasedModel
from harness.errors import ModelError
from harness.execution.erasing import write_erased
from harness.execution.tasks import JudgeCache
from harness.models.adapters import load_erased
from harness.models.loading import check_model, load_encoder, load_model, load_tokenizer, vocabulary
from harness.models.resolving import ensure_local, resolve_model
from harness.testing import small_spec
from harness.toolkit.scoring import CausalJudge
from tests.unit.tasks import weights

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
    assert "reads a text in both directions" in check(judges="{perplexity: minilm}")["judges.perplexity"]


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


LOADERS = [load_model, load_encoder, lambda checkpoint: JudgeCache().get(CausalJudge, checkpoint)]


@pytest.mark.parametrize("file", [FILE, "config.json"])
@pytest.mark.parametrize("load", LOADERS)
def test_weights_that_changed_since_they_were_planned_with_are_refused(folder, file, load):
    planned = resolve_model(str(folder))
    load(planned)
    if file == FILE:
        contents = (folder / FILE).read_bytes()
        (folder / FILE).write_bytes(contents[:-1] + bytes([contents[-1] ^ 1]))
    else:
        (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | {"layer_norm_epsilon": 0.1}))
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
    assert [reason in message for message in said] == [True, True], said


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


# The hub without a network: what is in its cache is found whole, pinned, and never unpickled.


COMMIT = "c0ffee" * 6 + "c0de"


def test_a_cached_model_is_pinned_to_its_commit_and_loaded_from_the_cache(hub_cache, model_folder):
    place = hub_cache("owner/model", model_folder)
    found = resolve_model("owner/model")
    assert found == Checkpoint("owner/model", "owner/model", "owner/model", COMMIT, COMMIT)
    assert ensure_local(found).location == ensure_local(found).tokenizer == str(place)
    assert vocabulary(found) == 256
    local = resolve_model(str(model_folder))
    expected, loaded = load_model(local).state_dict(), load_model(found).state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    assert load_tokenizer(found)("abc")["input_ids"] == load_tokenizer(local)("abc")["input_ids"]
    other = hub_cache("owner/model", model_folder, commit="d" * 40)
    assert resolve_model("owner/model", revision=COMMIT).digest == COMMIT
    assert resolve_model("owner/model").digest == "d" * 40
    assert ensure_local(resolve_model("owner/model")).location == str(other)


def test_a_model_that_is_not_here_is_named(hub_cache):
    message = r"the model 'owner/model' or a part of it is not in this machine's hub cache, .* `lethe prefetch FILE`"
    with pytest.raises(ModelError, match=message):
        resolve_model("owner/model")
    with pytest.raises(ModelError, match=r"'gpt2' is not a folder, nor a hub id \(owner/name, such as openai"):
        resolve_model("gpt2")


def test_prefetch_tells_what_is_here_and_what_is_missing(hub_cache, model_folder, tmp_path, capsys):
    hub_cache("owner/model", model_folder)
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "models: [owner/model]\nmethods: {gradient_ascent: }\nevaluators: {memorization: {}}\n"
        "judges: {perplexity: miniature, features: miniature, similarity: owner/encoder, coherence: minilm}\n"
        "data: {forget: {source: miniature}, utility: {source: miniature}, "
        "retain: {source: hub, path: owner/news, name: plain}}\n"
    )
    assert main(["prefetch", str(file), "--check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    told = ["here models.0 owner/model", "missing judges.similarity owner/encoder", "missing data.retain owner/news"]
    assert [" ".join(line.split()[:3]) for line in lines[:3]] == told
    assert lines[3] == "2 of 3 are missing. Without --check they are fetched."
    assert not hub.is_listed(hub.Repository("owner/model", "model")), "so prefetch asks the hub for the rest"


# What several workers hand in: an erased model as what changed, where that makes it bit for bit.


SPEC = small_spec()


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
    write_erased(ErasedModel(1, model, changed_blocks=("L0.W_v.H0",)), SPEC.model, tmp_path / "0")
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
