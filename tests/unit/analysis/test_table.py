"""The table: which records become rows, and what each holds."""

import math
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from evaluators.reasoning import Reasoning
from harness.analysis.metrics import declarations, metric_info
from harness.analysis.table import LEADING, TRAILING, csv_text, non_dominated, read_table, table as make_table
from harness.contracts import Checkpoint
from harness.records.journal import Failed, Started, Stopped
from harness.records.results import Results, trial_results
from harness.settings import replace

NUMBERS = {"memorization": {"el_3": 0.3, "ma": 0.9}, "generation": {"perplexity": 20.0, "rep_2": 0.1, "mauve": 0.8}}


@pytest.fixture(scope="module")
def trial(make_row):
    """Return a maker of rows on the model `m`, whose trials are told apart by their strengths."""

    def make(variant, strengths=()):
        trial_id = f"{variant}-{'-'.join(map(str, strengths))}"
        return make_row(variant, strengths, trial_id=trial_id, model=Checkpoint("m", "/m", "/m", "d"))

    return make


@pytest.fixture(scope="module")
def original(trial):
    return trial("original")


@pytest.fixture(scope="module")
def emso(trial):
    return trial("emso", (1, 2, 3))


@pytest.fixture(scope="module")
def measured(make_measurement):
    def make(spec, strength=None, evaluator="memorization", numbers=None, **changes):
        return make_measurement(spec, strength, evaluator, numbers or NUMBERS[evaluator], **changes)

    return make


@pytest.fixture(scope="module")
def walked(make_point, measured):
    """Return a maker of the records of a trial that reached every strength up to `until`."""

    def make(spec, *, until=99, **numbers):
        records = [Started(trial_id=spec.trial_id, spec=spec.model_dump(mode="json"))]
        for strength in [point for point in spec.points() if point is None or point <= until]:
            records += [make_point(spec, strength)]
            records += [measured(spec, strength, name, numbers.get(name)) for name in NUMBERS]
        return records

    return make


def results_of(plan, records):
    trials = [trial_results(spec, records.get(spec.trial_id, ())) for spec in plan.trials]
    return Results(plan, tuple(trials))


def table(plan, records):
    results = results_of(plan, records)
    return make_table(results, metric_info(results))


def rows(plan, records):
    return table(plan, records).set_index(["variant", "strength"])


def test_columns_are_the_designs_in_its_order_with_only_what_was_declared(make_plan, original, walked):
    frame = table(make_plan(original), {original.trial_id: walked(original)})
    assert list(frame.columns) == [*LEADING, "el_3", "ma", "perplexity", "rep_2", "mauve", *TRAILING]


def test_one_row_a_point_with_its_own_numbers(make_plan, original, emso, measured, walked):
    plan = make_plan(original, emso)
    records = {spec.trial_id: walked(spec) for spec in plan.trials}
    records[emso.trial_id].append(measured(emso, 2, numbers={"el_3": 0.1, "ma": 0.5}))
    frame = table(plan, records)
    assert frame["variant"].tolist() == ["original", "emso", "emso", "emso"]
    assert frame["strength"].tolist()[1:] == [1.0, 2.0, 3.0]
    assert math.isnan(frame["strength"][0])
    assert frame["ma"].tolist() == [0.9, 0.9, 0.5, 0.9]
    row = {"sweep": "s", "model": "m", "method": "emso", "label": "EMSO", "reference": "none", "engine": "torch"}
    row |= {"strength_name": "epochs", "definition": "exact", "precision": "fp32", "point_id": emso.point_id(1)}
    row |= {"erase_seconds": 1.0, "measure_seconds": 4.0, "peak_memory_bytes": 7}
    assert frame.iloc[1][list(row)].to_dict() == row
    assert frame["reference"][0] == ""
    in_bf16 = replace(emso, evaluators=tuple(replace(each, precision="bf16") for each in emso.evaluators))
    again = table(make_plan(in_bf16), {emso.trial_id: walked(in_bf16)})
    assert set(again["precision"]) == {"fp32, measured in bf16"}


def test_a_metric_that_a_point_lacks_is_nan_and_never_0(make_plan, original, emso, make_point, measured, walked):
    records = {original.trial_id: walked(original), emso.trial_id: [make_point(emso, 1), measured(emso, 1)]}
    frame = rows(make_plan(original, emso), records)
    assert math.isnan(frame.loc[("emso", 1.0), "mauve"])
    assert frame.loc[("emso", 1.0), "ma"] == 0.9
    assert frame.loc[("emso", 1.0), "collapse_class"] == "unknown"


