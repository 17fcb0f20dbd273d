"""Collapse flags: the paper's red cells, and each threshold from both sides."""

import csv
import math
from pathlib import Path

import pandas as pd
import pytest

from evaluators.generation import Generation
from harness.analysis.damage import flag as flag_by, side
from harness.analysis.metrics import sort_by_column
from harness.analysis.table import read_table
from harness.settings import Collapse
from tests.unit.analysis.frames import SHIPPED

PUBLISHED = Path(__file__).parents[3] / "results/published/emso_main_table.csv"
NAN = float("nan")


def flag(table, bounds=None, info=SHIPPED):
    return flag_by(table, {name: metric for name, metric in info.items() if name in table.columns}, bounds)


NO_PERPLEXITY_RULE = Collapse.model_construct(perplexity=(0.0, math.inf))
NO_MAUVE_RULE = Collapse.model_construct(mauve=0.0)
MISSED = [(Collapse(), set()), (NO_PERPLEXITY_RULE, set()), (NO_MAUVE_RULE, {("gpt-neo-2.7b", "task_arithmetic")})]


@pytest.mark.parametrize(("bounds", "missed"), MISSED)
def test_all_10_red_cells_of_the_paper_and_none_of_the_11_others(bounds, missed):
    """By either rule, and by MAUVE alone; perplexity alone misses one, which repeats itself."""
    with PUBLISHED.open(newline="") as file:
        stated = {(row["model"], row["method"]): row["collapsed"] for row in csv.DictReader(file) if row["collapsed"]}
    table = flag(read_table(PUBLISHED)[0].assign(collapsed=None), bounds)
    flags = {(row["model"], row["method"]): row["collapsed"] for _, row in table.iterrows() if row["ranked"]}
    assert flags == {key: value == "true" and key not in missed for key, value in stated.items()}
    assert sorted(stated.values()) == ["false"] * 11 + ["true"] * 10


def test_the_papers_two_classes():
    """Section 4.2: GD on 1.3B and 2.7B is gibberish, the other collapsed models are degenerate."""
    table = flag(read_table(PUBLISHED)[0])
    gibberish = table[table["collapse_class"] == "gibberish"]
    assert gibberish["model"].tolist() == ["gpt-neo-1.3b", "gpt-neo-2.7b"]
    assert set(gibberish["method"]) == {"gradient_difference"}
    assert (table["collapse_class"] == "degenerate").sum() == 8


MAUVES = {0.0: "below", 0.199: "below", 0.2: "inside", 1.0: "inside", NAN: None}
PERPLEXITIES = {9.9: "below", 10.0: "inside", 100.0: "inside", 100.1: "above", math.inf: "above", NAN: None}


def test_bounds_are_a_quarter_of_the_originals_mauve_and_half_to_five_times_its_perplexity():
    bounds = Collapse()
    assert {mauve: side(mauve, 0.8, bounds.mauve) for mauve in MAUVES} == MAUVES
    assert {one: side(one, 20.0, *bounds.perplexity) for one in PERPLEXITIES} == PERPLEXITIES
    for unknown in (NAN, math.inf):
        assert side(0.01, unknown, 0.25) is side(20.0, unknown, 0.5, 5.0) is None


BY_RULE = [
    ((0.8, 20.0), False, "healthy", ""),
    ((0.1, 20.0), True, "gibberish", "mauve"),
    ((0.8, 101.0), True, "gibberish", "perplexity"),
    ((0.8, 9.9), True, "degenerate", "perplexity"),
    ((0.1, 101.0), True, "gibberish", "mauve and perplexity"),
    ((NAN, 101.0), True, "gibberish", "perplexity"),
    ((NAN, 20.0), None, "unknown", ""),
    ((0.1, NAN), True, "gibberish", "mauve"),
    ((0.8, NAN), None, "unknown", ""),
    ((NAN, NAN), None, "unknown", ""),
]


@pytest.mark.parametrize(("numbers", "collapsed", "name", "reason"), BY_RULE)
def test_either_rule_is_enough_and_both_must_be_kept(numbers, collapsed, name, reason):
    mauve, perplexity = numbers
    row = flag(table_of(("m", "original", 0, 0.8, 0.1, 20.0), ("m", "emso", 0, mauve, 0.1, perplexity))).iloc[1]
    assert (row["collapsed"], row["collapse_class"], " and ".join(row["collapse_reason"])) == (collapsed, name, reason)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_a_model_that_repeats_itself_is_degenerate_whatever_n_was_measured(n):
    rows = ("m", "original", 0, 0.8, 0.1, 20.0), ("m", "loops", 0, 0.1, 0.9, 20.0), ("m", "babbles", 0, 0.1, 0.1, 20.0)
    table, info = table_of(*rows).rename(columns={"rep_2": f"rep_{n}"}), sort_by_column(Generation(rep=n).metrics)
    assert flag(table, info=info)["collapse_class"].tolist() == ["healthy", "degenerate", "gibberish"]
    undeclared = {name: metric for name, metric in info.items() if name != f"rep_{n}"}
    assert flag(table, info=undeclared)["collapse_class"][1] == "gibberish", "no name says what a metric is"


AT_THRESHOLDS = [
    (0.51, 101.0, "degenerate"),
    (0.50, 101.0, "gibberish"),
    (0.05, 9.9, "degenerate"),
    (0.05, 10.0, "gibberish"),
    (NAN, 9.9, "degenerate"),
    (NAN, 101.0, "gibberish"),
    (0.05, NAN, "gibberish"),
    (NAN, NAN, "unknown"),
]


@pytest.mark.parametrize(("repetition", "perplexity", "expected"), AT_THRESHOLDS)
def test_classes_at_their_thresholds(repetition, perplexity, expected):
    table = table_of(("m", "original", 0, 0.8, 0.1, 20.0), ("m", "emso", 0, 0.1, repetition, perplexity))
    assert flag(table)["collapse_class"][1] == expected


def table_of(*rows):
    return pd.DataFrame(rows, columns=["model", "method", "seed", "mauve", "rep_2", "perplexity"])


def test_each_row_is_held_against_its_own_model_and_seed_or_else_the_mean():
    rows = [("m", "original", 0, 0.8), ("m", "original", 1, 0.4), ("n", "original", 0, 0.2)]
    rows += [("m", "emso", 0, 0.14), ("m", "emso", 1, 0.14), ("m", "emso", 2, 0.14), ("n", "emso", 0, 0.14)]
    table = table_of(*((*row, 0.1, 20.0) for row in rows))
    # On the third seed of m: 0.14 < 0.25 · 0.6.
    assert flag(table)["collapsed"].tolist() == [False, False, False, True, False, True, False]


def test_no_original_no_mauve_no_verdict():
    alone = flag(table_of(("m", "emso", 0, 0.01, 0.99, 1.0))).iloc[0]
    assert (alone["collapsed"], alone["collapse_class"]) == (None, "unknown")
    unmeasured = flag(table_of(("m", "original", 0, 0.8, 0.1, 20.0)).drop(columns="mauve"))
    assert unmeasured["collapse_class"].tolist() == ["unknown"]


def test_the_retrained_model_has_no_bounds_to_keep():
    rows = [("m", method, 0, 0.1, 0.1, 3.0) for method in ("retrained", "emso")]
    table = flag(table_of(("m", "original", 0, 0.9, 0.1, 10.0), *rows))
    assert table["collapsed"].tolist() == [False, False, True]
    assert table["collapse_reason"].tolist() == [(), (), ("mauve", "perplexity")]
