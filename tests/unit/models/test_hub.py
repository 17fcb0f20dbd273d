"""The hub without a network: what is in its cache is found whole, pinned, fetched once, and never unpickled."""

import copy
import gc
import json
import os
import shutil
import weakref
from dataclasses import replace

import pytest
import torch
from transformers import BertConfig, BertModel

from evaluators.generation import Generation
from evaluators.metrics.semantic_similarity import Embedder
from evaluators.reasoning import Reasoning
from harness.base import hub
from harness.base.hub import Repository
from harness.cli import main as lethe
from harness.contracts import Checkpoint
from harness.data.sequences import load_forget
from harness.errors import DataError, ModelError
from harness.execution.trial import tasks
from harness.execution.trial.judges import JudgeCache
from harness.execution.trial.tasks import MeasuringTask
from harness.models.loading import load_model, load_tokenizer, vocabulary
from harness.models.resolving import ensure_local, resolve_judge, resolve_model
from harness.records.artifacts import Artifacts
from harness.specs import Source
from harness.testing.small import small_spec

COMMIT = "c0ffee" * 6 + "c0de"


def main(arguments):
    """Run `lethe prefetch` and return its exit code."""
    return lethe(["prefetch", *arguments])


@pytest.fixture
def model_folder(make_model, tokenizer, tmp_path):
    """A checkpoint as the hub has it."""
    folder = tmp_path / "model"
    make_model(3, vocabulary=256).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def pickled_folder(tokenizer, tmp_path):
    """An encoder whose weights are a pickle only, and its states after one text."""
    folder = tmp_path / "pickled"
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    encoder = BertModel(BertConfig(vocab_size=256, **sizes)).eval()
    encoder.save_pretrained(folder)
    padding = copy.deepcopy(tokenizer)
    padding.pad_token = padding.convert_ids_to_tokens(0)
    padding.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(encoder.state_dict(), folder / "pytorch_model.bin")
    return folder, encoder


def sweep(tmp_path, **replaced):
    """A sweep file that names something of the hub in each place."""
    settings = {
        "models": "[owner/model]",
        "judges": "{perplexity: miniature, features: miniature, similarity: owner/encoder, coherence: minilm}",
        "retain": "{source: miniature}",
        "evaluators": "{memorization: {}}",
    } | replaced
    file = tmp_path / "sweep.yaml"
    file.write_text(
        f"models: {settings['models']}\njudges: {settings['judges']}\nevaluators: {settings['evaluators']}\n"
        f"data: {{forget: {{source: miniature}}, utility: {{source: miniature}}, retain: {settings['retain']}}}\n"
        "methods: {gradient_ascent: }\n"
    )
    return file


def test_a_cached_model_is_pinned_to_its_commit_and_loaded_from_the_cache(hub_cache, model_folder):
    place = hub_cache("owner/model", model_folder)
    found = resolve_model("owner/model")
    assert found == Checkpoint("owner/model", "owner/model", "owner/model", COMMIT, COMMIT)
    assert ensure_local(found).location == ensure_local(found).tokenizer == str(place)
    assert vocabulary(found) == 256
    expected = load_model(resolve_model(str(model_folder))).state_dict()
    loaded = load_model(found).state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    assert (
        load_tokenizer(found)("abc")["input_ids"] == load_tokenizer(resolve_model(str(model_folder)))("abc").input_ids
    )


def test_a_revision_is_another_commit(hub_cache, model_folder):
    hub_cache("owner/model", model_folder)
    other = hub_cache("owner/model", model_folder, commit="d" * 40)
    assert resolve_model("owner/model", revision=COMMIT).digest == COMMIT
    assert resolve_model("owner/model").digest == "d" * 40
    assert ensure_local(resolve_model("owner/model")).location == str(other)


def test_what_is_missing_is_named(hub_cache, model_folder):
    message = r"this machine's hub cache lacks the model 'owner/model' or a part of it, and the hub cannot be reached"
    with pytest.raises(ModelError, match=message):
        resolve_model("owner/model")
    (model_folder / "model.safetensors").rename(model_folder / "model-00001-of-00002.safetensors")
    hub_cache("owner/model", model_folder)
    with pytest.raises(ModelError, match=message + r" \(.*\). Run `lethe prefetch FILE` where there is a network"):
        resolve_model("owner/model")
    assert hub.cached(Repository("owner/model", "model"), hub.DESCRIPTION) is not None
    assert hub.cached(Repository("owner/model", "model"), hub.WEIGHTS) is None