def test_a_point_erased_again_keeps_its_first_cost(make_plan, emso, make_point, measured):
    records = [make_point(emso, 1, erase_seconds=30.0), measured(emso, 1), make_point(emso, 1, erase_seconds=0.1)]
    assert table(make_plan(emso), {emso.trial_id: records})["erase_seconds"].tolist() == [30.0]


def test_a_cumulative_method_is_ranked_at_the_last_strength_reached(make_plan, original, emso, walked):
    plan = make_plan(original, emso)
    whole = table(plan, {spec.trial_id: walked(spec) for spec in plan.trials})
    assert whole["ranked"].tolist() == [False, False, False, True]
    cut = table(plan, {original.trial_id: walked(original), emso.trial_id: walked(emso, until=2)})
    assert cut["ranked"].tolist() == [False, False, True]


def test_any_other_method_is_ranked_where_the_sweep_says(make_plan, trial, walked):
    gammas = [trial("ta", (gamma,)) for gamma in (0.04, 0.05, 0.1)]
    records = {spec.trial_id: walked(spec) for spec in gammas}
    frame = rows(make_plan(*gammas, ranked_at={"ta": 0.05}), records)
    assert frame["ranked"].to_dict() == {("ta", 0.04): False, ("ta", 0.05): True, ("ta", 0.1): False}
    assert not table(make_plan(*gammas, ranked_at={"ta": 0.07}), records)["ranked"].any()


def test_a_cumulative_trial_that_failed_on_its_way_is_shown_and_not_ranked(make_plan, emso, walked):
    failed = Failed(trial_id=emso.trial_id, error="TrialError: NaN", log=("line",))
    frame = table(make_plan(emso), {emso.trial_id: [*walked(emso, until=2), failed]})
    assert (frame["strength"].tolist(), frame["ranked"].any()) == ([1.0, 2.0], False)


def test_a_row_with_two_definitions_says_both(make_plan, emso, measured):
    mixed = replace(emso, evaluators=(emso.evaluators[0], replace(emso.evaluators[1], key="generation-table")))
    records = [measured(mixed, 1), measured(mixed, 1, evaluator="generation", definition="table")]
    assert table(make_plan(mixed), {mixed.trial_id: records})["definition"].tolist() == ["exact+table"]


def test_reasoning_tasks_have_no_definition_to_mix(make_plan, emso, measured):
    task = asdict(Reasoning(tasks=("piqa",)).metrics[0])
    reasoning = {"evaluator": "reasoning", "key": "generation-key", "definition": "table", "metrics": (task,)}
    lm_eval = measured(emso, 1, numbers={"piqa": 0.7}, **reasoning)
    frame = table(make_plan(emso), {emso.trial_id: [measured(emso, 1), lm_eval]})
    assert (frame["definition"].tolist(), frame["piqa"].tolist()) == (["exact"], [0.7])


def test_reading_gives_back_what_was_written(tmp_path, make_plan, trial, original, emso, measured, walked):
    plan = make_plan(original, emso, trial("ga", (1,)))
    records = {spec.trial_id: walked(spec, memorization={"ma": 1 / 3}) for spec in plan.trials}
    records[emso.trial_id] = [*records[emso.trial_id][:4], Stopped(trial_id=emso.trial_id, strength=1, reason='a, "b"')]
    records[plan.trials[2].trial_id] = [measured(plan.trials[2], 1)]
    written = table(plan, records)
    path = tmp_path / "table.csv"
    path.write_text(csv_text(written), encoding="utf-8")
    info = metric_info(results_of(plan, records))
    path.with_suffix(".metrics.yaml").write_text(declarations(info), encoding="utf-8")
    read, declared = read_table(path)
    pd.testing.assert_frame_equal(read, written, check_dtype=False)
    assert read["collapsed"].tolist() == [False, False, None]
    assert list(declared.items()) == list(info.items())


def test_a_csv_keeps_whole_numbers_beside_empty_cells():
    whole = pd.array([7, None, 2**53 + 1], dtype="Int64")
    frame = pd.DataFrame({"a": [7, None, "=x"], "b": whole, "c": [0.1, None, -1e-7]})
    assert csv_text(frame) == "a,b,c\n7,7,0.1\n,,\n=x,9007199254740993,-1e-07\n"


def test_non_dominated_points_are_those_of_a_search_over_all_pairs():
    generator = np.random.default_rng(0)
    for _ in range(200):
        points = generator.integers(0, 6, size=(8, 2)).astype(float)  # Many ties.
        beaten = [any((q <= p).all() and (q < p).any() for q in points) for p in points]
        assert non_dominated(*points.T).tolist() == [not one for one in beaten]
    assert non_dominated(*np.array([[1.0, 1.0], [0.0, math.nan], [math.nan, 0.0]]).T).tolist() == [True, False, False]
