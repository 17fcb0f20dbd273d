"""What is left of memorised and of other sequences: hand-worked groups, and where there is nothing to tell."""

import math
from dataclasses import asdict

import numpy as np
import pytest

from harness.analysis import main_table, ranking
from harness.analysis.evidence import Evidence, read_evidence
from harness.analysis.metrics import metric_info
from harness.analysis.table import table
from harness.contracts import Metric
from harness.records.items import MetricItems
from harness.settings import Source, replace

ABOUT = {"better": "lower", "unit": "tokens", "low": 0.0, "high": math.inf, "group": "erasure", "source": ""}
SHARE = Metric(**ABOUT | {"high": 1.0}, name="share", title="Share", items="sequence")
TEXT = Metric(**ABOUT, name="exact_match", title="text", items="sequence", ranked=False)
AGREES = replace(TEXT, name="exact_match_original", title="original")
# Continuations of four tokens: five are recited wholly, and the next to its last token.
WHOLE = [4.0] * 10
RECITED = [4, 4, 4, 4, 4, 3, 3, 2, 0, 0]
ERASED = {1: [2, 3, 2, 3, 2, 4, 4, 3, 4, 3], 2: [0, 1, 0, 1, 0, 4, 4, 2, 4, 1]}


@pytest.fixture
def measured(make_plan, make_row, make_point, make_measurement, make_results):
    """Return a maker of results and ranked table from (trial, {strength: agreement with the original, by sequence})."""

    def make(*trials, recited=RECITED, whole=WHOLE, metrics=(SHARE, TEXT, AGREES), with_items=True):
        records, items = {}, {}
        for spec, points in trials:
            of_model = recited[spec.model.id] if isinstance(recited, dict) else recited
            for strength, agreeing in points.items():
                is_original = spec.method == "original"
                texts = of_model if is_original else [0.0] * len(agreeing)
                values = {"share": [0.5] * len(agreeing), "exact_match": texts, "exact_match_original": agreeing}
                ids = tuple(f"{spec.forget.path or ''}{row}" for row in range(len(agreeing)))
                point_id = spec.point_id(strength)
                values = {metric.name: np.array(values[metric.name], float) for metric in metrics}
                ones = np.ones(len(ids))
                items[point_id] = {name: MetricItems(ids, ids, of_metric, ones) for name, of_metric in values.items()}
                numbers = {name: float(of_metric.mean()) for name, of_metric in values.items()}
                told = {"numbers": numbers, "metrics": tuple(map(asdict, metrics))}
                kept = records.setdefault(spec.trial_id, [])
                kept += [make_point(spec, strength), make_measurement(spec, strength, **told)]
        plan = make_plan(*(spec for spec, _ in trials), ranked_at={"ta": 0.2})
        kept = {"items_of": lambda measurement: items[measurement.point_id]} if with_items else {}
        results = replace(make_results(plan, records), **kept)
        info, evidence = metric_info(results), read_evidence(results)
        return results, ranking.rank(table(results, info, evidence), info, evidence)

    return make


@pytest.fixture
def trial(make_row):
    return lambda *about, **changes: make_row(*about, evaluators={"memorization": "k"}, **changes)


@pytest.fixture
def usual(trial):
    return [(trial("original"), {None: WHOLE}), (trial("em", (1, 2)), ERASED)]


def left(frame, variant="em"):
    rows = frame[frame["variant"] == variant]
    return {row.strength: (row.memorized, row.other) for row in rows.itertuples()}


def test_recited_to_the_last_token_is_memorized_and_to_the_last_but_one_is_not(measured, usual):
    frame = main_table.agreement_frame(measured(*usual)[1])
    assert left(frame) == {1: (2.4, 3.6), 2: (0.4, 3.0)}
    original, *erased = frame.to_dict("records")
    columns = ("memorized", "other", "memorized_sequences", "other_sequences")
    assert [original[column] for column in columns] == [4, 4, 5, 5]
    assert math.isnan(original["memorized_low"]), "by definition, so without an interval"
    for row in erased:
        for group in ("memorized", "other"):
            assert 0 <= row[f"{group}_low"] < row[group] < row[f"{group}_high"] <= 4


def test_seeds_are_averaged_where_all_of_them_arrived(measured, usual, trial):
    second = (trial("em", (1, 2), seed=1), {1: [0] * 5 + [4] * 5})
    assert left(main_table.agreement_frame(measured(*usual, second)[1])) == {1: (1.2, 3.8)}


def test_unseen_texts_are_in_neither_group_and_the_retrained_model_is_next_to_them(measured, usual, trial):
    unseen = (trial("holdout", forget=Source(source="miniature", path="unseen")), {None: [4.0] * 8})
    retrained = (trial("retrained"), {None: [1] * 5 + [2] * 5})
    frame = main_table.agreement_frame(measured(*usual, unseen, retrained)[1])
    assert left(frame) == left(main_table.agreement_frame(measured(*usual)[1]))
    assert list(frame["variant"][:2]) == ["original", "retrained"]
    assert frame.loc[1, ["memorized", "other"]].tolist() == [1, 2]
    ranked = measured(*usual, retrained)[1]
    of_point = {id: items for id, items in ranked.evidence.by_point.items() if id != retrained[0].point_id(None)}
    lacking = main_table.agreement_frame(replace(ranked, evidence=Evidence(of_point)))
    assert lacking.loc[1, ["memorized", "other"]].isna().all(), "not known, and not 0"


def test_few_of_a_group_or_no_items_give_nothing(measured, usual):
    for changes in ({"recited": [4.0] * 4 + [0.0] * 6}, {"metrics": (SHARE, TEXT)}, {"with_items": False}):
        assert main_table.agreement_frame(measured(*usual, **changes)[1]).empty
