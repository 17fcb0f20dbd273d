"""The table: which records become rows, what each holds, and what a table.csv must have."""

import math
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest

from harness.contracts import Checkpoint, Training
from harness.errors import DataError
from harness.reporting.facts import known_fact, metric_facts
from harness.reporting.table import LEADING, TRAILING, failures, read_table, table
from harness.reporting.write import table_csv
from harness.specs import (
    EvaluatorSpec,
    Failed,
    Measurement,
    Memorization,
    Plan,
    Point,
    Source,
    Started,
    Stopped,
    TrialSpec,
)

PUBLISHED = Path(__file__).parents[2] / "results/published/emso_main_table.csv"
HERE = Checkpoint(id="m", location="/m", tokenizer="/m", digest="d")
NUMBERS = {"memorization": {"el_3": 0.3, "ma": 0.9}, "generation": {"perplexity": 20.0, "rep_2": 0.1, "mauve": 0.8}}


def trial(variant, strengths=(), *, seed=0, definition="exact", method=None, label=None):
    text = Source(source="miniature", digest="t")
    return TrialSpec(
        trial_id=f"{variant}-{seed}-{'-'.join(map(str, strengths))}",
        sweep="s",
        variant=variant,
        method=method or variant,
        label=label or variant.upper(),
        reference="none",
        settings={},
        method_version=1,
        strength_name="epochs" if strengths else "",
        strengths=strengths,
        seed=seed,
        model=HERE,
        training=Training(),
        memorization=Memorization(epochs=1, learning_rate=0.1, global_batch=1, gate=0.9),
        engine="plain",
        forget=text,
        retain=None,
        utility=text,
        validation=text,
        evaluators=tuple(
            EvaluatorSpec(name=name, version=1, settings={}, key=f"{name}-{definition}") for name in NUMBERS
        ),
        judges={},
    )


def point(spec, strength=None, *, seconds=1.0):
    return Point(
        **{"trial_id": spec.trial_id, "point_id": spec.point_id(strength), "strength": strength, "notes": {}},
        **{"erase_seconds": seconds, "peak_memory_bytes": 7},
    )


def measured(spec, strength=None, *, evaluator="memorization", definition="exact", key=None, **numbers):
    values = numbers or NUMBERS[evaluator]
    return Measurement(
        **{"trial_id": spec.trial_id, "point_id": spec.point_id(strength), "strength": strength},
        **{"evaluator": evaluator, "key": key or f"{evaluator}-{definition}", "definition": definition},
        **{"numbers": values, "metrics": tuple(asdict(known_fact(name)) for name in values)},
        **{"samples": (), "notes": {}, "seconds": 2.0},
    )


def walked(spec, *, until=99, **numbers):
    """The records of a trial that reached every strength up to `until`."""
    reached = [each for each in spec.points() if each is None or each <= until]
    records = [Started(trial_id=spec.trial_id, spec=spec.to_json())]
    for strength in reached:
        records += [point(spec, strength)]
        records += [measured(spec, strength, evaluator=name, **numbers.get(name, {})) for name in NUMBERS]
    return records


def sweep(*trials, ranked_at=None):
    return Plan(
        **{"sweep": "s", "question": "Why?", "file": "name: s", "overrides": (), "trials": trials},
        **{"ranked_at": ranked_at or {}, "collapse_mauve": 0.25, "samples": "redacted"},
    )


def failed(spec):
    return Failed(trial_id=spec.trial_id, error="TrialError: NaN", log=("line",))


ORIGINAL, EMSO = trial("original"), trial("emso", (1, 2, 3))


def rows(plan, records):
    return table(plan, records).set_index(["variant", "strength"])


def test_columns_are_the_designs_in_its_order_with_only_what_was_declared():
    found = table(sweep(ORIGINAL), {ORIGINAL.trial_id: walked(ORIGINAL)})
    assert list(found.columns) == [*LEADING, "el_3", "ma", "perplexity", "rep_2", "mauve", *TRAILING]


def test_further_metrics_come_after_the_nine():
    records = [measured(ORIGINAL, ma_all=0.5, el_10=0.2, ma=0.9)]
    found = table(sweep(ORIGINAL), {ORIGINAL.trial_id: records})
    assert list(found.columns) == [*LEADING, "ma", "ma_all", "el_10", *TRAILING]


def test_one_row_a_point_with_its_own_numbers():
    plan = sweep(ORIGINAL, EMSO)
    records = {each.trial_id: walked(each) for each in plan.trials}
    records[EMSO.trial_id].append(measured(EMSO, 2, el_3=0.1, ma=0.5))
    found = table(plan, records)
    assert found["variant"].tolist() == ["original", "emso", "emso", "emso"]
    assert found["strength"].tolist()[1:] == [1.0, 2.0, 3.0]
    assert math.isnan(found["strength"][0])
    assert found["ma"].tolist() == [0.9, 0.9, 0.5, 0.9]
    row = found.iloc[1]
    assert row[["sweep", "model", "method", "label"]].tolist() == ["s", "m", "emso", "EMSO"]
    assert row[["reference", "strength_name", "definition"]].tolist() == ["none", "epochs", "exact"]
    assert row[["engine", "precision"]].tolist() == ["plain", "fp32"]
    assert row[["erase_seconds", "measure_seconds", "peak_memory_bytes"]].tolist() == [1.0, 4.0, 7]
    assert row["point_id"] == EMSO.point_id(1)
    assert found["reference"][0] == ""


