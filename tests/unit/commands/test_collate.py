"""Collating a table: ranks and flags anew, what is written beside it, and which path is no table."""

from pathlib import Path

import pytest

from harness.cli import main

PUBLISHED = Path(__file__).parents[3] / "results/published/emso_main_table.csv"


def test_collate_notices_when_a_file_states_another_rank(tmp_path, capsys):
    text = PUBLISHED.read_text().replace("0.572,0.610,1,1,1,false", "0.572,0.610,2,1,1,true")
    (tmp_path / "other.csv").write_text(text)
    (tmp_path / "other.metrics.yaml").write_bytes(PUBLISHED.with_suffix(".metrics.yaml").read_bytes())
    assert main(["collate", str(tmp_path / "other.csv")]) == 0
    printed = capsys.readouterr().out
    assert "32 of the 33 ranks" in printed
    assert "20 of the 21 collapse flags" in printed


WRONG = [
    ("none", "does not exist. Give a sweep's results folder or a table.csv."),
    ("empty", "holds no results of a sweep (no journal/plan.json). Run the sweep first."),
    ("bare.csv", "there is no bare.metrics.yaml next to it"),
]


@pytest.mark.parametrize(("name", "message"), WRONG)
def test_collate_on_a_wrong_path_ends_with_2_and_says_why(tmp_path, capsys, name, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare.csv").write_text("model,method,ma\nm,emso,0.1\n")
    assert main(["collate", str(tmp_path / name)]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert str(tmp_path / name) in said.err
    assert said.out == ""
