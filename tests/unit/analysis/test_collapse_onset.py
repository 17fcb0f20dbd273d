"""When a walk collapses: what was erased before, and what no strength, seed or reference may pretend."""

import math

import pandas as pd

from evaluators.generation import Generation
from evaluators.memorization import Memorization
from harness.analysis.collapse_onset import Stage, onset_tables
from harness.analysis.metrics import in_column_order
from harness.plans import Compare
from harness.reporting.sections.collapse_onset import onset_markdown

INFO = in_column_order([*Memorization().metrics, *Generation().metrics])
COMPARE = Compare(utility=("perplexity",), erasure=("ma",))


def walk(collapsed, *, variant="ga", seed=0, method="gradient_ascent", ma=0.9):
    """Return a variant's rows at epochs 1, 2, ...: MA falls by a tenth each, perplexity rises by one."""
    return [
        {"model": "m", "method": method, "variant": variant, "label": variant.upper(), "strength_name": "epochs",
         "strength": float(epoch), "seed": seed, "targets": (), "collapsed": flag,
         "ma": ma - 0.1 * epoch, "perplexity": 4.0 + epoch}
        for epoch, flag in enumerate(collapsed, start=1)
    ]  # fmt: skip


def onsets(*walks):
    return onset_tables(pd.DataFrame([row for rows in walks for row in rows]), INFO, COMPARE)


def test_a_walk_is_healthy_up_to_a_strength_and_has_collapsed_from_the_next():
    (table,) = onsets(walk([False, False, True, True]), walk([False, False], variant="gd"))
    ga, gd = table.rows
    assert [metric.name for metric in table.axes] == ["ma", "perplexity"]
    assert ga.last_healthy == Stage("epochs 2", ("0.700", "6.00"))
    assert ga.first_collapsed == Stage("epochs 3", ("0.600", "7.00"))
    assert ga.strengths == "epochs 1 to 4"
    assert gd.last_healthy == Stage("epochs 2", ("0.700", "6.00"))
    assert gd.first_collapsed is None


def test_one_that_recovers_has_collapsed_all_the_same():
    (table,) = onsets(walk([False, True, False]))
    assert table.rows[0].last_healthy.strength == "epochs 1"
    assert table.rows[0].first_collapsed.strength == "epochs 2"


def test_collapsed_from_the_start_has_no_healthy_point():
    (table,) = onsets(walk([True, True]))
    assert table.rows[0].last_healthy is None
    assert table.rows[0].first_collapsed.strength == "epochs 1"
    assert "| GA | epochs 1 to 2 | – | – | – | epochs 1 | 0.800 | 5.00 |" in onset_markdown([table], "Which?")


def test_what_could_not_be_told_is_neither_healthy_nor_collapsed():
    (table,) = onsets(walk([False, None, True]))
    assert table.rows[0].last_healthy.strength == "epochs 1"
    assert table.rows[0].first_collapsed.strength == "epochs 3"


def test_a_strength_has_collapsed_where_any_seed_has_and_says_how_many():
    (table,) = onsets(walk([False, True]), walk([False, False], seed=1, ma=0.8))
    row = table.rows[0]
    assert (row.first_collapsed, row.seeds) == (Stage("epochs 2", ("0.650", "6.00")), "1 of 2 seeds")
    (both,) = onsets(walk([False, True]), walk([False, True], seed=1))
    assert both.rows[0].seeds == ""
    (ended,) = onsets(walk([False, True]), walk([False], seed=1))
    assert ended.rows[0].seeds == "1 of 2 seeds", "the other ended before"
    assert "epochs 2 (1 of 2 seeds)" in onset_markdown([table], "Which?")


def test_nan_of_one_seed_is_no_mean():
    unmeasured = [{**row, "ma": math.nan} for row in walk([False, True], seed=1)]
    (table,) = onsets(walk([False, True]), unmeasured)
    assert table.rows[0].first_collapsed.numbers == ("–", "6.00")


def test_nothing_is_said_where_nothing_collapsed_or_nothing_was_walked():
    assert onsets(walk([False, False])) == []
    assert onsets(walk([True])) == [], "a single strength tells no onset"
    assert onsets(walk([False, True], method="original", variant="original")) == []
    assert onsets([{**row, "targets": ("ma <= 0.9",)} for row in walk([False, True])]) == []
