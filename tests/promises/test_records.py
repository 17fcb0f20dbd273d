"""From records to cells: frozen journals give the tables that they gave, every number with its interval.

`python -m tests.promises.freeze_records` makes the folders and what is expected of them again.
"""

import csv
import math
import re
import shutil
import socket
from pathlib import Path

import pandas as pd
import pytest

from harness import load_results
from tests.promises.records_fixtures import commands

FROZEN = Path(__file__).parent / "frozen"
EXPECTED = sorted(FROZEN.glob("*/expected/*.csv"))
RELATIVE = 1e-9
"""Sums in another order, as another kind of CPU has them, differ by less."""


@pytest.fixture(scope="module")
def collated(tmp_path_factory):
    """Return the folder in which `collate` has written all that it makes of a frozen one."""
    made = {}

    def collate(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            shutil.copytree(FROZEN / name, folder / name)
            out = folder / "out"
            commands().run("harness.collate", folder / name, "--out", out, log=folder / "log")
            made[name] = out
        return made[name]

    return collate


def read(file):
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def is_same(cell, expected):
    """Return whether two cells are the same text, or two numbers that differ by rounding alone."""
    if cell == expected:
        return True
    try:
        return math.isclose(float(cell), float(expected), rel_tol=RELATIVE)
    except ValueError:
        return False


def test_a_cell_is_the_same_text_or_number_and_nothing_else():
    assert is_same("0.30000000000000004", "0.3")
    assert not is_same("0.3000001", "0.3")
    assert not is_same("", "0.0")
    assert not is_same("nan", "")
    assert not is_same("=1", "1")


@pytest.mark.parametrize("file", EXPECTED, ids=lambda file: f"{file.parents[1].name}/{file.name}")
def test_collate_gives_every_promised_cell(collated, file):
    rows, expected = read(collated(file.parents[1].name) / file.name), read(file)
    assert len(rows) == len(expected)
    for number, (row, promised) in enumerate(zip(rows, expected, strict=True), start=1):
        assert promised.keys() <= row.keys()
        other = {name: (row[name], cell) for name, cell in promised.items() if not is_same(row[name], cell)}
        assert not other, f"row {number}, {promised['variant']}: is, and was"


def test_what_is_frozen_has_each_table_with_numbers_intervals_and_verdicts():
    tables = [f"{file.parents[1].name}/{file.name}" for file in EXPECTED]
    assert tables == [
        *("attacked/attacks.csv", "attacked/ranking.csv", "attacked/table.csv"),
        *("grid/ranking.csv", "grid/table.csv"),
        *("tuned/answer.csv", "tuned/ranking.csv", "tuned/table.csv"),
    ]
    cells = {table: pd.read_csv(file) for table, file in zip(tables, EXPECTED, strict=True)}
    for table in ("grid/table.csv", "tuned/table.csv", "attacked/table.csv"):
        assert cells[table][["ma_low", "ma_high"]].notna().all(axis=None)
    assert set(cells["grid/table.csv"]["seed"]) == {0, 1}
    assert cells["tuned/answer.csv"]["price"].notna().any()
    assert not cells["tuned/answer.csv"]["verdict"].notna().any(), "one seed gives no verdict"
    assert cells["grid/table.csv"]["collapse_class"].eq("gibberish").any()
    assert cells["attacked/attacks.csv"]["excess_low"].notna().sum() > 10


@pytest.mark.parametrize("name", ["grid", "tuned", "attacked"])
def test_load_results_gives_the_same_numbers(name):
    expected = pd.read_csv(FROZEN / name / "expected" / "table.csv")
    table = load_results(FROZEN / name).table
    numbers = [name for name in expected if expected[name].dtype.kind == "f" and expected[name].notna().any()]
    assert {"ma", "ma_low", "ma_high"} <= set(numbers)
    ours = table[numbers].astype(float).reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, expected[numbers], rtol=RELATIVE, atol=0)


def test_frozen_records_name_no_machine_and_no_place():
    home, machine = re.escape(str(Path.home()).encode()), socket.gethostname().encode()
    places = re.compile(rb'"/|:\\\\|' + home + rb'|"' + machine + b'"')
    for file in FROZEN.rglob("*.json*"):
        assert not places.search(file.read_bytes()), file
