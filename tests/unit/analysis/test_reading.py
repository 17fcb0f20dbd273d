"""A table.csv read back: what is filled in, and what it must have."""

import math
import re
from pathlib import Path

import pandas as pd
import pytest

from evaluators.generation import Generation
from evaluators.memorization import Memorization
from harness.analysis import metrics, ranking, table
from harness.errors import DataError
from harness.settings import replace

PUBLISHED = Path(__file__).parents[3] / "results/published/emso_main_table.csv"


def declare(path, text=None):
    """Say what the metrics of a table are, as the published one does."""
    declared = PUBLISHED.with_suffix(".metrics.yaml").read_text(encoding="utf-8")
    path.with_suffix(".metrics.yaml").write_text(declared if text is None else text, encoding="utf-8")


def test_a_published_table_is_filled():
    frame, _ = table.read_table(PUBLISHED)
    assert set(table.LEADING + table.TRAILING) <= set(frame.columns)
    assert frame["variant"].equals(frame["method"])
    assert frame.loc[frame["method"] == "original", "ranked"].tolist() == [False] * 3
    assert (frame["ranked"].sum(), frame["rank_average"][2], frame["ma"][0]) == (21, "=2", 0.789)


WRONG = {
    "variant,ma\nemso,0.1\n": "lacks 'model', 'method'. Its columns are 'variant', 'ma'.",
    "model,method,score\nm,emso,1\n": "none of the metrics declared next to it (el_3, ma, ss, perplexity",
    "model,method,ma\nm,emso,0.5\nm,ga,many\n": "line 3, column 'ma': 'many' is not a number",
    "model,method,ma,seed\nm,emso,0.5,1.5\n": "line 2, column 'seed': '1.5' is not a whole number",
    "model,method,ma,collapsed\nm,emso,0.5,maybe\n": "line 2, column 'collapsed': 'maybe' is not true or false",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_table_is_named_exactly(tmp_path, text):
    path = tmp_path / "some.csv"
    path.write_text(text, encoding="utf-8")
    declare(path)
    with pytest.raises(DataError) as caught:
        table.read_table(path)
    assert str(path) in str(caught.value)
    assert WRONG[text] in str(caught.value)


def test_empty_cells_are_nan(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("model,method,ma,seed,peak_memory_bytes\nm,emso,,,\n", encoding="utf-8")
    declare(path)
    frame = table.read_table(path)[0].iloc[0]
    assert (math.isnan(frame["ma"]), frame["seed"], frame["peak_memory_bytes"] is pd.NA) == (True, 0, True)


@pytest.mark.parametrize("name", ["emso_main_table", "emso_ablation", "emso_num_blocks", "di_original_models"])
def test_published_metrics_are_declared(name):
    path = PUBLISHED.with_name(f"{name}.csv")
    declared = metrics.read_declarations(path)
    columns = set(pd.read_csv(path).columns)
    names = {"model", "method", "variant", "reference", "runs", "num_blocks", "collapsed"}
    assert declared.keys() <= columns <= declared.keys() | names | set(ranking.RANKS)


def test_the_published_metrics_are_those_that_are_measured_today():
    shipped = {metric.name: metric for metric in (*Memorization().metrics, *Generation().metrics)}
    told_elsewhere = {"source": "", "items": None, "aggregate": "mean", "attack": ""}  # no items
    for metric in metrics.read_declarations(PUBLISHED).values():
        assert replace(metric, **told_elsewhere) == replace(shipped[metric.name], **told_elsewhere)


UNDECLARED = [
    (None, "there is no some.metrics.yaml next to it. For a sweep's table, give its results folder"),
    ("el_3: 1", "is no list of metrics"),
    ("- {name: ma, better: Lower}", "0.better"),
    ("- {name: ma, hedline: true}", "a metric has no hedline. It may have name, better, unit"),
]


@pytest.mark.parametrize(("declared", "message"), UNDECLARED)
def test_a_table_whose_metrics_nobody_declares_is_refused(tmp_path, declared, message):
    path = tmp_path / "some.csv"
    path.write_text("model,method,ma\nm,emso,0.5\n", encoding="utf-8")
    if declared is not None:
        rest = ", unit: fraction, low: 0, high: 1, group: erasure, source: s, title: MA}"
        better = "" if "better" in declared else ", better: lower"
        declare(path, (better + rest).join(declared.rsplit("}", 1)))
    with pytest.raises(DataError, match=re.escape(message)):
        table.read_table(path)
