"""The formulas of the public meta-evaluation, on its own published figures."""

import math

import pytest

from harness.analysis.meta.published import published_metrics, published_rows
from harness.analysis.meta.stability import agreement, harmonic_mean, one_sided_relearning, one_sided_rounding

OVERALL = {"es": 0.875, "em": 0.781, "logit_lens": 0.902, "uds": 0.951}
"""HM(AUC, robustness) as the study's draft prints it; some others of its rows are off by up to .005."""


def test_every_published_robustness_is_the_harmonic_mean_of_its_r_and_q():
    rows = published_rows()
    assert len(rows) == 22
    for row in rows:
        relearning, rounding, both, auc = (float(row[name]) for name in ("relearning", "rounding", "robustness", "auc"))
        assert harmonic_mean(relearning, rounding) == pytest.approx(both, abs=2e-4), row["key"]
        if row["key"] in OVERALL:
            assert harmonic_mean(auc, both) == pytest.approx(OVERALL[row["key"]], abs=1e-3), row["key"]
    # It is no mean of all three, nor an arithmetic one.
    uds = next(row for row in rows if row["key"] == "uds")
    assert pytest.approx(float(uds["robustness"]), abs=5e-3) != 3 / (1 / 0.971 + 1 / 0.8997 + 1 / 0.9677)
    assert pytest.approx(0.6676, abs=0.05) != (0.5192 + 0.9348) / 2


def test_our_metrics_have_a_row_each_beside_the_study():
    assert set(published_metrics()) == {
        "ma", "extraction_strength", "depth_uncorrected", "membership_loss", "membership_zlib", "membership_min_k",
        "membership_min_k_plus",
    }  # fmt: skip
    assert published_metrics()["ma"].auc == 0.817


@pytest.mark.parametrize(("value", "other"), [(0.3, 0.1), (0.2, 0.2), (0.0, 0.4), (-0.2, 0.3), (-1.0, -3.0)])
def test_agreement_is_symmetric_between_0_and_1_and_of_no_unit(value, other):
    agreed = agreement(value, other)
    assert agreed == agreement(other, value) == pytest.approx(agreement(7 * value, 7 * other))
    assert 0.0 <= agreed <= 1.0
    assert (agreed == 1.0) == (value == other)


def test_the_one_sided_formulas_overlook_what_is_lost_and_the_symmetric_one_does_not():
    assert one_sided_rounding(0.8, 0.2) == 1.0 > agreement(0.8, 0.2)
    assert one_sided_rounding(0.2, 0.8) < 1.0
    assert one_sided_relearning(0.1, 0.4) == 1.0 > agreement(0.1, 0.4)
    assert one_sided_relearning(0.4, -0.1) == 0.0
    assert all(map(math.isnan, (one_sided_rounding(-1.0, -2.0), one_sided_relearning(math.nan, 1.0))))
    assert math.isnan(agreement(math.nan, 0.0))
    assert harmonic_mean(0.0, 0.0) == 0.0
