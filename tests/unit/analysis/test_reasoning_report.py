"""Reasoning in the report: accuracies, their change against the original, and the grouped bars."""

import math

import pandas as pd
import pytest
from harness.reporting.figures.reasoning import bars

from evaluators.reasoning import Reasoning
from harness.analysis.reasoning import Accuracy, answers
from harness.reporting.figures.style import rendered

DECLARED = {metric.name: metric for metric in Reasoning(tasks=("piqa",)).metrics}
INFO = {name: DECLARED[name] for name in ("piqa", "reasoning", "piqa_stderr")}


def row(variant, piqa, seed=0, strength=math.nan, **changes):
    about = {
        "model": "m",
        "replicate_of": "",
        "method": variant,
        "variant": variant,
        "label": variant.upper(),
        "seed": seed,
    }
    about |= {"strength_name": "" if variant == "original" else "epochs", "strength": strength, "reference": "none"}
    about |= {"piqa": piqa, "piqa_stderr": 0.05, "reasoning": piqa / 2, "collapsed": False, "collapse_class": ""}
    about |= {"collapse_reason": (), "point_id": f"{variant}-{seed}"}
    return about | {"ranked": variant != "original", "control": False, "definition": ""} | changes


ORIGINAL = row("original", 0.8)


def test_each_row_has_its_accuracies_and_their_change():
    table = pd.DataFrame([row("emso", 0.75, strength=2.0), row("ga", 0.5, strength=1.0, collapsed=True), ORIGINAL])
    [rows] = answers(table, INFO).values()
    assert [answered.variant for answered in rows] == ["original", "emso", "ga"]
    assert [answered.strength for answered in rows] == ["", "epochs 2", "epochs 1"]
    assert [answered.collapsed for answered in rows] == [False, False, True]
    assert rows[0].accuracies[0] == Accuracy(0.8, 0.05, 0.0)
    assert rows[1].accuracies[0].change == pytest.approx(-0.05)
    assert math.isnan(rows[1].accuracies[1].error)


def test_several_seeds_have_an_interval_and_not_a_tasks_own_error():
    table = pd.DataFrame([ORIGINAL, {**ORIGINAL, "seed": 1, "piqa": 0.9}, row("emso", 0.6), row("emso", 0.7, seed=1)])
    [original, emso] = answers(table, INFO)["m"]
    assert emso.accuracies[0].change == pytest.approx(0.65 - 0.85)
    assert emso.accuracies[0].error == pytest.approx(12.7062 * 0.1 / 2, rel=1e-4)  # t of one degree of freedom
    assert original.accuracies[0].error == pytest.approx(emso.accuracies[0].error)


def test_a_task_that_was_not_measured_is_a_gap_and_not_zero():
    table = pd.DataFrame([ORIGINAL, row("emso", math.nan)])
    accuracy = answers(table, INFO)["m"][1].accuracies[0]
    assert math.isnan(accuracy.mean)
    assert math.isnan(accuracy.change)
    assert bars(table, INFO) is not None


def test_a_bar_for_each_row_and_task_in_a_panel_for_each_model():
    rows = [ORIGINAL, row("emso", 0.7), row("ga", 0.5, collapsed=True)]
    figure = bars(pd.DataFrame([*rows, *({**cells, "model": "n"} for cells in rows)]), INFO)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["m", "n"]
    for ax in figure.axes:
        heights = [patch.get_height() for patch in ax.patches]
        assert heights == pytest.approx([0.8, 0.4, 0.7, 0.35, 0.5, 0.25])
        assert [bool(patch.get_hatch()) for patch in ax.patches] == [False] * 4 + [True] * 2
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ORIGINAL", "EMSO", "GA", "collapsed"]
    assert rendered(figure, "png").startswith(b"\x89PNG")
