"""What attacks bring back beyond the retrained model: by hand, of either sign, without a twin, against its null."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from harness.analysis.attacks import ONE_RUN, attack_frame, recovery_sentences
from harness.analysis.evidence import Evidence
from harness.contracts import Metric
from harness.records.items import MetricItems
from harness.reporting.render import render
from harness.reporting.sections.attacks import attack_tables

ABOUT = {"unit": "fraction", "low": 0.0, "high": 1.0, "source": "", "items": "sequence"}
MA = Metric(name="ma", title="MA", better="lower", group="erasure", attack="As erased", **ABOUT)
ROBUSTNESS = ABOUT | {"group": "robustness", "ranked": False}
RELEARNED = Metric(name="relearned", title="Relearned", better="lower", attack="Relearned", **ROBUSTNESS)
DEPTH = Metric(name="depth", title="Depth", better="higher", attack="Depth", **ROBUSTNESS)
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
                told = {"numbers": numbers, "metrics": tuple(map(asdict, metrics))}
                records[spec.trial_id] = [make_point(spec, strength), make_measurement(spec, strength, "all", **told)]
                by_point[spec.point_id(strength)] = items
                trials.append(spec)
        return make_ranked(make_plan(*trials), records, Evidence(by_point))[1]

    return make


def of(frame, variant, metric="relearned"):
    [row] = frame[(frame["variant"] == variant) & (frame["metric"] == metric)].to_dict("records")
    return row


def test_the_excess_is_the_paired_difference_with_students_interval(attacked):
    more_N = TWIN + np.array([0.1, 0.2, 0.3, 0.2, 0.1, 0.2, 0.3, 0.2])
    frame = attack_frame(attacked(original=[ORIGINAL], retrained=[TWIN], ga=[more_N]))
    assert list(frame["variant"].unique()) == ["original", "ga"]
    row, test = of(frame, "ga"), stats.ttest_rel(more_N, TWIN)
    assert (row["value"], row["retrained"], row["excess"]) == pytest.approx((0.4, 0.2, 0.2))
    assert (row["excess_low"], row["excess_high"]) == pytest.approx(tuple(test.confidence_interval()))
    assert row["p"] == pytest.approx(test.pvalue)


def test_of_a_metric_that_is_better_higher_less_is_more_left(attacked):
    ranked = attacked((MA, DEPTH), original=[ORIGINAL * 0], retrained=[ORIGINAL], ga=[1 - TWIN])
    frame = attack_frame(ranked)
    depth = of(frame, "ga", "depth")
    assert depth["excess"] == pytest.approx(0.2)
    assert depth["excess_low"] < depth["excess"] < depth["excess_high"]
    assert recovery_sentences(frame, ranked.info, "") == [], "depth is a trace, and brings no text back"


def test_the_retrained_model_under_another_name_has_no_excess_and_what_recites_has_one(attacked):
    near_N = TWIN + np.array([0.01, -0.01] * 4)
    ranked = attacked(original=[ORIGINAL], retrained=[TWIN], twin=[near_N], ga=[TWIN + 0.5 + near_N / 10])
    frame = attack_frame(ranked)
    assert of(frame, "twin")["excess_low"] < 0 < of(frame, "twin")["excess_high"]
    assert of(frame, "ga")["excess_low"] > 0
    assert recovery_sentences(frame, ranked.info, "") == [
        "GA: attacks recover more than from the retrained model (relearned).",
        "TWIN: none of these attacks is found to recover more (Holm over 2 tests), which proves nothing.",
        ONE_RUN,
    ]


def test_a_row_of_one_run_is_marked_though_another_has_two(attacked):
    ranked = attacked(original=[ORIGINAL] * 2, retrained=[TWIN] * 2, ga=[TWIN + 0.5] * 2, twin=[TWIN])
    assert recovery_sentences(attack_frame(ranked), ranked.info, "")[-1] == ONE_RUN


def test_all_levels_of_a_model_are_corrected_for(attacked):
    ranked = attacked(original=[ORIGINAL], retrained=[TWIN], ga=[TWIN + 0.5])
    frame = attack_frame(ranked).query("variant == 'ga'").assign(p=0.02)
    levels = pd.concat([frame, *(frame.assign(target=f"MA {level}", p=0.9) for level in (0.5, 0.7))])
    told = [recovery_sentences(rows, ranked.info, "")[:1] for rows in (frame, levels)]
    assert [sentence[0].startswith("GA: attacks recover more") for sentence in told] == [True, False]


def test_seeds_are_evidence_of_their_own(attacked):
    row = of(attack_frame(attacked(original=[ORIGINAL] * 2, retrained=[TWIN] * 2, ga=[TWIN + 0.1, TWIN + 0.5])), "ga")
    assert row["excess"] == pytest.approx(0.3)
    assert row["excess_low"] < -1, "two seeds that differ by .4 say next to nothing: Student's t of one degree"
    alike = attack_frame(attacked(original=[ORIGINAL] * 2, retrained=[TWIN] * 2, ga=[TWIN + 0.3] * 2))
    assert of(alike, "ga")["excess_low"] == pytest.approx(0.3)


def test_without_a_retrained_model_the_excess_is_not_known_and_the_page_says_so(attacked):
    ranked = attacked(original=[ORIGINAL], ga=[TWIN])
    frame = attack_frame(ranked)
    assert frame["excess"].isna().all()
    [(_, said, wide, columns)] = attack_tables(frame, ranked.info)
    assert "There is no retrained model" in said
    assert "| 0.200<br>" in render(wide, columns, "markdown"), "as measured"
