"""Reasoning in the report: accuracies and their change against the original."""

import math

import pandas as pd
import pytest

from evaluators.reasoning import Reasoning
from harness.analysis import main_table, ranking
from tests.unit.analysis.frames import filled

DECLARED = {metric.name: metric for metric in Reasoning(tasks=("piqa",)).metrics}
INFO = {name: DECLARED[name] for name in ("piqa", "reasoning", "piqa_stderr")}


def row(variant, piqa, seed=0, strength=math.nan, **changes):
    about = {"variant": variant, "seed": seed, "strength": strength, "ranked": variant != "original"} | changes
    about |= {"strength_name": "" if variant == "original" else "epochs", "point_id": f"{variant}-{seed}"}
    return about | {"piqa": piqa, "piqa_stderr": 0.05, "reasoning": piqa / 2}


ORIGINAL = row("original", 0.8)


def frame_of(*rows):
    return main_table.reasoning_frame(ranking.rank(filled(pd.DataFrame(rows)), INFO))


def test_each_row_has_its_accuracies_and_their_change():
    frame = frame_of(row("emso", 0.75, strength=2.0), row("ga", 0.5, strength=1.0, collapsed=True), ORIGINAL)
    assert list(frame["variant"]) == ["original", "emso", "ga"]
    assert list(frame["strength"]) == ["", "epochs 2", "epochs 1"]
    assert list(frame["collapsed"]) == [False, False, True]
    assert frame["piqa_change"].tolist()[1:] == pytest.approx([-0.05, -0.3])
    assert math.isnan(frame["piqa_change"][0])
    other = frame_of(ORIGINAL, row("original", 0.6, seed=1), row("emso", 0.55, seed=1))
    assert other["piqa_change"][1] == pytest.approx(-0.05), "against the original of its seed"


def test_a_task_that_was_not_measured_is_a_gap_and_not_zero():
    frame = frame_of(ORIGINAL, row("emso", math.nan))
    assert frame[["piqa", "piqa_change"]].isna().loc[1].all()
