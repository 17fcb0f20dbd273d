"""Answers: they are no surer than their evidence, and the published ones come out as published."""

import csv
import math
import re

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from harness import run_sweep
from harness.errors import ConfigError
from tests.promises.models import make_byte_checkpoint, make_encoder
from tests.promises.records_fixtures import ROOT, commands

PUBLISHED = ROOT / "results" / "published"
RANKS = ["rank_erasure", "rank_generation", "rank_average"]
SWEEP = """# Is a method told from itself?
name: answers
models: [miniature-s]
seeds: [0, 1, 2, 3]
data:
  forget: {source: miniature, sequences: 16, sequence_tokens: 64, prefix_tokens: 32}
  retain: {source: miniature, sequences: 16, sequence_tokens: 64}
  utility: {source: miniature, prompts: 16, reference_tokens: 16}
  validation: {source: miniature, sequences: 24}
training: {learning_rate: 5.0e-5, global_batch: 1, early_stop: null}
until: {ma: [0.7]}
methods:
  one_name: {method: gradient_difference, epochs: [1, 3]}
  another: {method: gradient_difference, epochs: [1, 3], training: {learning_rate: 5.005e-5}}
  dear: {method: gradient_difference, epochs: [1, 3], training: {learning_rate: 1.25e-5, weight_decay: 800.0}}
  idle: {method: gradient_ascent, epochs: [1], training: {learning_rate: 1.0e-12}}
evaluators:
  memorization: {el_sequences: 2, el_prefixes: 2}
  language_modelling: {}
judges: {similarity: ENCODER}
compare: {cost: own_perplexity}
collapse: {}
ranking: {at: {one_name: 1, another: 1, dear: 1}}
keep_erased: none
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Run the sweep file with other settings; its judge of similarity is a tiny one, which takes no time."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "answers.yaml").write_text(SWEEP.replace("ENCODER", str(make_encoder(folder / "encoder"))))

    def run(*overrides, results=folder):
        return run_sweep(folder / "answers.yaml", overrides=overrides, executor="inline", results=results)

    return run


def answer(results):
    """The answer's CSV, by row of the sweep file."""
    return pd.read_csv(results.folder / "answer.csv", keep_default_na=False).set_index("variant")


@pytest.fixture(scope="module")
def one_seed(sweep):
    return answer(sweep("seeds=[0]"))


@pytest.fixture(scope="module")
def four_seeds(sweep, one_seed):
    results = sweep()
    return results, answer(results), pd.read_csv(results.folder / "ranking.csv").set_index("variant")


def test_one_seed_gives_no_verdict(one_seed):
    assert set(one_seed["verdict"]) == {""}
    assert float(one_seed.loc["one_name", "price"]) > 0, "though the numbers are there"


def test_a_method_under_two_names_is_not_told_from_itself_and_a_dear_one_is(four_seeds):
    """The twins' rates differ by a thousandth: a sweep refuses the same trials under two names."""
    _, said, _ = four_seeds
    is_reference = said["is_reference"].astype(str).str.lower() == "true"
    assert said.index[is_reference].tolist() == ["one_name"], "the first in the file that got there"
    assert said.loc["another", "verdict"] in ("can't tell yet", "equivalent")
    assert said.loc["dear", "verdict"] == "dearer"


def test_a_row_that_erased_nothing_takes_no_rank(four_seeds):
    results, said, ranking = four_seeds
    assert ranking.loc["idle", RANKS].isna().all()
    assert ranking.loc["idle", "unranked"], "and it is said why"
    assert (said.loc["idle", "gets_there"], said.loc["idle", "verdict"], said.loc["idle", "price"]) == ("no", "", "")
    assert ranking.loc[["one_name", "another", "dear"], "rank_erasure"].notna().all()
    assert ranking["recited"].all()
    assert "othing to erase" not in results.report.read_text()


