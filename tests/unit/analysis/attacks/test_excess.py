"""What attacks bring back beyond the retrained model: by hand, of either sign, without a twin, against its null."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from matplotlib.text import Text
from scipy import stats

from harness.analysis.analysis import Analysis
from harness.analysis.attacks.excess import ONE_RUN, attack_frame, attack_tables
from harness.analysis.attacks.measured_curves import curve_panels
from harness.analysis.evidence import Evidence
from harness.contracts import Metric
from harness.records.items import MetricItems
from harness.reporting.figures.attacks import curves_figure
from harness.reporting.page import page
from harness.reporting.point_tags import point_tags
from harness.reporting.sections.attacks import Attacks
from harness.reporting.template import text_file

ABOUT = {"unit": "fraction", "low": 0.0, "high": 1.0, "source": "", "items": "sequence"}
MA = Metric(name="ma", title="MA", better="lower", group="erasure", attack="As erased", **ABOUT)
RELEARNED = Metric(
    name="relearned",
    title="Relearned MA",
    better="lower",
    group="robustness",
    ranked=False,
    attack="Relearned",
    **ABOUT,
)
DEPTH = Metric(name="depth", title="Depth", better="higher", group="robustness", ranked=False, attack="Depth", **ABOUT)
TEXTS = tuple(f"text {number}" for number in range(8))
ORIGINAL, TWIN = np.full(8, 1.0), np.array([0.1, 0.3, 0.2, 0.2, 0.1, 0.3, 0.2, 0.2])


@pytest.fixture
def attacked(make_row, make_plan, make_point, make_measurement, make_ranked):
    """Return a maker of a ranked table: what each text has of the last metric in each row, seed by seed."""

    def make(metrics=(MA, RELEARNED), **rows):
        trials, records, by_point = [], {}, {}
        for name, of_seeds in rows.items():
            strengths = () if name in ("original", "retrained") else (1,)
            for seed, values_N in enumerate(of_seeds):
                spec = make_row(name, strengths, seed=seed, evaluators={"all": "k"})
                strength = strengths[0] if strengths else None
                items = {metric.name: MetricItems(TEXTS, TEXTS, values_N, np.ones(8)) for metric in metrics}
                numbers = {metric.name: float(values_N.mean()) for metric in metrics}
                declared = tuple(map(asdict, metrics))
                records[spec.trial_id] = [
                    make_point(spec, strength),
                    make_measurement(spec, strength, "all", numbers=numbers, metrics=declared),
                ]
                by_point[spec.point_id(strength)] = items
                trials.append(spec)
        return make_ranked(make_plan(*trials), records, Evidence(by_point))[1]

    return make


def test_the_excess_is_the_paired_difference_with_students_interval(attacked):
    more_N = TWIN + np.array([0.1, 0.2, 0.3, 0.2, 0.1, 0.2, 0.3, 0.2])
    [table] = attack_tables(attacked(original=[ORIGINAL], retrained=[TWIN], ga=[more_N]))
    assert [row.variant for row in table.rows] == ["original", "ga"]
    assert table.retrained == pytest.approx((0.2, 0.2))
    excess = table.rows[1].excesses[1]
    test = stats.ttest_rel(more_N, TWIN)
    assert excess.value == pytest.approx(0.4)
    assert excess.difference == pytest.approx(0.2)
    assert (excess.low, excess.high) == pytest.approx(tuple(test.confidence_interval()))
    assert excess.p == pytest.approx(test.pvalue)
    assert table.rows[1].cells[1].text == "+0.200"


def test_of_a_metric_that_is_better_higher_less_is_more_left(attacked):
    [table] = attack_tables(attacked((MA, DEPTH), original=[ORIGINAL * 0], retrained=[ORIGINAL], ga=[1 - TWIN]))
    depth = table.rows[1].excesses[1]
    assert depth.difference == pytest.approx(0.2)
    assert depth.low < depth.difference < depth.high
    assert table.sentences == (), "depth is a trace, and brings no text back"


def test_the_retrained_model_under_another_name_has_no_excess_and_what_recites_has_one(attacked):
    near_N = TWIN + np.array([0.01, -0.01] * 4)
    ranked = attacked(original=[ORIGINAL], retrained=[TWIN], twin=[near_N], ga=[TWIN + 0.5 + near_N / 10])
    [table] = attack_tables(ranked)
    by_variant = {row.variant: row.excesses[1] for row in table.rows}
    assert by_variant["twin"].low < 0 < by_variant["twin"].high
    assert by_variant["ga"].low > 0
    assert table.sentences == (
        "GA: more comes back than from the retrained model (relearned).",
        "Of TWIN none of these attacks is found to bring back more; that proves nothing.",
        ONE_RUN,
    )


def test_what_comes_back_on_several_seeds_is_not_called_that_of_one_run(attacked):
    recited = [TWIN + 0.5, TWIN + 0.51, TWIN + 0.49]
    [table] = attack_tables(attacked(original=[ORIGINAL] * 3, retrained=[TWIN] * 3, ga=recited))
    assert table.sentences == ("GA: more comes back than from the retrained model (relearned).",)


def test_seeds_are_evidence_of_their_own(attacked):
    far_apart = [TWIN + 0.1, TWIN + 0.5]
    [table] = attack_tables(attacked(original=[ORIGINAL] * 2, retrained=[TWIN] * 2, ga=far_apart))
    excess = table.rows[1].excesses[1]
    assert excess.difference == pytest.approx(0.3)
    assert excess.low < -1, "two seeds that differ by .4 say next to nothing: Student's t of one degree"
    [alike] = attack_tables(attacked(original=[ORIGINAL] * 2, retrained=[TWIN] * 2, ga=[TWIN + 0.3] * 2))
    assert alike.rows[1].excesses[1].low == pytest.approx(0.3)


def test_without_a_retrained_model_the_excess_is_not_known_and_the_page_says_so(attacked):
    ranked = attacked(original=[ORIGINAL], ga=[TWIN])
    [table] = attack_tables(ranked)
    assert all(math.isnan(excess.difference) for row in table.rows for excess in row.excesses)
    assert attack_frame([table])["excess"].isna().all()
    assert table.rows[1].cells[1].text == "0.200", "as measured"
    assert "there is no retrained model" in text_file("attacks.md.j2", tables=[table])


def test_nothing_is_said_where_nothing_was_attacked(attacked):
    assert attack_tables(attacked((MA,), original=[ORIGINAL], retrained=[TWIN], ga=[TWIN])) == []


def test_a_method_that_the_retrained_model_lacks_a_seed_of_is_compared_on_the_shared_ones(attacked):
    [table] = attack_tables(attacked(original=[ORIGINAL], retrained=[TWIN], ga=[TWIN + 0.2, TWIN + 0.9]))
    assert table.rows[1].excesses[1].difference == pytest.approx(0.2)


def test_each_target_of_tuning_has_the_rows_that_stand_for_it(attacked):
    ranked = attacked(original=[ORIGINAL], retrained=[TWIN], ga=[TWIN + 0.5], gd=[TWIN + 0.1])
    of_variants = {"ga": ("ma <= 0.9",), "gd": ("ma <= 0.9", "ma <= retrained")}
    targets = [of_variants.get(variant, ()) for variant in ranked.table["variant"]]
    at_90, at_retrained = attack_tables(replace(ranked, table=ranked.table.assign(targets=targets)))
    assert (at_90.target, at_retrained.target) == ("MA at most 0.9", "MA at most the retrained model's")
    assert {row.variant for row in at_90.rows} == {"original", "ga", "gd"}
    assert [row.variant for row in at_retrained.rows] == ["original", "gd"]
    frame = attack_frame([at_90, at_retrained])
    assert frame.groupby("target").size().tolist() == [6, 4]
    text = text_file("attacks.md.j2", tables=[at_90, at_retrained])
    assert "## miniature-m, MA at most the retrained model" in text


def test_markdown_and_csv_have_every_row_and_attack(attacked):
    [table] = attack_tables(attacked(original=[ORIGINAL], retrained=[TWIN], ga=[TWIN + 0.1], gd=[TWIN]))
    rows = attack_frame([table])[["variant", "attack"]].to_numpy().tolist()
    variants = ["original", *(row.variant for row in table.rows[1:])]
    assert rows == [[variant, attack] for variant in variants for attack in ("As erased", "Relearned")]
    lines = [line for line in text_file("attacks.md.j2", tables=[table]).splitlines() if line.startswith("|")]
    labels = [line.split("|")[1].strip() for line in lines]
    assert labels == ["Method", "---", *(row.label for row in table.rows), "Retrained, as measured"]
    assert {line.count("|") for line in lines} == {5}


CURVE = {"name": "relearned", "title": "Relearned", "x_title": "steps", "y_title": "MA", "xs": [0.0, 4.0]}


def test_curves_are_means_over_seeds_of_the_references_and_the_ranked_points(
    make_row, make_plan, make_point, make_measurement, make_results
):
    trials, records = [], {}
    for name, strengths in (("retrained", ()), ("original", ()), ("ga", (1, 2))):
        for seed in (0, 1):
            spec = make_row(name, strengths, seed=seed)
            trials.append(spec)
            for strength in strengths or (None,):
                ys = [0.0, 0.25 * seed + (strength or 0)]
                measured = make_measurement(spec, strength, notes={"curves": [CURVE | {"ys": ys}]})
                records[spec.trial_id] = [*records.get(spec.trial_id, ()), make_point(spec, strength), measured]
    analysis = Analysis(make_results(make_plan(*trials), records))
    [panel] = analysis.measured_curves
    assert (panel.title, panel.x_title, panel.y_title) == ("Relearned", "steps", "MA")
    assert {line.variant: line.ys for line in panel.lines} == {
        "retrained": (0.0, 0.125), "original": (0.0, 0.125), "ga": (0.0, 2.125),
    }  # fmt: skip
    figure = Attacks(analysis).figures["attack_curves"]
    [ax] = [ax for ax in figure.axes if ax.get_visible()]
    drawn = [line.get_ydata()[-1] for line in ax.get_lines()]
    assert sorted(drawn) == [0.125, 0.125, 2.125]


def test_curves_of_a_tuned_sweep_are_of_the_last_targets_points(
    make_row, make_plan, make_point, make_measurement, make_results
):
    spec, original = make_row("ga", (1, 2)), make_row("original")
    curves = {strength: {"curves": [CURVE | {"ys": [0.0, float(strength)]}]} for strength in (1, 2)}
    records = {
        spec.trial_id: [
            record
            for strength, notes in curves.items()
            for record in (make_point(spec, strength), make_measurement(spec, strength, notes=notes))
        ],
        original.trial_id: [make_point(original), make_measurement(original)],
    }
    analysis = Analysis(make_results(make_plan(original, spec), records))
    targets = {1: ("ma <= 0.9",), 2: ("ma <= retrained",)}
    table = analysis.points.assign(targets=[targets.get(strength, ()) for strength in analysis.points["strength"]])
    [panel] = curve_panels(analysis.shown, table, analysis.ranked.info)
    assert [line.ys for line in panel.lines] == [(0.0, 2.0)]
    assert panel.target == "MA at most the retrained model's"
    figure = curves_figure([panel], {"ga": ("red", "o")})
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert any("Methods at MA at most the retrained model's." in text for text in texts)
    targets[2] = ()
    table = table.assign(targets=[targets.get(strength, ()) for strength in table["strength"]])
    [panel] = curve_panels(analysis.shown, table, analysis.ranked.info)
    assert [line.ys for line in panel.lines] == [(0.0, 1.0)]


def test_a_curve_that_seeds_measured_at_different_places_is_not_averaged(
    make_row, make_plan, make_point, make_measurement, make_results
):
    trials, records = [], {}
    for seed in (0, 1):
        spec = make_row("original", seed=seed)
        trials.append(spec)
        notes = {"curves": [CURVE | {"xs": [0.0, 4.0 + seed], "ys": [0.0, 1.0]}]}
        records[spec.trial_id] = [make_point(spec), make_measurement(spec, notes=notes)]
    [panel] = Analysis(make_results(make_plan(*trials), records)).measured_curves
    assert panel.lines == ()


def test_the_page_has_the_table_where_no_attack_measured_a_curve(
    make_row, make_plan, make_point, make_measurement, make_results
):
    trials, records = [], {}
    for name in ("original", "retrained"):
        spec = make_row(name)
        trials.append(spec)
        numbers = {"ma": 0.5, "relearned": 0.25}
        declared = tuple(map(asdict, (MA, RELEARNED)))
        records[spec.trial_id] = [make_point(spec), make_measurement(spec, numbers=numbers, metrics=declared)]
    shown = page(Analysis(make_results(make_plan(*trials), records)), is_kept=False)
    assert "Does it come back?" in shown
    assert "Retrained, as measured" in shown
    assert "Curves of what attacks measured" not in shown


def test_mlflow_has_the_excess_of_what_is_ranked(attacked):
    more_N = TWIN + np.array([0.1, 0.2, 0.3, 0.2, 0.1, 0.2, 0.3, 0.2])
    ranked = attacked(original=[ORIGINAL], retrained=[TWIN], ga=[more_N])
    [table] = attack_tables(ranked)
    by_method = dict(zip(ranked.table["method"], ranked.table["point_id"], strict=True))
    tags = point_tags(ranked.table, [table])
    cell = table.rows[1].cells[1]
    assert cell.text == "+0.200"
    assert tags[by_method["ga"]]["excess.relearned"] == f"{cell.text} ({cell.interval})"
    assert tags[by_method["original"]]["excess.ma"].startswith("+0.800 (")
    assert not [name for name in tags[by_method["retrained"]] if name.startswith("excess")]
    assert not [name for of_point in point_tags(ranked.table).values() for name in of_point if "excess" in name]
