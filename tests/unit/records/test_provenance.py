"""The head of a report: what the journal says of when, how long, on what and with what; no more and no less."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.errors import DataError
from harness.execution.environment import hardware
from harness.records.journal import Journal, _tail
from harness.records.record import Failed, Started, own_commit, time_of
from harness.records.results import trial_results
from harness.reporting.provenance import provenance, ran_on

MACHINE = {"processor": "EPYC", "cores": "8", "memory": "16 GiB"}


@pytest.fixture
def found(make_row, make_plan, make_point, make_measurement, make_results):
    """Return a maker of the head of a sweep of two trials, each with what is given of it."""

    def make(*of_trials, overrides=()):
        specs = [make_row("original"), make_row("emso", (1, 2))][: len(of_trials)]
        kept = {}
        for spec, (hour, started) in zip(specs, of_trials, strict=True):
            at = hour and f"2026-02-03T{hour}Z"
            records = [Started(trial_id=spec.trial_id, spec=spec.to_json(), at=at, **started)]
            for number, strength in enumerate(spec.points(), start=1):
                records.append(make_point(spec, strength, erase_seconds=10.0 * number, at=at))
                records += [
                    make_measurement(spec, strength, each.name, key=each.key, seconds=1.0, at=at)
                    for each in spec.evaluators
                ]
            kept[spec.trial_id] = records
        return provenance(make_results(make_plan(*specs, overrides=overrides), kept))

    return make


def test_dates_are_those_of_the_first_and_the_last_record(found):
    told = found(("04:05:06", {}), ("05:06:16", {})).measured
    assert told == "2026-02-03 04:05:06 to 05:06:16 UTC (1 h 1 min from the first record to the last)"
    assert found(("05:06:16", {}), ("04:05:06", {})).measured == told, "whatever the order of trials"


def test_machines_are_counted_where_there_are_several(found):
    gpu = {**MACHINE, "gpu": "H200, 140 GiB"}
    assert found((None, {"hardware": MACHINE}), (None, {"hardware": MACHINE})).machines == ("EPYC, 8 cores, 16 GiB",)
    assert found((None, {"hardware": MACHINE}), (None, {"hardware": gpu})).machines == (
        "EPYC, 8 cores, 16 GiB (1 trials)",
        "EPYC, 8 cores, 16 GiB; GPU: H200, 140 GiB (1 trials)",
    )


def test_hosts_are_named_once_for_each_kind_of_machine(found):
    first, second = ({"hardware": MACHINE, "node": node} for node in ("b (10.0.0.2)", "a (10.0.0.1)"))
    assert found((None, first), (None, first)).machines == ("b (10.0.0.2): EPYC, 8 cores, 16 GiB",)
    assert found((None, first), (None, second)).machines == ("a (10.0.0.1), b (10.0.0.2): EPYC, 8 cores, 16 GiB",)
    gpu = {"hardware": {**MACHINE, "gpu": "H200, 140 GiB"}, "node": "c"}
    assert found((None, first), (None, gpu)).machines == (
        "b (10.0.0.2): EPYC, 8 cores, 16 GiB (1 trials)",
        "c: EPYC, 8 cores, 16 GiB; GPU: H200, 140 GiB (1 trials)",
    )


def test_a_trial_says_where_each_attempt_and_each_worker_ran(make_row, make_point, make_measurement):
    spec = make_row("emso", (1,))
    started = [
        Started(trial_id=spec.trial_id, spec=spec.to_json(), hardware=hardware, node=node)
        for node, hardware in (("", MACHINE), ("a", MACHINE), ("b", {**MACHINE, "gpu": "H200"}), ("a", MACHINE))
    ]
    assert ran_on(trial_results(spec, started[:1])) == "", "an older version did not write it"
    assert ran_on(trial_results(spec, started)) == "a: EPYC, then b: H200"
    point = make_point(spec, 1, worker_nodes=("a", "c", "a"))
    measured = [started[1], point, make_measurement(spec, 1, "memorization", key=spec.evaluators[0].key)]
    assert ran_on(trial_results(spec, measured)) == "a: EPYC; workers on a, c"


def test_a_points_workers_are_read_as_they_were_written(tmp_path, make_row, make_point):
    point = make_point(make_row("emso", (1,)), 1, worker_nodes=("a (10.0.0.1)", "b (10.0.0.2)"))
    Journal(tmp_path).append(point)
    assert Journal(tmp_path).read(point.trial_id) == [point]


def test_every_version_that_measured_is_named(found):
    of = {"versions": {"lethe": "0.1.0"}}
    first, second = of | {"commit": "a" * 40}, of | {"commit": "b" * 40 + "-dirty"}
    assert found((None, of), (None, of)).lethe == "0.1.0"
    told = found((None, first), (None, second)).lethe
    assert told == "0.1.0 (commit aaaaaaaaaa), 0.1.0 (commit bbbbbbbbbb, with changes)"


def test_the_command_has_what_was_changed_as_a_shell_reads_it(found):
    told = found((None, {}), overrides=("seeds=[0, 1]",))
    assert told.sweep_command == "lethe sweep s.yaml --set 'seeds=[0, 1]'"
    assert told.collate_command == "lethe collate results/s"


def test_the_journal_says_when_and_a_record_is_the_same_for_that(tmp_path):
    before = datetime.now(UTC).replace(microsecond=0)
    record = Failed(trial_id="t", error="E", log=())
    Journal(tmp_path).append(record)
    [read] = Journal(tmp_path).read("t")
    assert before <= time_of(read.at) <= before + timedelta(minutes=5)
    assert read == record
    assert repr(read) == repr(record)


@pytest.mark.parametrize(("at", "is_read"), [(None, True), ("absent", True), ("yesterday", False), (7, False)])
def test_lines_of_older_versions_are_read_and_no_time_but_ours_is(at, is_read, tmp_path):
    body = {"kind": "failed", "at": at, "trial_id": "t", "error": "E", "log": []}
    if at == "absent":
        del body["at"]
    text = json.dumps(body, separators=(",", ":")).encode()
    (tmp_path / "t.jsonl").write_bytes(text[:-1] + _tail(text) + b"\n")
    if is_read:
        assert Journal(tmp_path).read("t") == [Failed(trial_id="t", error="E", log=())]
    else:
        with pytest.raises(DataError, match=r"failed\.at"):
            Journal(tmp_path).read("t")


def test_the_machine_is_told_and_its_gpu_only_to_a_trial_that_has_one():
    told = hardware(has_gpu=False)
    assert told.keys() == {"processor", "instructions", "cores", "memory"}
    assert all(told.values())
    assert int(told["cores"]) >= 1
    assert re.fullmatch(r"\d+ GiB", told["memory"])


def test_the_commit_is_whole():
    is_checkout = (Path(__file__).parents[3] / ".git").exists()
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?" if is_checkout else "", own_commit())


def test_a_time_is_no_part_of_what_a_trial_is(make_row):
    spec = make_row("emso", (1,))
    assert replace(spec, sample_count=9).point_id(1) == spec.point_id(1)
