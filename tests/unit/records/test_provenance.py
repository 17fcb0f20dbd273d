"""The head of a report: what the journal says of when, how long, on what and with what; no more and no less."""

from datetime import UTC, datetime, timedelta

import pytest

from harness.records import journal, results
from harness.records.journal import Failed, Started, parse_time
from harness.reporting.sections.repeat import describe_hosts, provenance

MACHINE = {"processor": "EPYC", "cores": "8", "memory": "16 GiB"}


@pytest.fixture
def found(make_row, make_plan, make_point, make_measurement, make_results):
    """Return a maker of the head of a sweep of two trials, each with what is given of it."""

    def make(*of_trials, overrides=()):
        specs = [make_row("original"), make_row("emso", (1, 2))][: len(of_trials)]
        kept = {}
        for spec, (hour, started) in zip(specs, of_trials, strict=True):
            at = hour and f"2026-02-03T{hour}Z"
            records = [Started(trial_id=spec.trial_id, spec=spec.model_dump(mode="json"), at=at, **started)]
            for strength in spec.points():
                records += [make_point(spec, strength, at=at), make_measurement(spec, strength, at=at)]
            kept[spec.trial_id] = records
        return provenance(make_results(make_plan(*specs, overrides=overrides), kept))

    return make


def test_dates_are_those_of_the_first_and_the_last_record(found):
    told = found(("04:05:06", {}), ("05:06:16", {}))["measured"]
    assert told == "2026-02-03 04:05:06 to 05:06:16 UTC (1 h 1 min from the first record to the last)"
    assert found(("05:06:16", {}), ("04:05:06", {}))["measured"] == told, "whatever the order of trials"


def test_machines_are_counted_where_there_are_several(found):
    one, gpu = {"hardware": MACHINE}, {"hardware": {**MACHINE, "gpu": "H200, 140 GiB"}}
    said = "EPYC, 8 cores, 16 GiB"
    assert found((None, one), (None, one))["machines"] == [said]
    both = [f"{said} (1 trials)", f"{said}; GPU: H200, 140 GiB (1 trials)"]
    assert found((None, one), (None, gpu))["machines"] == both


def test_a_trial_says_where_each_attempt_and_each_worker_ran(make_row, make_point, make_measurement):
    spec = make_row("emso", (1,))
    about = {"trial_id": spec.trial_id, "spec": spec.model_dump(mode="json"), "hardware": MACHINE}
    started = [Started(**about, node=node) for node in ("", "a", "b", "a")]
    assert describe_hosts(results.trial_results(spec, started)) == "a, then b"
    point = make_point(spec, 1, worker_nodes=("a", "c", "a"))
    measured = [started[1], point, make_measurement(spec, 1, "memorization", key=spec.evaluators[0].key)]
    assert describe_hosts(results.trial_results(spec, measured)) == "a; workers on a, c"


def test_every_version_that_measured_is_named(found):
    of = {"versions": {"lethe": "0.1.0"}}
    first, second = of | {"commit": "a" * 40}, of | {"commit": "b" * 40 + "-dirty"}
    assert found((None, of), (None, of))["lethe"] == "0.1.0"
    told = found((None, first), (None, second))["lethe"]
    assert told == "0.1.0 (commit aaaaaaaaaa), 0.1.0 (commit bbbbbbbbbb, with changes)"


def test_the_command_has_what_was_changed_as_a_shell_reads_it(found):
    told = found((None, {}), overrides=("seeds=[0, 1]",))
    assert told["sweep_command"] == "lethe sweep s.yaml --set 'seeds=[0, 1]'"
    assert told["collate_command"] == "lethe collate results/s"


def test_the_journal_says_when_and_a_record_is_the_same_for_that(tmp_path):
    before = datetime.now(UTC).replace(microsecond=0)
    record = Failed(trial_id="t", error="E", log=())
    journal.Journal(tmp_path).append(record)
    [read] = journal.Journal(tmp_path).read("t")
    assert before <= parse_time(read.at) <= before + timedelta(minutes=5)
    assert (read, repr(read)) == (record, repr(record))