def test_a_metric_that_a_point_lacks_is_nan_and_never_0():
    records = {ORIGINAL.trial_id: walked(ORIGINAL), EMSO.trial_id: [point(EMSO, 1), measured(EMSO, 1)]}
    found = rows(sweep(ORIGINAL, EMSO), records)
    assert math.isnan(found.loc[("emso", 1.0), "mauve"])
    assert found.loc[("emso", 1.0), "ma"] == 0.9
    assert found.loc[("emso", 1.0), "collapse_class"] == "unknown"


def test_a_point_that_no_evaluator_saw_is_no_row():
    assert len(table(sweep(EMSO), {EMSO.trial_id: [point(EMSO, 1)]})) == 0
    assert len(table(sweep(EMSO), {EMSO.trial_id: [point(EMSO, 1), measured(EMSO, 1)]})) == 1


def test_measurements_that_the_sweep_no_longer_asks_for_are_left_out():
    old = measured(EMSO, 1, key="memorization-old", ma=0.1)
    beyond = measured(EMSO, 9, ma=0.2)
    found = table(sweep(EMSO), {EMSO.trial_id: [old, measured(EMSO, 1), beyond], "gone": [old]})
    assert found["ma"].tolist() == [0.9]


def test_a_point_erased_again_keeps_its_first_cost():
    records = [point(EMSO, 1, seconds=30.0), measured(EMSO, 1), point(EMSO, 1, seconds=0.1)]
    assert table(sweep(EMSO), {EMSO.trial_id: records})["erase_seconds"].tolist() == [30.0]


def test_a_cumulative_method_is_ranked_at_the_last_strength_reached():
    plan = sweep(ORIGINAL, EMSO)
    whole = table(plan, {each.trial_id: walked(each) for each in plan.trials})
    assert whole["ranked"].tolist() == [False, False, False, True]
    cut = table(plan, {ORIGINAL.trial_id: walked(ORIGINAL), EMSO.trial_id: walked(EMSO, until=2)})
    assert cut["ranked"].tolist() == [False, False, True]


def test_any_other_method_is_ranked_where_the_sweep_says():
    gammas = [trial("ta", (gamma,)) for gamma in (0.04, 0.05, 0.1)]
    records = {each.trial_id: walked(each) for each in gammas}
    found = rows(sweep(*gammas, ranked_at={"ta": 0.05}), records)
    assert found["ranked"].to_dict() == {("ta", 0.04): False, ("ta", 0.05): True, ("ta", 0.1): False}
    assert not table(sweep(*gammas, ranked_at={"ta": 0.07}), records)["ranked"].any()


def test_an_early_stop_is_told_at_its_point_alone():
    records = [*walked(EMSO, until=2), Stopped(trial_id=EMSO.trial_id, strength=2, reason="too far")]
    found = table(sweep(EMSO), {EMSO.trial_id: records})
    assert found["stop_reason"].tolist() == ["", "too far"]
    assert found["ranked"].tolist() == [False, True]


def test_a_trajectory_that_ends_between_two_strengths_has_a_point_there():
    sparse = trial("emso", (1, 5))
    records = [measured(sparse, 1), measured(sparse, 3), Stopped(trial_id=sparse.trial_id, strength=3, reason="far")]
    assert table(sweep(sparse), {sparse.trial_id: records})["strength"].tolist() == [1.0, 3.0]
    short = replace(sparse, strengths=(1, 2))
    assert table(sweep(short), {sparse.trial_id: records})["strength"].tolist() == [1.0]


def test_failed_trials_are_listed_and_are_no_rows():
    plan, records = sweep(ORIGINAL, EMSO), {ORIGINAL.trial_id: walked(ORIGINAL), EMSO.trial_id: [failed(EMSO)]}
    assert table(plan, records)["variant"].tolist() == ["original"]
    assert [(spec.variant, record.error) for spec, record in failures(plan, records)] == [("emso", "TrialError: NaN")]


def test_a_failure_that_was_mended_is_forgotten():
    plan = sweep(EMSO)
    assert failures(plan, {EMSO.trial_id: [failed(EMSO), *walked(EMSO)]}) == []
    assert failures(plan, {EMSO.trial_id: walked(EMSO)}) == []


def test_a_cumulative_trial_that_failed_on_its_way_is_shown_and_not_ranked():
    broken = {EMSO.trial_id: [*walked(EMSO, until=2), failed(EMSO)]}
    found = table(sweep(EMSO), broken)
    assert found["strength"].tolist() == [1.0, 2.0]
    assert not found["ranked"].any()


