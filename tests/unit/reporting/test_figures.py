"""The trade-off figure: what it draws, and that it survives what it cannot draw."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from harness.analysis.curves import SHIPPED, curves, method_style, panels, styles
from harness.plugins import METHODS
from harness.reporting.sections.tradeoff import tradeoff
from harness.reporting.style import RED, labelled_points, rendered
from tests.unit.analysis.frames import known

COLUMNS = ("variant", "strength", "seed", "el_3", "ma", "perplexity", "mauve", "collapsed")
ROWS = (
    ("original", np.nan, 0, 0.3, 0.95, 20.0, 0.8, False), ("retrained", np.nan, 0, 0.05, 0.4, 21.0, 0.79, False),
    ("emso", 2, 0, 0.1, 0.6, 22.0, 0.7, False), ("emso", 1, 0, 0.2, 0.8, 21.0, 0.75, False),
    ("gradient_ascent", 1, 0, 0.0, 0.0, 1.5, 0.01, True),
)  # fmt: skip


def frame(*rows):
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"collapsed": object})
    about = {"model": "m", "method": table["variant"], "label": table["variant"].str.upper()}
    return table.assign(**about, until="", over_erased=None, replicate="m")


def drawn(table):
    [figure] = tradeoff("f", table, panels(known(table)), styles(table), 8.0, 2, "-").values()
    return figure


def plane_curves(table, x, y):
    info = known(table)
    return curves(table, "m", info[x], info[y])


def test_collapsed_points_are_hollow_and_red_and_no_others_are():
    points = [line for line in drawn(frame(*ROWS)).axes[0].lines if line.get_marker() not in ("None", "", None)]
    hollow = [line.get_xydata().tolist() for line in points if line.get_markeredgecolor() == RED]
    assert (hollow, len(points)) == ([[[0.01, 0.0]]], 5)


def test_a_tap_finds_each_point_s_numbers_where_it_is_drawn():
    figure = drawn(frame(*ROWS))
    marks = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"', rendered(figure, "svg").decode())
    points = list(labelled_points(figure))
    assert len(points) == 5 * 4, "points and panels"
    for x, y, _ in points:
        assert min(math.dist((x, y), map(float, mark)) for mark in marks) < 0.01
    assert {words for *_, words in points} >= {
        "EMSO, strength 2: MAUVE 0.7, MA 0.6", "GRADIENT_ASCENT, strength 1, collapsed: Perplexity 1.5, EL3 0",
        "RETRAINED: Perplexity 21, MA 0.4",
    }  # fmt: skip


def test_a_hole_in_a_curve_has_nothing_to_tap():
    figure = Figure()
    figure.subplots().plot([1, 2, math.nan], [3, math.nan, 4], label="A")
    assert [words for *_, words in labelled_points(figure)] == ["A: "]


def test_seeds_become_a_mean_with_an_interval():
    table = frame(("emso", 1, 0, 0.2, 0.8, 16.0, 0.7, False), ("emso", 1, 1, 0.2, 0.6, 25.0, 0.7, True))
    [point] = plane_curves(table, "mauve", "ma")[0].points
    assert point.y == pytest.approx(0.7)
    half = 12.7062 * 0.1  # t of 1 degree · 0.1414 / sqrt(2)
    assert point.y_ends == pytest.approx((0.7 - half, 0.7 + half), rel=1e-4)
    assert point.x_ends == pytest.approx((0.7, 0.7))
    assert point.state == "collapsed"
    assert np.ptp(drawn(table).axes[0].get_ylim()) < 1, "an interval stretched the axis"
    factor = math.exp(12.7062 * math.log(25 / 16) / 2)  # Perplexities have the table's geometric mean.
    [other] = plane_curves(table.assign(strength=[1.5, 1], until="ma=0.75"), "mauve", "ma")[0].points
    assert (point.strength_range, other.strength_range, other.strength) == ("1", "1–1.5", 1.25)
    [surprise] = plane_curves(table, "perplexity", "ma")[0].points
    assert surprise.x_ends == pytest.approx((20 / factor, 20 * factor), 1e-4)
    [point] = plane_curves(pd.concat([table, table.assign(replicate="other", ma=0.3)]), "mauve", "ma")[0].points
    assert (point.y, point.y_ends[1]) == pytest.approx((0.5, 0.5 + 12.7062 * 0.2), rel=1e-4), "two, with one degree"


def test_holes_are_left_out_and_their_curve_goes_on():
    rows = [*ROWS, ("emso", 3, 0, 0.1, 0.5, np.nan, np.nan, None), ("emso", 4, 0, 0.1, 0.4, np.inf, 0.6, None)]
    for x, strengths in (("mauve", [1.0, 2.0, 4.0]), ("perplexity", [1.0, 2.0])):
        [emso] = [curve for curve in plane_curves(frame(*rows), x, "ma") if curve.variant == "emso"]
        assert [point.strength for point in emso.points] == strengths


def test_a_walked_point_lies_between_its_neighbours_on_the_curve():
    table = pd.concat([frame(*ROWS), frame(("emso", 1.5, 0, 0.15, 0.7, 21.5, 0.72, None)).assign(until="ma=0.75")])
    [emso] = [curve for curve in plane_curves(table, "mauve", "ma") if curve.variant == "emso"]
    assert [point.strength for point in emso.points] == [1, 1.5, 2]


@pytest.mark.parametrize("rows", [(), [(name, 1, 0, *[np.nan] * 4, None) for name in ("emso", "original")]])
def test_nothing_to_draw_is_said(rows):
    assert (drawn(frame(*rows)).axes, "Nothing to draw yet" in drawn(frame(*rows)).texts[0].get_text()) == ([], True)


def test_a_method_has_its_colour_for_life_and_its_other_rows_have_their_own():
    assert len({method_style(name) for name in [*SHIPPED, "my_method"]}) == len(SHIPPED) + 1
    assert set(SHIPPED) == {name for name in METHODS.names() if METHODS.load(name).__module__.startswith("methods.")}
    variants = {"npo(k=1)": "npo", "emso": "emso", "emso(k=2)": "emso", "emso(k=3)": "emso"}
    looks = styles(pd.DataFrame(variants.items(), columns=["variant", "method"]))
    assert (looks["npo(k=1)"], looks["emso"], len(set(looks.values()))) == (*map(method_style, ("npo", "emso")), 4)


def test_the_same_table_gives_the_same_bytes():
    one, other = (drawn(frame(*ROWS)) for _ in range(2))
    for kind in ("png", "pdf", "svg"):
        assert rendered(one, kind) == rendered(other, kind), kind
