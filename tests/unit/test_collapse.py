"""Collapse flags: the paper's red cells, and each threshold from both sides."""

import csv
import math
from pathlib import Path

import pandas as pd
import pytest

from harness.reporting.collapse import collapse_class, flag, has_collapsed
from harness.reporting.table import read_table

PUBLISHED = Path(__file__).parents[2] / "results/published/emso_main_table.csv"
NAN = float("nan")


def test_all_10_red_cells_of_the_paper_and_none_of_the_11_others():
    with PUBLISHED.open(newline="") as file:
        stated = {(row["model"], row["method"]): row["collapsed"] for row in csv.DictReader(file) if row["collapsed"]}
    table = flag(read_table(PUBLISHED).assign(collapsed=None))
    found = {(row["model"], row["method"]): row["collapsed"] for _, row in table.iterrows() if row["ranked"]}
    assert found == {key: value == "true" for key, value in stated.items()}
    assert sorted(found.values()) == [False] * 11 + [True] * 10


def test_the_papers_two_classes():
    """Section 4.2: GD on 1.3B and 2.7B is gibberish, the other collapsed models are degenerate."""
    table = flag(read_table(PUBLISHED))
    gibberish = table[table["collapse_class"] == "gibberish"]
    assert set(zip(gibberish["model"], gibberish["method"], strict=True)) == {
        ("gpt-neo-1.3b", "gradient_difference"),
        ("gpt-neo-2.7b", "gradient_difference"),
    }
    assert (table["collapse_class"] == "degenerate").sum() == 8


def test_originals_are_healthy():
    table = flag(read_table(PUBLISHED))
    assert set(table.loc[table["method"] == "original", "collapse_class"]) == {"healthy"}


@pytest.mark.parametrize(
    ("mauve", "expected"), [(0.0, True), (0.199, True), (0.2, False), (0.8, False), (1.0, False), (NAN, None)]
)
def test_a_quarter_of_the_originals_mauve(mauve, expected):
    assert has_collapsed(mauve, 0.8) is expected


def test_the_fraction_is_the_sweeps():
    assert has_collapsed(0.3, 0.8, fraction=0.5) is True
    assert has_collapsed(0.3, 0.8, fraction=0.25) is False


def test_an_unmeasured_original_leaves_it_unknown():
    assert has_collapsed(0.01, NAN) is None


@pytest.mark.parametrize(
    ("rep_2", "perplexity", "expected"),
    [
        (0.51, 100.0, "degenerate"),
        (0.50, 100.0, "gibberish"),
        (0.05, 9.9, "degenerate"),
        (0.05, 10.0, "gibberish"),
        (NAN, 9.9, "degenerate"),
        (NAN, 100.0, "gibberish"),
        (0.05, NAN, "gibberish"),
        (NAN, NAN, "unknown"),
    ],
)
def test_classes_at_their_thresholds(rep_2, perplexity, expected):
    assert collapse_class(True, rep_2, perplexity, original_perplexity=20.0) == expected


def test_only_a_collapsed_model_has_a_class_of_collapse():
    assert collapse_class(False, 0.99, 1.0, 20.0) == "healthy"
    assert collapse_class(None, 0.99, 1.0, 20.0) == "unknown"


def table_of(*rows):
    return pd.DataFrame(rows, columns=["model", "method", "seed", "mauve", "rep_2", "perplexity"])


def test_each_row_is_held_against_its_own_model():
    table = table_of(
        ("m", "original", 0, 0.8, 0.1, 20.0),
        ("n", "original", 0, 0.2, 0.1, 20.0),
        ("m", "emso", 0, 0.1, 0.1, 20.0),
        ("n", "emso", 0, 0.1, 0.1, 20.0),
    )
    assert flag(table)["collapsed"].tolist() == [False, False, True, False]


def test_each_row_is_held_against_its_own_seed_or_else_the_mean():
    table = table_of(
        ("m", "original", 0, 0.8, 0.1, 20.0),
        ("m", "original", 1, 0.4, 0.1, 20.0),
        ("m", "emso", 0, 0.14, 0.1, 20.0),
        ("m", "emso", 1, 0.14, 0.1, 20.0),
        ("m", "emso", 2, 0.14, 0.1, 20.0),  # 0.14 < 0.25 · 0.6
    )
    assert flag(table)["collapsed"].tolist() == [False, False, True, False, True]


def test_no_original_no_mauve_no_verdict():
    alone = flag(table_of(("m", "emso", 0, 0.01, 0.99, 1.0)))
    assert alone["collapsed"].tolist() == [None]
    assert alone["collapse_class"].tolist() == ["unknown"]
    unmeasured = flag(table_of(("m", "original", 0, 0.8, 0.1, 20.0)).drop(columns="mauve"))
    assert unmeasured["collapse_class"].tolist() == ["unknown"]


def test_flags_are_set_anew_and_the_numbers_stay():
    table = table_of(("m", "original", 0, 0.8, 0.1, 20.0)).assign(collapsed=True, collapse_class="gibberish")
    found = flag(table)
    assert found["collapsed"].tolist() == [False]
    assert table["collapsed"].tolist() == [True]
    assert math.isclose(found["mauve"].iloc[0], 0.8)


def test_an_empty_table_stays_empty():
    assert list(flag(table_of()).columns[-2:]) == ["collapsed", "collapse_class"]
