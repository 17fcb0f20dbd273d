"""A table.csv read back: what is filled in, and what it must have."""

import math
from pathlib import Path

import pandas as pd
import pytest

from harness.errors import DataError
from harness.reporting.table import LEADING, TRAILING, read_table

PUBLISHED = Path(__file__).parents[2] / "results/published/emso_main_table.csv"


def test_a_published_table_is_filled():
    found = read_table(PUBLISHED)
    assert set(LEADING + TRAILING) <= set(found.columns)
    assert found["variant"].equals(found["method"])
    assert found.loc[found["method"] == "original", "ranked"].tolist() == [False] * 3
    assert found["ranked"].sum() == 21
    assert found["rank_average"][2] == "=2"
    assert found["ma"][0] == 0.789


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("variant,ma\nemso,0.1\n", "lacks 'model', 'method'. Its columns are 'variant', 'ma'."),
        ("model,ma\nm,0.1\n", "lacks 'method'."),
        ("model,method,score\nm,emso,1\n", "no metric that is known, such as 'ma' or 'mauve'"),
        ("model,method,ma\nm,emso,0.5\nm,ga,many\n", "line 3, column 'ma': 'many' is not a number"),
        ("model,method,ma,seed\nm,emso,0.5,1.5\n", "line 2, column 'seed': '1.5' is not a whole number"),
        ("model,method,ma,collapsed\nm,emso,0.5,maybe\n", "line 2, column 'collapsed': 'maybe' is not true or false"),
        ("", "cannot be read as a table"),
    ],
)
def test_a_wrong_table_is_named_exactly(tmp_path, text, message):
    path = tmp_path / "some.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_file_and_one_that_is_no_text(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv does not exist"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"model,method,ma\n\xff\xfe,a,1\n")
    with pytest.raises(DataError, match=r"bytes\.csv cannot be read"):
        read_table(tmp_path / "bytes.csv")


def test_empty_cells_are_nan(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("model,method,ma,seed,peak_memory_bytes\nm,emso,,,\n", encoding="utf-8")
    found = read_table(path).iloc[0]
    assert math.isnan(found["ma"])
    assert found["seed"] == 0
    assert found["peak_memory_bytes"] is pd.NA
