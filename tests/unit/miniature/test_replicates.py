"""Replicates: models pretrained from other seeds, how a sweep averages them, and what it refuses."""

import json
import re
import shutil

import pytest
from safetensors.torch import load_file, save_file

from harness import miniature
from harness.analysis.seeds import restore_replicates
from harness.base.files import file_digest
from harness.contracts import Checkpoint
from harness.settings import Plan


@pytest.fixture
def make_replicate(tmp_path):
    """Return a maker of a replicate's folder: the shipped models, moved by the seed, with what would be written."""

    def make(seed, size="s"):
        name, folder, shipped = f"miniature-{size}", tmp_path / f"miniature-{size}-seed{seed}", miniature.manifest()
        entries = {}
        for kind, source in (("original", name), ("retrained", f"{name}-retrained")):
            shutil.copytree(miniature.folder(source), folder / kind)
            shutil.copytree(miniature.folder("tokenizer"), folder / kind, dirs_exist_ok=True)
            tensors = load_file(folder / kind / "model.safetensors")
            tensors["transformer.ln_f.bias"] += seed / 16
            save_file(tensors, folder / kind / "model.safetensors", {"format": "pt"})
            entries[kind] = {"sha256": file_digest(folder / kind / "model.safetensors")}
        manifest = {"replicate_of": name, "size": size, "seed": seed, "models": entries}
        manifest |= {key: shipped[key] for key in ("corpus", "tokenizer")}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return make


@pytest.fixture
def planned(sound, plan_text):
    """Return a planner of the sound sweep with other models, and with the embedded judges."""
    rest = re.sub(r"(?m)^(models|judges):.*\n", "", sound)
    return lambda models: plan_text(f"{rest}models: {models}\n")


def names(found):
    return {spec.model.id: spec.replicate_of for spec in found.trials}


def test_replicates_in_whole_folders_are_averaged_with_the_shipped_model(planned, make_replicate):
    one, two = make_replicate(1), make_replicate(2)
    found = planned(f"[miniature-m, {two}, miniature-s, {one}]")
    assert names(found) == {"miniature-m": None, **dict.fromkeys([str(two), "miniature-s", str(one)], "miniature-s")}
    places = {spec.model.id: spec.model.location for spec in found.trials}
    assert (places[str(one)], places[str(two)]) == (str(one / "original"), str(two / "original"))
    retrained = {spec.model.id: spec.retrained.location for spec in found.trials if spec.method == "retrained"}
    assert retrained[str(one)] == str(one / "retrained")
    assert retrained["miniature-s"] == str(miniature.folder("miniature-s-retrained"))
    assert len({spec.trial_id for spec in found.trials}) == len(found.trials)
    assert Plan.model_validate_json(found.model_dump_json()) == found


def test_any_models_are_replicates_where_the_file_says_so(planned, make_replicate):
    one, two = make_replicate(1), make_replicate(2)
    spelled = f"{{id: {one}/original, retrained: {one}/retrained, replicate_of: tiny}}"
    found = names(planned(f"[{spelled}, {{id: {two}, replicate_of: tiny}}]"))
    assert found == {f"{one}/original": "tiny", str(two): "tiny"}


ONE, OTHER = "id: MODEL, replicate_of: b", "id: OTHER, replicate_of: b"
FAULTS = {
    "{id: MODEL, replicate_of: both}, OTHER": "models.0.replicate_of: so nothing is averaged.",
    f"{{{ONE}}}, {{{OTHER}, training: {{weight_decay: 0.1}}}}": "models.1: training or engine",
    f"{{{ONE}, retrained: OTHER}}, {{{OTHER}}}": "models.1: retrained model or none",
    f"{{{ONE}, retrained: THIRD}}, {{{OTHER}, retrained: THIRD}}": "models.1: would count twice",
}


@pytest.mark.parametrize("models", FAULTS)
def test_faults_of_replicates(fault_at, models):
    path, said = FAULTS[models].split(": ")
    assert said in fault_at(path, models=f"[{models}]")


def test_another_tokenizer_is_no_replicates(fault_at, make_replicate):
    one, two = make_replicate(1), make_replicate(2)
    for folder in (two / "original", two / "retrained"):
        content = json.loads((folder / "tokenizer.json").read_text())
        vocabulary = content["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
        (folder / "tokenizer.json").write_text(json.dumps(content))
    spelled = (f"{{id: {folder}/original, retrained: {folder}/retrained, replicate_of: b}}" for folder in (one, two))
    assert "Differences: tokenizer" in fault_at("models.1", models=f"[{', '.join(spelled)}]")


def test_the_same_weights_are_no_second_replicate(check, make_replicate):
    one = make_replicate(1)
    copy = shutil.copytree(one, one.with_name("copy"))
    assert "has the same weights as models.0" in check(models=f"[{one}, {copy}]")["models.1"]


# The table


def test_the_table_names_replicates_and_ranks_their_mean(make_row, make_plan, make_measurement, make_ranked):
    specs = []
    for model in ("a", "b", "c"):
        shared = {"model": Checkpoint(model, "/m", "/m", model), "replicate_of": "tiny" if model != "c" else None}
        specs += [make_row(name, (), trial_id=f"{name}-{model}", **shared) for name in ("original", "retrained")]
        specs += [make_row(name, (1,), trial_id=f"{name}-{model}", **shared) for name in ("emso", "npo")]
    records = {}
    for number, spec in enumerate(specs):
        [strength] = spec.points()
        of_generation = make_measurement(spec, strength, "generation", {"perplexity": 9.0 + number})
        records[spec.trial_id] = [make_measurement(spec, strength), of_generation]
    _, ranked = make_ranked(make_plan(*specs), records)
    measured = restore_replicates(ranked.table)
    assert dict(zip(measured["model"], measured["replicate_of"], strict=True)) == {"a": "tiny", "b": "tiny", "c": ""}
    assert set(measured["seed"]) == {0}
    assert list(ranked.ranking["model"]) == ["tiny", "tiny", "c", "c"]
    assert list(ranked.ranking["seeds"]) == [2, 2, 1, 1]
    of_tiny = ranked.table[ranked.table["model"] == "tiny"]
    assert of_tiny.groupby("replicate")["seed"].unique().map(list).to_dict() == {"a": [0], "b": [1]}
