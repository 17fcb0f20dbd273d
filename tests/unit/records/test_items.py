"""Items: what is kept of each, its file, and that a number is what its items make up."""

import math
from dataclasses import asdict

import numpy as np
import pytest
import torch

from harness.contracts import Evaluation, Metric, Sequences
from harness.data.sequences import Utility
from harness.errors import DataError, TrialError
from harness.execution.trial import metric_items, sequence_identities
from harness.records.items import aggregated, items_file
from harness.records.journal import Journal, Measurement
from harness.settings import replace
from harness.statistics.bootstrap import row_intervals
from harness.toolkit import auc_items
from tests.unit.statistics.values import item_values

ABOUT = {"better": "lower", "unit": "", "low": 0.0, "high": 1.0, "source": "", "title": ""}
MA = Metric(name="ma", group="erasure", items="sequence", **ABOUT)
PERPLEXITY = Metric(name="perplexity", group="generation", items="prompt", aggregate="exp_mean", **ABOUT)
MAUVE = Metric(name="mauve", group="generation", **ABOUT)
PIQA = Metric(name="piqa", group="reasoning", items="question", **ABOUT)
# Rows 0 and 2 end alike; rows 1 and 3 are the same text.
ROWS = torch.tensor([[1, 2, 7, 8], [3, 4, 5, 0], [6, 2, 7, 8], [3, 4, 5, 0]])
FORGET = Sequences(ROWS, torch.tensor([4, 3, 4, 3]), 2, "digest")
UTILITY = Utility(torch.tensor([[1, 2], [3, 4], [1, 2]]), torch.zeros(3, 1), ("", "", ""), ("", "", ""), "digest")


def evaluation(**changes):
    per_item = {"ma": np.array([0.0, 1.0, 0.5, 0.5]), "piqa": np.array([1.0, 0.0])}
    per_item |= {"perplexity": np.array([math.log(2.0), math.log(8.0), math.nan])} | changes.pop("per_item", {})
    numbers = {"ma": 0.5, "perplexity": 2 * math.sqrt(2.0), "mauve": 0.9, "piqa": 0.5} | changes
    weights = {"perplexity": np.array([3, 1, 0])}
    return Evaluation(numbers, per_item=per_item, item_weights=weights, item_ids={"piqa": ["q1", "q2"]})


def kept(evaluation, *metrics):
    return metric_items(evaluation, metrics or (MA, PERPLEXITY, MAUVE, PIQA), FORGET, UTILITY, {})


def test_each_metric_with_items_keeps_them_and_one_without_keeps_none():
    items = kept(evaluation())
    assert set(items) == {"ma", "perplexity", "piqa"}
    assert items["ma"].values_N.tolist() == [0.0, 1.0, 0.5, 0.5]
    assert items["ma"].weights_N.tolist() == [1.0] * 4
    assert items["perplexity"].weights_N.tolist() == [3.0, 1.0, 0.0]
    assert items["piqa"].ids == items["piqa"].clusters == ("q1", "q2")
    # the same prompt twice: two items, one cluster
    first, second, third = items["perplexity"].ids
    assert (third, items["perplexity"].clusters) == (f"{first}-2", (first, second, first))


def test_sequences_with_one_continuation_are_one_cluster_and_repeats_keep_ids_of_their_own():
    ids, clusters = sequence_identities(FORGET)
    assert len(set(ids)) == 4
    assert ids[3] == f"{ids[1]}-2"
    assert clusters[0] == clusters[2] != clusters[1] == clusters[3]
    # What lies behind a sequence's end is no part of it, and where the prefix ends decides what a continuation is.
    padded = replace(FORGET, tokens_NT=torch.where(FORGET.tokens_NT == 0, 9, FORGET.tokens_NT))
    assert sequence_identities(padded) == (ids, clusters)
    assert len(set(sequence_identities(replace(FORGET, prefix_tokens=1))[1])) == 2
    assert len(set(sequence_identities(replace(FORGET, prefix_tokens=0))[1])) == 3


def test_intervals_over_near_duplicates_cover_what_they_promise():
    """Of 24 letters there are four copies each, in which two tokens differ; what a letter has its copies share."""
    generator = np.random.default_rng(0)
    letters_KT = generator.integers(50_000, size=(24, 120)).repeat(4, axis=0)
    for copy_T in letters_KT:
        copy_T[generator.integers(60, 118, size=2)] = generator.integers(50_000, size=2)
    ids, clusters = sequence_identities(Sequences(torch.from_numpy(letters_KT), torch.full((96,), 120), 60, ""))
    assert (len(set(ids)), len(set(clusters))) == (96, 24)
    drawn_RN = generator.normal(size=(400, 24)).repeat(4, axis=1) + generator.normal(0, 0.5, (400, 96))

    def covered(of_items):
        values = item_values(drawn_RN, clusters=np.unique(of_items, return_inverse=True)[1], items="letters")
        low_R, high_R = row_intervals(values).T
        return ((low_R < 0) & (high_R > 0)).mean()

    assert covered(clusters) > 0.93
    assert covered(ids) < 0.85, "of exact copies alone"