def test_prefetch_says_what_is_here_and_what_is_missing(hub_cache, model_folder, tmp_path, capsys):
    hub_cache("owner/model", model_folder)
    file = sweep(tmp_path, retain="{source: hub, path: owner/news, name: plain}")
    assert main([str(file), "--check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:3]] == [
        ["here", "models.0", "owner/model"],
        ["missing", "judges.similarity", "owner/encoder"],
        ["missing", "data.retain", "owner/news"],
    ]
    assert lines[3] == "2 of 3 are missing. Without --check they are fetched."
    assert main([str(file)]) == 1
    assert "the hub cannot be reached" in capsys.readouterr().out


def test_weights_without_a_configuration_are_not_a_model_that_is_here(hub_cache, model_folder, tmp_path, capsys):
    for file in model_folder.iterdir():
        if file.suffix != ".safetensors":
            file.unlink()
    hub_cache("owner/model", model_folder)
    assert hub.cached(Repository("owner/model", "model"), hub.WEIGHTS) is not None
    assert main([str(sweep(tmp_path, judges="{similarity: minilm}")), "--check"]) == 1
    assert capsys.readouterr().out.startswith("missing  models.0               owner/model\n")


def test_prefetch_of_an_embedded_sweep_and_of_a_faulty_one(tmp_path, capsys):
    file = sweep(tmp_path, models="[miniature-s]", judges="{similarity: minilm}")
    assert main([str(file)]) == 0
    assert "names nothing of the hub" in capsys.readouterr().out
    assert main([str(sweep(tmp_path, evaluators="{memorisation: {}}"))]) == 2
    assert "Did you mean 'memorization'?" in capsys.readouterr().err


def test_a_pickle_is_refused_until_prefetch_has_converted_it(hub_cache, model_folder, pickled_folder, tmp_path, capsys):
    folder, encoder = pickled_folder
    hub_cache("owner/model", model_folder)
    snapshot = hub_cache("owner/encoder", folder)
    with pytest.raises(ModelError, match=r"only as a pickle .* `lethe prefetch FILE` converts it once"):
        resolve_judge("similarity", "owner/encoder")
    file = sweep(tmp_path)
    assert main([str(file), "--check"]) == 1
    assert "pickled  judges.similarity      owner/encoder: only a pickle is here" in capsys.readouterr().out
    assert main([str(file)]) == 0
    told = "converted to safetensors from pytorch_model.bin, read with weights_only=True"
    assert f"here     judges.similarity      owner/encoder: {told}" in capsys.readouterr().out
    assert main([str(file), "--check"]) == 0
    assert "converted" not in capsys.readouterr().out

    judge = resolve_judge("similarity", "owner/encoder")
    assert judge.digest == COMMIT
    assert not (snapshot / "model.safetensors").exists(), "the hub's own cache stays as it was"
    found = Embedder(ensure_local(judge)).embed(["abc", ""])
    tokens = load_tokenizer(judge)("abc", return_tensors="pt")
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected = torch.nn.functional.normalize(encoder(**tokens).pooler_output.float(), dim=-1)
    torch.testing.assert_close(torch.from_numpy(found[0]), expected[0], atol=1e-2, rtol=0)
    assert not found[1].any()


def test_conversion_keeps_every_tensor_tied_ones_too_in_one_file_or_several(hub_cache, pickled_folder, tmp_path):
    from safetensors.torch import load_file

    from harness.models.fetching import fetch_model

    folder, encoder = pickled_folder
    weights = encoder.state_dict()
    names = sorted(weights)
    weights["tied.weight"] = weights["embeddings.word_embeddings.weight"]
    halves = [names[: len(names) // 2], [*names[len(names) // 2 :], "tied.weight", "embeddings.word_embeddings.weight"]]
    (folder / "pytorch_model.bin").unlink()
    for number, half in enumerate(halves, 1):
        torch.save({name: weights[name] for name in half}, folder / f"pytorch_model-{number:05d}-of-00002.bin")
    hub_cache("owner/encoder", folder)
    assert "pytorch_model-00001-of-00002.bin, pytorch_model-00002" in fetch_model(Repository("owner/encoder", "model"))
    place = hub.conversion_folder(Repository("owner/encoder", "model", COMMIT))
    found = {name: tensor for file in place.glob("*.safetensors") for name, tensor in load_file(file).items()}
    assert set(found) == set(weights)
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    index = json.loads((place / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(index) == set(weights)


class Trap:
    """What a pickle can do to whoever loads it."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return os.mkdir, (str(self.file),)


def test_a_pickle_that_would_run_code_is_not_run(hub_cache, pickled_folder, tmp_path, capsys):
    folder, _ = pickled_folder
    torch.save({"weight": torch.zeros(1), "other": Trap(tmp_path / "sprung")}, folder / "pytorch_model.bin")
    hub_cache("owner/encoder", folder)
    file = sweep(tmp_path, models="[miniature-s]")
    assert main([str(file)]) == 1
    assert "holds more than tensors, or is damaged (UnpicklingError): it was not converted" in capsys.readouterr().out
    assert not (tmp_path / "sprung").exists()
    assert not hub.conversion_folder(Repository("owner/encoder", "model", COMMIT)).parent.is_dir() or not any(
        hub.conversion_folder(Repository("owner/encoder", "model", COMMIT)).parent.iterdir()
    )
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert (tmp_path / "sprung").exists(), "the trap is one: whoever unpickles it makes the folder"


def test_a_cached_data_set_is_read_by_its_configuration(hub_cache, tokenizer, tmp_path):
    rows = [f"article number {number}" for number in range(8)]
    for name, texts in (("plain", rows), ("other", rows[::-1])):
        (tmp_path / "news" / name).mkdir(parents=True)
        lines = "\n".join(json.dumps({"text": text}) for text in texts)
        (tmp_path / "news" / name / "train.jsonl").write_text(lines)
    hub_cache("owner/news", tmp_path / "news", kind="dataset")
    source = Source(source="hub", path="owner/news", name="plain", sequences=2, prefix_tokens=3)
    found = load_forget(source, tokenizer, 256)
    assert tokenizer.decode(found.tokens_NT[0, : found.lengths_N[0]]) == rows[0]
    with pytest.raises(DataError, match="this machine's hub cache lacks the data set 'owner/missing' or a part of it"):
        load_forget(Source(source="hub", path="owner/missing"), tokenizer, 256)


def test_what_the_hubs_own_list_says_is_missing_is_missing(hub_cache, model_folder, tmp_path):
    """Files without numbers: only the list of the commit's files tells that some were not fetched."""
    place = hub_cache("owner/model", model_folder)
    assert hub.cached(Repository("owner/model", "model"), hub.WEIGHTS) == place
    _list(place, ["config.json", "model.safetensors", "model-extra.safetensors"])
    assert hub.cached(Repository("owner/model", "model"), hub.WEIGHTS) is None

    (tmp_path / "news" / "plain").mkdir(parents=True)
    (tmp_path / "news" / "plain" / "train.jsonl").write_text('{"text": "one"}')
    news = Repository("owner/news", "dataset")
    place = hub_cache("owner/news", tmp_path / "news", kind="dataset")
    _list(place, ["plain/train.jsonl", "other/train.jsonl", "infos.json"])
    assert hub.commit(news) == COMMIT
    assert hub.cached_data_set(news, "plain") == place
    assert hub.cached_data_set(news, "other") is None
    assert hub.cached_data_set(news, None) is None


def _list(snapshot, names):
    """Write the list of a commit's files, as the hub's own client does when it downloads some of them."""
    entries = {name: {"size": 1, "blob_id": "0" * 40} for name in names}
    trees = snapshot.parents[1] / "trees"
    trees.mkdir()
    (trees / f"{snapshot.name}.json").write_text(json.dumps({"format_version": 1, "files": entries}))


def test_reasoning_reads_the_cached_data_set_and_pins_its_commit(hub_cache, tmp_path):
    row = {"goal": "Open a door", "sol1": "Turn the handle", "sol2": "Eat the handle", "label": 0}
    (tmp_path / "piqa").mkdir()
    (tmp_path / "piqa" / "validation.jsonl").write_text("\n".join(json.dumps(row) for _ in range(3)))
    evaluator = Reasoning(tasks=("piqa",), tasks_path="hub")
    with pytest.raises(DataError, match="lacks the data set 'baber/piqa' or a part of it"):
        evaluator.inputs()
    hub_cache("baber/piqa", tmp_path / "piqa", kind="dataset")
    assert evaluator.inputs() == {"piqa": f"baber/piqa at {COMMIT}"}
    from evaluators.reasoning import lm_eval_task

    lm_eval_task.cache_clear()
    assert [doc["sol1"] for doc in lm_eval_task("piqa", "hub", None).validation_docs()] == ["Turn the handle"] * 3
    lm_eval_task.cache_clear()


def test_generation_holds_one_large_judge_at_a_time(monkeypatch, tmp_path):
    alive, counts = weakref.WeakSet(), []

    class Watched(JudgeCache):
        def get(self, load, checkpoint):
            gc.collect()
            counts.append(len(alive))
            judge = super().get(load, checkpoint)
            alive.add(judge)
            return judge

    spec = small_spec()
    judges = {**spec.judges, "features": resolve_judge("features", "miniature-s")}
    spec = replace(spec, judges=judges, utility=replace(spec.utility, sequences=4))
    task = MeasuringTask(spec, Artifacts(tmp_path), load_model(spec.model))
    numbers = []
    for kept_bytes in (0, 1 << 30):
        counts.clear()
        alive.clear()
        monkeypatch.setattr(tasks, "JUDGES", Watched(kept_bytes))
        numbers.append(Generation().evaluate(task.model, task).numbers)
        if kept_bytes == 0:
            assert counts == [0, 1, 1], "when the next is asked for, the one before is all there is"
            assert len(alive) == 1, "and it went when the next was loaded"
        else:
            assert counts == [0, 1, 2]
    assert numbers[0] == pytest.approx(numbers[1], nan_ok=True)


def test_judges_large_ones_make_room_and_small_ones_stay(model_folder, tmp_path):
    weight = (model_folder / "model.safetensors").stat().st_size
    places = {}
    for name in ("a", "b", "c"):
        shutil.copytree(model_folder, tmp_path / name)
        places[name] = Checkpoint(name, str(tmp_path / name), str(tmp_path / name), "")
    loads = []

    def load(checkpoint):
        loads.append(checkpoint.id)
        return object()

    small = JudgeCache(kept_bytes=2 * weight)
    first = small.get(load, places["a"])
    small.get(load, places["b"])
    assert small.get(load, places["a"]) is first
    small.shrink()
    small.get(load, places["c"])
    assert small.get(load, places["a"]) is first, "b was asked for longest ago"
    small.get(load, places["b"])
    assert loads == ["a", "b", "c", "b"]

    loads.clear()
    large = JudgeCache(kept_bytes=weight // 2)
    held = large.get(load, places["a"])
    assert large.get(load, places["a"]) is held, "it stays until another is asked for"
    large.get(load, places["b"])
    large.get(load, places["a"])
    large.shrink()
    large.get(load, places["a"])
    assert loads == ["a", "b", "a", "a"]


def test_converted_weights_that_are_damaged_are_named_removed_and_converted_again(
    hub_cache, model_folder, pickled_folder, tmp_path, capsys
):
    hub_cache("owner/model", model_folder)
    hub_cache("owner/encoder", pickled_folder[0])
    place = hub.conversion_folder(Repository("owner/encoder", "model", COMMIT))
    file, weights = str(sweep(tmp_path)), place / "model.safetensors"

    def harm_weights():
        contents = bytearray(weights.read_bytes())
        contents[-1] ^= 1
        weights.write_bytes(contents)

    assert main([file]) == 0
    judge = resolve_judge("similarity", "owner/encoder")
    whole = weights.read_bytes()
    for harm in (harm_weights, lambda: (place / "digests.json").write_text("{")):
        harm()
        with pytest.raises(
            ModelError, match=r"converted weights of 'owner/encoder' .* were damaged \(.*\) and are remov"
        ):
            ensure_local(judge)
        assert not place.exists()
        assert main([file]) == 0
        assert weights.read_bytes() == whole
        ensure_local(judge)
