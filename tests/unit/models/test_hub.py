"""The hub without a network: what is in its cache is found whole, pinned, and never unpickled."""

import pytest
import torch

from harness.cli import main
from harness.contracts import Checkpoint
from harness.errors import ModelError
from harness.models.loading import load_model, load_tokenizer, vocabulary
from harness.models.resolving import ensure_local, resolve_model

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
    assert [line.split()[:3] for line in lines[:3]] == [
        ["here", "models.0", "owner/model"],
        ["missing", "judges.similarity", "owner/encoder"],
        ["missing", "data.retain", "owner/news"],
    ]
    assert lines[3] == "2 of 3 are missing. Without --check they are fetched."
