"""The sweep files that come with Lethe: each can be planned, and asks for what it says."""

import json
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest

from harness.analysis.published import match_points
from harness.models.resolving import CAUSAL_ROLES
from harness.planning.plan import plan
from harness.planning.published import published_conditions
from harness.plugins import METHODS
from harness.settings import HOLDOUT

SWEEPS = Path(__file__).resolve().parents[3] / "sweeps"
OF_THE_PAPER = {"emso", "task_arithmetic", "contrastive_decoding", "deliberate_imagination"}
OF_THE_PAPER |= {"gradient_ascent", "gradient_difference", "kl_divergence"}


@pytest.fixture
def anywhere(world, tmp_path):
    """Overrides that make a shipped sweep plannable without the shipped weights."""
    judges = [f"judges.{role}={world}/OTHER" for role in ("similarity", "coherence", "perplexity", "features")]
    return [f"models=[{{id: {world}/MODEL, retrained: {world}/OTHER}}]", *judges]


SHIPPED = [
    ("smoke", 6, 7), ("tradeoff", 33, 45), ("main_table", 11, 17), ("table_definition", 11, 17), ("meta", 13, 20),
    ("learning_rate", 21, 45), ("ablation", 8, 38), ("num_blocks", 7, 31), ("ablation_ta", 15, 15),
    ("entropy_versus_nll", 7, 23),
]  # fmt: skip


@pytest.mark.parametrize(("name", "trials", "points"), SHIPPED)
def test_the_shipped_sweeps_ask_for_what_they_say(anywhere, name, trials, points):
    found = plan(SWEEPS / f"{name}.yaml", anywhere)
    assert found.question.endswith("?")
    assert found.sweep == name
    assert len(found.trials) == trials
    assert sum(len(spec.points()) for spec in found.trials) == points


@pytest.mark.parametrize("name", ["main_table", "table_definition", "ablation", "num_blocks"])
def test_what_reproduces_a_table_has_each_of_its_rows(anywhere, make_results, name):
    found = plan(SWEEPS / f"{name}.yaml", anywhere)
    for row in published_conditions()[found.reproduces].rows.values():
        _, lacking = match_points(make_results(found, {}), found.trials[0].model.id, row)
        assert lacking.endswith("is not finished"), lacking


def test_the_tuned_sweep_searches_and_walks_every_method_alike(anywhere):
    found = plan(SWEEPS / "tuned.yaml", anywhere)
    walked = [spec for spec in found.trials if spec.until]
    assert {spec.method for spec in walked} == {"task_arithmetic", "contrastive_decoding"}, "they have their dial only"
    assert {study.trial.method for study in found.studies} | {spec.method for spec in walked} == OF_THE_PAPER
    assert [str(level) for level in found.until] == ["MA 0.75", "MA unseen"]
    assert {seed for study in found.studies for seed in study.seeds} == {0, 1, 2} == {spec.seed for spec in walked}
    for study in found.studies:
        assert (study.trials, study.targets, study.trial.training.early_stop) == (8, found.until, None)


@pytest.mark.parametrize("name", ["robustness", "all_methods"])
def test_attacks_meet_the_points_of_the_tuned_sweep(anywhere, name):
    tuned, attacked = (plan(SWEEPS / f"{file}.yaml", [*anywhere, "seeds=[0]"]) for file in ("tuned", name))
    assert attacked.sweep == tuned.sweep, "one journal"
    assert {study.study_id for study in attacked.studies} >= {study.study_id for study in tuned.studies}
    assert {spec.trial_id for spec in attacked.trials} >= {spec.trial_id for spec in tuned.trials}
    ours, theirs = ({one.name: one.key for one in found.trials[0].evaluators} for found in (tuned, attacked))
    assert ours.items() < theirs.items()
    walked = {spec.method for spec in attacked.trials if spec.until}
    is_of_all = walked | {study.trial.method for study in attacked.studies} == {*METHODS.names()}
    assert is_of_all == (name == "all_methods")


def test_hubbles_sweep_takes_the_passages_inserted_256_times(anywhere, tmp_path):
    for place, (folder, split) in enumerate(product(("passages", "wiki"), ("train", "test"))):
        (tmp_path / folder).mkdir(exist_ok=True)
        texts = [" ".join(map(str, Random(100 * place + row).choices(range(999), k=99))) for row in range(100)]
        rows = [json.dumps({"text": text, "duplicates": row % 2 * 256}) for row, text in enumerate(texts)]
        (tmp_path / folder / f"{split}.jsonl").write_text("\n".join(rows))
    paths = [f"data.{role}.path={tmp_path}/passages" for role in ("forget", "holdout")]
    paths += [f"data.{role}.path={tmp_path}/wiki" for role in ("retain", "utility")]
    fewer = ["data.utility.prompts=40", "data.holdout.sequences=40", "resources.gpus=0"]
    fewer += ["data.retain.name=null", "data.utility.name=null"]
    found = plan(SWEEPS / "hubble.yaml", [*anywhere[:3], *paths, *fewer])
    assert (found.trials[0].forget.rows, found.trials[0].forget.where) == (50, (("duplicates", 256),))
    assert [*found.text_names.values()] == [f"row {number}" for number in range(1, 100, 2)]


def test_the_extraction_challenge_is_filled_from_the_command_line(anywhere, tmp_path):
    ids = np.random.default_rng(0).integers(256, size=(600, 200), dtype=np.uint16)
    np.save(tmp_path / "joined.npy", ids)
    texts = [" ".join(map(str, Random(number).choices(range(999), k=99))) for number in range(500)]
    (tmp_path / "passages.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    paths = [f"data.{role}.path={tmp_path}/passages.jsonl" for role in ("retain", "utility", "validation")]
    paths += [f"data.{role}.path={tmp_path}/joined.npy" for role in ("forget", "holdout")]
    found = plan(SWEEPS / "extraction_challenge.yaml", [*anywhere[:3], *paths])
    spec = found.trials[0]
    assert (spec.forget.sequences, spec.forget.prefix_tokens, spec.forget.sequence_tokens) == (512, 100, 200)
    assert (spec.utility.start, spec.utility.sequences) == (450, 50), "the passages that the model never saw"
    [unseen] = [spec.forget for spec in found.trials if spec.method == HOLDOUT]
    assert (unseen.start, unseen.rows) == (512, 64), "rows that the model never saw"
    assert {spec.method for spec in found.trials} >= OF_THE_PAPER
    assert {judge.location for judge in map(spec.judges.get, CAUSAL_ROLES)} == {spec.model.location}
