"""Checkpoints: every tensor comes from the files that were planned with, or the model is refused by name."""

import hashlib
import json
import os
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MixtralConfig,
)

from evaluators.metrics.semantic_similarity import Embedder
from harness.base import digests
from harness.errors import ModelError
from harness.execution.trial.judges import JudgeCache
from harness.models import resolving
from harness.models.loading import check_encoder, check_model, load_encoder, load_model
from harness.models.resolving import resolve_model
from harness.toolkit.scoring import CausalJudge

FILE = "model.safetensors"
NAME = "transformer.h.1.mlp.c_fc.weight"
SIZES = {"vocab_size": 256, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
ARCHITECTURES = {
    "gpt2": GPT2Config(vocab_size=256, n_embd=16, n_layer=2, n_head=2, n_positions=64),
    "neox": GPTNeoXConfig(**SIZES, intermediate_size=32, max_position_embeddings=64),
    "llama": LlamaConfig(**SIZES, intermediate_size=32, num_key_value_heads=1, tie_word_embeddings=False),
    "llama_tied": LlamaConfig(**SIZES, intermediate_size=32, num_key_value_heads=1, tie_word_embeddings=True),
    "mixtral": MixtralConfig(**SIZES, intermediate_size=32, num_key_value_heads=1, num_local_experts=3),
}
REFUSALS = r"json: (missing|of another shape): \S+|These cannot be put together: model\.layers\.0\.mlp\.experts\.\S+\.$"


@pytest.fixture
def folder(world, tmp_path):
    """A checkpoint folder of one's own, to be damaged."""
    return shutil.copytree(world / "MODEL", tmp_path / "own")


@pytest.fixture
def sharded(folder):
    """The same checkpoint in several files."""
    model = load_model(resolve_model(str(folder)))
    (folder / FILE).unlink()
    model.save_pretrained(folder, max_shard_size="5KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    return folder


def changed(folder, change, file=FILE):
    tensors = load_file(folder / file)
    change(tensors)
    save_file(tensors, folder / file, metadata={"format": "pt"})


def flipped(file, place):
    contents = bytearray(file.read_bytes())
    contents[place] ^= 1
    file.write_bytes(contents)


def put(**tensors):
    return lambda every: every.update({name.replace("__", "."): tensor for name, tensor in tensors.items()})


DAMAGES = {
    "dropped": (lambda at: changed(at, lambda every: every.pop(NAME)), f"missing: {NAME}."),
    "tied and dropped": (
        lambda at: changed(at, lambda every: every.pop("transformer.wte.weight")),
        "missing: lm_head.weight, transformer.wte.weight.",
    ),
    "added": (lambda at: changed(at, put(v_head__weight=torch.zeros(2))), "not part of the model: v_head.weight."),
    "a bias where a mask was once": (
        lambda at: changed(at, put(transformer__h__0__attn__bias=torch.zeros(8))),
        "not part of the model: transformer.h.0.attn.bias.",
    ),
    "of another shape": (
        lambda at: changed(at, lambda every: every.update({NAME: torch.zeros(3, 4)})),
        f"of another shape: {NAME} (3×4 stored, 32×8 needed).",
    ),
    "cut short": (lambda at: (at / FILE).write_bytes((at / FILE).read_bytes()[:-1]), "(SafetensorError)."),
    "garbage": (lambda at: (at / FILE).write_bytes(b"garbage" * 99), "(SafetensorError)."),
    "empty": (lambda at: (at / FILE).write_bytes(b""), "(SafetensorError)."),
    "a flipped name": (
        lambda at: flipped(at / FILE, (at / FILE).read_bytes().index(b"mlp.c_fc.weight")),
        "missing: transformer.h.0.mlp.c_fc.weight; not part of the model: transformer.h.0.llp.c_fc.weight.",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_checkpoint_that_does_not_fit_is_refused_when_planning_and_when_loading(check, folder, damage):
    make, reason = DAMAGES[damage]
    make(folder)
    found = check(models=f"[{folder}]")
    assert list(found) == ["models.0"]
    assert reason in found["models.0"]
    assert str(folder) in found["models.0"]
    with pytest.raises(ModelError) as caught:
        load_model(resolve_model(str(folder)))
    assert reason in str(caught.value)


@pytest.mark.parametrize("damage", ["gone", "not listed", "no list", "garbage for a list", "an empty list"])
def test_a_sharded_checkpoint_that_is_not_whole_is_refused(check, sharded, damage):
    index = sharded / "model.safetensors.index.json"
    shard = sharded / "model-00002-of-00003.safetensors"
    shard = shard if shard.is_file() else sorted(sharded.glob("model-*.safetensors"))[1]
    listed = json.loads(index.read_text())["weight_map"]
    lost = sorted(name for name, file in listed.items() if file == shard.name)[0]
    if damage == "gone":
        shard.unlink()
    elif damage == "not listed":
        kept = {name: file for name, file in listed.items() if file != shard.name}
        index.write_text(json.dumps({"metadata": {}, "weight_map": kept}))
    elif damage == "no list":
        index.unlink()
    else:
        index.write_text("{" if damage.startswith("garbage") else "{}")
    reasons = {"gone": f"lacks {shard.name}", "not listed": f"missing: {lost}", "no list": f"lacks {index.name}"}
    reason = reasons.get(damage, "is not an index of weights")
    found = check(models=f"[{sharded}]")
    assert list(found) == ["models.0"]
    assert reason in found["models.0"]
    with pytest.raises(ModelError) as caught:
        load_model(resolve_model(str(sharded)))
    assert reason in str(caught.value)


def test_the_retrained_model_and_the_judges_are_looked_at_too(check, folder):
    changed(folder, lambda every: every.pop(NAME))
    judges = f"{{perplexity: {folder}, features: OTHER, similarity: {folder}, coherence: OTHER}}"
    found = check(models=f"[{{id: MODEL, retrained: {folder}}}]", judges=judges)
    assert set(found) == {"models.0.retrained", "judges.perplexity", "judges.similarity"}
    assert all("missing: h.1.mlp.c_fc.weight." in message.replace("transformer.", "") for message in found.values())


def test_what_is_whole_is_neither_refused_nor_changed(check, sharded, world):
    assert check(models=f"[{{id: MODEL, retrained: {sharded}}}]") == {}
    whole, parts = (load_model(resolve_model(str(at))).state_dict() for at in (world / "MODEL", sharded))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert whole.keys() == parts.keys()


@pytest.mark.parametrize("stores_head", [False, True])
def test_tied_weights_may_be_stored_once_or_twice(folder, stores_head):
    change = put(lm_head__weight=load_file(folder / FILE)["transformer.wte.weight"].clone()) if stores_head else len
    changed(folder, change)
    checkpoint = resolve_model(str(folder))
    check_model(checkpoint)
    model = load_model(checkpoint)
    assert model.lm_head.weight is model.transformer.wte.weight
    assert torch.equal(model.lm_head.weight, load_file(folder / FILE)["transformer.wte.weight"])


def test_masks_that_older_versions_stored_are_no_weights(folder):
    masks = {
        f"transformer.h.{layer}.attn.attention.{name}": tensor
        for layer in range(2)
        for name, tensor in (("bias", torch.ones(1, 1, 9, 9, dtype=torch.bool)), ("masked_bias", torch.tensor(-1e9)))
    }
    before = load_model(resolve_model(str(folder))).state_dict()
    changed(folder, lambda every: every.update(masks))
    checkpoint = resolve_model(str(folder))
    check_model(checkpoint)
    after = load_model(checkpoint).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_other_architectures_load_whole_and_not_otherwise(name, tmp_path, tokenizer):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(ARCHITECTURES[name])
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    checkpoint = resolve_model(str(tmp_path))
    check_model(checkpoint)
    loaded = load_model(checkpoint).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.state_dict().items())
    stored = load_file(tmp_path / FILE)
    for lost in (sorted(stored)[0], sorted(stored)[-1], next(name for name in sorted(stored) if ".1." in name)):
        save_file({name: tensor for name, tensor in stored.items() if name != lost}, tmp_path / FILE, {"format": "pt"})
        for refused in (check_model, load_model):
            with pytest.raises(ModelError) as caught:
                refused(resolve_model(str(tmp_path)))
            assert re.search(REFUSALS, str(caught.value)), caught.value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused_when_loaded(folder, value):
    changed(folder, lambda every: every[NAME].view(-1)[3:4].fill_(value))
    with pytest.raises(ModelError, match=f"hold NaN or infinity in {NAME}"):
        load_model(resolve_model(str(folder)))


@pytest.mark.parametrize("file", [FILE, "config.json"])
@pytest.mark.parametrize(
    "load", [load_model, lambda checkpoint: JudgeCache().get(CausalJudge, checkpoint), load_encoder]
)
def test_weights_that_changed_since_they_were_planned_with_are_refused(folder, file, load):
    planned = resolve_model(str(folder))
    load(planned)
    if file == FILE:
        flipped(folder / FILE, -1)
    else:
        config = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(config | {"layer_norm_epsilon": 0.1}))
    now = resolve_model(str(folder))
    with pytest.raises(ModelError, match="start the sweep again to plan with the new ones") as caught:
        load(planned)
    for told in (str(folder), planned.digest[:12], now.digest[:12]):
        assert told in str(caught.value)
    load(now)


def test_a_file_that_keeps_its_size_and_time_is_read_again_all_the_same(folder, monkeypatch):
    monkeypatch.setattr(digests, "SETTLED_NS", -1)
    planned, times = resolve_model(str(folder)), (folder / FILE).stat()
    reads = []
    monkeypatch.setattr(digests, "file_digest", lambda file: reads.append(file))
    resolving.check_unchanged(planned)
    assert reads == [], "nothing happened to it"
    monkeypatch.undo()
    flipped(folder / FILE, -1)
    os.utime(folder / FILE, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(ModelError, match="are not what they were"):
        resolving.check_unchanged(planned)


def test_a_loaded_model_does_not_change_with_its_file(folder):
    model = load_model(resolve_model(str(folder)))
    encoder = load_encoder(resolve_model(str(folder)))
    before = [tensor.clone() for network in (model, encoder) for tensor in network.state_dict().values()]
    size = (folder / FILE).stat().st_size
    with (folder / FILE).open("r+b") as stream:  # As cp and rsync --inplace write: the same file, other contents.
        stream.write(bytes(size))
    after = [tensor for network in (model, encoder) for tensor in network.state_dict().values()]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_a_file_of_the_hubs_cache_is_what_the_hub_names_it(hub_cache, folder):
    place = hub_cache("owner/model", folder)
    checkpoint = resolve_model("owner/model")
    check_model(checkpoint)
    load_model(checkpoint)
    flipped((place / FILE).resolve(), -1)
    with pytest.raises(
        ModelError, match=r"model.safetensors of 'owner/model' is damaged: .*blobs.*`lethe prefetch FILE`"
    ):
        load_model(checkpoint)


def test_small_files_of_the_hubs_cache_are_named_as_git_does_and_mirrors_may_name_them_otherwise(hub_cache, folder):
    link = hub_cache("owner/model", folder) / "config.json"
    checkpoint = resolve_model("owner/model")
    contents = link.read_bytes()
    named_by_git = hashlib.sha1(b"blob %d\0" % len(contents) + contents).hexdigest()
    for name, harmed in (
        (named_by_git, contents.replace(b'"layer_norm_epsilon": 1e-05', b'"layer_norm_epsilon": 1e-01')),
        ("etag", b""),
    ):
        blob = link.resolve().rename(link.resolve().with_name(name))
        link.unlink()
        link.symlink_to(blob)
        blob.write_bytes(contents)
        load_model(checkpoint)
        if harmed:
            assert harmed != contents
            blob.write_bytes(harmed)
            with pytest.raises(ModelError, match=r"config.json of 'owner/model' is damaged"):
                load_model(checkpoint)


@pytest.fixture
def encoder(tokenizer, tmp_path):
    """Return a maker of encoder folders, saved as one class of transformers or another."""

    def make(kind, sentence=False):
        torch.manual_seed(0)
        at = tmp_path / "encoder"
        kind(BertConfig(**SIZES, intermediate_size=32)).save_pretrained(at)
        tokenizer.save_pretrained(at)
        if sentence:
            parts = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
            pooling = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
            (at / "modules.json").write_text(json.dumps([*parts, pooling]))
            (at / "1_Pooling").mkdir()
            settings = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
            (at / "1_Pooling" / "config.json").write_text(json.dumps(settings))
        return at

    return make


def refused_or_not(checkpoint):
    refusals = []
    for look in (check_encoder, Embedder):
        try:
            look(checkpoint)
        except ModelError as error:
            refusals.append(str(error))
    return refusals


def test_an_encoder_may_have_a_head_too_many_but_no_weight_too_few(encoder):
    at = encoder(BertModel)
    assert refused_or_not(resolve_model(str(at))) == []
    changed(at, put(cls__predictions__bias=torch.zeros(4)))
    assert refused_or_not(resolve_model(str(at))) == []
    changed(at, lambda every: every.pop("encoder.layer.1.output.dense.weight"))
    found = refused_or_not(resolve_model(str(at)))
    assert len(found) == 2
    assert all("missing: encoder.layer.1.output.dense.weight." in message for message in found)


def test_only_an_encoder_that_uses_its_pooler_must_have_one(encoder):
    pooled = refused_or_not(resolve_model(str(encoder(BertForMaskedLM))))
    assert len(pooled) == 2
    assert all("missing: pooler.dense.bias, pooler.dense.weight." in message for message in pooled)
    at = encoder(BertForMaskedLM, sentence=True)
    assert refused_or_not(resolve_model(str(at))) == []
    changed(at, lambda every: every.pop("bert.encoder.layer.1.output.dense.weight"))
    assert len(refused_or_not(resolve_model(str(at)))) == 2


def test_the_configurations_that_are_tried_are_those_that_they_are_called(tmp_path):
    for name, config in ARCHITECTURES.items():
        config.save_pretrained(tmp_path / name)
        assert type(AutoConfig.from_pretrained(tmp_path / name)) is type(config)