def test_a_metric_that_was_not_measured_is_empty_and_never_0(four_seeds):
    results, *_ = four_seeds
    with (results.folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    [unseen] = [row for row in rows if row["variant"] == "holdout"]
    assert unseen["ma"]
    assert unseen["own_perplexity"] == ""
    assert math.isnan(results.table.query("variant == 'holdout'")["own_perplexity"].item())
    assert results.table.query("variant != 'holdout'")["own_perplexity"].notna().all()


def test_definitions_are_never_mixed_in_a_sweep(sweep, tmp_path):
    both = "evaluators={memorization: {definition: table}, generation: {}}"
    with pytest.raises(ConfigError, match=r"'exact'.*'table'"):
        sweep(both, "compare={}", "until={}", results=tmp_path)
    assert not (tmp_path / "answers").exists()


def test_weights_that_are_not_a_number_give_no_number(sweep, tmp_path, capsys):
    file = make_byte_checkpoint(tmp_path / "model") / "model.safetensors"
    weights = load_file(file)
    weights["transformer.h.0.mlp.c_fc.weight"][0, 0] = torch.nan
    save_file(weights, file, {"format": "pt"})
    changes = [f"models=[{tmp_path}/model]", "seeds=[0]", "methods={dear: {method: gradient_ascent}}", "ranking={}"]
    results = sweep(*changes, results=tmp_path)
    assert len(results.table) == 0
    assert len(results.unfinished) >= 2
    printed = capsys.readouterr()
    assert re.search(r"failed.*\bmodel\b.*NaN", printed.out + printed.err)


def collate(path):
    """Return the command's exit code and all that it printed."""
    log = path.parent / "log"
    commands().start("harness.collate", path, "--out", path.parent / "out", log=log)
    return commands().end(), log.read_text()


def written(path):
    """Return a table's rows, whose cells are as they are written."""
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def write_table(folder, frame):
    (folder / "table.metrics.yaml").write_bytes((PUBLISHED / "emso_main_table.metrics.yaml").read_bytes())
    frame.to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


@pytest.fixture(scope="module")
def collated(tmp_path_factory):
    """The published main table collated, and below it one of its models again, a row of which lacks all of a group."""
    folder, published = tmp_path_factory.mktemp("published"), written(PUBLISHED / "emso_main_table.csv")
    again = published.query("model == 'gpt-neo-1.3b'").assign(model="lacking", collapsed="", **dict.fromkeys(RANKS, ""))
    again.loc[again["method"] == "task_arithmetic", ["perplexity", "rep_2", "div_3", "coherence", "mauve"]] = ""
    code, printed = collate(write_table(folder, pd.concat([published, again])))
    assert code == 0, printed
    return printed, published, written(folder / "out" / "ranking.csv")


def test_the_published_ranks_and_red_cells_come_out_as_published(collated):
    printed, published, ours = collated
    both = published.merge(ours, on=["model", "method"], suffixes=("", "_ours")).query("method != 'original'")
    assert len(both) == 21
    agree = [pair for rank in RANKS for pair in zip(both[rank], both[f"{rank}_ours"], strict=True)]
    assert sum(theirs != "" for theirs, _ in agree) == 33
    assert [pair for pair in agree if pair[0] != pair[1]] == []
    assert both["collapsed"].tolist() == both["collapsed_ours"].tolist()
    assert (both["collapsed_ours"] == "true").sum() == 10
    assert re.search(r"\b33 of the 33\b", printed)


def test_what_a_table_lacks_is_not_ranked_as_the_best(collated):
    _, _, ranking = collated
    rows = ranking.query("model == 'lacking'").set_index("method")
    assert rows.loc["task_arithmetic", RANKS].tolist() == ["3", "", ""], "its place in what it has, and in no more"
    assert rows.loc["contrastive_decoding", RANKS].tolist() == ["4", "3", "3"], "who was behind it moves up"
    assert rows.loc["emso", RANKS].tolist() == ["1", "1", "1"]


def test_a_table_of_two_definitions_is_refused(tmp_path):
    published = written(PUBLISHED / "emso_main_table.csv")
    both = published.assign(definition=["exact", *["table"] * (len(published) - 1)])
    code, printed = collate(write_table(tmp_path, both))
    assert code == 2
    assert "exact" in printed
    assert "'table'" in printed
    assert not (tmp_path / "out").exists()