def test_collapse_uses_the_sweeps_fraction():
    plan = sweep(ORIGINAL, trial("ga", (1,)))
    records = {ORIGINAL.trial_id: walked(ORIGINAL)}
    records[plan.trials[1].trial_id] = walked(plan.trials[1], generation={"mauve": 0.3, "rep_2": 0.9})
    assert table(plan, records)["collapsed"].tolist() == [False, False]
    strict = replace(plan, collapse_mauve=0.5)
    assert table(strict, records)["collapsed"].tolist() == [False, True]
    assert table(strict, records)["collapse_class"].tolist() == ["healthy", "degenerate"]


def test_a_row_with_two_definitions_says_both():
    mixed = replace(EMSO, evaluators=(EMSO.evaluators[0], replace(EMSO.evaluators[1], key="generation-table")))
    records = [measured(mixed, 1), measured(mixed, 1, evaluator="generation", definition="table")]
    assert table(sweep(mixed), {mixed.trial_id: records})["definition"].tolist() == ["exact+table"]


def test_reasoning_tasks_have_no_definition_to_mix():
    task = {**asdict(known_fact("ma")), "name": "piqa", "group": "reasoning", "better": "higher"}
    lm_eval = replace(measured(EMSO, 1, definition="table", key="generation-exact", ma=0.7), evaluator="reasoning")
    lm_eval = replace(lm_eval, numbers={"piqa": 0.7}, metrics=(task,))
    found = table(sweep(EMSO), {EMSO.trial_id: [measured(EMSO, 1), lm_eval]})
    assert found["definition"].tolist() == ["exact"]
    assert found["piqa"].tolist() == [0.7]


def test_two_evaluators_may_not_report_one_metric():
    records = {EMSO.trial_id: [measured(EMSO, 1), measured(EMSO, 1, evaluator="generation", ma=0.2)]}
    with pytest.raises(DataError, match="'memorization' and 'generation' both report 'ma'"):
        metric_facts(sweep(EMSO), records)


def test_a_sweep_without_records_has_a_table_without_rows():
    found = table(sweep(ORIGINAL, EMSO), {})
    assert list(found.columns) == [*LEADING, *TRAILING]
    assert len(found) == 0


def test_reading_gives_back_what_was_written(tmp_path):
    plan = sweep(ORIGINAL, EMSO, trial("ga", (1,)))
    records = {each.trial_id: walked(each, memorization={"ma": 1 / 3}) for each in plan.trials}
    records[EMSO.trial_id] = [*records[EMSO.trial_id][:4], Stopped(trial_id=EMSO.trial_id, strength=1, reason='a, "b"')]
    records[plan.trials[2].trial_id] = [measured(plan.trials[2], 1)]
    written = table(plan, records)
    path = tmp_path / "table.csv"
    path.write_text(table_csv(written), encoding="utf-8")
    pd.testing.assert_frame_equal(read_table(path), written, check_dtype=False)
    assert read_table(path)["collapsed"].tolist() == [False, False, None]


def test_a_published_table_is_filled():
    found = read_table(PUBLISHED)
    assert set(LEADING + TRAILING) <= set(found.columns)
    assert found["variant"].equals(found["method"])
    assert found.loc[found["method"] == "original", "ranked"].tolist() == [False] * 3
    assert found["ranked"].sum() == 21
    assert found["rank_average"][2] == "=2"
    assert found["ma"][0] == 0.789


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("variant,ma\nemso,0.1\n", "lacks 'model', 'method'. Its columns are 'variant', 'ma'."),
        ("model,ma\nm,0.1\n", "lacks 'method'."),
        ("model,method,score\nm,emso,1\n", "no metric that is known, such as 'ma' or 'mauve'"),
        ("model,method,ma\nm,emso,0.5\nm,ga,many\n", "line 3, column 'ma': 'many' is not a number"),
        ("model,method,ma,seed\nm,emso,0.5,1.5\n", "line 2, column 'seed': '1.5' is not a whole number"),
        ("model,method,ma,collapsed\nm,emso,0.5,maybe\n", "line 2, column 'collapsed': 'maybe' is not true or false"),
        ("", "cannot be read as a table"),
    ],
)
def test_a_wrong_table_is_named_exactly(tmp_path, text, message):
    path = tmp_path / "some.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_file_and_one_that_is_no_text(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv does not exist"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"model,method,ma\n\xff\xfe,a,1\n")
    with pytest.raises(DataError, match=r"bytes\.csv cannot be read"):
        read_table(tmp_path / "bytes.csv")


def test_empty_cells_are_nan(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("model,method,ma,seed,peak_memory_bytes\nm,emso,,,\n", encoding="utf-8")
    found = read_table(path).iloc[0]
    assert math.isnan(found["ma"])
    assert found["seed"] == 0
    assert found["peak_memory_bytes"] is pd.NA