def test_a_number_is_the_aggregate_of_its_items():
    values, weights = np.array([1.0, math.nan, 3.0]), np.array([1.0, 5.0, 3.0])
    assert aggregated(values, weights, "mean") == 2.5
    assert aggregated(values, weights, "exp_mean") == pytest.approx(math.exp(2.5))
    assert math.isnan(aggregated(np.full(2, math.nan), np.ones(2), "mean"))
    assert math.isnan(aggregated(np.ones(2), np.zeros(2), "mean"))


REFUSED = [
    (evaluation(ma=0.501), "'ma' is 0.501, and the mean of its 4 items is 0.5"),
    (evaluation(perplexity=3.0), "'perplexity' is 3, and the exp_mean of its 3 items is 2.82842712"),
    (evaluation(ma=math.nan), "'ma' is nan"),
    (evaluation(per_item={"ma": np.ones(3)}), r"'sequence'\), of which there are 4, and .* has the shape \(3,\)"),
    (evaluation(per_item={"ma": np.ones((4, 1))}), r"has the shape \(4, 1\)"),
    (replace(evaluation(), item_ids={"piqa": ["q", "q"]}), "have ids that come twice"),
    (replace(evaluation(), item_ids={}), r"of which there are 0, and .* has the shape \(2,\)"),
    (replace(evaluation(), per_item={}), "'ma' declares items .* has the shape"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
def test_items_that_do_not_make_up_their_number_are_refused(wrong, message):
    with pytest.raises(TrialError, match=message):
        kept(wrong)


def test_an_auc_has_the_items_of_both_sets_and_a_text_in_both_is_two(make_sequences):
    auc = Metric(name="auc", group="robustness", items="sequence_and_holdout", **ABOUT)
    holdout = make_sequences([[1, 2, 7, 8], [9, 9, 1]], prefix_tokens=2)
    values = auc_items([3.0, 1.0, 2.0, 0.0], [1.0, 5.0])
    evaluated = Evaluation({"auc": float(values.mean())}, per_item={"auc": values})
    items = metric_items(evaluated, (auc,), FORGET, UTILITY, {"holdout": holdout})["auc"]
    assert items.values_N.tolist() == values.tolist()
    assert values.min() < 0, "single values may lie outside of the metric's bounds"
    assert (items.ids[:4], items.clusters[:4]) == sequence_identities(FORGET)
    assert items.ids[4] == f"holdout-{items.ids[0]}"
    assert len({*items.clusters}) == 4, "a copy on the other side is other evidence"
    with pytest.raises(TrialError, match=r"of which there are 0, and .* has the shape \(6,\)"):
        metric_items(evaluated, (auc,), FORGET, UTILITY, {})


def test_a_metric_that_could_not_be_measured_needs_no_items():
    per_item = {name: values for name, values in evaluation().per_item.items() if name != "piqa"}
    assert list(kept(replace(evaluation(piqa=math.nan), per_item=per_item))) == ["ma", "perplexity"]


@pytest.fixture
def measurement():
    about = {"trial_id": "t1", "point_id": "p1", "strength": 1, "evaluator": "e", "key": "k1", "definition": "exact"}
    return Measurement(**about, numbers={"ma": 0.5}, metrics=(asdict(MA),), samples=(), notes={}, seconds=1.0)


def test_items_come_back_as_they_were(tmp_path, measurement):
    journal, items = Journal(tmp_path / "s" / "journal"), kept(evaluation())
    journal.append_measurement(measurement, items)
    journal.append_measurement(replace(measurement, key="k2"), {})
    first, second = journal.read("t1")
    back = journal.items(first)
    assert list(back) == list(items)
    for name, of_metric in items.items():
        assert (back[name].ids, back[name].clusters) == (of_metric.ids, of_metric.clusters)
        np.testing.assert_array_equal(back[name].values_N, of_metric.values_N)
        np.testing.assert_array_equal(back[name].weights_N, of_metric.weights_N)
    assert (second.items, journal.items(second)) == ("", {})
    assert [path.name for path in (tmp_path / "s" / "items").rglob("*.parquet")] == ["k1.parquet"]


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_measurement_whose_items_are_damaged_is_measured_again(tmp_path, measurement, caplog, damage):
    journal = Journal(tmp_path / "s" / "journal")
    journal.append_measurement(measurement, kept(evaluation()))
    [record] = journal.read("t1")
    file = items_file(tmp_path / "s", "p1", "k1")
    content = file.read_bytes()
    middle = len(content) // 2
    damaged = {"flip": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :], "cut": content[:middle]}
    file.write_bytes(damaged[damage]) if damage in damaged else file.unlink()
    assert journal.read("t1") == []
    assert "k1.parquet is missing or damaged: its point is measured again" in caplog.text
    with pytest.raises(DataError, match="missing or damaged"):
        journal.items(record)
    journal.append_measurement(measurement, kept(evaluation()))
    assert len(journal.read("t1")) == 2  # both lines name what is there now
