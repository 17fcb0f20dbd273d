"""The trade-off figure: what it draws, and that it survives what it cannot draw."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from evaluators.generation import Generation
from evaluators.memorization import Memorization
from evaluators.reasoning import Reasoning
from harness.analysis.metrics import in_column_order
from harness.analysis.tradeoff.curves import STYLES, better_corner, curves, panels, styles
from harness.reporting.figures.placement import along, label_centres
from harness.reporting.figures.reasoning import bars
from harness.reporting.figures.style import rendered, use_log_scale
from harness.reporting.figures.tradeoff import draw_tradeoff, tradeoff

SHIPPED = in_column_order([*Memorization(n=10).metrics[:1], *Memorization().metrics, *Generation().metrics])
COLUMNS = ("variant", "strength", "seed", "el_3", "ma", "perplexity", "mauve", "collapsed")
ROWS = (
    ("original", np.nan, 0, 0.3, 0.95, 20.0, 0.8, False),
    ("retrained", np.nan, 0, 0.05, 0.4, 21.0, 0.79, False),
    ("emso", 2, 0, 0.1, 0.6, 22.0, 0.7, False),
    ("emso", 1, 0, 0.2, 0.8, 21.0, 0.75, False),
    ("gradient_ascent", 1, 0, 0.0, 0.0, 1.5, 0.01, True),
)
SHIPPED_METHODS = (
    *("contrastive_decoding", "deliberate_imagination", "emso", "gradient_ascent", "gradient_difference"),
    *("kl_divergence", "task_arithmetic"),
)


def frame(*rows, model="m"):
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["collapsed"] = table["collapsed"].astype(object)
    return table.assign(model=model, method=table["variant"], label=table["variant"].str.upper(), targets="")


def known(table):
    return {name: metric for name, metric in SHIPPED.items() if name in table.columns}


def drawn(table):
    return tradeoff(table, known(table))


def titles(figure):
    return [(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes]


def markers(ax):
    """The points of a panel: (x, y, face, edge), guide lines and curves left out."""
    lines = [line for line in ax.lines if line.get_marker() not in ("None", "", None)]
    faces = [(line, to_hex(line.get_markerfacecolor()), to_hex(line.get_markeredgecolor())) for line in lines]
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0]), face, edge) for line, face, edge in faces]


def plane_curves(table, x, y):
    info = known(table)
    return curves(table, "m", info[x], info[y])


def test_four_panels_as_in_the_paper():
    figure = drawn(frame(*ROWS))
    assert titles(figure) == [
        ("MAUVE", "MA"),
        ("Perplexity (log scale)", "MA"),
        ("MAUVE", "EL$_{3}$"),
        ("Perplexity (log scale)", "EL$_{3}$"),
    ]
    assert [ax.get_xscale() for ax in figure.axes] == ["linear", "log", "linear", "log"]
    assert [ax.get_title("right") for ax in figure.axes] == ["better ↘", "better ↙", "better ↘", "better ↙"]


def test_axes_of_ones_own_get_what_the_panel_of_these_metrics_has():
    table = frame(*ROWS)
    ax = Figure(figsize=(4, 4)).subplots()
    draw_tradeoff(ax, table, known(table), "m", x="mauve", y="ma")
    [panel] = [each for each in drawn(table).axes if (each.get_xlabel(), each.get_ylabel()) == ("MAUVE", "MA")]
    assert markers(ax) == markers(panel)
    assert len(markers(ax)) == len(ROWS)
    assert {text.get_text() for text in ax.texts} >= {"1", "2"}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "ORIGINAL", "RETRAINED", "EMSO", "GRADIENT_ASCENT", "collapsed",
    ]  # fmt: skip
    other = Figure(figsize=(4, 4)).subplots()
    draw_tradeoff(other, table, known(table), "m", x="perplexity", y="el_3")
    unseen = frame(*ROWS, ("holdout", np.nan, 0, 0.06, 0.48, np.nan, np.nan, None))
    third = Figure(figsize=(4, 4)).subplots()
    draw_tradeoff(third, unseen, known(unseen), "m", x="ma", y="el_3")
    assert len(markers(third)) == len(ROWS), "and none for what the original says of unseen texts"
    assert markers(other) != markers(ax)
    assert (other.get_xscale(), ax.get_xscale()) == ("log", "linear")


def test_a_row_of_panels_for_each_model():
    figure = drawn(pd.concat([frame(*ROWS), frame(*ROWS, model="n")]))
    assert len(figure.axes) == 8
    assert [ax.get_title("left") for ax in figure.axes] == ["m", "", "", "", "n", "", "", ""]


def test_collapsed_points_are_hollow_and_red_and_no_others_are():
    points = markers(drawn(frame(*ROWS)).axes[0])
    hollow = [(x, y) for x, y, face, edge in points if (face, edge) == ("#ffffff", "#d62728")]
    assert hollow == [(0.01, 0.0)]
    assert len(points) == 5


def test_the_legend_names_every_variant_once_and_lies_outside_the_panels():
    figure = drawn(frame(*ROWS))
    legend = figure.legends[0]
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["ORIGINAL", "RETRAINED", "EMSO", "GRADIENT_ASCENT", "collapsed"]
    figure.draw_without_rendering()
    below = min(ax.get_tightbbox().y0 for ax in figure.axes)
    assert legend.get_window_extent().y1 <= below
    healthy = drawn(frame(*ROWS[:4])).legends[0]
    assert "collapsed" not in [text.get_text() for text in healthy.get_texts()]


def test_points_carry_their_strength_and_an_only_point_its_name():
    texts = [text.get_text() for text in drawn(frame(*ROWS)).axes[0].texts]
    assert sorted(texts) == ["1", "2", "GRADIENT_ASCEN"]


def test_a_curve_runs_through_its_strengths_in_order():
    (emso,) = [curve for curve in plane_curves(frame(*ROWS), "mauve", "ma") if curve.variant == "emso"]
    assert [point.strength for point in emso.points] == [1.0, 2.0]
    assert [point.x for point in emso.points] == [0.75, 0.7]
    assert all(map(math.isnan, sum((point.x_ends for point in emso.points), ())))


def test_seeds_become_a_mean_with_an_interval():
    table = frame(("emso", 1, 0, 0.2, 0.8, 20.0, 0.7, False), ("emso", 1, 1, 0.2, 0.6, 20.0, 0.7, True))
    (emso,) = plane_curves(table, "mauve", "ma")
    (point,) = emso.points
    assert point.y == pytest.approx(0.7)
    half = 12.7062 * 0.1  # t of 1 degree · 0.1414 / sqrt(2)
    assert point.y_ends == pytest.approx((0.7 - half, 0.7 + half), rel=1e-4)
    assert point.x_ends == pytest.approx((0.7, 0.7))
    assert point.collapsed
    low, high = drawn(table).axes[0].get_ylim()
    assert high - low < 1, "an interval stretched the axis"


def test_perplexities_of_seeds_have_the_tables_geometric_mean():
    table = frame(("emso", 1, 0, 0.2, 0.8, 16.0, 0.7, False), ("emso", 1, 1, 0.2, 0.8, 25.0, 0.7, False))
    [point] = plane_curves(table, "perplexity", "ma")[0].points
    assert point.x == pytest.approx(20.0)
    low, high = point.x_ends
    assert low * high == pytest.approx(20.0**2)
    assert math.log(high / 20.0) == pytest.approx(12.7062 * math.log(25 / 16) / 2, rel=1e-4)


def test_holes_are_left_out_and_their_curve_goes_on():
    rows = [*ROWS, ("emso", 3, 0, 0.1, 0.5, np.nan, np.nan, None), ("emso", 4, 0, 0.1, 0.4, np.inf, 0.6, None)]
    (emso,) = [curve for curve in plane_curves(frame(*rows), "mauve", "ma") if curve.variant == "emso"]
    assert [point.strength for point in emso.points] == [1.0, 2.0, 4.0]
    (emso,) = [curve for curve in plane_curves(frame(*rows), "perplexity", "ma") if curve.variant == "emso"]
    assert [point.strength for point in emso.points] == [1.0, 2.0]
    assert rendered(drawn(frame(*rows)), "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("rows", [(), [(name, 1, 0, *[np.nan] * 4, None) for name in ("emso", "original")]])
def test_nothing_to_draw_is_said(rows):
    figure = drawn(frame(*rows))
    assert figure.axes == []
    assert "Nothing to draw yet" in figure.texts[0].get_text()
    assert rendered(figure, "pdf").startswith(b"%PDF")


def test_a_model_without_points_leaves_its_panels_empty():
    empty = frame(("emso", 1, 0, *[np.nan] * 4, None), model="n")
    figure = drawn(pd.concat([frame(*ROWS), empty]))
    assert len(markers(figure.axes[0])) == 5
    assert [markers(ax) for ax in figure.axes[4:]] == [[]] * 4
    assert rendered(figure, "svg").startswith(b"<?xml")


def test_panels_are_those_whose_metrics_were_measured_and_declare_an_axis():
    table = frame(*ROWS).rename(columns={"el_3": "el_10"}).drop(columns="perplexity").assign(rep_2=0.1)
    assert [(x.name, y.name) for x, y in panels(known(table))] == [("mauve", "ma"), ("mauve", "el_10")]
    assert len(drawn(table).axes) == 2
    mine = replace(SHIPPED["rep_2"], name="mine", axis=1)
    assert [x.name for x, _ in panels({**known(table), "mine": mine})] == ["mauve", "mine"] * 2


def test_a_label_with_a_dollar_sign_is_no_formula():
    table = frame(*ROWS).assign(label="costs $5 and $x^")
    assert rendered(drawn(table), "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_the_same_table_gives_the_same_bytes(kind):
    assert rendered(drawn(frame(*ROWS)), kind) == rendered(drawn(frame(*ROWS)), kind)


def test_the_files_of_a_figure_have_one_layout():
    figure = drawn(frame(*ROWS))
    places = []
    for kind in ("png", "pdf", "svg"):
        rendered(figure, kind)
        places.append([ax.get_position().bounds for ax in figure.axes])
    assert places == [places[0]] * 3


def test_shipped_methods_have_colours_of_their_own_in_every_figure_of_a_report():
    rows = [(name, 1, 0, 0.1, 0.5, 20.0, 0.7, False) for name in SHIPPED_METHODS]
    table = frame(*ROWS[:2], *rows).assign(ranked=True, strength_name="epochs", piqa=0.5)
    colours = {variant: colour for variant, (colour, _) in styles(table).items()}
    assert list(colours) == list(SHIPPED_METHODS), "the first in the sweep has the first colour"
    assert len(set(colours.values())) == 7
    info = {"piqa": next(metric for metric in Reasoning(tasks=("piqa",)).metrics if metric.name == "piqa")}
    for figure in (drawn(table), bars(table, info)):
        handles = figure.legends[0].legend_handles
        shown = {
            text.get_text().lower(): handle for text, handle in zip(figure.legends[0].get_texts(), handles, strict=True)
        }
        for name in SHIPPED_METHODS:
            handle = shown[name]
            colour = handle.get_color() if hasattr(handle, "get_color") else handle.get_facecolor()
            assert to_hex(colour).lower() == colours[name].lower()


def test_more_variants_than_colours_still_look_different():
    many = [(f"variant_{index}", 1, 0, 0.1, 0.5, 20.0, 0.7, False) for index in range(3 * len(STYLES))]
    assert len(set(styles(frame(*many)).values())) == 3 * len(STYLES)


def test_the_arrow_follows_the_metrics():
    assert better_corner(SHIPPED["mauve"], SHIPPED["div_3"]) == "↗"
    assert better_corner(SHIPPED["perplexity"], SHIPPED["div_3"]) == "↖"


def test_a_label_without_room_is_dropped_and_one_with_room_is_not():
    crowd = [(x, y) for x in range(-20, 21, 5) for y in range(-20, 21, 5)]
    assert label_centres([(0, 0)], [(8, 6)], crowd, radius=3) == [None]
    assert label_centres([(0, 0)], [(8, 6)], [(0, 0)], radius=3) == [(7.0, 6.0)]


def test_a_label_keeps_off_lines_while_it_can():
    line = along([(0, 0), (20, 20)], step=1)
    (centre,) = label_centres([(0, 0)], [(8, 6)], [(0, 0)], radius=3, lines=line)
    assert centre == (-7.0, 6.0)
    everywhere = [(x, y) for x in range(-20, 21) for y in range(-20, 21)]
    assert label_centres([(0, 0)], [(8, 6)], [(0, 0)], radius=3, lines=everywhere) == [(7.0, 6.0)]


def test_points_that_tuning_chose_are_not_joined():
    table = frame(*ROWS)
    is_emso = table["variant"] == "emso"
    chosen = zip(is_emso, table["strength"], strict=True)
    tuned = table.assign(targets=[(f"ma <= {strength}",) if is_tuned else () for is_tuned, strength in chosen])
    (emso,) = [curve for curve in plane_curves(tuned, "mauve", "ma") if curve.variant == "emso"]
    assert (len(emso.points), emso.is_trajectory) == (is_emso.sum(), False)
    joined = [line for line in drawn(frame(*ROWS)).axes[0].lines if line.get_linestyle() == "-"]
    left = [line for line in drawn(tuned).axes[0].lines if line.get_linestyle() == "-"]
    assert len(left) == len(joined) - 1


@pytest.mark.parametrize(
    ("most", "ticks"), [(200, [1, 2, 5, 10, 20, 50, 100, 200]), (1e5, [1, 10, 100, 1e3, 1e4, 1e5])]
)
def test_a_log_axis_has_as_many_ticks_as_have_room(most, ticks):
    ax = Figure().subplots()
    ax.plot([1, most], [0, 1])
    use_log_scale(ax)
    ax.set_xlim(1, most)
    assert [tick for tick in ax.get_xticks() if 1 <= tick <= most] == pytest.approx(ticks)
